//! Declared dimensions of operands and results, and their agreement with a call site.

use std::collections::BTreeSet;
use std::fmt;

use super::expression::Expression;
use super::{BufferSignature, Signature};
use crate::values::ArrayShape;

/// The trait of a target whose result elements depend only on operand elements at the same index.
pub const ELEMENTWISE: &str = "elementwise";

/// The trait of a target that treats the dimensions `..` of its operands and results row by row: a
/// row of a result depends only on the same row of the operands that declare `..`, on the other
/// operands and on attributes.
pub const ROWS: &str = "rows";

/// The trait of a target that takes a batch: an entry of a result along the dimension [`BATCH`]
/// depends only on the same entry of the operands that declare it, on the other operands and on
/// attributes.
pub const BATCHED: &str = "batched";

/// The symbol of the dimension along which the arrays of a target of the trait `batched` have the
/// entries of a batch. It comes first.
pub const BATCH: &str = "batch";

/// The trait of a target whose results depend only on operands and attributes.
pub const PURE: &str = "pure";

/// The most dimensions that a message lists.
const MOST: usize = 16;

/// The most bytes of a name in a message. Names come from the module, which is untrusted, and every
/// buffer may have an error.
const MAX_LABEL: usize = 64;

/// One entry of the declared dimensions of an operand or result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Dimension {
    /// `..`: any number of dimensions, the same ones in every buffer. It comes first, and once.
    Any,
    /// A dimension of this size.
    Size(usize),
    /// `n`: a dimension of any size, the same size for every use of the symbol.
    Symbol(String),
    /// `n/2`: a size that is computed from symbols.
    Expression(Expression),
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str(".."),
            Self::Size(size) => size.fmt(f),
            Self::Symbol(symbol) => f.write_str(symbol),
            Self::Expression(expression) => expression.fmt(f),
        }
    }
}

/// The least number of dimensions, and whether there can be more.
pub(super) fn extent(dimensions: &[Dimension]) -> (usize, bool) {
    let takes_more = dimensions.first() == Some(&Dimension::Any);
    (dimensions.len() - usize::from(takes_more), takes_more)
}

/// The most times that the buffers of a target are gone through for the symbols that their
/// expressions determine.
pub(super) const MOST_PASSES: usize = 8;

/// Checks that the buffers of a target determine the symbols of all expressions.
///
/// # Errors
/// A message about the first expression for which they do not.
pub fn check_expressions(signature: &Signature) -> Result<(), String> {
    let buffers = || {
        let operands = signature.operands.iter().flatten().enumerate();
        let results = signature.results.iter().flatten().enumerate();
        let operands = operands.map(|(i, buffer)| (buffer, "operand", i));
        operands.chain(results.map(|(i, buffer)| (buffer, "result", i)))
    };
    let dimensions = || buffers().flat_map(|(buffer, ..)| buffer.dimensions.iter().flatten());
    let mut known: BTreeSet<&str> = dimensions()
        .filter_map(|dimension| match dimension {
            Dimension::Symbol(symbol) => Some(symbol.as_str()),
            _ => None,
        })
        .collect();
    for _ in 0..MOST_PASSES {
        let before = known.len();
        for dimension in dimensions() {
            if let Dimension::Expression(expression) = dimension {
                known.extend(expression.determines(|symbol| known.contains(symbol)));
            }
        }
        if known.len() == before {
            break;
        }
    }
    for (buffer, what, number) in buffers() {
        for dimension in buffer.dimensions.iter().flatten() {
            let Dimension::Expression(expression) = dimension else {
                continue;
            };
            if let Some(unknown) = expression.symbols().find(|symbol| !known.contains(symbol)) {
                return Err(format!(
                    "{}: no dimension determines {unknown} of {expression}: expected {unknown} as a dimension of its own, or in one such as 2*{unknown}+1",
                    label(Some(buffer), what, number)
                ));
            }
        }
    }
    Ok(())
}

/// Displays declared dimensions: `[.., n, 4]`.
pub(super) struct Declared<'a>(pub(super) &'a [Dimension]);

impl fmt::Display for Declared<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, self.0, ", ")
    }
}

/// Displays an array's dimensions as XLA does: `[2,3]`.
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
    if items.len() > MOST {
        write!(f, "{separator}... {} in all]", items.len())
    } else {
        f.write_str("]")
    }
}

/// The name of an operand or result in messages, or its number if it has no name.
pub(super) fn label(declared: Option<&BufferSignature>, what: &str, number: usize) -> String {
    match declared.map(|buffer| buffer.name.as_str()) {
        None | Some("") => format!("{what} {number}"),
        Some(name) => shortened(name),
    }
}

/// A name, cut to the length that messages allow.
pub(super) fn shortened(name: &str) -> String {
    let kept = &name[..name.floor_char_boundary(MAX_LABEL)];
    let end = if kept.len() < name.len() { "..." } else { "" };
    format!("{kept}{end}")
}

/// The dimensions of an elementwise target's results and of its operands other than scalars.
#[derive(Debug, Default)]
pub(super) struct Common {
    first: Option<(Vec<usize>, String)>,
}

impl Common {
    /// Adds the dimensions of an operand or result.
    ///
    /// # Errors
    /// The mismatch, in XLA's words.
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

    /// The dimensions of results; empty if all operands are scalars.
    pub(super) fn into_dimensions(self) -> Vec<usize> {
        self.first.map(|(sizes, _)| sizes).unwrap_or_default()
    }
}

/// Checks the declared dimensions of a target of the trait `rows`: each result declares `..`, and
/// so does an operand.
///
/// # Errors
/// A message about the first violation.
pub fn check_rows(signature: &Signature) -> Result<(), String> {
    if !signature.has_trait(ROWS) {
        return Ok(());
    }
    check_convention(signature, ROWS)?;
    let operands = signature.operands.as_deref().unwrap_or_default();
    let results = signature.results.as_deref().unwrap_or_default();
    let mut numbered = results.iter().enumerate();
    if let Some((number, result)) = numbered.find(|(_, result)| !has_rows(result)) {
        return Err(format!(
            "expected each result of a target of the trait rows to declare dimensions that begin with .., found {}: {}",
            label(Some(result), "result", number),
            Extent(result)
        ));
    }
    if results.is_empty() || signature.remaining_results || !operands.iter().any(has_rows) {
        return Err(
            "expected a target of the trait rows to declare its results, and an operand with dimensions that begin with .."
                .to_owned(),
        );
    }
    Ok(())
}

/// Checks the declared dimensions of a target of the trait `batched`: those of each result and of
/// an operand begin with `batch`, which is the symbol of no other dimension.
///
/// # Errors
/// A message about the first violation.
pub fn check_batched(signature: &Signature) -> Result<(), String> {
    if !signature.has_trait(BATCHED) {
        return Ok(());
    }
    check_convention(signature, BATCHED)?;
    if let Some(other) = [ELEMENTWISE, ROWS]
        .into_iter()
        .find(|name| signature.has_trait(name))
    {
        return Err(format!(
            "expected a target of one of the traits batched and {other}, found both"
        ));
    }
    let operands = signature.operands.as_deref().unwrap_or_default();
    let results = signature.results.as_deref().unwrap_or_default();
    for (what, buffers) in [("operand", operands), ("result", results)] {
        for (number, buffer) in buffers.iter().enumerate() {
            let dimensions = buffer.dimensions.as_deref().unwrap_or_default();
            let is_first = has_batch(buffer);
            let is_late = dimensions[usize::from(is_first)..]
                .iter()
                .any(mentions_batch);
            if is_late || what == "result" && !is_first {
                return Err(format!(
                    "expected a target of the trait batched to declare batch as the first dimension of each result and as no later one, found {}: {}",
                    label(Some(buffer), what, number),
                    Extent(buffer)
                ));
            }
        }
    }
    if results.is_empty() || signature.remaining_results || !operands.iter().any(has_batch) {
        return Err(
            "expected a target of the trait batched to declare its results, and an operand with batch as its first dimension"
                .to_owned(),
        );
    }
    Ok(())
}

fn is_batch(dimension: &Dimension) -> bool {
    matches!(dimension, Dimension::Symbol(symbol) if symbol == BATCH)
}

fn mentions_batch(dimension: &Dimension) -> bool {
    match dimension {
        Dimension::Expression(expression) => expression.symbols().any(|symbol| symbol == BATCH),
        _ => is_batch(dimension),
    }
}

/// Whether the dimensions of an operand or result are declared to begin with `batch`.
pub(crate) fn has_batch(buffer: &BufferSignature) -> bool {
    let dimensions = buffer.dimensions.as_deref().unwrap_or_default();
    dimensions.first().is_some_and(is_batch)
}

/// Whether the dimensions of an operand or result are declared to begin with `..`.
pub(crate) fn has_rows(buffer: &BufferSignature) -> bool {
    let dimensions = buffer.dimensions.as_deref().unwrap_or_default();
    dimensions.first() == Some(&Dimension::Any)
}

/// Checks that only typed FFI calls a target of this trait.
fn check_convention(signature: &Signature, name: &str) -> Result<(), String> {
    let typed = crate::call::ApiVersion::TypedFfi;
    match signature.api_versions.iter().find(|v| **v != typed) {
        None => Ok(()),
        Some(other) => Err(format!(
            "expected a target of the trait {name} to be called by {typed} alone, found {other}"
        )),
    }
}

/// Checks the declared dimensions of an elementwise target.
///
/// They must allow any dimensions of their rank, and be the same for all results and for all
/// operands other than scalars.
///
/// # Errors
/// A message about the first violation.
pub fn check_elementwise(signature: &Signature) -> Result<(), String> {
    if !signature.has_trait(ELEMENTWISE) {
        return Ok(());
    }
    check_convention(signature, ELEMENTWISE)?;
    let operands = signature.operands.as_deref().unwrap_or_default().iter();
    let results = signature.results.as_deref().unwrap_or_default().iter();
    let numbered = operands
        .enumerate()
        .filter(|(_, buffer)| buffer.rank != Some(0))
        .map(|(i, buffer)| (buffer, "operand", i));
    let numbered = numbered.chain(results.enumerate().map(|(i, buffer)| (buffer, "result", i)));
    // The first buffer with declared dimensions, and the first with a known rank.
    let mut first_list: Option<(&BufferSignature, String)> = None;
    let mut first_rank: Option<(&BufferSignature, String)> = None;
    for (buffer, what, number) in numbered {
        let label = label(Some(buffer), what, number);
        let dimensions = buffer.dimensions.as_deref().unwrap_or_default();
        for (i, dimension) in dimensions.iter().enumerate() {
            let is_size = matches!(dimension, Dimension::Size(_) | Dimension::Expression(_));
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

/// Whether the declarations allow two buffers to have the same dimensions.
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

/// The most dimensions without names that are displayed one by one.
const MOST_SHOWN: usize = 16;

/// Displays the declared dimensions of a buffer, in brackets.
pub(super) struct Extent<'a>(pub(super) &'a BufferSignature);

impl fmt::Display for Extent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0.dimensions, self.0.rank) {
            (Some(dimensions), _) => Declared(dimensions).fmt(f),
            (None, Some(rank)) if rank > MOST_SHOWN => write!(f, "[{rank} dimensions]"),
            (None, Some(rank)) => write!(f, "[{}]", vec!["?"; rank].join(",")),
            (None, None) => f.write_str("[...]"),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
