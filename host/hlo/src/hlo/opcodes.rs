//! The opcodes of HLO, and those that callbox supports.

use crate::instruction::{BinaryOperation, UnaryOperation};
use callbox_core::text::{Cursor, Diagnostic, Name, Parsed, shortened, suggestion};

/// The supported opcodes other than unary and binary operations, as words. `lower` has a case for
/// each.
const SUPPORTED: &str = "\
    after-all all-gather all-reduce all-to-all bitcast bitcast-convert broadcast call cholesky \
    clamp collective-broadcast collective-permute compare concatenate conditional constant \
    convert convolution copy custom-call dot dynamic-slice dynamic-update-slice fft fusion gather \
    get-tuple-element iota map opt-barrier pad parameter partition-id reduce reduce-precision \
    reduce-scatter reduce-window replica-id reshape reverse rng-bit-generator scatter select \
    select-and-scatter slice sort topk transpose triangular-solve tuple while";

/// The other opcodes of HLO (xla/hlo/ir/hlo_opcode.h), which are refused as UNIMPLEMENTED.
const UNSUPPORTED: &str = "\
    acos acosh add-dependency all-gather-done all-gather-start all-reduce-done all-reduce-start \
    asin asinh async-done async-start async-update atan atanh batch-norm-grad \
    batch-norm-inference batch-norm-training collective-permute-done collective-permute-start \
    collective-reduce copy-done copy-start cosh domain dynamic-reshape get-dimension-size infeed \
    mulhi outfeed ragged-all-to-all ragged-dot recv recv-done rng rng-get-and-update-state \
    scaled-dot scan send send-done set-dimension-size shuffle sinh stochastic-convert";

/// Reads the opcode of an instruction.
pub(super) fn read_opcode<'a>(cursor: &mut Cursor<'a>) -> Parsed<Name<'a>> {
    let at = cursor.at();
    let Some(text) = cursor.word() else {
        return Err(cursor.expected("an instruction such as add"));
    };
    if is_supported(text) {
        return Ok(Name { text, at });
    }
    if is_unsupported(text) {
        let message = format!("instruction {text:?} is not supported");
        return Err(Diagnostic::unimplemented(at, message));
    }
    let near = suggestion(text, all_opcodes(), str::to_owned);
    let found = shortened(text);
    let message = format!("expected an instruction such as add, found {found:?}{near}");
    Err(Diagnostic::invalid(at, message))
}

fn is_supported(name: &str) -> bool {
    supported_opcodes().any(|opcode| opcode == name)
}

/// Whether HLO has this opcode and callbox does not support it. Any opcode may be split into an
/// asynchronous pair.
pub(super) fn is_unsupported(name: &str) -> bool {
    let is_known = |name: &str| all_opcodes().any(|opcode| opcode == name);
    let mut ends = ["-start", "-update", "-done"].into_iter();
    let wrapped = ends.find_map(|end| name.strip_suffix(end));
    !is_supported(name) && (is_known(name) || wrapped.is_some_and(is_known))
}

fn supported_opcodes() -> impl Iterator<Item = &'static str> {
    let unary = UnaryOperation::ALL.iter().map(|operation| operation.name());
    let binary = BinaryOperation::ALL
        .iter()
        .map(|operation| operation.name());
    SUPPORTED.split_whitespace().chain(unary).chain(binary)
}

fn all_opcodes() -> impl Iterator<Item = &'static str> {
    supported_opcodes().chain(UNSUPPORTED.split_whitespace())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use callbox_core::StatusCode;

    fn refuse(text: &str) -> (StatusCode, String) {
        let status = read_opcode(&mut Cursor::new(text))
            .unwrap_err()
            .into_status(text);
        (
            status.code(),
            status.message().lines().next().unwrap().to_owned(),
        )
    }

    #[test]
    fn every_opcode_is_known_once() {
        let mut names: Vec<_> = all_opcodes().collect();
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
            "infeed",
            "copy-start",
            "async-done",
            "add-start",
            "sort-update",
            "send",
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
