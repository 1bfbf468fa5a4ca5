//! Attributes of every type: narrow floats, complex numbers, enums, structs.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "tests fail by panicking, and targets of tests need no documentation"
)]

use callbox_guest::native::{Call, Value};
use callbox_guest::{
    AttributeEnum, AttributeKind, AttributeStruct, Bf16, C64, C128, Context, Dictionary,
    ElementType, F16, Failure, Operand, Pred, ResultBuffer, target,
};

fn diagnostics(outcome: Result<(), Failure>) -> String {
    let message = outcome.unwrap_err().message().to_owned();
    let (_, diagnostics) = message.split_once("Diagnostics:\n").unwrap();
    diagnostics.to_owned()
}

fn dictionary(entries: &[(&str, Value)]) -> Value {
    let entries = entries.iter();
    Value::Dictionary(
        entries
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect(),
    )
}

#[target]
fn numbers(
    #[attr] f16: F16,
    #[attr] bf16: Bf16,
    #[attr] c64: C64,
    #[attr] c128: C128,
    #[attr] pred: Pred,
    #[attr] halves: &[F16],
    #[attr] truths: &[Pred],
    #[attr] complex: &[C128],
) {
    assert_eq!((f16.to_f32(), bf16.to_f32()), (1.5, -2.0));
    assert_eq!(
        (c64, c128),
        (C64 { re: 1.0, im: -1.0 }, C128 { re: 0.5, im: 2.0 })
    );
    assert!(pred.get());
    assert_eq!(halves, [F16::from_f32(0.25)]);
    assert_eq!(truths, [Pred::from(true), Pred::from(false)]);
    assert_eq!(complex, [c128, C128::default()]);
}

#[test]
fn every_element_type_with_a_rust_type_is_an_attribute() {
    let c128 = C128 { re: 0.5, im: 2.0 };
    let mut call = Call::new();
    call.attribute("f16", F16::from_f32(1.5))
        .attribute("bf16", Bf16::from_f32(-2.0))
        .attribute("c64", C64 { re: 1.0, im: -1.0 })
        .attribute("c128", c128)
        .attribute("pred", true)
        .attribute("halves", &[F16::from_f32(0.25)][..])
        .attribute("truths", &[Pred::from(true), Pred::from(false)][..])
        .attribute("complex", &[c128, C128::default()][..]);
    assert_eq!(call.run::<numbers>(), Ok(()));
}

#[target]
fn raw(context: &Context) -> Result<(), Failure> {
    let attributes = context.attributes();
    let found = attributes.find("x").unwrap();
    assert_eq!(found.kind(), Some(AttributeKind::Array));
    assert_eq!(found.element_type(), Some(ElementType::F8e4m3));
    assert_eq!(
        (found.dimensions(), found.bytes()),
        (&[3, 1][..], &[1, 2, 255][..])
    );
    let text = attributes.find("text").unwrap();
    assert_eq!(text.bytes(), b"\xff\0");
    assert!(text.get::<&str>().is_err());
    Ok(())
}

#[test]
fn the_others_are_bytes() {
    let mut call = Call::new();
    call.attribute(
        "x",
        Value::Array(ElementType::F8e4m3, vec![1, 2, 255], vec![3, 1]),
    )
    .attribute("text", Value::String(b"\xff\0".to_vec()));
    assert_eq!(call.run::<raw>(), Ok(()));
}

#[target(T = [F16, Bf16])]
fn double<T: callbox_guest::Element + Into<f32>>(x: &Operand<T>, y: &mut ResultBuffer<f32>) {
    for (y, x) in y.iter_mut().zip(x.iter()) {
        *y = 2.0 * (*x).into();
    }
}

#[test]
fn narrow_floats_are_operands() {
    let mut call = Call::new();
    call.operand(&[F16::from_f32(1.5), F16::from_f32(-0.25)], &[2])
        .result::<f32>(&[2]);
    assert_eq!(call.run::<double>(), Ok(()));
    assert_eq!(call.result_elements::<f32>(0), [3.0, -0.5]);
    let mut call = Call::new();
    call.operand(&[Bf16::from_f32(1.5)], &[]).result::<f32>(&[]);
    assert_eq!(call.run::<double>(), Ok(()));
    assert_eq!(call.result_elements::<f32>(0), [3.0]);
}

#[derive(AttributeEnum, Clone, Copy, Debug, PartialEq)]
#[repr(i32)]
enum Mode {
    Lower = -1,
    Zero,
    Upper,
}

#[derive(AttributeEnum, Debug, PartialEq)]
#[repr(u64)]
enum Wide {
    Last = u64::MAX,
}

#[target]
fn modes(#[attr] mode: Mode, #[attr] wide: Option<Wide>, y: &mut ResultBuffer<i32, 0>) {
    assert!(matches!(wide, None | Some(Wide::Last)));
    y.set(match mode {
        Mode::Lower => 1,
        Mode::Zero => 2,
        Mode::Upper => 3,
    });
}

#[test]
fn an_enum_is_a_scalar_of_its_own_width() {
    let run = |mode: Value| {
        let mut call = Call::new();
        call.attribute("mode", mode)
            .attribute("wide", u64::MAX)
            .result::<i32>(&[]);
        call.run::<modes>()
            .map(|()| call.result_elements::<i32>(0)[0])
    };
    for (number, expected) in [(-1, 1), (0, 2), (1, 3)] {
        assert_eq!(run(Value::from(number)), Ok(expected));
    }
    let wrong = |mode: Value| diagnostics(run(mode).map(drop));
    assert_eq!(
        wrong(Value::from(2)),
        "attribute mode: Wrong enum value: expected one of -1 (Lower), 0 (Zero), 1 (Upper) but got 2"
    );
    assert_eq!(
        wrong(Value::from(0_i64)),
        "attribute mode: Wrong scalar data type: expected S32 but got S64"
    );
    assert_eq!(
        wrong(Value::from(0_u32)),
        "attribute mode: Wrong scalar data type: expected S32 but got U32"
    );
    assert_eq!(
        wrong(Value::from("Zero")),
        "attribute mode: Wrong attribute type: expected scalar but got string"
    );
}

#[derive(AttributeStruct, Debug, PartialEq)]
struct Range {
    lo: i64,
    hi: i64,
}

#[derive(AttributeStruct)]
struct Settings<'a> {
    range: Range,
    mode: Mode,
    #[attr(name = "type")]
    kind: Option<&'a str>,
    rest: Dictionary<'a>,
}

#[target]
fn structured(#[attr] settings: Settings, #[attr] n: i32) -> Result<(), Failure> {
    assert_eq!(settings.range, Range { lo: 0, hi: 42 });
    assert_eq!((settings.mode, settings.kind), (Mode::Upper, None));
    assert_eq!(settings.rest.read::<Range>()?, Range { lo: 1, hi: 2 });
    assert_eq!(n, 7);
    Ok(())
}

fn range(lo: i64, hi: i64) -> Value {
    dictionary(&[("lo", lo.into()), ("hi", hi.into())])
}

#[test]
fn a_struct_is_a_dictionary_of_its_fields() {
    let settings = [
        ("range", range(0, 42)),
        ("mode", 1_i32.into()),
        ("rest", range(1, 2)),
    ];
    let mut call = Call::new();
    call.attribute("settings", dictionary(&settings))
        .attribute("n", 7_i32);
    assert_eq!(call.run::<structured>(), Ok(()));
}

#[test]
fn all_that_is_wrong_with_a_struct_is_reported() {
    let settings = [
        (
            "range",
            dictionary(&[("lo", 0_i32.into()), ("high", 42_i64.into())]),
        ),
        ("mode", 7_i32.into()),
        ("type", 1_i32.into()),
        ("rest", "none".into()),
    ];
    let mut call = Call::new();
    call.attribute("settings", dictionary(&settings))
        .attribute("n", 7_i64);
    assert_eq!(
        call.run::<structured>().unwrap_err().message(),
        "[execute] Failed to decode all FFI handler attributes (bad attributes: settings, n)\nDiagnostics:\n\
         attribute settings: Wrong scalar data type: expected S64 but got S32\n\
         attribute settings: Unexpected attribute: hi\n\
         attribute settings: Wrong enum value: expected one of -1 (Lower), 0 (Zero), 1 (Upper) but got 7\n\
         attribute settings: Wrong attribute type: expected string but got scalar\n\
         attribute settings: Wrong attribute type: expected dictionary but got string\n\
         attribute n: Wrong scalar data type: expected S32 but got S64"
    );
}

#[target]
fn ranged(#[attr] range: Range) {
    let _ = range;
}

#[target]
fn set(#[attr] settings: Settings) {
    let _ = settings.kind;
}

#[test]
fn a_struct_has_exactly_its_fields() {
    let wrong = |entries: &[(&str, Value)]| {
        let mut call = Call::new();
        call.attribute("range", dictionary(entries));
        diagnostics(call.run::<ranged>())
    };
    let one = ("lo", Value::from(1_i64));
    assert_eq!(
        wrong(&[]),
        "attribute range: Wrong number of attributes: expected 2 attributes but got 0"
    );
    assert_eq!(
        wrong(std::slice::from_ref(&one)),
        "attribute range: Wrong number of attributes: expected 2 attributes but got 1"
    );
    assert_eq!(
        wrong(&[one.clone(), ("a", 1_i64.into()), ("hi", 1_i64.into())]),
        "attribute range: Wrong number of attributes: expected 2 attributes but got 3"
    );
    let mut call = Call::new();
    call.attribute("range", 1_i64);
    assert_eq!(
        diagnostics(call.run::<ranged>()),
        "attribute range: Wrong attribute type: expected dictionary but got scalar"
    );
}

#[test]
fn a_struct_with_optional_fields_knows_all_names() {
    let wrong = |entries: &[(&str, Value)]| {
        let mut call = Call::new();
        call.attribute("settings", dictionary(entries));
        diagnostics(call.run::<set>())
    };
    let known = [("range", range(0, 1)), ("mode", 1_i32.into())];
    assert_eq!(
        wrong(&known),
        "attribute settings: Wrong number of attributes: expected 3 to 4 attributes but got 2"
    );
    let unknown = [known[0].clone(), known[1].clone(), ("kind", "x".into())];
    assert_eq!(
        wrong(&unknown),
        "attribute settings: Unknown attribute: expected one of range, mode, type, rest but got kind"
    );
}
