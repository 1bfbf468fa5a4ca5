//! The line of `callbox.targets` that each target contributes.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "tests fail by panicking, and targets of tests need no documentation"
)]

use callbox_guest::__private::{Target, json, json_len};
use callbox_guest::{
    AnyOperand, ArrayAttribute, Context, Dictionary, Element, Failure, InPlace, Operand,
    ResultBuffer, target,
};
use serde_json::{Value, json as expected};

/// Mixes "everything", \ with
///   tabs	and UTF-8: §.
#[target(name = "my.mix", pure, T = [f32, f64])]
fn mix<T: Element>(
    _context: &Context,
    x: &Operand<T>,
    any: &AnyOperand,
    _in_place: &mut InPlace<T, 12>,
    y: &mut ResultBuffer<u8, 0>,
    #[attr] n: i32,
    #[attr(name = "a \"name\"")] a: ArrayAttribute<u16>,
    #[attr] slice: &[f64],
    #[attr] s: Option<&str>,
    #[attr] d: Dictionary,
) {
    let _ = (x, any, y, n, a, slice, s, d);
}

#[target(name = "my.mix", stage = instantiate)]
fn make(#[attr] n: i32) -> Result<i32, Failure> {
    Ok(n)
}

#[target]
fn plain() {}

const MIX: [u8; json_len(mix::DESCRIPTION)] = json(mix::DESCRIPTION);
const MAKE: [u8; json_len(make::DESCRIPTION)] = json(make::DESCRIPTION);
const PLAIN: [u8; json_len(plain::DESCRIPTION)] = json(plain::DESCRIPTION);

fn read(line: &[u8]) -> Value {
    let (newline, object) = line.split_last().unwrap();
    assert_eq!(*newline, b'\n');
    assert!(!object.contains(&b'\n'));
    serde_json::from_slice(object).unwrap()
}

#[test]
fn the_line_says_all_that_the_function_says() {
    let floats = expected!(["F32", "F64"]);
    assert_eq!(
        read(&MIX),
        expected!({
            "name": "my.mix",
            "abi": "1.0",
            "api_version": "API_VERSION_TYPED_FFI",
            "stages": ["execute"],
            "operands": [
                {"name": "x", "element_types": floats, "rank": null},
                {"name": "any", "element_types": null, "rank": null},
                {"name": "in_place", "element_types": floats, "rank": 12},
            ],
            "results": [
                {"name": "in_place", "element_types": floats, "rank": 12},
                {"name": "y", "element_types": ["U8"], "rank": 0},
            ],
            "attributes": [
                {"name": "n", "kind": "scalar", "element_type": "S32", "optional": false},
                {"name": "a \"name\"", "kind": "array", "element_type": "U16", "optional": false},
                {"name": "slice", "kind": "array", "element_type": "F64", "optional": false},
                {"name": "s", "kind": "string", "element_type": null, "optional": true},
                {"name": "d", "kind": "dictionary", "element_type": null, "optional": false},
            ],
            "doc": "Mixes \"everything\", \\ with\n  tabs\tand UTF-8: §.",
            "traits": ["pure"],
        })
    );
}

#[test]
fn a_stage_says_its_attributes_only() {
    assert_eq!(
        read(&MAKE),
        expected!({
            "name": "my.mix",
            "abi": "1.0",
            "api_version": "API_VERSION_TYPED_FFI",
            "stages": ["instantiate"],
            "attributes": [
                {"name": "n", "kind": "scalar", "element_type": "S32", "optional": false},
            ],
        })
    );
}

#[test]
fn a_target_may_have_nothing_to_say() {
    assert_eq!(
        read(&PLAIN),
        expected!({
            "name": "plain",
            "abi": "1.0",
            "api_version": "API_VERSION_TYPED_FFI",
            "stages": ["execute"],
            "operands": [],
            "results": [],
            "attributes": [],
            "doc": "",
            "traits": [],
        })
    );
}
