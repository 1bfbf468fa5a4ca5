//! Opcodes: which ones callbox has, and which ones HLO has.

use super::cursor::{Cursor, Name};
use super::source::{Diagnostic, Parsed, shortened};
use super::suggestion::suggestion;
use crate::program::instruction::{BinaryOperation, UnaryOperation};

/// An opcode without its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    AfterAll,
    Binary(BinaryOperation),
    Bitcast,
    BitcastConvert,
    Broadcast,
    Call,
    Clamp,
    Compare,
    Concatenate,
    Conditional,
    Constant,
    Convert,
    Copy,
    CustomCall,
    Dot,
    DynamicSlice,
    DynamicUpdateSlice,
    Fusion,
    GetTupleElement,
    Iota,
    Map,
    OptimizationBarrier,
    Pad,
    Parameter,
    Reduce,
    ReducePrecision,
    Reshape,
    Reverse,
    Select,
    Slice,
    Transpose,
    Tuple,
    Unary(UnaryOperation),
    While,
}

/// The opcodes that are neither unary nor binary operations.
const OPERATIONS: &[(&str, Operation)] = &[
    ("after-all", Operation::AfterAll),
    ("bitcast", Operation::Bitcast),
    ("bitcast-convert", Operation::BitcastConvert),
    ("broadcast", Operation::Broadcast),
    ("call", Operation::Call),
    ("clamp", Operation::Clamp),
    ("compare", Operation::Compare),
    ("concatenate", Operation::Concatenate),
    ("conditional", Operation::Conditional),
    ("constant", Operation::Constant),
    ("convert", Operation::Convert),
    ("copy", Operation::Copy),
    ("custom-call", Operation::CustomCall),
    ("dot", Operation::Dot),
    ("dynamic-slice", Operation::DynamicSlice),
    ("dynamic-update-slice", Operation::DynamicUpdateSlice),
    ("fusion", Operation::Fusion),
    ("get-tuple-element", Operation::GetTupleElement),
    ("iota", Operation::Iota),
    ("map", Operation::Map),
    ("opt-barrier", Operation::OptimizationBarrier),
    ("pad", Operation::Pad),
    ("parameter", Operation::Parameter),
    ("reduce", Operation::Reduce),
    ("reduce-precision", Operation::ReducePrecision),
    ("reshape", Operation::Reshape),
    ("reverse", Operation::Reverse),
    ("select", Operation::Select),
    ("slice", Operation::Slice),
    ("transpose", Operation::Transpose),
    ("tuple", Operation::Tuple),
    ("while", Operation::While),
];

/// HLO's other opcodes (xla/hlo/ir/hlo_opcode.h): these the reader knows, and refuses as UNIMPLEMENTED.
const UNSUPPORTED: &[&str] = &[
    "acos",
    "acosh",
    "add-dependency",
    "all-gather",
    "all-gather-done",
    "all-gather-start",
    "all-reduce",
    "all-reduce-done",
    "all-reduce-start",
    "all-to-all",
    "asin",
    "asinh",
    "async-done",
    "async-start",
    "async-update",
    "atan",
    "atanh",
    "batch-norm-grad",
    "batch-norm-inference",
    "batch-norm-training",
    "cholesky",
    "collective-broadcast",
    "collective-permute",
    "collective-permute-done",
    "collective-permute-start",
    "collective-reduce",
    "convolution",
    "copy-done",
    "copy-start",
    "cosh",
    "domain",
    "dynamic-reshape",
    "fft",
    "gather",
    "get-dimension-size",
    "infeed",
    "mulhi",
    "outfeed",
    "partition-id",
    "ragged-all-to-all",
    "ragged-dot",
    "recv",
    "recv-done",
    "reduce-scatter",
    "reduce-window",
    "replica-id",
    "rng",
    "rng-bit-generator",
    "rng-get-and-update-state",
    "scaled-dot",
    "scan",
    "scatter",
    "select-and-scatter",
    "send",
    "send-done",
    "set-dimension-size",
    "shuffle",
    "sinh",
    "sort",
    "stochastic-convert",
    "topk",
    "triangular-solve",
];

/// Reads an opcode.
pub(super) fn opcode<'a>(cursor: &mut Cursor<'a>) -> Parsed<(Name<'a>, Operation)> {
    let at = cursor.at();
    let Some(text) = cursor.word() else {
        return Err(cursor.expected("an instruction such as add"));
    };
    match operation(text) {
        Some(operation) => Ok((Name { text, at }, operation)),
        None if is_unsupported(text) => Err(Diagnostic::unimplemented(
            at,
            format!("instruction {text:?} is not supported"),
        )),
        None => {
            let near = suggestion(text, supported().chain(UNSUPPORTED.iter().copied()), "");
            let found = shortened(text);
            let message = format!("expected an instruction such as add, found {found:?}{near}");
            Err(Diagnostic::invalid(at, message))
        }
    }
}

fn operation(name: &str) -> Option<Operation> {
    let unary = || UnaryOperation::from_name(name).map(Operation::Unary);
    let binary = || BinaryOperation::from_name(name).map(Operation::Binary);
    let other = OPERATIONS.iter().find(|(other, _)| *other == name);
    other
        .map(|(_, operation)| *operation)
        .or_else(unary)
        .or_else(binary)
}

/// Whether HLO has this opcode and callbox does not. Any opcode may be split into an asynchronous pair.
pub(super) fn is_unsupported(name: &str) -> bool {
    let is_known = |name: &str| UNSUPPORTED.contains(&name) || operation(name).is_some();
    let wrapped = ["-start", "-update", "-done"]
        .into_iter()
        .find_map(|end| name.strip_suffix(end));
    operation(name).is_none() && (is_known(name) || wrapped.is_some_and(is_known))
}

fn supported() -> impl Iterator<Item = &'static str> {
    let unary = UnaryOperation::ALL.iter().map(|operation| operation.name());
    let binary = BinaryOperation::ALL
        .iter()
        .map(|operation| operation.name());
    OPERATIONS
        .iter()
        .map(|(name, _)| *name)
        .chain(unary)
        .chain(binary)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::StatusCode;

    fn refuse(text: &str) -> (StatusCode, String) {
        let status = opcode(&mut Cursor::new(text))
            .unwrap_err()
            .into_status(text);
        (
            status.code(),
            status.message().lines().next().unwrap().to_owned(),
        )
    }

    #[test]
    fn every_opcode_is_known_once() {
        let mut names: Vec<_> = supported().chain(UNSUPPORTED.iter().copied()).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        // As many as xla/hlo/ir/hlo_opcode.h has in August 2026.
        assert_eq!(count, 136);
    }

    #[test]
    fn what_hlo_has_and_callbox_has_not_is_unimplemented() {
        for name in [
            "gather",
            "copy-start",
            "async-done",
            "add-start",
            "sort-update",
            "convolution",
        ] {
            let message = format!("line 1, column 1: instruction {name:?} is not supported");
            assert_eq!(refuse(name), (StatusCode::Unimplemented, message));
        }
    }

    #[test]
    fn what_hlo_has_not_is_an_error() {
        for (text, found) in [
            ("ad(x)", "found \"ad\"; did you mean add?"),
            ("gathr(x)", "found \"gathr\"; did you mean gather?"),
            ("frobnicate(x)", "found \"frobnicate\""),
            ("-start", "found \"-start\""),
            ("(x)", "found '('"),
        ] {
            let message = format!("line 1, column 1: expected an instruction such as add, {found}");
            assert_eq!(refuse(text), (StatusCode::InvalidArgument, message));
        }
    }
}
