//! Texts that JAX printed, and malformed ones.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::StatusCode;
use half::{bf16, f16};
use num_complex::Complex;

/// Room for a thousand bytes of splats.
fn room() -> AttributeRoom {
    let mut room = AttributeRoom::of_a_text();
    room.splat_bytes = 1000;
    room
}

fn read(text: &str) -> Dictionary {
    let mut cursor = Cursor::new(text);
    let dictionary = Reader { room: &mut room() }.dictionary(&mut cursor, MAX_DEPTH);
    let dictionary = dictionary
        .map_err(|diagnostic| diagnostic.into_status(text))
        .unwrap();
    assert!(cursor.is_at_end());
    dictionary
}

fn refuse(text: &str) -> (StatusCode, String) {
    let status = Reader { room: &mut room() }
        .dictionary(&mut Cursor::new(text), MAX_DEPTH)
        .unwrap_err()
        .into_status(text);
    (
        status.code(),
        status.message().lines().next().unwrap().to_owned(),
    )
}

/// Each takes a kilobyte, or four bytes of text.
#[test]
fn dictionaries_count_as_eight_attributes() {
    let nested = |count: usize| {
        let each = (0..count).map(|i| format!("d{i} = {{a}}"));
        let each = each.map(|text| text.replace("{a}", "{a = 1}"));
        format!("{{{}}}", each.collect::<Vec<_>>().join(", "))
    };
    // Ten each: itself, what a dictionary counts as, and the attribute in it.
    let most = (1 << 18) / 10;
    let mut attributes = AttributeRoom::of_a_text();
    read_attributes(&nested(most), &mut attributes).unwrap();
    let refused = |text: &str, room: &mut AttributeRoom| {
        let status = read_attributes(text, room).unwrap_err().into_status(text);
        assert_eq!(status.code(), StatusCode::ResourceExhausted);
        let message = "expected at most 262144 attributes, of which a dictionary counts as 8 more";
        assert!(status.message().contains(message), "{status}");
    };
    // Texts of one program share what they have.
    refused(&nested(1), &mut attributes);
    refused(&nested(most + 1), &mut AttributeRoom::of_a_text());
    let long = &mut AttributeRoom::of_a_program((1 << 21) + 80);
    read_attributes(&nested(most), long).unwrap();
    read_attributes(&nested(1), long).unwrap();
}

/// The texts in these tests are those that JAX 0.10.2 prints for the values beside them.
#[test]
fn scalars_have_the_type_that_stands_behind_them() {
    let read = read(concat!(
        "{a = 1 : i64, b = 2.500000e+00 : f64, c = true, d = 255 : ui8, e = -128 : i8, f = 0x7FC00000 : f32, ",
        "g = 0xFFF0000000000000 : f64, h = -0.000000e+00 : f64, i = 1.000000e-01 : f32, j = 0.33333333333333331 : f64, ",
        "k = 9223372036854775807 : ui64, l = 0x7E00 : f16, m = 1.000000e+00 : bf16, n = 4, o = 1.000000e+300}",
    ));
    for (name, value) in [
        ("a", Attribute::scalar(1_i64)),
        ("b", Attribute::scalar(2.5)),
        ("c", Attribute::scalar(true)),
        ("d", Attribute::scalar(255_u8)),
        ("e", Attribute::scalar(-128_i8)),
        ("f", Attribute::scalar(f32::NAN)),
        ("g", Attribute::scalar(f64::NEG_INFINITY)),
        ("h", Attribute::scalar(-0.0)),
        ("i", Attribute::scalar(0.1_f32)),
        ("j", Attribute::scalar(1.0 / 3.0)),
        ("k", Attribute::scalar(i64::MAX as u64)),
        ("l", Attribute::scalar(f16::NAN)),
        ("m", Attribute::scalar(bf16::ONE)),
        ("n", Attribute::scalar(4_i64)),
        ("o", Attribute::scalar(1e300)),
    ] {
        assert_eq!(read[name], value, "{name}");
    }
}

#[test]
fn names_and_strings_have_mlirs_escapes() {
    let read = read(concat!(
        r#"{"" = 8 : i64, "1x" = "he said \22hi\22\0A\09\\ \00 \C3\A9 \7F", true = 4 : i64, x$y = "}{", "#,
        r#""x-y" = "\FF\00ab", x.y = "", "\C3\A9" = "\22}"}"#,
    ));
    let names: Vec<_> = read.keys().map(String::as_str).collect();
    assert_eq!(names, ["", "1x", "true", "x$y", "x-y", "x.y", "é"]);
    assert_eq!(
        read["1x"],
        Attribute::from("he said \"hi\"\n\t\\ \0 é \x7f")
    );
    assert_eq!(read["x-y"], Attribute::String(b"\xff\0ab".to_vec()));
    assert_eq!(read["é"], Attribute::from("\"}"));
}

#[test]
fn arrays_keep_their_shape_and_their_type() {
    let read = read(concat!(
        "{a = dense<[[1, 0], [0, 1]]> : tensor<2x2xi32>, b = dense<1.000000e+00> : tensor<3xf32>, ",
        "c = dense<> : tensor<2x0xf64>, d = dense<1> : tensor<ui8>, e = dense<\"0x0000803F00000040\"> : tensor<2xf32>, ",
        "f = dense<[(0x7FC00000,0x7F800000), (-0.000000e+00,0.000000e+00)]> : tensor<2xcomplex<f32>>, ",
        "g = dense<[true, false, true]> : tensor<3xi1>, h = dense<(1.000000e+00,0.000000e+00)> : tensor<2xcomplex<f64>>, ",
        "i = array<i64: 1, -2>, j = array<i1: true>, k = array<f32>, l = [1.000000e+00, 2.000000e+00], m = [1, 2], ",
        "n = dense<[-8, 7]> : tensor<2xi4>, o = dense<[18446744073709551615, 1]> : tensor<2xui64>, ",
        "p = dense<\"0x07\"> : tensor<4xui4>}",
    ));
    let float_bits = [f32::NAN, f32::INFINITY].map(f32::to_bits);
    let Attribute::Array(complex) = &read["f"] else {
        unreachable!("{:?}", read["f"])
    };
    let complex = complex.to_vec::<Complex<f32>>().unwrap();
    assert_eq!([complex[0].re, complex[0].im].map(f32::to_bits), float_bits);
    assert!(complex[1].re.is_sign_negative());
    let bytes = |shape: &str, bytes: &[u8]| {
        Literal::from_bytes(shape.parse().unwrap(), bytes.to_vec()).unwrap()
    };
    for (name, value) in [
        ("a", Literal::array(&[2, 2], &[1, 0, 0, 1]).unwrap()),
        ("b", Literal::array(&[3], &[1.0_f32; 3]).unwrap()),
        ("c", Literal::array::<f64>(&[2, 0], &[]).unwrap()),
        ("d", Literal::scalar(1_u8)),
        ("e", Literal::array(&[2], &[1.0_f32, 2.0]).unwrap()),
        ("g", Literal::array(&[3], &[true, false, true]).unwrap()),
        (
            "h",
            Literal::array(&[2], &[Complex::new(1.0, 0.0); 2]).unwrap(),
        ),
        ("i", Literal::array(&[2], &[1_i64, -2]).unwrap()),
        ("j", Literal::array(&[1], &[true]).unwrap()),
        ("k", Literal::array::<f32>(&[0], &[]).unwrap()),
        ("l", Literal::array(&[2], &[1.0, 2.0]).unwrap()),
        ("m", Literal::array(&[2], &[1_i64, 2]).unwrap()),
        ("n", bytes("s4[2]", &[0xf8, 7])),
        ("o", Literal::array(&[2], &[u64::MAX, 1]).unwrap()),
        ("p", bytes("u4[4]", &[7; 4])),
    ] {
        assert_eq!(read[name], Attribute::Array(value), "{name}");
    }
}

#[test]
fn functions_are_referred_to_by_name() {
    let read = read(r#"{a = @impl, b = {c = @"a b-\C3\A9", d = @_x$y.1}, e = @ f}"#);
    let function = |name: &str| Attribute::Function(name.to_owned());
    assert_eq!(read["a"], function("impl"));
    assert_eq!(read["e"], function("f"));
    let nested = Dictionary::from([
        ("c".to_owned(), function("a b-é")),
        ("d".to_owned(), function("_x$y.1")),
    ]);
    assert_eq!(read["b"], Attribute::Dictionary(nested));
    for (text, message) in [
        ("{a = @}", "7: expected the name of a function, found '}'"),
        (
            "{a = @1}",
            "7: expected the name of a function, found \"1\"",
        ),
        (
            r#"{a = @"\FF"}"#,
            "7: expected the name of a function, found what is not UTF-8",
        ),
    ] {
        let message = format!("line 1, column {message}");
        assert_eq!(refuse(text), (StatusCode::InvalidArgument, message));
    }
}

/// JAX does not lower complex scalars. The notation is MLIR's.
#[test]
fn complex_scalars_are_read() {
    let read = read(
        "{a = #complex.number<:f32 1.0, -0.0>, b = #complex.number<:f64 0x7FF8000000000000, 2.0>}",
    );
    let Attribute::Scalar(b) = &read["b"] else {
        unreachable!("{:?}", read["b"])
    };
    assert_eq!(read["a"], Attribute::scalar(Complex::new(1.0_f32, -0.0)));
    let b = b.to_vec::<Complex<f64>>().unwrap()[0];
    assert!(b.re.is_nan() && b.im == 2.0);
}

/// Texts that JAX 0.10.2 prints for values of ml_dtypes' types and of Python's.
#[test]
fn types_of_one_bit_and_enumerations_are_read() {
    let read = read(concat!(
        "{a = dense<[true, false, true]> : tensor<3xui1>, b = dense<true> : tensor<2xui1>, ",
        "c = dense<[1.000000e+00, 5.000000e-01]> : tensor<2xf4E2M1FN>, d = 2 : i64, e = \"a\", f = [true, false], ",
        "g = [1 : i32, 2 : i32], h = dense<[1.000000e+00, 5.000000e-01]> : tensor<2xf8E8M0FNU>}",
    ));
    let bytes = |shape: &str, bytes: &[u8]| {
        let literal = Literal::from_bytes(shape.parse().unwrap(), bytes.to_vec());
        Attribute::Array(literal.unwrap())
    };
    assert_eq!(read["a"], bytes("u1[3]", &[1, 0, 1]));
    assert_eq!(read["b"], bytes("u1[2]", &[1, 1]));
    assert_eq!(read["c"], bytes("f4e2m1fn[2]", &[2, 1]));
    assert_eq!(read["f"], bytes("pred[2]", &[1, 0]));
    assert_eq!(read["g"], bytes("s32[2]", &[1, 0, 0, 0, 2, 0, 0, 0]));
    assert_eq!(read["h"], bytes("f8e8m0fnu[2]", &[0x7f, 0x7e]));
}

#[test]
fn dictionaries_nest() {
    let read = read("{a = {x = 1 : i64, y = {z = \"}\"}}, b = {}}");
    let Attribute::Dictionary(a) = &read["a"] else {
        unreachable!("{:?}", read["a"])
    };
    assert_eq!(a["x"], Attribute::scalar(1_i64));
    assert_eq!(a["y"].kind(), "dictionary");
    assert_eq!(read["b"], Attribute::Dictionary(Dictionary::new()));
    let deep = "{a = ".repeat(100_000);
    assert_eq!(refuse(&deep).0, StatusCode::ResourceExhausted);
}

/// The code and the beginning of the message are XLA's.
#[test]
fn other_kinds_are_refused_by_name() {
    for (text, message) in [
        (
            "{a = f8E5M2}",
            "6: attributes such as \"f8E5M2\" are not supported",
        ),
        (
            "{a = unit}",
            "6: attributes such as \"unit\" are not supported",
        ),
        (
            "{a = affine_map<(d0) -> (d0)>}",
            "6: attributes such as \"affine_map\" are not supported",
        ),
        (
            "{a = @f::@g}",
            "7: a reference to a part of a symbol is not supported",
        ),
        (
            "{a = #complex.number<:f16 1.0, 2.0>}",
            "21: complex numbers of f16 are not supported",
        ),
        (
            "{a = [@f]}",
            "7: a list other than of numbers of one type is not supported",
        ),
        (
            "{a = #x.y<1>}",
            "6: attributes such as '#' are not supported",
        ),
        (
            "{flag, b = 1}",
            "2: an attribute without a value is not supported",
        ),
        (
            "{a = [1, \"x\", true]}",
            "10: a list other than of numbers of one type is not supported",
        ),
        (
            "{a = [1, 2.0]}",
            "10: a list other than of numbers of one type is not supported",
        ),
        (
            "{a = [[1]]}",
            "7: a list other than of numbers of one type is not supported",
        ),
        (
            "{a = []}",
            "6: an empty list, which has no type, is not supported",
        ),
        (
            "{a = 4 : index}",
            "10: attributes of type index are not supported",
        ),
        (
            "{a = 4 : i128}",
            "10: attributes of type i128 are not supported",
        ),
        (
            "{a = dense<1> : vector<2xi32>}",
            "17: elements of a type other than tensor are not supported",
        ),
    ] {
        let (column, why) = message.split_once(": ").unwrap();
        let name = text[1..].split([',', ' ']).next().unwrap();
        let message = format!(
            "line 1, column {column}: Unsupported attribute type for attribute: {name}: {why}"
        );
        assert_eq!(refuse(text), (StatusCode::InvalidArgument, message));
    }
    let nested = refuse("{a = {b = unit}}").1;
    assert!(nested.contains("for attribute: b: attributes"), "{nested}");
}

#[test]
fn wrong_texts_are_refused_with_their_place() {
    for (text, message) in [
        (
            "a = 1",
            "1: expected '{' and attributes such as n = 4 : i32, found \"a\"",
        ),
        (
            "{a = 1",
            "7: expected ',' or '}', found the end of the text",
        ),
        ("{a = 1 b = 2}", "8: expected ',' or '}', found \"b\""),
        (
            "{a = 1, a = 2}",
            "9: expected each attribute once, found another \"a\"",
        ),
        (
            "{1 = 1}",
            "2: expected the name of an attribute, found \"1\"",
        ),
        (
            "{a : 1}",
            "4: expected '=' behind the attribute's name, found ':'",
        ),
        (
            "{a = }",
            "6: expected an attribute such as 4 : i32 or \"text\", found '}'",
        ),
        (
            "{a = -}",
            "6: expected an attribute such as 4 : i32 or \"text\", found \"-\"",
        ),
        (
            "{a = 300 : ui8}",
            "6: expected a value of u8 from 0 to 255, found \"300\"",
        ),
        (
            "{a = \"\\x\"}",
            "7: expected an escape such as \\n or \\C3, found \"\\\\x\"",
        ),
        (
            "{\"\\FF\" = 1}",
            "2: expected the name of an attribute, found what is not UTF-8",
        ),
        (
            "{a = dense<[1, 2> : tensor<2xi32>}",
            "17: expected ']' behind 2 elements, found '>'",
        ),
        (
            "{a = dense<[1, 2, 3]> : tensor<2xi32>}",
            "17: expected ']' behind 2 elements, found ','",
        ),
        (
            "{a = dense<[1], 2> : tensor<1xi32>}",
            "15: expected '>' of dense elements, found ','",
        ),
        (
            "{a = dense<1>}",
            "14: expected ':' and the type of dense elements, found '}'",
        ),
        (
            "{a = dense<[1, x]> : tensor<2xi32>}",
            "16: expected a value of s32 from -2147483648 to 4294967295, found \"x\"",
        ),
        (
            "{a = dense<\"0x0102\"> : tensor<3xi8>}",
            "12: expected 3 elements for s8[3], found 2",
        ),
        (
            "{a = dense<\"01\"> : tensor<1xi8>}",
            "12: expected pairs of hexadecimal digits behind 0x, found \"01\"",
        ),
        (
            "{a = dense<> : tensor<1xi8>}",
            "12: expected a value of s8, found '>'",
        ),
        (
            "{a = array<i64: 1 2>}",
            "19: expected ',' or '>', found \"2\"",
        ),
        (
            "{a = array<i64: >}",
            "17: expected a value of s64 from -9223372036854775808 to 18446744073709551615, found \"\"",
        ),
    ] {
        let message = format!("line 1, column {message}");
        assert_eq!(refuse(text), (StatusCode::InvalidArgument, message));
    }
}

#[test]
fn one_element_for_many_has_a_bound() {
    let (code, message) = refuse("{a = dense<1> : tensor<900xi8>, b = dense<1> : tensor<101xi8>}");
    assert_eq!(code, StatusCode::ResourceExhausted);
    assert_eq!(
        message,
        "line 1, column 43: expected arrays that fit into memory, found s8[101] of one value"
    );
    assert_eq!(
        refuse("{a = dense<1> : tensor<9223372036854775807xi8>}").0,
        StatusCode::ResourceExhausted
    );
}

#[test]
fn the_number_of_attributes_has_a_bound() {
    let of = |count: usize| {
        let attributes = (0..count).map(|i| format!("a{i} = {{}}"));
        format!("{{{}}}", attributes.collect::<Vec<_>>().join(","))
    };
    assert_eq!(read(&of(1 << 18)).len(), 1 << 18);
    let (code, message) = refuse(&of((1 << 18) + 1));
    assert_eq!(code, StatusCode::ResourceExhausted);
    let expected = "expected at most 262144 attributes, of which a dictionary counts as 8 more, \
                    found more";
    assert!(message.ends_with(expected), "{message}");
}
