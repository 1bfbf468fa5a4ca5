//! Declared derivatives: targets that compute the derivatives of other targets of their module.
//!
//! A derivative takes the operands of its target, and then the cotangents of the results (`vjp`) or
//! the tangents of the operands (`jvp`). It returns the cotangents of the operands or the tangents
//! of the results, and has the same attributes. Arrays of integers and truth values have neither
//! tangents nor cotangents.

use std::collections::BTreeMap;
use std::fmt;

use super::{BufferSignature, Signature};
use crate::values::ElementType;

/// The target whose derivatives another target computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DerivativeOf {
    /// The name of the differentiated target.
    pub target: String,
    /// Which derivatives.
    pub mode: DerivativeMode,
}

/// The direction in which derivatives are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DerivativeMode {
    /// Reverse mode: cotangents of the operands from those of the results.
    Vjp,
    /// Forward mode: tangents of the results from those of the operands.
    Jvp,
}

impl DerivativeMode {
    /// Both modes.
    pub const ALL: [Self; 2] = [Self::Vjp, Self::Jvp];

    /// The name in declarations.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Vjp => "vjp",
            Self::Jvp => "jvp",
        }
    }

    /// The mode with this name in declarations.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

impl fmt::Display for DerivativeOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.mode.name(), self.target)
    }
}

/// Checks the declared derivatives of a module's targets, by name.
///
/// Numbers of operands and results are compared where both declarations determine them.
///
/// # Errors
/// The name of the first target that cannot be a derivative as declared, and a message.
pub fn check(targets: &BTreeMap<String, Signature>) -> Result<(), (&str, String)> {
    let mut known: BTreeMap<(&str, DerivativeMode), &str> = BTreeMap::new();
    for (name, derivative) in targets {
        let Some(of) = &derivative.derivative_of else {
            continue;
        };
        let Some(target) = targets.get(&of.target).filter(|_| of.target != *name) else {
            let message = format!(
                "expected derivative_of to be the name of another target of the module, found {:?}",
                of.target
            );
            return Err((name, message));
        };
        if let Some(first) = known.insert((&of.target, of.mode), name) {
            let message = format!("expected one {of}, found {first} and {name}");
            return Err((name, message));
        }
        check_counts(target, derivative, of).map_err(|message| (name.as_str(), message))?;
    }
    Ok(())
}

fn check_counts(
    target: &Signature,
    derivative: &Signature,
    of: &DerivativeOf,
) -> Result<(), String> {
    let (Some(operands), Some(results)) = (fixed_operands(target), fixed_results(target)) else {
        return Ok(());
    };
    let (Some(inexact_operands), Some(inexact_results)) =
        (inexact_count(operands), inexact_count(results))
    else {
        return Ok(());
    };
    let (more, expected_results) = match of.mode {
        DerivativeMode::Vjp => (inexact_results, inexact_operands),
        DerivativeMode::Jvp => (inexact_operands, inexact_results),
    };
    let expected = [
        (
            "operands",
            operands.len() + more,
            fixed_operands(derivative),
        ),
        ("results", expected_results, fixed_results(derivative)),
    ];
    for (what, expected, found) in expected {
        if let Some(found) = found.filter(|found| found.len() != expected) {
            return Err(format!(
                "expected the {of} to have {expected} {what}, found {}",
                found.len()
            ));
        }
    }
    Ok(())
}

/// The declared operands, if every call has as many.
fn fixed_operands(signature: &Signature) -> Option<&[BufferSignature]> {
    fixed(signature.operands.as_deref()).filter(|_| !signature.remaining_operands)
}

/// The declared results, if every call has as many.
fn fixed_results(signature: &Signature) -> Option<&[BufferSignature]> {
    fixed(signature.results.as_deref()).filter(|_| !signature.remaining_results)
}

fn fixed(declared: Option<&[BufferSignature]>) -> Option<&[BufferSignature]> {
    declared.filter(|buffers| buffers.iter().all(|buffer| !buffer.optional))
}

/// The number of arrays that have derivatives. `None` if the call determines it.
fn inexact_count(buffers: &[BufferSignature]) -> Option<usize> {
    let mut count = 0;
    for buffer in buffers {
        let mut types = buffer.element_types.iter().copied().map(is_inexact);
        let first = types.next()?;
        if types.any(|other| other != first) {
            return None;
        }
        count += usize::from(first);
    }
    Some(count)
}

/// Whether elements of a type have derivatives: floating-point and complex numbers do.
fn is_inexact(element_type: ElementType) -> bool {
    element_type.is_floating() || element_type.is_complex()
}

#[cfg(test)]
mod tests;
