//! The parser: recursive descent with a bound on the depth.

use super::ast::{
    AttributePart, AttributeReference, Comparison, Fact, Function, Link, Node, Operator, Part, Side,
};
use super::lexer::{Token, tokens};
use super::{MAX_DEPTH, Problem};

/// The operators of chains, loosest first. Comparisons are between the second and the third level.
const LEVELS: [&[Operator]; 4] = [
    &[Operator::Or],
    &[Operator::And],
    &[Operator::Add, Operator::Subtract],
    &[Operator::Multiply, Operator::Divide, Operator::Remainder],
];

/// The level whose operands are comparisons.
const ABOVE_COMPARISONS: usize = 1;

const COMPARISONS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<", Comparison::Less),
    ("<=", Comparison::LessOrEqual),
    (">", Comparison::Greater),
    (">=", Comparison::GreaterOrEqual),
];

/// The names that an expression can begin with, except functions of integers.
const NAMES: [&str; 8] = [
    "operands",
    "results",
    "attributes",
    "opaque",
    "opaque_u32",
    "has",
    "if",
    "true",
];

/// The properties of a leaf.
const FACTS: [&str; 6] = [
    "elements",
    "bytes",
    "rank",
    "dims",
    "element_size",
    "element_type",
];

/// Parses a whole expression.
pub(super) fn parse(text: &str) -> Result<Node, Problem> {
    let mut parser = Parser {
        tokens: tokens(text)?,
        next: 0,
        depth: 0,
    };
    let node = parser.expression()?;
    match parser.peek() {
        Token::End => Ok(node),
        _ => Err(parser.unexpected("an operator or the expression's end")),
    }
}

struct Parser {
    /// The last token is the end, which is never taken.
    tokens: Vec<(Token, usize)>,
    next: usize,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.next].0
    }

    fn column(&self) -> usize {
        self.tokens[self.next].1
    }

    /// Takes the next token, unless it is the end.
    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        if token != Token::End {
            self.next += 1;
        }
        token
    }

    fn takes(&mut self, symbol: &str) -> bool {
        let is_next = matches!(self.peek(), Token::Symbol(found) if *found == symbol);
        if is_next {
            self.next += 1;
        }
        is_next
    }

    fn expect(&mut self, symbol: &str) -> Result<(), Problem> {
        if self.takes(symbol) {
            Ok(())
        } else {
            Err(self.unexpected(&format!("\"{symbol}\"")))
        }
    }

    fn unexpected(&self, expected: &str) -> Problem {
        let found = self.peek().shown();
        Problem::new(self.column(), format!("expected {expected}, found {found}"))
    }

    /// Runs `read` one level deeper.
    fn deeper<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        if self.depth == MAX_DEPTH {
            let message =
                format!("expected an expression that nests at most {MAX_DEPTH} deep, found more");
            return Err(Problem::new(self.column(), message));
        }
        self.depth += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn expression(&mut self) -> Result<Node, Problem> {
        self.deeper(|parser| parser.level(0))
    }

    /// The operators of one level, and of all levels that bind tighter.
    fn level(&mut self, level: usize) -> Result<Node, Problem> {
        let first = self.tighter(level)?;
        let mut links = Vec::new();
        loop {
            let column = self.column();
            let operator = LEVELS[level].iter().copied();
            let Some(operator) = operator.into_iter().find(|o| self.takes(o.symbol())) else {
                break;
            };
            let right = self.tighter(level)?;
            links.push(Link {
                operator,
                column,
                right,
            });
        }
        // Most chains have one, and a vector makes room for four.
        links.shrink_to_fit();
        if links.is_empty() {
            Ok(first)
        } else {
            Ok(node(first.column, Part::Chain(Box::new(first), links)))
        }
    }

    fn tighter(&mut self, level: usize) -> Result<Node, Problem> {
        match level {
            ABOVE_COMPARISONS => self.comparison(),
            _ if level + 1 < LEVELS.len() => self.level(level + 1),
            _ => self.unary(),
        }
    }

    fn comparison(&mut self) -> Result<Node, Problem> {
        let left = self.level(ABOVE_COMPARISONS + 1)?;
        let Some(comparison) = self.takes_comparison() else {
            return Ok(left);
        };
        let right = self.level(ABOVE_COMPARISONS + 1)?;
        let column = self.column();
        if self.takes_comparison().is_some() {
            let message = "expected one comparison, found another; join them with &&";
            return Err(Problem::new(column, message));
        }
        let column = left.column;
        let part = Part::Compare(Box::new(left), comparison, Box::new(right));
        Ok(node(column, part))
    }

    fn takes_comparison(&mut self) -> Option<Comparison> {
        COMPARISONS
            .into_iter()
            .find_map(|(symbol, comparison)| self.takes(symbol).then_some(comparison))
    }

    fn unary(&mut self) -> Result<Node, Problem> {
        let column = self.column();
        if self.takes("-") {
            let inner = self.deeper(Self::unary)?;
            return Ok(node(column, Part::Negate(Box::new(inner))));
        }
        if self.takes("!") {
            let inner = self.deeper(Self::unary)?;
            return Ok(node(column, Part::Not(Box::new(inner))));
        }
        self.primary()
    }

    fn primary(&mut self) -> Result<Node, Problem> {
        let column = self.column();
        if self.takes("(") {
            let inner = self.expression()?;
            self.expect(")")?;
            return Ok(inner);
        }
        let part = match self.peek().clone() {
            Token::Integer(value) => Part::Integer(value),
            Token::Float(value) => Part::Float(value),
            Token::Text(text) => Part::Text(text),
            Token::Name(name) => {
                self.take();
                return Ok(node(column, self.named(&name, column)?));
            }
            Token::Symbol(_) | Token::End => return Err(self.unexpected("a value")),
        };
        self.take();
        Ok(node(column, part))
    }

    fn named(&mut self, name: &str, column: usize) -> Result<Part, Problem> {
        match name {
            "true" => Ok(Part::Boolean(true)),
            "false" => Ok(Part::Boolean(false)),
            "operands" => self.side(Side::Operands),
            "results" => self.side(Side::Results),
            "attributes" => self.attribute().map(Part::Attribute),
            "opaque" => self.property("bytes").map(|()| Part::OpaqueBytes),
            "opaque_u32" => self.opaque_u32(),
            "has" => self.has(),
            "if" => self.choice(),
            _ => match Function::ALL.into_iter().find(|f| f.name() == name) {
                Some(function) => self.call(function),
                None => {
                    let functions = Function::ALL.map(Function::name);
                    let known = NAMES.into_iter().chain(functions);
                    Err(unknown(column, "a name", name, known))
                }
            },
        }
    }

    /// Parses the rest of an expression that begins with `operands` or `results`.
    fn side(&mut self, side: Side) -> Result<Part, Problem> {
        if !self.takes("[") {
            return self.property("count").map(|()| Part::Count(side));
        }
        let column = self.column();
        let leaf = match self.take() {
            Token::Integer(value) => usize::try_from(value).ok(),
            _ => None,
        };
        let Some(leaf) = leaf else {
            let message = format!("expected the number of one of the {side}, such as 0");
            return Err(Problem::new(column, message));
        };
        self.expect("]")?;
        self.expect(".")?;
        let column = self.column();
        let fact = match self.name()?.as_str() {
            "elements" => Fact::Elements,
            "bytes" => Fact::Bytes,
            "rank" => Fact::Rank,
            "element_size" => Fact::ElementSize,
            "element_type" => Fact::ElementType,
            "dims" => {
                self.expect("[")?;
                let index = self.expression()?;
                self.expect("]")?;
                Fact::Dimension(Box::new(index))
            }
            other => {
                let expected = format!("one of {}", FACTS.join(", "));
                return Err(unknown(column, &expected, other, FACTS.into_iter()));
            }
        };
        Ok(Part::Shape { side, leaf, fact })
    }

    fn name(&mut self) -> Result<String, Problem> {
        match self.peek().clone() {
            Token::Name(name) => {
                self.take();
                Ok(name)
            }
            _ => Err(self.unexpected("a name")),
        }
    }

    /// The only property of what precedes it: `.name`.
    fn property(&mut self, name: &'static str) -> Result<(), Problem> {
        self.expect(".")?;
        let column = self.column();
        let found = self.name()?;
        if found == name {
            Ok(())
        } else {
            Err(unknown(column, name, &found, [name].into_iter()))
        }
    }

    /// Parses the rest of an expression that begins with `attributes`.
    fn attribute(&mut self) -> Result<AttributeReference, Problem> {
        let name = self.attribute_name()?;
        let of = if self.takes("[") {
            let index = self.expression()?;
            self.expect("]")?;
            AttributePart::Element(Box::new(index))
        } else if matches!(self.peek(), Token::Symbol(".")) {
            self.property("count")?;
            AttributePart::Count
        } else {
            AttributePart::Value
        };
        Ok(AttributeReference { name, of })
    }

    fn attribute_name(&mut self) -> Result<String, Problem> {
        if self.takes(".") {
            return self.name();
        }
        let message = "expected an attribute's name, as in attributes.n";
        Err(Problem::new(self.column(), message))
    }

    fn opaque_u32(&mut self) -> Result<Part, Problem> {
        self.expect("(")?;
        let offset = self.expression()?;
        self.expect(")")?;
        Ok(Part::OpaqueU32(Box::new(offset)))
    }

    fn has(&mut self) -> Result<Part, Problem> {
        self.expect("(")?;
        if self.name()? != "attributes" {
            return Err(self.unexpected("has(attributes.NAME)"));
        }
        let name = self.attribute_name()?;
        self.expect(")")?;
        Ok(Part::Has(name))
    }

    fn choice(&mut self) -> Result<Part, Problem> {
        let arguments = self.arguments()?;
        let column = self.column();
        match <[Node; 3]>::try_from(arguments) {
            Ok(arguments) => Ok(Part::If(Box::new(arguments))),
            Err(arguments) => {
                let found = arguments.len();
                let message = format!("expected if(condition, a, b): 3 arguments, found {found}");
                Err(Problem::new(column, message))
            }
        }
    }

    fn call(&mut self, function: Function) -> Result<Part, Problem> {
        let column = self.column();
        let arguments = self.arguments()?;
        let most = function.most_arguments();
        if (2..=most).contains(&arguments.len()) {
            return Ok(Part::Call(function, arguments));
        }
        let more = if most > 2 { " or more" } else { "" };
        let message = format!(
            "expected 2{more} arguments of {}, found {}",
            function.name(),
            arguments.len()
        );
        Err(Problem::new(column, message))
    }

    fn arguments(&mut self) -> Result<Vec<Node>, Problem> {
        self.expect("(")?;
        let mut arguments = vec![self.expression()?];
        while self.takes(",") {
            arguments.push(self.expression()?);
        }
        if self.takes(")") {
            Ok(arguments)
        } else {
            Err(self.unexpected("\",\" or \")\""))
        }
    }
}

fn node(column: usize, part: Part) -> Node {
    Node { column, part }
}

/// The problem of an unknown name.
pub(super) fn unknown<'a>(
    column: usize,
    expected: &str,
    found: &str,
    known: impl Iterator<Item = &'a str>,
) -> Problem {
    let suggestion = super::nearest(found, known);
    Problem::new(
        column,
        format!("expected {expected}, found {found:?}{suggestion}"),
    )
}
