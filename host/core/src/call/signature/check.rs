//! Checks a call site against the target's declaration, by XLA's rules and in XLA's words.
//!
//! The checks, their order and their messages are those of `Handler::Call` (xla/ffi/api/api.h):
//! first the counts, each of which fails alone, then all parameters, whose errors are reported
//! together. XLA's header line counts operands, results and attributes as "operands". Here it has
//! the positions of operands and results, and the names of attributes. A guest made with
//! `callbox-guest` repeats the checks when it is called. Checking here reports errors before a
//! program runs, and limits how many names a module's declaration puts into a message.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::bindings::{Bindings, Open};
use super::dimensions::{Common, ELEMENTWISE, MOST_PASSES, label, shortened};
use super::{AttributeSignature, BufferSignature, Dimension, Signature};
use crate::call::CallSite;
use crate::untrusted_text::shown_name;
use crate::values::{ArrayShape, Attribute, Dictionary, Result, Shape, Status};

/// The most names or types that a message lists.
const MOST: usize = 16;

/// Checks the declared operands, results and attributes of a call site.
pub(super) fn check(signature: &Signature, site: &CallSite) -> Result<()> {
    let operands: Vec<_> = site.operands.iter().flat_map(Shape::leaves).collect();
    let results = site.result.leaves();
    let (more_operands, more_results) = (signature.remaining_operands, signature.remaining_results);
    check_count(
        "arguments",
        signature.operands.as_deref(),
        more_operands,
        operands.len(),
    )?;
    check_count(
        "results",
        signature.results.as_deref(),
        more_results,
        results.len(),
    )?;
    // As in XLA, a target that declares no attribute takes any.
    let declared = signature.attributes.as_deref().unwrap_or_default();
    if !declared.is_empty() {
        check_names(declared, &site.attributes)?;
    }
    let mut buffers = Buffers::new(signature);
    let mut mismatches = buffers.operands(&operands);
    mismatches.extend(buffers.results(&results));
    buffers.compare_waiting(&mut mismatches);
    if mismatches.iter().all(Option::is_none) && !lacks_buffers(signature, &operands, &results) {
        buffers.refuse_waiting(&mut mismatches);
    }
    report(mismatches, attributes(declared, &site.attributes))
}

/// Whether the call site leaves out optional buffers, whose dimensions may have determined symbols.
fn lacks_buffers(signature: &Signature, operands: &[&ArrayShape], results: &[&ArrayShape]) -> bool {
    let lacks = |declared: Option<&[BufferSignature]>, found: usize| {
        let left_out = declared.and_then(|declared| declared.get(found..));
        left_out.is_some_and(|left_out| !left_out.is_empty())
    };
    lacks(signature.operands.as_deref(), operands.len())
        || lacks(signature.results.as_deref(), results.len())
}

/// Checks only the attributes of a call site whose operands and results fit.
pub(super) fn check_attributes(signature: &Signature, found: &Dictionary) -> Result<()> {
    let declared = signature.attributes.as_deref().unwrap_or_default();
    if declared.is_empty() {
        return Ok(());
    }
    check_names(declared, found)?;
    report(Vec::new(), attributes(declared, found))
}

/// Checks only the operands of a call. Returns the dimensions that they determine.
pub(super) fn check_operands<'a>(
    signature: &'a Signature,
    operands: &[ArrayShape],
) -> Result<Buffers<'a>> {
    let operands: Vec<_> = operands.iter().collect();
    check_count(
        "arguments",
        signature.operands.as_deref(),
        signature.remaining_operands,
        operands.len(),
    )?;
    let mut buffers = Buffers::new(signature);
    let mut mismatches = buffers.operands(&operands);
    buffers.compare_waiting(&mut mismatches);
    report(mismatches, std::iter::empty())?;
    Ok(buffers)
}

/// Reports all mismatches: of buffers, which are operands and then results, by position, and of
/// attributes by name.
fn report<'a>(
    buffers: Vec<Option<String>>,
    attributes: impl Iterator<Item = (&'a str, String)>,
) -> Result<()> {
    let wrong = buffers.into_iter().enumerate();
    let wrong = wrong.filter_map(|(position, mismatch)| Some((position.to_string(), mismatch?)));
    let (positions, mut diagnostics): (Vec<_>, Vec<_>) = wrong.unzip();
    let positions = listed(positions.into_iter(), ", ");
    let (names, wrong): (Vec<_>, Vec<_>) = attributes.unzip();
    diagnostics.extend(wrong);
    let names = listed(names.into_iter().map(shortened), ", ");
    let bad = match (positions.is_empty(), names.is_empty()) {
        (true, true) => return Ok(()),
        (false, true) => format!("operands (bad operands at: {positions})"),
        (true, false) => format!("attributes (bad attributes: {names})"),
        (false, false) => {
            format!("operands (bad operands at: {positions}; bad attributes: {names})")
        }
    };
    Err(Status::invalid_argument(format!(
        "Failed to decode all FFI handler {bad}\nDiagnostics:\n{}",
        listed(diagnostics.into_iter(), "\n")
    )))
}

fn check_count(
    what: &str,
    declared: Option<&[BufferSignature]>,
    takes_more: bool,
    found: usize,
) -> Result<()> {
    let Some(declared) = declared else {
        return Ok(());
    };
    let (least, most) = (
        declared.iter().filter(|b| !b.optional).count(),
        declared.len(),
    );
    if found >= least && (takes_more || found <= most) {
        return Ok(());
    }
    let expected = match (takes_more, least == most) {
        (true, _) => format!("at least {least}"),
        (false, true) => most.to_string(),
        // XLA has no upper bound if some are optional.
        (false, false) => format!("{least} to {most}"),
    };
    Err(wrong_count(what, expected, found, ""))
}

/// Checks the number of attributes, and, if some are optional, that the target declares each.
fn check_names(declared: &[AttributeSignature], found: &Dictionary) -> Result<()> {
    let most = declared.len();
    let least = declared.iter().filter(|a| !a.optional).count();
    if found.len() < least || found.len() > most {
        let names = if found.is_empty() {
            String::new()
        } else {
            format!(" with name(s): {}", names(found))
        };
        let expected = if least == most {
            most.to_string()
        } else {
            format!("{least} to {most}")
        };
        return Err(wrong_count("attributes", expected, found.len(), &names));
    }
    if least == most {
        return Ok(());
    }
    let is_declared = |name: &str| declared.iter().any(|a| a.name == name);
    match found.keys().find(|name| !is_declared(name)) {
        Some(unknown) => Err(Status::invalid_argument(format!(
            "Unknown attribute: expected one of {} but got {}",
            listed(declared.iter().map(|a| a.name.as_str()), ", "),
            shown_name(unknown)
        ))),
        None => Ok(()),
    }
}

fn wrong_count(what: &str, expected: impl fmt::Display, found: usize, names: &str) -> Status {
    Status::invalid_argument(format!(
        "Wrong number of {what}: expected {expected} but got {found}{names}"
    ))
}

/// The buffers of one call, and the dimensions that they share.
#[derive(Debug)]
pub(super) struct Buffers<'a> {
    signature: &'a Signature,
    pub(super) bindings: Bindings<'a>,
    /// For elementwise targets, the dimensions of all buffers.
    pub(super) common: Option<Common>,
    /// The buffers with expressions that wait for symbols.
    waiting: Vec<Waiting<'a>>,
    /// The number of buffers so far.
    count: usize,
}

/// A buffer with an expression that waits for a symbol of a later buffer.
#[derive(Debug)]
struct Waiting<'a> {
    /// Its position among operands and results.
    position: usize,
    declared: &'a [Dimension],
    found: Vec<usize>,
    /// Its dimensions that wait.
    open: Vec<Open<'a>>,
    label: String,
}

impl<'a> Buffers<'a> {
    fn new(signature: &'a Signature) -> Self {
        Self {
            signature,
            bindings: Bindings::default(),
            common: signature.has_trait(ELEMENTWISE).then(Common::default),
            waiting: Vec::new(),
            count: 0,
        }
    }

    /// Compares the buffers that wait for symbols again, and adds their mismatches.
    fn compare_waiting(&mut self, mismatches: &mut [Option<String>]) {
        for _ in 0..MOST_PASSES {
            if self.waiting.is_empty() {
                return;
            }
            let bindings = &mut self.bindings;
            let known = bindings.len();
            self.waiting.retain_mut(|buffer| {
                let Waiting {
                    declared,
                    found,
                    open,
                    label,
                    ..
                } = buffer;
                match bindings.unify_open(declared, found, open, label) {
                    Ok(()) => !open.is_empty(),
                    Err(mismatch) => {
                        if let Some(of_buffer) = mismatches.get_mut(buffer.position) {
                            *of_buffer = Some(mismatch);
                        }
                        false
                    }
                }
            });
            if bindings.len() == known {
                return;
            }
        }
    }

    /// Adds the mismatches of the buffers that still wait: nothing determines their symbols.
    fn refuse_waiting(&self, mismatches: &mut [Option<String>]) {
        for buffer in &self.waiting {
            if let Some(of_buffer) = mismatches.get_mut(buffer.position) {
                let Waiting {
                    declared,
                    found,
                    label,
                    ..
                } = buffer;
                *of_buffer = Some(self.bindings.undetermined(declared, found, label));
            }
        }
    }

    /// The mismatch of each operand, declared or not.
    fn operands(&mut self, found: &[&ArrayShape]) -> Vec<Option<String>> {
        self.mismatches(self.signature.operands.as_deref(), true, found)
    }

    /// The mismatch of each result. Operands come first.
    fn results(&mut self, found: &[&ArrayShape]) -> Vec<Option<String>> {
        self.mismatches(self.signature.results.as_deref(), false, found)
    }

    fn mismatches(
        &mut self,
        declared: Option<&'a [BufferSignature]>,
        are_operands: bool,
        found: &[&ArrayShape],
    ) -> Vec<Option<String>> {
        let mismatch = |(i, shape): (usize, &&ArrayShape)| {
            self.mismatch(declared.and_then(|all| all.get(i)), are_operands, i, shape)
        };
        found.iter().enumerate().map(mismatch).collect()
    }

    fn mismatch(
        &mut self,
        declared: Option<&'a BufferSignature>,
        is_operand: bool,
        number: usize,
        found: &ArrayShape,
    ) -> Option<String> {
        let what = if is_operand { "operand" } else { "result" };
        let label = label(declared, what, number);
        let position = self.count;
        self.count += 1;
        if let Some(mismatch) = declared.and_then(|declared| declared.mismatch(found)) {
            let is_named = declared.is_some_and(|declared| !declared.name.is_empty());
            let subject = if is_named {
                format!("{what} {label}")
            } else {
                label
            };
            return Some(format!("{subject}: {mismatch}"));
        }
        if let Some(dimensions) = declared.and_then(|declared| declared.dimensions.as_deref()) {
            match self.bindings.unify(dimensions, found.dimensions(), &label) {
                Ok(open) if open.is_empty() => {}
                Ok(open) => self.waiting.push(Waiting {
                    position,
                    open,
                    declared: dimensions,
                    found: found.dimensions().to_vec(),
                    label: label.clone(),
                }),
                Err(mismatch) => return Some(mismatch),
            }
        }
        let common = self.common.as_mut()?;
        common.unify(found, is_operand, &label).err()
    }
}

/// The mismatches of declared attributes, with their names. Their number has been checked.
fn attributes<'a>(
    declared: &'a [AttributeSignature],
    found: &'a Dictionary,
) -> impl Iterator<Item = (&'a str, String)> {
    let all_are_required = declared.iter().all(|attribute| !attribute.optional);
    let other_names: BTreeMap<&str, &String> = if all_are_required {
        // XLA compares the call's sorted names with the target's, position by position.
        let sorted: BTreeSet<&str> = declared.iter().map(|a| a.name.as_str()).collect();
        let places = std::iter::zip(sorted, found.keys());
        places.filter(|(name, found)| name != found).collect()
    } else {
        BTreeMap::new()
    };
    declared.iter().filter_map(move |attribute| {
        let name = attribute.name.as_str();
        if let Some(found) = other_names.get(name) {
            return Some((name, format!("Attribute name mismatch: {found} vs {name}")));
        }
        match found.get(name) {
            Some(value) => {
                let mismatch = attribute.mismatch(value)?;
                Some((name, format!("attribute {}: {mismatch}", shortened(name))))
            }
            None if attribute.optional => None,
            None => Some((name, missing(name, found))),
        }
    })
}

fn missing(name: &str, found: &Dictionary) -> String {
    let found = if found.is_empty() {
        "none".to_owned()
    } else {
        names(found)
    };
    format!("Missing attribute: expected {name} but got {found}")
}

impl AttributeSignature {
    fn mismatch(&self, value: &Attribute) -> Option<String> {
        let kind = value.kind();
        if kind != self.kind {
            return Some(format!(
                "Wrong attribute type: expected {} but got {kind}",
                self.kind
            ));
        }
        let found = match value {
            Attribute::Scalar(literal) | Attribute::Array(literal) => {
                literal.shape().as_array().map(ArrayShape::element_type)
            }
            Attribute::String(_) | Attribute::Dictionary(_) | Attribute::Function(_) => None,
        };
        match (self.element_type, found) {
            (Some(expected), Some(found)) if expected != found => Some(format!(
                "Wrong {kind} data type: expected {} but got {}",
                expected.upper_name(),
                found.upper_name()
            )),
            _ => None,
        }
    }
}

impl BufferSignature {
    fn mismatch(&self, found: &ArrayShape) -> Option<String> {
        if !self.element_types.is_empty() && !self.element_types.contains(&found.element_type()) {
            let expected = self.element_types.iter().map(|t| t.upper_name());
            return Some(format!(
                "Wrong buffer dtype: expected {} but got {}",
                listed(expected, " or "),
                found.element_type().upper_name()
            ));
        }
        match self.rank {
            Some(rank) if rank != found.rank() => Some(format!(
                "Wrong buffer rank: expected {rank} but got {}",
                found.rank()
            )),
            _ => None,
        }
    }
}

fn names(attributes: &Dictionary) -> String {
    listed(attributes.keys().map(|name| shown_name(name)), ", ")
}

/// The first names, and the count if there are more.
fn listed<T: Into<String>>(names: impl ExactSizeIterator<Item = T>, separator: &str) -> String {
    let count = names.len();
    let first: Vec<String> = names.take(MOST).map(Into::into).collect();
    let mut text = first.join(separator);
    if count > MOST {
        text.push_str(&format!("{separator}... ({count} in all)"));
    }
    text
}

#[cfg(test)]
mod tests;
