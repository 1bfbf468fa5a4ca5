//! The line of `callbox.targets` that each target contributes.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "tests fail by panicking, and targets of tests need no documentation"
)]

use callbox_guest::__private::{Target, json, json_len};
use callbox_guest::{
    AnyOperand, ArrayAttribute, AttributeEnum, AttributeStruct, Bf16, Context, Dictionary, Element,
    Failure, FunctionRef, InPlace, Operand, RemainingOperands, RemainingResults, ResultBuffer,
    target,
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

/// A parameter's type decides its role, and not its name, which is all that the macro sees.
type Alias<'a> = Context<'a>;

#[target]
fn reads_any(x: &Operand<f32>, _call: &Alias) {
    let _ = x;
}

#[target(name = "reads_any", stage = instantiate)]
fn make_of_any(context: &Context) -> Result<usize, Failure> {
    Ok(context.attributes().len())
}

#[target(T = [f32, f64])]
fn reads_any_of_each<T: Element>(x: &Operand<T>, _context: Context) {
    let _ = x;
}

#[target]
fn reads_none(#[state] _state: &usize, x: &Operand<f32>) {
    let _ = x;
}

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
            "ffi_version": "1.0",
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
            "ffi_version": "1.0",
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
            "ffi_version": "1.0",
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

/// Without `attributes`, any are accepted; an empty list means none. A target that binds some
/// accepts those, even if it has a context.
#[test]
fn a_target_that_may_read_any_attribute_declares_none_of_them() {
    const LINES: [&[u8]; 5] = [
        &json::<{ json_len(reads_any::DESCRIPTION) }>(reads_any::DESCRIPTION),
        &json::<{ json_len(make_of_any::DESCRIPTION) }>(make_of_any::DESCRIPTION),
        &json::<{ json_len(reads_any_of_each::DESCRIPTION) }>(reads_any_of_each::DESCRIPTION),
        &json::<{ json_len(reads_none::DESCRIPTION) }>(reads_none::DESCRIPTION),
        &MIX,
    ];
    let counts = LINES.map(|line| Some(read(line).get("attributes")?.as_array().unwrap().len()));
    assert_eq!(counts, [None, None, None, Some(0), Some(5)]);
    assert_eq!(
        read(LINES[1]),
        expected!({
            "name": "reads_any",
            "ffi_version": "1.0",
            "api_version": "API_VERSION_TYPED_FFI",
            "stages": ["instantiate"],
        })
    );
}

#[derive(AttributeEnum)]
#[repr(u16)]
enum Mode {
    Only = 7,
}

#[derive(AttributeStruct)]
struct Pair<'a> {
    first: f64,
    second: &'a str,
}

/// A target's parameters decide whether it needs a host of version 1.1.
#[target]
fn newer(
    x: &Operand<Bf16>,
    scale: Option<&Operand<f32, 0>>,
    y: Option<&mut ResultBuffer<f32>>,
    _rest: RemainingOperands,
    _results: RemainingResults,
    #[attr] func: FunctionRef,
    #[attr] mode: Mode,
    #[attr] pair: Option<Pair>,
) {
    let Mode::Only = mode;
    let _ = (
        x,
        scale,
        y,
        func,
        pair.map(|pair| (pair.first, pair.second)),
    );
}

const NEWER: [u8; json_len(newer::DESCRIPTION)] = json(newer::DESCRIPTION);

#[test]
fn what_can_be_fewer_or_more_is_said() {
    assert_eq!(
        read(&NEWER),
        expected!({
            "name": "newer",
            "ffi_version": "1.1",
            "api_version": "API_VERSION_TYPED_FFI",
            "stages": ["execute"],
            "operands": [
                {"name": "x", "element_types": ["BF16"], "rank": null},
                {"name": "scale", "element_types": ["F32"], "rank": 0, "optional": true},
            ],
            "results": [
                {"name": "y", "element_types": ["F32"], "rank": null, "optional": true},
            ],
            "remaining_operands": true,
            "remaining_results": true,
            "attributes": [
                {"name": "func", "kind": "function", "element_type": null, "optional": false},
                {"name": "mode", "kind": "scalar", "element_type": "U16", "variants": {"Only": 7}, "optional": false},
                {"name": "pair", "kind": "dictionary", "element_type": null, "fields": [
                    {"name": "first", "kind": "scalar", "element_type": "F64", "optional": false},
                    {"name": "second", "kind": "string", "element_type": null, "optional": false},
                ], "optional": true},
            ],
            "doc": "A target's parameters decide whether it needs a host of version 1.1.",
            "traits": [],
        })
    );
}

/// Dimensions are written with the rank that they imply, and do not raise the required version.
#[target(elementwise)]
fn shaped(
    #[dimensions(.., n)] x: &Operand<f32>,
    #[dimensions(.., n)] of_rank_3: &Operand<f32, 3>,
    #[dimensions()] scalar: &Operand<f32>,
    #[dimensions(.., n)] in_place: &mut InPlace<f32>,
) {
    let _ = (x, of_rank_3, scalar, in_place);
}

#[target]
fn sized(
    #[dimensions(n, 4, 10, r#type)] x: &AnyOperand,
    #[dimensions(0)] y: &mut ResultBuffer<u8>,
) {
    let _ = (x, y);
}

const SHAPED: [u8; json_len(shaped::DESCRIPTION)] = json(shaped::DESCRIPTION);
const SIZED: [u8; json_len(sized::DESCRIPTION)] = json(sized::DESCRIPTION);

#[test]
fn dimensions_are_said() {
    let floats = expected!(["F32"]);
    let list = expected!(["..", "n"]);
    let shaped = read(&SHAPED);
    assert_eq!(
        shaped["operands"],
        expected!([
            {"name": "x", "element_types": floats, "rank": null, "dimensions": list},
            {"name": "of_rank_3", "element_types": floats, "rank": 3, "dimensions": list},
            {"name": "scalar", "element_types": floats, "rank": 0, "dimensions": []},
            {"name": "in_place", "element_types": floats, "rank": null, "dimensions": list},
        ])
    );
    assert_eq!(
        shaped["results"],
        expected!([{"name": "in_place", "element_types": floats, "rank": null, "dimensions": list}])
    );
    assert_eq!(shaped["traits"], expected!(["pure", "elementwise"]));
    assert_eq!(shaped["ffi_version"], "1.0");
    let sized = read(&SIZED);
    assert_eq!(
        sized["operands"],
        expected!([{"name": "x", "element_types": null, "rank": 4, "dimensions": ["n", 4, 10, "type"]}])
    );
    assert_eq!(
        sized["results"],
        expected!([{"name": "y", "element_types": ["U8"], "rank": 1, "dimensions": [0]}])
    );
}

#[test]
fn computed_dimensions_are_said() {
    #[target]
    fn computed(
        #[dimensions(.., 2 * n, r#type)] x: &Operand<f32>,
        #[dimensions(.., (n + 1) / 2 - 1 * r#type, ((n)))] y: &mut ResultBuffer<f32>,
    ) {
        let _ = (x, y);
    }
    const LINE: &[u8] = &json::<{ json_len(computed::DESCRIPTION) }>(computed::DESCRIPTION);
    let line = read(LINE);
    let list = expected!(["..", "2*n", "type"]);
    assert_eq!(line["operands"][0]["dimensions"], list);
    let list = expected!(["..", "(n+1)/2-1*type", "((n))"]);
    assert_eq!(line["results"][0]["dimensions"], list);
    // Older hosts refuse the module because of its version.
    assert_eq!(line["ffi_version"], "1.1");
}

#[test]
fn variants_of_enums_are_said() {
    #[derive(AttributeEnum)]
    #[repr(i64)]
    enum Signed {
        Least = i64::MIN,
        r#Type = -1,
        Next,
    }
    #[derive(AttributeEnum)]
    #[repr(u64)]
    enum Unsigned {
        Most = u64::MAX,
    }
    #[target]
    fn rounded(#[attr] signed: Option<Signed>, #[attr] unsigned: Unsigned) {
        match signed {
            Some(Signed::Least | Signed::Type | Signed::Next) | None => {}
        }
        let Unsigned::Most = unsigned;
    }
    const LINE: &[u8] = &json::<{ json_len(rounded::DESCRIPTION) }>(rounded::DESCRIPTION);
    assert_eq!(
        read(LINE)["attributes"],
        expected!([
            {
                "name": "signed", "kind": "scalar", "element_type": "S64", "optional": true,
                "variants": {"Least": i64::MIN, "Type": -1, "Next": 0},
            },
            {
                "name": "unsigned", "kind": "scalar", "element_type": "U64", "optional": false,
                "variants": {"Most": u64::MAX},
            },
        ])
    );
}

#[test]
fn derivatives_are_said() {
    #[target]
    #[derivative_of(shaped, jvp)]
    fn tangent() {}
    #[target(batched)]
    #[derivative_of("of.another")]
    fn in_batches(
        #[dimensions(batch)] x: &Operand<f32, 1>,
        #[dimensions(batch)] y: &mut ResultBuffer<f32, 1>,
    ) {
        let _ = (x, y);
    }
    const LINES: [&[u8]; 2] = [
        &json::<{ json_len(tangent::DESCRIPTION) }>(tangent::DESCRIPTION),
        &json::<{ json_len(in_batches::DESCRIPTION) }>(in_batches::DESCRIPTION),
    ];
    let [tangent, in_batches] = LINES.map(read);
    assert_eq!(tangent["derivative_of"], "shaped");
    assert_eq!(tangent["derivative_mode"], "jvp");
    assert_eq!(in_batches["derivative_of"], "of.another");
    assert_eq!(in_batches["derivative_mode"], "vjp");
    assert_eq!(in_batches["traits"], expected!(["pure", "batched"]));
    assert!(read(&SHAPED).get("derivative_of").is_none());
}

/// The oldest version that each parameter needs.
#[test]
fn the_version_is_the_lowest_that_will_do() {
    #[target]
    fn function(#[attr] func: FunctionRef) {
        let _ = func;
    }
    #[target]
    fn optional(x: Option<&Operand<f32>>) {
        let _ = x;
    }
    #[target]
    fn remaining(_x: RemainingResults) {}
    #[target]
    fn context(context: &Context) -> Result<(), Failure> {
        context.literal().map(drop)
    }
    const LINES: [&[u8]; 4] = [
        &json::<{ json_len(function::DESCRIPTION) }>(function::DESCRIPTION),
        &json::<{ json_len(optional::DESCRIPTION) }>(optional::DESCRIPTION),
        &json::<{ json_len(remaining::DESCRIPTION) }>(remaining::DESCRIPTION),
        &json::<{ json_len(context::DESCRIPTION) }>(context::DESCRIPTION),
    ];
    let versions = LINES.map(|line| read(line)["ffi_version"].clone());
    assert_eq!(versions, ["1.1", "1.1", "1.1", "1.0"]);
}
