//! Dimensions that are computed from others: `n/2`, `2*n+1`.
//!
//! The text comes from metadata, which is untrusted. It is as short as a symbol, and is read and
//! evaluated without recursion, in numbers of 128 bits whose overflow is no size.

use std::fmt;

/// The longest symbol or expression, in bytes.
pub(super) const MAX_TEXT: usize = 64;

/// A size that is computed from the sizes of other dimensions, with `+`, `-`, `*`, `/`, which
/// rounds down, and parentheses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Expression {
    /// The expression without spaces.
    text: Box<str>,
    /// The same in postfix notation. A manifest can have a hundred thousand expressions.
    steps: Box<[Step]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// Of 64 bits.
    Number(Place),
    Symbol(Place),
    /// Takes the two values before it.
    Operator(u8),
}

/// A part of an expression's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    start: u8,
    end: u8,
}

/// What an expression says about the size of a dimension.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Solution<'a> {
    /// The expression has this size.
    Fits,
    /// The expression has another size, or none, whatever the unknown symbol is.
    Differs,
    /// The expression has this size if the unknown symbol is this number.
    Symbol(&'a str, usize),
    /// Symbols are unknown that the size does not determine: it is open for as long as these are.
    Open([&'a str; 2]),
}

/// `slope * unknown + constant`.
#[derive(Clone, Copy, Debug)]
struct Linear {
    slope: i128,
    constant: i128,
}

/// How an expression depends on the unknown symbol, whatever the other sizes are.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// Not at all. Its value, if that depends on no size.
    Constant(Option<i128>),
    /// By a factor: its value, if that depends on no size, is not zero.
    Linear(Option<i128>),
}

/// Why an expression has no value of the form [`Linear`].
#[derive(Debug, PartialEq, Eq)]
enum NoValue {
    /// It is not linear in the unknown symbol, or several are unknown.
    Open,
    /// A number overflows, or is divided by zero.
    Undefined,
}

/// A dimension as text: a size that was computed, or an expression.
pub(super) enum Parsed {
    Size(usize),
    Expression(Expression),
}

impl Expression {
    /// Returns the size, if the sizes of all symbols are known, and the result is one.
    #[must_use]
    pub fn evaluate(&self, size: impl Fn(&str) -> Option<usize>) -> Option<usize> {
        let value = self.linear(None, |symbol| size(symbol)).ok()?;
        usize::try_from(value.constant).ok()
    }

    /// Returns the symbols, in the order of the text. One that is repeated comes again.
    pub fn symbols(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().filter_map(|step| match step {
            Step::Symbol(place) => Some(self.at(*place)),
            Step::Number(_) | Step::Operator(_) => None,
        })
    }

    fn at(&self, place: Place) -> &str {
        let range = usize::from(place.start)..usize::from(place.end);
        self.text.get(range).unwrap_or_default()
    }

    fn number(&self, place: Place) -> Option<i128> {
        self.at(place).parse().ok()
    }

    /// Compares the expression with the size of a dimension. The size determines at most one
    /// symbol, in which the expression is linear.
    pub(super) fn solve(&self, found: usize, size: impl Fn(&str) -> Option<usize>) -> Solution<'_> {
        let unknown = self.symbols().find(|symbol| size(symbol).is_none());
        let value = match self.linear(unknown, &size) {
            Ok(value) => value,
            Err(NoValue::Open) => {
                let first = unknown.unwrap_or_default();
                let mut others = self.symbols().filter(|symbol| size(symbol).is_none());
                let second = others.find(|symbol| *symbol != first);
                return Solution::Open([first, second.unwrap_or(first)]);
            }
            Err(NoValue::Undefined) => return Solution::Differs,
        };
        let Some(rest) = (found as i128).checked_sub(value.constant) else {
            return Solution::Differs;
        };
        match unknown {
            Some(symbol) if value.slope != 0 => {
                let quotient = divided(rest, value.slope).filter(|(_, remainder)| *remainder == 0);
                let size = quotient.and_then(|(size, _)| usize::try_from(size).ok());
                size.map_or(Solution::Differs, |size| Solution::Symbol(symbol, size))
            }
            _ if rest == 0 => Solution::Fits,
            _ => Solution::Differs,
        }
    }

    /// Returns the symbol that the size of the dimension determines, unless it is multiplied by a
    /// difference of sizes that is zero.
    pub(super) fn determines(&self, is_known: impl Fn(&str) -> bool) -> Option<&str> {
        let unknown = self.symbols().find(|symbol| !is_known(symbol))?;
        let mut forms: Vec<Form> = Vec::new();
        for step in &self.steps {
            let form = match step {
                Step::Number(place) => Form::Constant(self.number(*place)),
                Step::Symbol(place) if self.at(*place) == unknown => Form::Linear(Some(1)),
                Step::Symbol(place) if is_known(self.at(*place)) => Form::Constant(None),
                Step::Symbol(_) => return None,
                Step::Operator(operator) => {
                    let (right, left) = (forms.pop()?, forms.pop()?);
                    left.combined(*operator, right)?
                }
            };
            forms.push(form);
        }
        matches!(forms.pop()?, Form::Linear(_)).then_some(unknown)
    }

    /// Evaluates the expression, with one unknown symbol.
    fn linear(
        &self,
        unknown: Option<&str>,
        size: impl Fn(&str) -> Option<usize>,
    ) -> Result<Linear, NoValue> {
        let mut values: Vec<Linear> = Vec::new();
        for step in &self.steps {
            let value = match step {
                Step::Number(place) => constant(self.number(*place).ok_or(NoValue::Undefined)?),
                Step::Symbol(place) if unknown == Some(self.at(*place)) => Linear {
                    slope: 1,
                    constant: 0,
                },
                Step::Symbol(place) => {
                    constant(size(self.at(*place)).ok_or(NoValue::Open)? as i128)
                }
                Step::Operator(operator) => {
                    let (Some(right), Some(left)) = (values.pop(), values.pop()) else {
                        return Err(NoValue::Undefined);
                    };
                    left.combined(*operator, right)?
                }
            };
            values.push(value);
        }
        values.pop().ok_or(NoValue::Undefined)
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn constant(constant: i128) -> Linear {
    Linear { slope: 0, constant }
}

impl Form {
    /// `None` if the result is not linear for all sizes, or has no value.
    fn combined(self, operator: u8, right: Self) -> Option<Self> {
        use Form::{Constant, Linear};
        let both = |left: Option<i128>, right, operation: fn(i128, i128) -> Option<i128>| {
            left.zip(right)
                .map_or(Some(None), |(left, right)| operation(left, right).map(Some))
        };
        let linear = |slope: Option<i128>| match slope {
            Some(0) => Constant(None),
            slope => Linear(slope),
        };
        match (self, operator, right) {
            (Constant(left), b'+', Constant(right)) => {
                both(left, right, i128::checked_add).map(Constant)
            }
            (Constant(left), b'-', Constant(right)) => {
                both(left, right, i128::checked_sub).map(Constant)
            }
            (Constant(left), b'*', Constant(right)) => {
                both(left, right, i128::checked_mul).map(Constant)
            }
            (Constant(left), b'/', Constant(right)) => {
                both(left, right, divided_down).map(Constant)
            }
            (Linear(slope), b'+' | b'-', Constant(_)) | (Constant(_), b'+', Linear(slope)) => {
                Some(Linear(slope))
            }
            (Constant(_), b'-', Linear(slope)) => {
                both(Some(0), slope, i128::checked_sub).map(Linear)
            }
            (Linear(left), b'+', Linear(right)) => both(left, right, i128::checked_add).map(linear),
            (Linear(left), b'-', Linear(right)) => both(left, right, i128::checked_sub).map(linear),
            (Linear(slope), b'*', Constant(factor)) | (Constant(factor), b'*', Linear(slope)) => {
                both(slope, factor, i128::checked_mul).map(linear)
            }
            // Rounding is the same for all unknowns only if it concerns the rest alone.
            (Linear(Some(slope)), b'/', Constant(Some(divisor))) => divided(slope, divisor)
                .filter(|(_, rest)| *rest == 0)
                .map(|(slope, _)| Linear(Some(slope))),
            _ => None,
        }
    }
}

impl Linear {
    fn combined(self, operator: u8, right: Self) -> Result<Self, NoValue> {
        match operator {
            b'+' => self.each(right, i128::checked_add),
            b'-' => self.each(right, i128::checked_sub),
            b'*' if right.slope == 0 => self.times(right.constant),
            b'*' if self.slope == 0 => right.times(self.constant),
            b'/' if right.slope == 0 => self.over(right.constant),
            _ => Err(NoValue::Open),
        }
    }

    fn each(self, right: Self, operation: fn(i128, i128) -> Option<i128>) -> Result<Self, NoValue> {
        let slope = operation(self.slope, right.slope).ok_or(NoValue::Undefined)?;
        let constant = operation(self.constant, right.constant).ok_or(NoValue::Undefined)?;
        Ok(Self { slope, constant })
    }

    fn times(self, factor: i128) -> Result<Self, NoValue> {
        let product = |value: i128| value.checked_mul(factor).ok_or(NoValue::Undefined);
        Ok(Self {
            slope: product(self.slope)?,
            constant: product(self.constant)?,
        })
    }

    fn over(self, divisor: i128) -> Result<Self, NoValue> {
        let (slope, rest_of_slope) = divided(self.slope, divisor).ok_or(NoValue::Undefined)?;
        let constant = divided_down(self.constant, divisor).ok_or(NoValue::Undefined)?;
        // Rounding is the same for all unknowns only if it concerns the constant alone.
        if rest_of_slope != 0 {
            return Err(NoValue::Open);
        }
        Ok(Self { slope, constant })
    }
}

/// Returns the quotient, rounded towards zero, and the remainder.
fn divided(value: i128, divisor: i128) -> Option<(i128, i128)> {
    value.checked_div(divisor).zip(value.checked_rem(divisor))
}

/// Returns the quotient, rounded down.
fn divided_down(value: i128, divisor: i128) -> Option<i128> {
    let (quotient, rest) = divided(value, divisor)?;
    Some(quotient - i128::from(rest != 0 && (rest < 0) != (divisor < 0)))
}

/// Reads a dimension that is neither a plain symbol nor a number.
///
/// # Errors
/// The reason, to follow "found" and the text in a message.
pub(super) fn parse(text: &str) -> Result<Parsed, String> {
    let mut reader = Reader {
        text: String::new(),
        steps: Vec::new(),
        operators: Vec::new(),
        is_value_next: true,
    };
    let mut rest = text.trim_ascii();
    while let Some(first) = rest.bytes().next() {
        let is_word = |c: char| c == '_' || c.is_ascii_alphanumeric();
        let len = rest.find(|c| !is_word(c)).unwrap_or(rest.len()).max(1);
        let token = rest.get(..len).ok_or("which has other characters")?;
        reader.token(first, token)?;
        reader.text.push_str(token);
        rest = rest[len..].trim_ascii_start();
    }
    reader.finish()
}

/// Turns an expression into postfix notation.
struct Reader {
    text: String,
    steps: Vec<Step>,
    /// The operators and parentheses whose right side is being read.
    operators: Vec<u8>,
    is_value_next: bool,
}

impl Reader {
    fn token(&mut self, first: u8, token: &str) -> Result<(), String> {
        match (first, self.is_value_next) {
            (b'(', true) => self.operators.push(first),
            (b')', false) => {
                self.take_operators(1);
                if self.operators.pop().is_none() {
                    return Err("whose `)` has no `(`".to_owned());
                }
            }
            (b'+' | b'-' | b'*' | b'/', false) => {
                self.take_operators(precedence(first));
                self.operators.push(first);
                self.is_value_next = true;
            }
            (b'0'..=b'9', true) => {
                let number = token.parse::<u64>();
                number.map_err(|_| format!("whose {token} is no number"))?;
                let place = self.next(token)?;
                self.steps.push(Step::Number(place));
                self.is_value_next = false;
            }
            (b'_' | b'a'..=b'z' | b'A'..=b'Z', true) => {
                let place = self.next(token)?;
                self.steps.push(Step::Symbol(place));
                self.is_value_next = false;
            }
            (_, true) => {
                return Err(format!(
                    "which has {token:?} in place of a size or a symbol"
                ));
            }
            (_, false) => return Err(format!("which has {token:?} in place of an operator")),
        }
        Ok(())
    }

    /// The place of a token that follows the text so far.
    fn next(&self, token: &str) -> Result<Place, String> {
        let place = |at: usize| u8::try_from(at).map_err(|_| "which is too long".to_owned());
        let start = self.text.len();
        Ok(Place {
            start: place(start)?,
            end: place(start + token.len())?,
        })
    }

    /// Moves the operators of at least this precedence to the steps, up to a parenthesis.
    fn take_operators(&mut self, least: u8) {
        while let Some(operator) = self
            .operators
            .pop_if(|operator| precedence(*operator) >= least)
        {
            self.steps.push(Step::Operator(operator));
        }
    }

    fn finish(mut self) -> Result<Parsed, String> {
        if self.is_value_next {
            return Err("which lacks a size or a symbol at its end".to_owned());
        }
        self.take_operators(1);
        if !self.operators.is_empty() {
            return Err("whose `(` has no `)`".to_owned());
        }
        let expression = Expression {
            text: self.text.into(),
            steps: self.steps.into(),
        };
        if expression.symbols().next().is_some() {
            return Ok(Parsed::Expression(expression));
        }
        let size = expression.evaluate(|_| None);
        size.map(Parsed::Size)
            .ok_or_else(|| "which is no size".to_owned())
    }
}

/// The precedence of an operator. Parentheses have the lowest.
fn precedence(operator: u8) -> u8 {
    match operator {
        b'*' | b'/' => 2,
        b'+' | b'-' => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
