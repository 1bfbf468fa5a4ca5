//! What a target accepts, and XLA's messages for what it refuses: those of xla/ffi/api/api.h and of
//! its tests (xla/ffi/ffi_test.cc).
#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "tests fail by panicking, and targets of tests need no documentation"
)]

use callbox_guest::native::{Call, Value};
use callbox_guest::{
    AnyOperand, AnyResult, ArrayAttribute, Dictionary, ElementType, Failure, Operand, Pred,
    ResultBuffer, StatusCode, target,
};

type Matrix<'a> = Operand<'a, f32, 2>;

#[target]
fn add(x: &Operand<f32, 1>, y: &Operand<f32, 1>, out: &mut ResultBuffer<f32, 1>) {
    for (out, (x, y)) in out.iter_mut().zip(x.iter().zip(y.iter())) {
        *out = x + y;
    }
}

/// Returns the failure of a call. Every failure to decode is INVALID_ARGUMENT and not recoverable.
fn message(outcome: Result<(), Failure>) -> String {
    let failure = outcome.unwrap_err();
    assert_eq!(failure.code(), StatusCode::InvalidArgument);
    assert!(!failure.is_recoverable());
    failure.message().to_owned()
}

fn undecoded(bad: &str, diagnostics: &[&str]) -> String {
    format!(
        "[execute] Failed to decode all FFI handler {bad}\nDiagnostics:\n{}",
        diagnostics.join("\n")
    )
}

#[test]
fn a_target_runs() {
    let mut call = Call::new();
    call.operand(&[1.0_f32, 2.0], &[2])
        .operand(&[10.0_f32, 20.0], &[2])
        .result::<f32>(&[2]);
    assert_eq!(call.run::<add>(), Ok(()));
    assert_eq!(call.result_elements::<f32>(0), [11.0, 22.0]);
}

#[test]
fn arrays_without_elements_are_arrays() {
    let mut call = Call::new();
    call.operand::<f32>(&[], &[0])
        .operand::<f32>(&[], &[0])
        .result::<f32>(&[0]);
    assert_eq!(call.run::<add>(), Ok(()));
}

#[test]
fn counts_of_operands_and_results_are_checked_first() {
    let mut call = Call::new();
    call.operand(&[1_i32], &[1]);
    assert_eq!(
        message(call.run::<add>()),
        "[execute] Wrong number of arguments: expected 2 but got 1"
    );
    call.operand(&[1_i32], &[1]);
    assert_eq!(
        message(call.run::<add>()),
        "[execute] Wrong number of results: expected 1 but got 0"
    );
}

#[test]
fn element_type_then_rank() {
    let mut call = Call::new();
    call.operand(&[1_i32; 4], &[2, 2])
        .operand(&[1.0_f32; 4], &[2, 2])
        .result::<f64>(&[4]);
    let diagnostics = [
        "Wrong buffer dtype: expected F32 but got S32",
        "Wrong buffer rank: expected 1 but got 2",
        "Wrong buffer dtype: expected F32 but got F64",
    ];
    assert_eq!(
        message(call.run::<add>()),
        undecoded("operands (bad operands at: 0, 1, 2)", &diagnostics)
    );
}

#[target]
fn attributes(
    #[attr] i32: i32,
    #[attr] i64: i64,
    #[attr(name = "f32")] float: f32,
    #[attr] str: &str,
) {
    assert_eq!((i32, i64, float, str), (42, 43, 44.0, "foo"));
}

#[test]
fn attributes_are_bound_by_name() {
    let mut call = Call::new();
    call.attribute("str", "foo")
        .attribute("i32", 42_i32)
        .attribute("f32", 44.0_f32)
        .attribute("i64", 43_i64);
    assert_eq!(call.run::<attributes>(), Ok(()));
}

#[target]
fn misnamed(
    #[attr] not_i32_should_fail: i32,
    #[attr] not_i64_should_fail: i64,
    #[attr] f32: f32,
    #[attr] not_str_should_fail: &str,
) {
    let _ = (
        not_i32_should_fail,
        not_i64_should_fail,
        f32,
        not_str_should_fail,
    );
}

/// `FfiTest.DecodingErrors`, with its attributes and messages.
#[test]
fn all_misnamed_attributes_are_reported() {
    let mut call = Call::new();
    call.attribute("i32", 42_i32)
        .attribute("i64", 42_i64)
        .attribute("f32", 42.0_f32)
        .attribute("str", "foo");
    let diagnostics = [
        "Attribute name mismatch: i32 vs not_i32_should_fail",
        "Attribute name mismatch: i64 vs not_i64_should_fail",
        "Attribute name mismatch: str vs not_str_should_fail",
    ];
    assert_eq!(
        message(call.run::<misnamed>()),
        undecoded(
            "attributes (bad attributes: not_i32_should_fail, not_i64_should_fail, \
             not_str_should_fail)",
            &diagnostics
        )
    );
}

#[target]
fn one_attribute(#[attr] i32: i32) {
    let _ = i32;
}

#[test]
fn a_target_with_attributes_takes_exactly_them() {
    let mut call = Call::new();
    assert_eq!(
        message(call.run::<one_attribute>()),
        "[execute] Wrong number of attributes: expected 1 but got 0"
    );
    call.attribute("i32", 1_i32).attribute("f32", 1.0_f32);
    assert_eq!(
        message(call.run::<one_attribute>()),
        "[execute] Wrong number of attributes: expected 1 but got 2 with name(s): f32, i32"
    );
}

#[test]
fn a_target_without_attributes_takes_any() {
    let mut call = Call::new();
    call.operand(&[1.0_f32], &[1])
        .operand(&[2.0_f32], &[1])
        .result::<f32>(&[1])
        .attribute("n", 1_i32);
    assert_eq!(call.run::<add>(), Ok(()));
}

#[test]
fn kinds_and_element_types_of_attributes_are_checked() {
    let wrong = |value: Value| {
        let outcome = Call::new().attribute("i32", value).run::<one_attribute>();
        let message = message(outcome);
        let (_, diagnostics) = message.split_once("Diagnostics:\n").unwrap();
        diagnostics.to_owned()
    };
    assert_eq!(
        wrong(Value::Dictionary(Vec::new())),
        "attribute i32: Wrong attribute type: expected scalar but got dictionary"
    );
    assert_eq!(
        wrong(Value::from("1")),
        "attribute i32: Wrong attribute type: expected scalar but got string"
    );
    assert_eq!(
        wrong(Value::from(&[1_i32][..])),
        "attribute i32: Wrong attribute type: expected scalar but got array"
    );
    assert_eq!(
        wrong(Value::from(1_u32)),
        "attribute i32: Wrong scalar data type: expected S32 but got U32"
    );
}

#[target]
fn every_kind(
    #[attr] flag: bool,
    #[attr] small: u8,
    #[attr] numbers: &[f64],
    #[attr] matrix: ArrayAttribute<i16>,
    #[attr] nested: Dictionary,
) -> Result<(), Failure> {
    assert_eq!((flag, small), (true, 7));
    assert_eq!(numbers, [1.0, 2.0]);
    assert_eq!(
        (&*matrix, matrix.dimensions()),
        (&[1_i16, 2, 3, 4][..], &[2, 2][..])
    );
    assert_eq!(nested.names().collect::<Vec<_>>(), ["deeper", "secret"]);
    assert_eq!(nested.get::<i64>("secret")?, 5);
    assert_eq!(
        nested.get::<Dictionary>("deeper")?.get::<&str>("s")?,
        "a\0b"
    );
    assert_eq!(nested.get::<Option<i64>>("absent")?, None);
    assert_eq!(
        message(nested.get::<i64>("absent").map(drop)),
        "Unexpected attribute: absent"
    );
    assert_eq!(
        message(nested.get::<&str>("secret").map(drop)),
        "Wrong attribute type: expected string but got scalar"
    );
    Ok(())
}

#[test]
fn attributes_keep_kind_shape_and_nesting() {
    let bytes: Vec<u8> = [1_i16, 2, 3, 4]
        .iter()
        .flat_map(|n| n.to_le_bytes())
        .collect();
    let deeper = Value::Dictionary(vec![("s".to_owned(), Value::from("a\0b"))]);
    let nested = vec![
        ("secret".to_owned(), Value::from(5_i64)),
        ("deeper".to_owned(), deeper),
    ];
    let mut call = Call::new();
    call.attribute("flag", true)
        .attribute("small", 7_u8)
        .attribute("numbers", &[1.0_f64, 2.0][..])
        .attribute("matrix", Value::Array(ElementType::S16, bytes, vec![2, 2]))
        .attribute("nested", Value::Dictionary(nested));
    assert_eq!(call.run::<every_kind>(), Ok(()));
}

#[test]
fn a_string_is_utf8() {
    #[target]
    fn text(#[attr] s: &str) {
        let _ = s;
    }
    let outcome = Call::new()
        .attribute("s", Value::String(vec![b'a', 0xff]))
        .run::<text>();
    assert!(
        message(outcome)
            .contains("attribute s: Wrong string encoding: expected UTF-8 but got invalid utf-8")
    );
}

#[target]
fn optional(#[attr] n: i32, #[attr] scale: Option<f32>, y: &mut ResultBuffer<f32, 0>) {
    y.set(n as f32 * scale.unwrap_or(1.0));
}

#[test]
fn an_optional_attribute_may_be_absent_and_no_other() {
    let run = |attributes: &[(&str, Value)]| {
        let mut call = Call::new();
        call.result::<f32>(&[]);
        for (name, value) in attributes {
            call.attribute(name, value.clone());
        }
        call.run::<optional>()
            .map(|()| call.result_elements::<f32>(0)[0])
    };
    assert_eq!(run(&[("n", 3_i32.into())]), Ok(3.0));
    assert_eq!(
        run(&[("n", 3_i32.into()), ("scale", 0.5_f32.into())]),
        Ok(1.5)
    );
    assert_eq!(
        message(run(&[]).map(drop)),
        "[execute] Wrong number of attributes: expected 1 to 2 but got 0"
    );
    assert_eq!(
        message(run(&[("scale", 0.5_f32.into())]).map(drop)),
        undecoded(
            "attributes (bad attributes: n)",
            &["Missing attribute: expected n but got scale"]
        )
    );
    assert_eq!(
        message(run(&[("n", 3_i32.into()), ("shift", 0.5_f32.into())]).map(drop)),
        "[execute] Unknown attribute: expected one of n, scale but got shift"
    );
    assert_eq!(
        message(run(&[("n", 3_i32.into()), ("scale", 1_i32.into())]).map(drop)),
        undecoded(
            "attributes (bad attributes: scale)",
            &["attribute scale: Wrong scalar data type: expected F32 but got S32"]
        )
    );
}

#[target(T = [f32, f64])]
fn total<T: callbox_guest::Element + core::iter::Sum + Into<f64>>(
    #[attr] scale: f64,
    x: &Operand<T>,
    y: &mut ResultBuffer<T, 0>,
    count: &mut ResultBuffer<f64, 0>,
) {
    y.set(x.iter().copied().sum());
    count.set(x.iter().map(|&x| x.into()).sum::<f64>() * scale);
}

#[test]
fn a_generic_target_runs_for_each_of_its_types() {
    let mut call = Call::new();
    call.operand(&[1.5_f32, 2.0], &[2])
        .result::<f32>(&[])
        .result::<f64>(&[])
        .attribute("scale", 2.0_f64);
    assert_eq!(call.run::<total>(), Ok(()));
    assert_eq!(call.result_elements::<f32>(0), [3.5]);
    assert_eq!(call.result_elements::<f64>(1), [7.0]);

    let mut call = Call::new();
    call.operand(&[1.5_f64, 2.0], &[2])
        .result::<f64>(&[])
        .result::<f64>(&[])
        .attribute("scale", 2.0_f64);
    assert_eq!(call.run::<total>(), Ok(()));
    assert_eq!(call.result_elements::<f64>(0), [3.5]);
}

#[test]
fn a_generic_target_refuses_other_types() {
    let mut call = Call::new();
    call.operand(&[1_u8], &[1])
        .result::<f32>(&[])
        .result::<f64>(&[])
        .attribute("scale", 2.0_f64);
    assert_eq!(
        message(call.run::<total>()),
        undecoded(
            "operands (bad operands at: 1)",
            &["Wrong buffer dtype: expected F32 or F64 but got U8"]
        )
    );
    let mut call = Call::new();
    call.operand(&[1_f64], &[1])
        .result::<f32>(&[])
        .result::<f64>(&[])
        .attribute("scale", 2.0_f64);
    assert_eq!(
        message(call.run::<total>()),
        undecoded(
            "operands (bad operands at: 2)",
            &["Wrong buffer dtype: expected F64 but got F32"]
        )
    );
}

#[target]
fn any(x: &AnyOperand, y: &mut AnyResult) -> Result<(), Failure> {
    match x.element_type() {
        ElementType::F32 => {
            let x = x.as_typed::<f32>()?;
            y.as_typed::<f32>()?.copy_from_slice(&x);
        }
        _ => y.bytes_mut().copy_from_slice(x.bytes()),
    }
    Ok(())
}

#[test]
fn a_buffer_of_any_type_says_its_own() {
    let mut call = Call::new();
    call.operand(&[1.0_f32, 2.0], &[1, 2]).result::<f32>(&[2]);
    assert_eq!(call.run::<any>(), Ok(()));
    assert_eq!(call.result_elements::<f32>(0), [1.0, 2.0]);

    let mut call = Call::new();
    call.operand(&[Pred::from(true)], &[]).result::<Pred>(&[]);
    assert_eq!(call.run::<any>(), Ok(()));
    assert_eq!(call.result_elements::<Pred>(0), [Pred::from(true)]);

    let mut call = Call::new();
    call.operand(&[1.0_f32], &[]).result::<i32>(&[]);
    assert_eq!(
        message(call.run::<any>()),
        "Wrong buffer dtype: expected F32 but got S32"
    );
}

#[target]
fn transposed(x: &Matrix, y: &mut ResultBuffer<f32, 2>) -> Result<(), Failure> {
    assert_eq!(format!("{:?}", x.shape()), "[2,3]{0,1}");
    assert!(!x.shape().is_row_major());
    y.expect_dimensions(&[3, 2])
}

#[test]
fn a_view_says_its_layout_and_checks_dimensions() {
    let mut call = Call::new();
    call.operand(&[0.0_f32; 6], &[2, 3])
        .result::<f32>(&[2, 3])
        .minor_to_major(&[0, 1]);
    assert_eq!(
        message(call.run::<transposed>()),
        "Wrong result dimensions: expected [3,2] but got [2,3]"
    );
}

#[test]
fn a_returned_failure_is_the_status() {
    #[target]
    fn failing() -> Result<(), Failure> {
        Err(Failure::aborted("Ooops!"))
    }
    let failure = Call::new().run::<failing>().unwrap_err();
    assert_eq!(failure.to_string(), "ABORTED: Ooops!");
}
