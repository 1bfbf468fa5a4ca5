//! What a kernel is handed.

use super::PlannedLaunch;
use crate::cuda::expression::{Expression, Facts};
use crate::values::{ArrayShape, ElementType, Result, Status};

/// The size of an address on the device, in bytes.
const ADDRESS: usize = 8;

/// A kernel's parameter, as the manifest has it.
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

/// A kernel's parameter, for one call site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlannedParameter {
    /// The address of the operand leaf with this number in preorder.
    Operand(usize),
    /// The address of the result leaf with this number in preorder.
    Result(usize),
    /// The address of the scratch buffer with this number in [`PlannedCall::scratch`](super::PlannedCall::scratch).
    Scratch(usize),
    /// These bytes: a number, little-endian, of 1, 2, 4 or 8 bytes.
    Bytes(Vec<u8>),
}

impl PlannedParameter {
    /// How many bytes the kernel gets.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Operand(_) | Self::Result(_) | Self::Scratch(_) => ADDRESS,
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    /// What it is, for messages.
    fn what(&self) -> String {
        match self {
            Self::Operand(leaf) => format!("the address of operand {leaf}"),
            Self::Result(leaf) => format!("the address of result {leaf}"),
            Self::Scratch(number) => format!("the address of scratch buffer {number}"),
            Self::Bytes(_) => "a value".to_owned(),
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
    match leaf < leaves.len() {
        true => Ok(()),
        false => Err(Status::invalid_argument(format!(
            "expected {what} {leaf} at the call site, found {} {what}s",
            leaves.len()
        ))),
    }
}

/// Compares a launch's parameters with what the driver says of the kernel (`cuFuncGetParamInfo`): offset and size in bytes of each.
///
/// # Errors
/// INVALID_ARGUMENT with the kernel's name, the parameter's position, what was expected and what was found.
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
        // Numbers and addresses are aligned to their sizes.
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
