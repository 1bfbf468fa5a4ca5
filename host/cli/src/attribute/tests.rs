#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use half::bf16;
use num_complex::Complex;

use super::*;

fn value(text: &str) -> Attribute {
    let argument = parse(&format!("n={text}")).unwrap();
    assert_eq!(argument.name, "n");
    argument.typed(None).unwrap()
}

/// The value if the target declares this type.
fn declared(text: &str, element_type: ElementType) -> callbox::Result<Attribute> {
    declared_as(text, &field("n", "scalar", Some(element_type)))
}

fn declared_as(text: &str, declared: &AttributeSignature) -> callbox::Result<Attribute> {
    let argument = parse(&format!("{}={text}", declared.name)).unwrap();
    let typed = argument.typed(Some(declared));
    typed.map_err(|failure| failure.status().clone())
}

fn field(name: &str, kind: &str, element_type: Option<ElementType>) -> AttributeSignature {
    AttributeSignature {
        name: name.to_owned(),
        kind: kind.to_owned(),
        element_type,
        fields: None,
        variants: None,
        optional: false,
    }
}

/// A dictionary with a dictionary in it.
fn range() -> AttributeSignature {
    let ends = AttributeSignature {
        fields: Some(vec![field("closed", "scalar", Some(ElementType::Pred))]),
        optional: true,
        ..field("ends", "dictionary", None)
    };
    let fields = vec![
        field("lo", "scalar", Some(ElementType::F32)),
        field("steps", "array", Some(ElementType::U8)),
        field("mode", "string", None),
        ends,
    ];
    AttributeSignature {
        fields: Some(fields),
        ..field("range", "dictionary", None)
    }
}

#[test]
fn fields_of_a_dictionary_have_the_declared_types() {
    let text = r#"{"lo":-8,"steps":[1,2],"mode":"up","ends":{"closed":true}}"#;
    let ends = Dictionary::from([("closed".to_owned(), Attribute::scalar(true))]);
    let expected = Dictionary::from([
        ("lo".to_owned(), Attribute::scalar(-8.0_f32)),
        ("steps".to_owned(), list(&[2], &[1_u8, 2])),
        ("mode".to_owned(), Attribute::from("up")),
        ("ends".to_owned(), Attribute::Dictionary(ends)),
    ]);
    assert_eq!(
        declared_as(text, &range()),
        Ok(Attribute::Dictionary(expected))
    );
    // MLIR's text has types of its own.
    let typed = declared_as("{lo = 1 : i8}", &range()).unwrap();
    let own = Dictionary::from([("lo".to_owned(), Attribute::scalar(1_i8))]);
    assert_eq!(typed, Attribute::Dictionary(own));
}

#[test]
fn errors_in_a_dictionary_name_the_attribute_and_the_field() {
    let fields = "expected the fields `lo`, `steps`, `mode`, `ends`, found";
    for (text, message) in [
        (
            r#"{"lo":"a","steps":[1],"mode":"up"}"#,
            "the attribute `range.lo`, which the target declares as f32: expected a value of f32, \
             found \"a\"",
        ),
        (
            r#"{"lo":1,"steps":[256],"mode":"up"}"#,
            "the attribute `range.steps`, which the target declares as u8: expected a value of u8 \
             from 0 to 255, found 256",
        ),
        (
            r#"{"lo":1,"steps":1,"mode":"up"}"#,
            "the attribute `range.steps`: expected the kind array, found scalar",
        ),
        (
            r#"{"lo":1,"steps":[1],"mode":2}"#,
            "the attribute `range.mode`: expected the kind string, found scalar",
        ),
        (
            r#"{"lo":1,"steps":[1],"mode":"up","ends":{"closed":1}}"#,
            "the attribute `range.ends.closed`, which the target declares as pred: expected a \
             value of pred, found 1",
        ),
        (
            r#"{"lo":1,"steps":[1],"mode":"up","hi":1}"#,
            &format!("the attribute `range`: {fields} another `hi`"),
        ),
        (
            r#"{"lo":1,"mode":"up"}"#,
            &format!("the attribute `range`: {fields} no `steps`"),
        ),
        (
            r#"{"lo":1,"steps":[1],"mode":"up","ends":{}}"#,
            "the attribute `range.ends`: expected the fields `closed`, found no `closed`",
        ),
    ] {
        let status = declared_as(text, &range()).unwrap_err();
        assert_eq!(status.message(), message, "{text}");
        assert_eq!(status.code(), callbox::StatusCode::InvalidArgument);
    }
}

#[test]
fn a_declared_type_stands_for_one_that_is_left_out() {
    let f32 = ElementType::F32;
    assert_eq!(declared("4", f32), Ok(Attribute::scalar(4.0_f32)));
    assert!(declared("\"nan:f32\"", f32).is_err());
    assert_eq!(declared("[1,2]", f32), Ok(list(&[2], &[1.0_f32, 2.0])));
    // An explicit type is kept, and the target refuses the attribute.
    assert_eq!(declared("4:s8", f32), Ok(Attribute::scalar(4_i8)));
    let status = declared("4.5", ElementType::S32).unwrap_err();
    assert_eq!(
        status.message(),
        "the attribute `n`, which the target declares as s32: expected a value of s32 from \
         -2147483648 to 2147483647, found 4.5"
    );
}

#[test]
fn mlirs_text_has_types_inside_dictionaries() {
    let range = Dictionary::from([
        ("hi".to_owned(), Attribute::scalar(8_i32)),
        ("lo".to_owned(), Attribute::scalar(-8.0_f32)),
    ]);
    assert_eq!(
        value("{lo = -8.0 : f32, hi = 8 : i32}"),
        Attribute::Dictionary(range)
    );
    assert_eq!(value("1e-6 : f32"), Attribute::scalar(1e-6_f32));
    assert_eq!(value("2 :i32"), Attribute::scalar(2_i32));
    assert_eq!(
        value("dense<[1, 2]> : tensor<2xi32>"),
        list(&[2], &[1_i32, 2])
    );
    // The text is one attribute, and not the end of one and another.
    assert!(refuse("{lo = 1 : i32}, n = {}").starts_with("expected JSON"));
    assert!(refuse("{lo = 1 : i31}").starts_with("expected JSON"));
}

fn refuse(text: &str) -> String {
    parse(&format!("n={text}")).unwrap_err()
}

fn list<T: callbox::NativeType>(dimensions: &[usize], elements: &[T]) -> Attribute {
    Attribute::array(Literal::array(dimensions, elements).unwrap()).unwrap()
}

#[test]
fn types_are_jaxs_if_left_out() {
    assert_eq!(value("4"), Attribute::scalar(4_i64));
    assert_eq!(value("-4.5e1"), Attribute::scalar(-45.0_f64));
    assert_eq!(value("true"), Attribute::scalar(true));
    assert_eq!(value("\"a:f32\""), Attribute::from("a:f32"));
    assert_eq!(value("[1,2]"), list(&[2], &[1_i64, 2]));
    assert_eq!(value("[1,2.5]"), list(&[2], &[1.0_f64, 2.5]));
    assert_eq!(value("[[true],[false]]"), list(&[2, 1], &[true, false]));
    assert_eq!(
        refuse("[]"),
        "expected the type of an empty list, as in []:f32"
    );
    assert_eq!(
        refuse("[1,true]"),
        "expected a list of one type, found truth values and numbers"
    );
    assert_eq!(
        refuse("[\"a\"]"),
        "expected a number or a truth value in a list, found a string"
    );
    assert_eq!(refuse("null"), "expected a value, found null");
    assert_eq!(
        refuse("@f"),
        "expected @FILE.npy or @FILE.safetensors#TENSOR, found \"@f\"; only a program has functions"
    );
}

#[test]
fn types_are_xlas_and_mlirs() {
    for (text, expected) in [
        ("4.0:f32", Attribute::scalar(4.0_f32)),
        ("4:f32", Attribute::scalar(4.0_f32)),
        ("4:F32", Attribute::scalar(4.0_f32)),
        ("4:s8", Attribute::scalar(4_i8)),
        ("-4:i16", Attribute::scalar(-4_i16)),
        ("-4:si32", Attribute::scalar(-4_i32)),
        ("18446744073709551615:ui64", Attribute::scalar(u64::MAX)),
        ("255:u8", Attribute::scalar(255_u8)),
        ("true:i1", Attribute::scalar(true)),
        ("false:pred", Attribute::scalar(false)),
        ("1.5:bf16", Attribute::scalar(bf16::from_f32(1.5))),
        ("\"-inf\":f32", Attribute::scalar(f32::NEG_INFINITY)),
        ("[1,-2]:c64", Attribute::scalar(Complex::new(1.0_f32, -2.0))),
        (
            "[[1,-2]]:complex<f64>",
            list(&[1], &[Complex::new(1.0_f64, -2.0)]),
        ),
        ("[]:f32", list::<f32>(&[0], &[])),
        ("[[1],[2]]:i32", list(&[2, 1], &[1_i32, 2])),
    ] {
        assert_eq!(value(text), expected, "{text}");
    }
    let Attribute::Scalar(nan) = value("\"nan\":f16") else {
        panic!("expected a scalar");
    };
    assert!(nan.to_vec::<half::f16>().unwrap()[0].is_nan());
    let Attribute::Scalar(narrow) = value("-8:i4") else {
        panic!("expected a scalar");
    };
    assert_eq!(
        (narrow.shape().to_string(), narrow.bytes()),
        ("s4[]".to_owned(), Some(&[0xf8][..]))
    );
}

#[test]
fn objects_are_dictionaries() {
    let inner = Dictionary::from([("b".to_owned(), Attribute::scalar(1_i64))]);
    let outer = Dictionary::from([
        ("a".to_owned(), Attribute::Dictionary(inner)),
        ("s".to_owned(), Attribute::from("x")),
    ]);
    assert_eq!(
        value(r#"{"s":"x","a":{"b":1}}"#),
        Attribute::Dictionary(outer)
    );
    assert_eq!(
        refuse(r#"{"a":{"b":null}}"#),
        "a: b: expected a value, found null"
    );
    assert_eq!(
        refuse("{}:f32"),
        "expected a number or a list of type f32, found an object"
    );
}

#[test]
fn what_a_type_does_not_have_is_refused() {
    for (text, message) in [
        ("300:u8", "expected a value of u8 from 0 to 255, found 300"),
        (
            "128:i8",
            "expected a value of s8 from -128 to 127, found 128",
        ),
        ("8:i4", "expected a value of s4 from -8 to 7, found 8"),
        (
            "4.0:i32",
            "expected a value of s32 from -2147483648 to 2147483647, found 4.0",
        ),
        (
            "9223372036854775808",
            "expected a value of s64 from -9223372036854775808 to 9223372036854775807, \
             found 9223372036854775808",
        ),
        ("1e39:f32", "expected a value of f32, found 1e+39"),
        ("[1.0,1e39]:f32", "expected a value of f32, found 1e+39"),
        ("449.0:f8E4M3FN", ""),
        ("1000:f8E4M3FN", "expected a value of f8e4m3fn, found 1000"),
        (
            "\"inf\":f8E4M3FN",
            "expected a value of f8e4m3fn, found \"inf\"",
        ),
        ("\"1\":f32", "expected a value of f32, found \"1\""),
        ("1:i1", "expected a value of pred, found 1"),
        ("1:c64", "expected a value of c64 as [RE,IM], found 1"),
        (
            "[1,2,3]:c64",
            "expected a value of c64 as [RE,IM], found [1,2,3]",
        ),
        (
            "1:f4e2m1fn",
            "attributes of type f4e2m1fn are not supported",
        ),
        (
            "[[1,2],[3]]",
            "expected a list of 2, as before it, found one of 1",
        ),
        ("[[1,2],3]", "expected a list of 2, as before it, found 3"),
    ] {
        if message.is_empty() {
            // Nearer to the type's greatest number than to the next one, which it lacks.
            assert_eq!(value(text).kind(), "scalar");
        } else {
            assert_eq!(refuse(text), message, "{text}");
        }
    }
}

#[test]
fn what_is_no_value_is_refused() {
    assert_eq!(
        refuse("4:f31"),
        "expected a type such as f32 or i64, found \"f31\""
    );
    assert_eq!(
        refuse("4:token"),
        "expected a type such as f32 or i64, found \"token\""
    );
    assert_eq!(
        refuse("fast"),
        "expected JSON, found \"fast\"; a string has quotes: \"fast\""
    );
    assert!(refuse("{").starts_with("expected JSON, found \"{\""));
    assert!(refuse("").starts_with("expected JSON"));
    assert!(refuse(&"[".repeat(10_000)).starts_with("expected JSON"));
    for wrong in ["", "n", "=1"] {
        let message = parse(wrong).unwrap_err();
        assert_eq!(
            message,
            format!("expected NAME=VALUE or NAME=VALUE:TYPE, found {wrong:?}")
        );
    }
}
