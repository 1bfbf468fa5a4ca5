//! The parameters of kernels.

use std::fmt;

use callbox_core::values::{ArrayShape, ElementType, Result, Status};

use super::PlannedLaunch;
use crate::expression::{Expression, Facts};

/// The size of an address on the device, in bytes.
const ADDRESS: usize = 8;

/// A kernel's parameter, as the manifest describes it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Parameter {
    /// The address of an operand leaf.
    Operand(usize),
    /// The address of a result leaf.
    Result(usize),
    /// The address of a scratch buffer.
    Scratch(usize),
    /// A number.
    Value(Expression, ElementType),
}

/// A kernel's parameter for one call site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PlannedParameter {
    /// The address of the operand leaf with this number in preorder.
    Operand(usize),
    /// The address of the result leaf with this number in preorder.
    Result(usize),
    /// The address of the scratch buffer with this number in
    /// [`PlannedCall::scratch`](super::PlannedCall::scratch).
    Scratch(usize),
    /// A little-endian number of 1, 2, 4 or 8 bytes.
    Bytes(Vec<u8>),
}

impl PlannedParameter {
    /// The size in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Operand(_) | Self::Result(_) | Self::Scratch(_) => ADDRESS,
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    /// The parameter as messages name it.
    fn what(&self) -> String {
        match self {
            Self::Bytes(_) => "a value".to_owned(),
            address => format!("the address of {address}"),
        }
    }
}

impl fmt::Display for PlannedParameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operand(leaf) => write!(f, "operand {leaf}"),
            Self::Result(leaf) => write!(f, "result {leaf}"),
            Self::Scratch(number) => write!(f, "scratch buffer {number}"),
            Self::Bytes(_) => f.write_str("a number"),
        }
    }
}

impl Parameter {
    /// The parameter for a call site.
    pub(super) fn plan(&self, facts: &Facts<'_>) -> Result<PlannedParameter> {
        match self {
            Self::Operand(leaf) => {
                check_leaf(&facts.operands, *leaf, "operand")?;
                Ok(PlannedParameter::Operand(*leaf))
            }
            Self::Result(leaf) => {
                check_leaf(&facts.results, *leaf, "result")?;
                Ok(PlannedParameter::Result(*leaf))
            }
            Self::Scratch(number) => Ok(PlannedParameter::Scratch(*number)),
            Self::Value(expression, ty) => {
                let bytes = expression.evaluate(facts)?.encode(*ty);
                let bytes = bytes.map_err(|message| expression.wrong(message))?;
                Ok(PlannedParameter::Bytes(bytes))
            }
        }
    }
}

fn check_leaf(leaves: &[&ArrayShape], leaf: usize, what: &str) -> Result<()> {
    if leaf < leaves.len() {
        Ok(())
    } else {
        Err(Status::invalid_argument(format!(
            "expected {what} {leaf} at the call site, found {} {what}s",
            leaves.len()
        )))
    }
}

/// Compares a launch's parameters with those that the driver reports of the kernel
/// (`cuFuncGetParamInfo`): the offset and the size in bytes of each.
///
/// # Errors
/// INVALID_ARGUMENT, with the kernel's name and the first parameter that differs.
pub fn check_parameters(planned: &PlannedLaunch, found: &[(usize, usize)]) -> Result<()> {
    let wrong = |message: String| {
        Err(Status::invalid_argument(format!(
            "kernel {:?}: {message}",
            planned.entry
        )))
    };
    if planned.parameters.len() != found.len() {
        return wrong(format!(
            "expected the {} parameters of the manifest, found {} in the image",
            planned.parameters.len(),
            found.len()
        ));
    }
    let mut end: usize = 0;
    for (position, (parameter, &(offset, size))) in
        std::iter::zip(&planned.parameters, found).enumerate()
    {
        let expected = parameter.size();
        // Parameters are aligned to their size.
        let start = end.next_multiple_of(expected.max(1));
        if (offset, size) != (start, expected) {
            return wrong(format!(
                "parameter {position}, {}: expected {expected} bytes at offset {start}, found {size} at {offset} in the image",
                parameter.what()
            ));
        }
        end = start + expected;
    }
    Ok(())
}
