//! Round trips of attributes of all kinds.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use half::{bf16, f16};
use num_complex::Complex;
use proptest::prelude::*;

use super::*;
use crate::StatusCode;
use crate::text::MAX_TEXT_BYTES;
use crate::values::{ArrayShape, Attribute, ElementType, Literal};

/// Checks that attributes are read back bit for bit: literals are compared by their bytes.
#[track_caller]
fn check(attributes: &Dictionary) -> String {
    let text = attributes_to_mlir(attributes);
    let again = attributes_from_mlir(&text);
    assert_eq!(again.as_ref(), Ok(attributes), "{text}");
    text
}

#[track_caller]
fn check_one(value: Attribute) -> String {
    check(&Dictionary::from([("a".to_owned(), value)]))
}

fn literal(shape: &str, bytes: &[u8]) -> Literal {
    Literal::from_bytes(shape.parse().unwrap(), bytes.to_vec()).unwrap()
}

fn array_types() -> Vec<ElementType> {
    let types = ElementType::ALL.iter().copied();
    types.filter(|t| *t != ElementType::Token).collect()
}

/// An element's bytes as in a literal: the bits beyond its type's width extend its sign.
fn element(element_type: ElementType, bytes: &[u8]) -> Vec<u8> {
    let bits = element_type.bit_width();
    let narrow = |byte: u8| match element_type {
        ElementType::Pred => byte & 1,
        _ if bits >= 8 => byte,
        _ if element_type.is_signed_integral() => {
            ((byte << (8 - bits)).cast_signed() >> (8 - bits)).cast_unsigned()
        }
        _ => byte & ((1 << bits) - 1),
    };
    let bytes = bytes[..element_type.byte_width()].iter();
    bytes.map(|byte| narrow(*byte)).collect()
}

#[test]
fn numbers_keep_their_bits() {
    for bits in [
        0x7fc0_0000_u32,
        0xffc0_0000,
        0x7f80_0001,
        0xffff_ffff,
        0x7fc1_2345,
        0x7f80_0000,
        0xff80_0000,
        0x8000_0000,
        1,
        0x8000_0001,
        0x7f7f_ffff,
    ] {
        check_one(Attribute::scalar(f32::from_bits(bits)));
    }
    for bits in [
        0x7ff8_0000_0000_0000_u64,
        0xfff0_0000_0000_0001,
        u64::MAX,
        0x7ff0_0000_0000_0000,
        0xfff0_0000_0000_0000,
        0x8000_0000_0000_0000,
        1,
        0x3fd5_5555_5555_5555,
    ] {
        check_one(Attribute::scalar(f64::from_bits(bits)));
        let part = f64::from_bits(bits);
        check_one(Attribute::scalar(Complex::new(part, -0.0)));
        check_one(Attribute::scalar(Complex::new(1.5, part)));
    }
    for value in [i64::MIN, -1, i64::MAX] {
        check_one(Attribute::scalar(value));
    }
    check_one(Attribute::scalar(u64::MAX));
    check_one(Attribute::scalar(true));
    check_one(Attribute::scalar(false));
}

/// Each number, in every position that a number can have.
#[test]
fn all_numbers_of_two_bytes_survive() {
    for element_type in array_types() {
        let width = element_type.byte_width();
        if width > 2 {
            continue;
        }
        let numbers = 0..=u16::MAX >> (16 - 8 * width);
        let mut all: Vec<u8> = Vec::new();
        let mut scalars = Dictionary::new();
        for number in numbers.clone() {
            let bytes = element(element_type, &number.to_le_bytes());
            all.extend(&bytes);
            // A sample suffices for types of two bytes: the arrays below have all numbers.
            if width == 1 || number % 97 == 0 || number & 0x7c00 == 0x7c00 {
                let shape = ArrayShape::scalar(element_type);
                let scalar = Literal::from_bytes(shape, bytes).unwrap();
                scalars.insert(format!("n{number}"), Attribute::Scalar(scalar));
            }
        }
        check(&scalars);
        // Printed as decimals, and as bytes.
        for chunk in all.chunks(64 * width) {
            let shape = ArrayShape::new(element_type, &[chunk.len() / width]).unwrap();
            let array = Literal::from_bytes(shape, chunk.to_vec()).unwrap();
            check_one(Attribute::Array(array));
        }
        let shape = ArrayShape::new(element_type, &[all.len() / width, 1]).unwrap();
        check_one(Attribute::Array(Literal::from_bytes(shape, all).unwrap()));
    }
}

#[test]
fn arrays_keep_their_dimensions() {
    for element_type in array_types() {
        let name = element_type.lower_name();
        for shape in [
            "[]", "[1]", "[0]", "[2,3]", "[3,0]", "[0,3]", "[1,1,4]", "[102]",
        ] {
            let shape: ArrayShape = format!("{name}{shape}").parse().unwrap();
            let zeros = Literal::from_bytes(shape.clone(), vec![0; shape.byte_size()]).unwrap();
            check_one(Attribute::Array(zeros));
            let mut seed = 1_u32;
            let bytes = (0..shape.element_count()).flat_map(|_| {
                let mut bytes = [0; 16];
                for byte in &mut bytes {
                    seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    *byte = seed.to_le_bytes()[3];
                }
                element(element_type, &bytes)
            });
            let array = Literal::from_bytes(shape.clone(), bytes.collect()).unwrap();
            check_one(Attribute::Array(array));
        }
    }
    // An array of rank 0 is not a scalar.
    assert_eq!(
        check_one(Attribute::Array(Literal::scalar(3_u8))),
        "{a = dense<3> : tensor<ui8>}"
    );
    let text = check_one(Attribute::Array(literal("pred[2,2]", &[1, 0, 0, 1])));
    assert_eq!(
        text,
        "{a = dense<[[true, false], [false, true]]> : tensor<2x2xi1>}"
    );
    check_one(Attribute::scalar(f16::from_bits(0xfc01)));
    check_one(Attribute::scalar(bf16::from_bits(0x8000)));
}

/// Layouts have no meaning in an attribute, and are not printed.
#[test]
fn layouts_are_left_out() {
    let bytes = [1, 2, 3, 4, 5, 6];
    let text = attributes_to_mlir(&Dictionary::from([(
        "a".to_owned(),
        Attribute::Array(literal("u8[2,3]{0,1}", &bytes)),
    )]));
    let again = attributes_from_mlir(&text).unwrap();
    assert_eq!(again["a"], Attribute::Array(literal("u8[2,3]", &bytes)));
}

#[test]
fn texts_and_names_survive() {
    for bytes in [
        &b""[..],
        b"\0",
        b"a\0b\0",
        b"\"quoted\" \\22 \\\\",
        b"\xff\xfe\x80",
        "\u{e9}\u{6f22}\u{1f600}".as_bytes(),
        b"} , a = 1 : i32 {",
        b"// no comment /* none */",
        b"%0 = @f \t\r\n",
        b"\\",
    ] {
        check_one(Attribute::String(bytes.to_vec()));
    }
    check_one(Attribute::String((0..=u8::MAX).collect()));
    for name in [
        "",
        " ",
        "a b",
        "1",
        "-",
        "\"",
        "\\",
        "\0",
        "\u{e9}",
        "a.b$c",
        "true",
        "dense",
        "array",
        "=",
        ",",
        "}",
        "@f",
        "//",
        "callbox.x",
        "_",
        "i32",
        "unit",
    ] {
        check(&Dictionary::from([
            (name.to_owned(), Attribute::scalar(1_i32)),
            (
                format!("{name}."),
                Attribute::Dictionary(Dictionary::from([(name.to_owned(), Attribute::from(name))])),
            ),
            (format!("{name}f"), Attribute::Function(name.to_owned())),
        ]));
    }
}

#[test]
fn dictionaries_nest_as_deep_as_a_call_site_may_have_them() {
    let nested = |depth: usize| {
        let mut dictionary = Dictionary::from([("x".to_owned(), Attribute::scalar(1_i8))]);
        for level in 1..depth {
            let beside = Attribute::scalar(level as u32);
            dictionary = Dictionary::from([
                ("d".to_owned(), Attribute::Dictionary(dictionary)),
                ("level".to_owned(), beside),
            ]);
        }
        dictionary
    };
    check(&nested(64));
    check(&Dictionary::new());
    check_one(Attribute::Dictionary(Dictionary::new()));
    let status = attributes_from_mlir(&attributes_to_mlir(&nested(65))).unwrap_err();
    assert_eq!(status.code(), StatusCode::ResourceExhausted);
}

#[test]
fn other_texts_are_refused_with_their_place() {
    assert_eq!(attributes_from_mlir(" "), Ok(Dictionary::new()));
    for (text, code, message) in [
        (
            "{a = 1} x",
            StatusCode::InvalidArgument,
            "line 1, column 9: expected the end of the attributes, found \"x\"",
        ),
        (
            "a = 1",
            StatusCode::InvalidArgument,
            "line 1, column 1: expected '{' and attributes such as n = 4 : i32, found \"a\"",
        ),
        (
            "{a = 1",
            StatusCode::InvalidArgument,
            "line 1, column 7: expected ',' or '}', found the end of the attributes",
        ),
        (
            "{a = unit}",
            StatusCode::InvalidArgument,
            "line 1, column 6: Unsupported attribute type for attribute: a: attributes such as \"unit\" are not supported",
        ),
        (
            "{a = dense<0.0> : tensor<1000000000xf64>}",
            StatusCode::ResourceExhausted,
            "line 1, column 12: expected arrays that fit into memory, found f64[1000000000] of one value",
        ),
    ] {
        let status = attributes_from_mlir(text).unwrap_err();
        let found = status.message().lines().next().unwrap();
        assert!(found.starts_with(message), "{found}");
        assert_eq!(status.code(), code, "{text}");
    }
    let long = " ".repeat(MAX_TEXT_BYTES + 1);
    let status = attributes_from_mlir(&long).unwrap_err();
    assert_eq!(status.code(), StatusCode::ResourceExhausted);
}

fn attributes() -> impl Strategy<Value = Attribute> {
    let number = (prop::sample::select(array_types()), any::<[u8; 16]>());
    let number = number.prop_map(|(element_type, bytes)| {
        let bytes = element(element_type, &bytes);
        Attribute::Scalar(Literal::from_bytes(ArrayShape::scalar(element_type), bytes).unwrap())
    });
    let elements = prop::collection::vec(any::<[u8; 16]>(), 0..130);
    let array = (prop::sample::select(array_types()), elements, any::<bool>());
    let array = array.prop_map(|(element_type, elements, is_column)| {
        let count = elements.len();
        let dimensions = [count, 1];
        let dimensions = &dimensions[..if is_column { 2 } else { 1 }];
        let shape = ArrayShape::new(element_type, dimensions).unwrap();
        let bytes = elements
            .iter()
            .flat_map(|bytes| element(element_type, bytes));
        Attribute::Array(Literal::from_bytes(shape, bytes.collect()).unwrap())
    });
    let text = prop::collection::vec(any::<u8>(), 0..20).prop_map(Attribute::String);
    let function = ".{0,6}".prop_map(Attribute::Function);
    let leaf = prop_oneof![number, array, text, function];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop::collection::btree_map(".{0,6}", inner, 0..4).prop_map(Attribute::Dictionary)
    })
}

proptest! {
    #[test]
    fn whatever_a_call_site_has_survives(attributes in prop::collection::btree_map(".{0,6}", attributes(), 0..5)) {
        check(&attributes);
    }

    #[test]
    fn no_text_is_too_much(text in r#"[{}\[\]<>"\\a0x:;=,.@#%!/ \-\n]{0,40}"#) {
        if let Ok(attributes) = attributes_from_mlir(&text) {
            check(&attributes);
        }
    }
}
