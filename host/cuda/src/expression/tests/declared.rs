//! Expressions that contradict what a target declares.

use super::super::Expression;
use super::{ANY, declared};

/// Declarations are known when the expression is parsed.
#[test]
fn references_are_held_against_the_declaration() {
    for (text, expected) in [
        ("operands[0].dims[-2] + results[0].dims[7]", Ok(())),
        (
            "operands[1].rank",
            Err("1: expected one of the 1 operands that are declared, found operands[1]"),
        ),
        (
            "results[1].rank",
            Err("1: expected one of the 1 results that are declared, found results[1]"),
        ),
        (
            "operands[0].dims[2]",
            Err("18: expected a dimension of 2, found 2"),
        ),
        (
            "operands[0].dims[-3]",
            Err("18: expected a dimension of 2, found -3"),
        ),
        ("attributes.n + 1", Ok(())),
        ("attributes.any + 1", Ok(())),
        ("attributes.strides[0] + attributes.strides.count", Ok(())),
        ("attributes.mode == 'x'", Ok(())),
        (
            "has(attributes.nn)",
            Err(
                "1: expected an attribute that is declared, found attributes.nn; did you mean \"n\"?",
            ),
        ),
        (
            "attributes.stride[0]",
            Err(
                "1: expected an attribute that is declared, found attributes.stride; did you mean \"strides\"?",
            ),
        ),
        (
            "attributes.eps + 1",
            Err("1: expected an integer, found a floating-point number"),
        ),
        (
            "attributes.flag + 1",
            Err("1: expected an integer, found a truth value"),
        ),
        (
            "attributes.n == attributes.eps",
            Err(
                "17: expected values of one kind to compare, found an integer and a floating-point number",
            ),
        ),
        (
            "attributes.complex",
            Err(
                "1: expected a value of s8, u8, s16, u16, s32, u32, s64, u64, f16, bf16, f32, f64, pred, found c64",
            ),
        ),
        (
            "attributes.n[0]",
            Err("1: expected nothing behind its name, found attributes.n[...] of the kind scalar"),
        ),
        (
            "attributes.strides",
            Err(
                "1: expected an element or .count of it, found attributes.strides of the kind array",
            ),
        ),
        (
            "attributes.inner",
            Err(
                "1: expected a scalar, a string or an array, found attributes.inner of the kind dictionary",
            ),
        ),
        (
            "attributes.callee",
            Err(
                "1: expected a scalar, a string or an array, found attributes.callee of the kind function",
            ),
        ),
        (
            "attributes.mode.count",
            Err(
                "1: expected nothing behind its name, found attributes.mode.count of the kind string",
            ),
        ),
    ] {
        let read = Expression::parse(text, &declared(), &ANY).map(|_| ());
        let found = read.map_err(|status| {
            let (_, place) = status.message().split_once(", column ").unwrap();
            place.to_owned()
        });
        assert_eq!(found, expected.map_err(str::to_owned), "{text}");
    }
    let mut takes_more = declared();
    takes_more.remaining_operands = true;
    assert!(Expression::parse("operands[1].rank", &takes_more, &ANY).is_ok());
}
