//! Declared dimensions: what a target says of the extents of its operands and results, and whether those of a call site agree with it.

use std::collections::BTreeMap;
use std::fmt;

use super::{BufferSignature, Signature};
use crate::values::ArrayShape;

/// The trait of a target each element of whose results depends on the elements of its operands in the same place alone.
pub(crate) const ELEMENTWISE: &str = "elementwise";

/// The trait of a target whose results depend on nothing but operands and attributes.
pub(crate) const PURE: &str = "pure";

/// How many dimensions a message lists.
const MOST: usize = 16;

/// How many of those that stand for something a message explains. Each comes with the name of a buffer.
const MOST_EXPLAINED: usize = 4;

/// How much of a buffer's name is in a message about it, in bytes. Names are a stranger's, and each buffer may be wrong.
const MAX_LABEL: usize = 64;

/// One entry of the dimensions that an operand or result is declared with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Dimension {
    /// Any number of dimensions, the same ones wherever the target says so. It comes first, and once: `..`.
    Any,
    /// A dimension of this size.
    Size(usize),
    /// A dimension of any size, the same one wherever the target says this symbol: `n`.
    Symbol(String),
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str(".."),
            Self::Size(size) => size.fmt(f),
            Self::Symbol(symbol) => f.write_str(symbol),
        }
    }
}

/// How many dimensions there are at least, and whether there can be more.
pub(super) fn extent(dimensions: &[Dimension]) -> (usize, bool) {
    let takes_more = dimensions.first() == Some(&Dimension::Any);
    (dimensions.len() - usize::from(takes_more), takes_more)
}

/// What `..` and the symbols of one call stand for, and the buffer that said so first.
#[derive(Debug, Default)]
pub(super) struct Bindings<'a> {
    any: Option<(Vec<usize>, String)>,
    symbols: BTreeMap<&'a str, (usize, String)>,
}

impl<'a> Bindings<'a> {
    /// Takes the dimensions of a buffer, by the name `label`: they say what stands for nothing yet, and have to agree with the rest.
    ///
    /// # Errors
    /// What is wrong. Then nothing is taken from this buffer.
    pub(super) fn unify(
        &mut self,
        declared: &'a [Dimension],
        found: &[usize],
        label: &str,
    ) -> Result<(), String> {
        let (least, takes_more) = extent(declared);
        let fits = match takes_more {
            true => found.len() >= least,
            false => found.len() == least,
        };
        if !fits {
            return Err(self.mismatch(declared, found, label));
        }
        let (any, single) = found.split_at(found.len() - least);
        let mut new: BTreeMap<&'a str, usize> = BTreeMap::new();
        let mut agrees = !takes_more || self.any.as_ref().is_none_or(|(known, _)| known == any);
        let declared_single = &declared[usize::from(takes_more)..];
        for (dimension, &size) in declared_single.iter().zip(single) {
            agrees &= match dimension {
                // Only the first entry is one, and it is dealt with.
                Dimension::Any => true,
                Dimension::Size(expected) => *expected == size,
                Dimension::Symbol(symbol) => match self.symbols.get(symbol.as_str()) {
                    Some((known, _)) => *known == size,
                    None => *new.entry(symbol).or_insert(size) == size,
                },
            };
        }
        if !agrees {
            return Err(self.mismatch(declared, found, label));
        }
        if takes_more && self.any.is_none() {
            self.any = Some((any.to_vec(), label.to_owned()));
        }
        let new = new.into_iter();
        self.symbols
            .extend(new.map(|(symbol, size)| (symbol, (size, label.to_owned()))));
        Ok(())
    }

    /// The sizes that these dimensions stand for.
    ///
    /// # Errors
    /// The first entry that no operand says anything of.
    pub(super) fn resolve<'d>(
        &self,
        declared: &'d [Dimension],
    ) -> Result<Vec<usize>, &'d Dimension> {
        let mut sizes = Vec::new();
        for dimension in declared {
            match dimension {
                Dimension::Any => {
                    let (any, _) = self.any.as_ref().ok_or(dimension)?;
                    sizes.extend_from_slice(any);
                }
                Dimension::Size(size) => sizes.push(*size),
                Dimension::Symbol(symbol) => {
                    let (size, _) = self.symbols.get(symbol.as_str()).ok_or(dimension)?;
                    sizes.push(*size);
                }
            }
        }
        Ok(sizes)
    }

    /// In XLA's words, with what `..` and the symbols stand for so far.
    fn mismatch(&self, declared: &[Dimension], found: &[usize], label: &str) -> String {
        let mut known: Vec<String> = Vec::new();
        for (i, dimension) in declared.iter().enumerate() {
            // A symbol that comes twice is explained once.
            if known.len() == MOST_EXPLAINED || declared[..i].contains(dimension) {
                continue;
            }
            match dimension {
                Dimension::Any => {
                    if let Some((any, from)) = &self.any {
                        known.push(format!(".. = {} (from {from})", Sizes(any)));
                    }
                }
                Dimension::Symbol(symbol) => {
                    if let Some((size, from)) = self.symbols.get(symbol.as_str()) {
                        known.push(format!("{symbol} = {size} (from {from})"));
                    }
                }
                Dimension::Size(_) => {}
            }
        }
        let with = match known.is_empty() {
            true => String::new(),
            false => format!(" with {}", known.join(", ")),
        };
        format!(
            "Wrong buffer dimensions: expected {label}: {}{with} but got {}",
            Declared(declared),
            Sizes(found)
        )
    }
}

/// Declared dimensions, as they are written in a target: `[.., n, 4]`.
pub(super) struct Declared<'a>(pub(super) &'a [Dimension]);

impl fmt::Display for Declared<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, self.0, ", ")
    }
}

/// The dimensions of an array, as XLA writes them: `[2,3]`.
pub(super) struct Sizes<'a>(pub(super) &'a [usize]);

impl fmt::Display for Sizes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, self.0, ",")
    }
}

fn list<T: fmt::Display>(f: &mut fmt::Formatter<'_>, items: &[T], separator: &str) -> fmt::Result {
    f.write_str("[")?;
    for (i, item) in items.iter().take(MOST).enumerate() {
        f.write_str(if i == 0 { "" } else { separator })?;
        item.fmt(f)?;
    }
    match items.len() > MOST {
        true => write!(f, "{separator}... {} in all]", items.len()),
        false => f.write_str("]"),
    }
}

/// How a message names an operand or result: by its name, or by its number if it has none.
pub(super) fn label(declared: Option<&BufferSignature>, what: &str, number: usize) -> String {
    match declared.map(|buffer| buffer.name.as_str()) {
        None | Some("") => format!("{what} {number}"),
        Some(name) if name.len() <= MAX_LABEL => name.to_owned(),
        Some(name) => format!("{}...", &name[..name.floor_char_boundary(MAX_LABEL)]),
    }
}

/// The dimensions that all operands of an elementwise target have, but for those of rank 0, and all of its results.
#[derive(Debug, Default)]
pub(super) struct Common {
    first: Option<(Vec<usize>, String)>,
}

impl Common {
    /// Takes an operand's dimensions, or a result's.
    ///
    /// # Errors
    /// What is wrong, in XLA's words.
    pub(super) fn unify(
        &mut self,
        found: &ArrayShape,
        is_operand: bool,
        label: &str,
    ) -> Result<(), String> {
        if is_operand && found.rank() == 0 {
            return Ok(());
        }
        match &self.first {
            None => {
                self.first = Some((found.dimensions().to_vec(), label.to_owned()));
                Ok(())
            }
            Some((expected, _)) if expected == found.dimensions() => Ok(()),
            Some((expected, from)) => Err(format!(
                "Wrong buffer dimensions: expected {label}: {} as {from} has them, because the target is elementwise, but got {}",
                Sizes(expected),
                Sizes(found.dimensions())
            )),
        }
    }

    /// The dimensions of results: none if all operands are of rank 0.
    pub(super) fn into_dimensions(self) -> Vec<usize> {
        self.first.map(|(sizes, _)| sizes).unwrap_or_default()
    }
}

/// Checks that the dimensions that an elementwise target declares are such that it takes any of their rank, the same ones for all of its
/// operands, but for those of rank 0, and all of its results.
///
/// # Errors
/// What was expected and what was found.
pub(crate) fn check_elementwise(signature: &Signature) -> Result<(), String> {
    if !signature.has_trait(ELEMENTWISE) {
        return Ok(());
    }
    let typed = crate::call::ApiVersion::TypedFfi;
    if let Some(other) = signature.api_versions.iter().find(|v| **v != typed) {
        return Err(format!(
            "expected a target of the trait elementwise to be called by {typed} alone, found {other}"
        ));
    }
    let operands = signature.operands.as_deref().unwrap_or_default().iter();
    let results = signature.results.as_deref().unwrap_or_default().iter();
    let numbered = operands
        .enumerate()
        .filter(|(_, buffer)| buffer.rank != Some(0))
        .map(|(i, buffer)| (buffer, "operand", i));
    let numbered = numbered.chain(results.enumerate().map(|(i, buffer)| (buffer, "result", i)));
    // The first buffer that declares a list, and the first whose rank is known.
    let mut first_list: Option<(&BufferSignature, String)> = None;
    let mut first_rank: Option<(&BufferSignature, String)> = None;
    for (buffer, what, number) in numbered {
        let label = label(Some(buffer), what, number);
        let dimensions = buffer.dimensions.as_deref().unwrap_or_default();
        for (i, dimension) in dimensions.iter().enumerate() {
            let is_size = matches!(dimension, Dimension::Size(_));
            if is_size || dimensions[..i].contains(dimension) {
                return Err(format!(
                    "expected a target of the trait elementwise to take any dimensions of a rank, found {label}: {}",
                    Declared(dimensions)
                ));
            }
        }
        let mut firsts = first_list.iter().chain(&first_rank);
        if let Some((other, from)) = firsts.find(|(other, _)| !is_alike(other, buffer)) {
            return Err(format!(
                "expected a target of the trait elementwise to declare the same dimensions for its operands and results, found {from}: {} and {label}: {}",
                Extent(other),
                Extent(buffer)
            ));
        }
        if buffer.dimensions.is_some() {
            first_list.get_or_insert_with(|| (buffer, label.clone()));
        }
        if buffer.rank.is_some() {
            first_rank.get_or_insert((buffer, label));
        }
    }
    Ok(())
}

/// Whether two buffers can have the same dimensions by what they declare, whatever these are.
fn is_alike(a: &BufferSignature, b: &BufferSignature) -> bool {
    let lists = a.dimensions.as_ref().zip(b.dimensions.as_ref());
    let ranks = a.rank.zip(b.rank);
    let is_long_enough = |rank: Option<usize>, dimensions: Option<&[Dimension]>| {
        let both = rank.zip(dimensions);
        both.is_none_or(|(rank, dimensions)| rank >= extent(dimensions).0)
    };
    lists.is_none_or(|(a, b)| a == b)
        && ranks.is_none_or(|(a, b)| a == b)
        && is_long_enough(a.rank, b.dimensions.as_deref())
        && is_long_enough(b.rank, a.dimensions.as_deref())
}

/// What a buffer declares of its dimensions, between brackets.
pub(super) struct Extent<'a>(pub(super) &'a BufferSignature);

impl fmt::Display for Extent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0.dimensions, self.0.rank) {
            (Some(dimensions), _) => Declared(dimensions).fmt(f),
            (None, Some(rank)) => write!(f, "[{}]", vec!["?"; rank].join(",")),
            (None, None) => f.write_str("[...]"),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
