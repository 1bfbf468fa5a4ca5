//! The values of the symbols of declared dimensions in one call.

use std::collections::BTreeMap;

use super::Dimension;
use super::dimensions::{Declared, Sizes, extent};
use super::expression::{Expression, Solution};

/// The most symbols that a message explains, each with the name of a buffer.
const MOST_EXPLAINED: usize = 4;

/// The values of `..` and of the symbols in one call, each with the buffer that determined it.
#[derive(Debug, Default)]
pub(super) struct Bindings<'a> {
    any: Option<(Vec<usize>, String)>,
    symbols: BTreeMap<&'a str, (usize, String)>,
}

/// A dimension whose expression waits for one of the symbols.
#[derive(Debug)]
pub(super) struct Open<'a> {
    /// The dimension's number, without those of `..`.
    dimension: usize,
    symbols: [&'a str; 2],
}

impl<'a> Bindings<'a> {
    /// The number of bound symbols.
    pub(super) fn len(&self) -> usize {
        self.symbols.len()
    }

    /// Adds the dimensions of the buffer `label`. They bind new symbols and must agree with bound
    /// ones. Returns those that were not compared: an expression waits for the symbols that it does
    /// not determine.
    ///
    /// # Errors
    /// The mismatch. Then the buffer binds nothing.
    pub(super) fn unify(
        &mut self,
        declared: &'a [Dimension],
        found: &[usize],
        label: &str,
    ) -> Result<Vec<Open<'a>>, String> {
        let (least, takes_more) = extent(declared);
        let fits = if takes_more {
            found.len() >= least
        } else {
            found.len() == least
        };
        if !fits {
            return Err(self.mismatch(declared, found, label));
        }
        let (any, single) = found.split_at(found.len() - least);
        let mut new: BTreeMap<&'a str, usize> = BTreeMap::new();
        let mut agrees = !takes_more || self.any.as_ref().is_none_or(|(known, _)| known == any);
        let mut open = Vec::new();
        let declared_single = &declared[usize::from(takes_more)..];
        for (number, (dimension, &size)) in declared_single.iter().zip(single).enumerate() {
            agrees &= match dimension {
                // Only the first entry can be `..`, which `any` covers.
                Dimension::Any => true,
                Dimension::Size(expected) => *expected == size,
                Dimension::Symbol(symbol) => match self.symbols.get(symbol.as_str()) {
                    Some((known, _)) => *known == size,
                    None => *new.entry(symbol).or_insert(size) == size,
                },
                Dimension::Expression(expression) => {
                    match self.solve(expression, size, &mut new) {
                        Solution::Open(symbols) => open.push(Open {
                            dimension: number,
                            symbols,
                        }),
                        Solution::Differs => agrees = false,
                        Solution::Fits | Solution::Symbol(..) => {}
                    }
                    true
                }
            };
        }
        if !agrees {
            return Err(self.mismatch(declared, found, label));
        }
        if takes_more && self.any.is_none() {
            self.any = Some((any.to_vec(), label.to_owned()));
        }
        self.bind(new, label);
        Ok(open)
    }

    /// Compares the dimensions that are still open, as [`unify`](Self::unify) does, if symbols that
    /// they wait for are bound.
    pub(super) fn unify_open(
        &mut self,
        declared: &'a [Dimension],
        found: &[usize],
        open: &mut Vec<Open<'a>>,
        label: &str,
    ) -> Result<(), String> {
        let (least, takes_more) = extent(declared);
        let single = &found[found.len() - least..];
        let mut new: BTreeMap<&'a str, usize> = BTreeMap::new();
        let mut agrees = true;
        open.retain_mut(|one| {
            let is_bound =
                |symbol: &&str| self.symbols.contains_key(*symbol) || new.contains_key(*symbol);
            let declared = &declared[usize::from(takes_more) + one.dimension];
            let Dimension::Expression(expression) = declared else {
                return false;
            };
            if !one.symbols.iter().any(is_bound) {
                return true;
            }
            match self.solve(expression, single[one.dimension], &mut new) {
                Solution::Open(symbols) => {
                    one.symbols = symbols;
                    return true;
                }
                Solution::Differs => agrees = false,
                Solution::Fits | Solution::Symbol(..) => {}
            }
            false
        });
        if !agrees {
            return Err(self.mismatch(declared, found, label));
        }
        self.bind(new, label);
        Ok(())
    }

    /// Compares an expression with a size, which can bind a new symbol.
    fn solve(
        &self,
        expression: &'a Expression,
        size: usize,
        new: &mut BTreeMap<&'a str, usize>,
    ) -> Solution<'a> {
        let known = |symbol: &str| self.size(symbol).or(new.get(symbol).copied());
        let solution = expression.solve(size, known);
        if let Solution::Symbol(symbol, size) = solution {
            new.insert(symbol, size);
        }
        solution
    }

    fn bind(&mut self, new: BTreeMap<&'a str, usize>, label: &str) {
        let new = new.into_iter();
        self.symbols
            .extend(new.map(|(symbol, size)| (symbol, (size, label.to_owned()))));
    }

    fn size(&self, symbol: &str) -> Option<usize> {
        self.symbols.get(symbol).map(|(size, _)| *size)
    }

    /// The sizes of these dimensions.
    ///
    /// # Errors
    /// The first entry without a size.
    pub(super) fn resolve<'d>(
        &self,
        declared: &'d [Dimension],
    ) -> Result<Vec<usize>, Unresolved<'d>> {
        let mut sizes = Vec::new();
        for dimension in declared {
            match dimension {
                Dimension::Any => {
                    let (any, _) = self.any.as_ref().ok_or(Unresolved::Unknown(".."))?;
                    sizes.extend_from_slice(any);
                }
                Dimension::Size(size) => sizes.push(*size),
                Dimension::Symbol(symbol) => {
                    sizes.push(self.size(symbol).ok_or(Unresolved::Unknown(symbol))?);
                }
                Dimension::Expression(expression) => {
                    let mut symbols = expression.symbols();
                    if let Some(unknown) = symbols.find(|symbol| self.size(symbol).is_none()) {
                        return Err(Unresolved::Unknown(unknown));
                    }
                    let size = expression.evaluate(|symbol| self.size(symbol));
                    sizes.push(size.ok_or(Unresolved::NoSize(expression))?);
                }
            }
        }
        Ok(sizes)
    }

    /// The message for a result with an expression that has no size.
    pub(super) fn no_size(
        &self,
        expression: &Expression,
        declared: &[Dimension],
        label: &str,
    ) -> String {
        format!(
            "Wrong buffer dimensions: expected {label}: {}{} but {expression} is no size",
            Declared(declared),
            self.explained(declared)
        )
    }

    /// The message for a buffer with a symbol that no buffer of the call determines.
    pub(super) fn undetermined(
        &self,
        declared: &[Dimension],
        found: &[usize],
        label: &str,
    ) -> String {
        let symbols = declared.iter().filter_map(|dimension| match dimension {
            Dimension::Expression(expression) => Some(expression.symbols()),
            _ => None,
        });
        let unknown = symbols.flatten().find(|symbol| self.size(symbol).is_none());
        format!(
            "{}, and no dimension determines {}",
            self.mismatch(declared, found, label),
            unknown.unwrap_or("its symbols")
        )
    }

    /// The message, in XLA's words, with the values of `..` and the symbols so far.
    fn mismatch(&self, declared: &[Dimension], found: &[usize], label: &str) -> String {
        format!(
            "Wrong buffer dimensions: expected {label}: {}{} but got {}",
            Declared(declared),
            self.explained(declared),
            Sizes(found)
        )
    }

    /// The values of `..`, of the symbols and of the expressions of these dimensions so far.
    fn explained(&self, declared: &[Dimension]) -> String {
        let mut known: Vec<String> = Vec::new();
        let of_symbol = |symbol: &str| {
            let (size, from) = self.symbols.get(symbol)?;
            Some(format!("{symbol} = {size} (from {from})"))
        };
        for (i, dimension) in declared.iter().enumerate() {
            // A repeated symbol is explained once.
            if known.len() == MOST_EXPLAINED || declared[..i].contains(dimension) {
                continue;
            }
            match dimension {
                Dimension::Any => {
                    if let Some((any, from)) = &self.any {
                        known.push(format!(".. = {} (from {from})", Sizes(any)));
                    }
                }
                Dimension::Symbol(symbol) => known.extend(of_symbol(symbol)),
                Dimension::Expression(expression) => {
                    for symbol in expression.symbols() {
                        let of_symbol = of_symbol(symbol).filter(|text| !known.contains(text));
                        known.extend(of_symbol);
                    }
                    let size = expression.evaluate(|symbol| self.size(symbol));
                    known.extend(size.map(|size| format!("{expression} = {size}")));
                }
                Dimension::Size(_) => {}
            }
        }
        known.truncate(MOST_EXPLAINED);
        if known.is_empty() {
            String::new()
        } else {
            format!(" with {}", known.join(", "))
        }
    }
}

/// Why declared dimensions have no sizes.
#[derive(Debug)]
pub(super) enum Unresolved<'d> {
    /// No operand determines a symbol or `..`.
    Unknown(&'d str),
    /// An expression is negative or has no value.
    NoSize(&'d Expression),
}
