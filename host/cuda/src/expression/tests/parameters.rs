//! Values as bytes and as text.

use super::super::{Expression, Facts, PARAMETER_TYPES};
use super::{ANY, site, undeclared};
use callbox_core::values::{Attribute, ElementType};

/// The expected bytes are those of Python's `struct.pack`, and of NumPy for bf16.
#[test]
fn parameters_have_the_bytes_of_their_types() {
    let bytes = |text: &str, ty: &str| {
        let site = site();
        let facts = Facts::new(&site);
        let expression = Expression::parse(text, &undeclared(), &ANY).unwrap();
        let value = expression.evaluate(&facts).unwrap();
        value.encode(ty.parse().unwrap())
    };
    for (text, ty, expected) in [
        ("-1", "s8", &[0xff][..]),
        ("255", "u8", &[0xff]),
        ("-32768", "s16", &[0, 0x80]),
        ("65535", "u16", &[0xff, 0xff]),
        ("-2", "s32", &[0xfe, 0xff, 0xff, 0xff]),
        ("4294967295", "u32", &[0xff; 4]),
        ("-9223372036854775808", "s64", &[0, 0, 0, 0, 0, 0, 0, 0x80]),
        ("18446744073709551615", "u64", &[0xff; 8]),
        ("1.5", "f16", &[0x00, 0x3e]),
        ("1.5", "bf16", &[0xc0, 0x3f]),
        ("0.1", "f32", &[0xcd, 0xcc, 0xcc, 0x3d]),
        (
            "0.1",
            "f64",
            &[0x9a, 0x99, 0x99, 0x99, 0x99, 0x99, 0xb9, 0x3f],
        ),
        ("-0.0", "f32", &[0, 0, 0, 0x80]),
        ("attributes.eps", "f64", &[0, 0, 0, 0, 0, 0, 0xe0, 0x3f]),
        ("3", "f32", &[0, 0, 0x40, 0x40]),
        ("16777216", "f32", &[0, 0, 0x80, 0x4b]),
        ("true", "pred", &[1]),
        ("1 > 2", "pred", &[0]),
    ] {
        assert_eq!(bytes(text, ty).as_deref(), Ok(expected), "{text} as {ty}");
    }
    for (text, ty) in [
        ("128", "s8"),
        ("-129", "s8"),
        ("-1", "u8"),
        ("256", "u8"),
        ("4294967296", "u32"),
        ("-1", "u64"),
        ("18446744073709551616", "u64"),
        ("9223372036854775808", "s64"),
        ("16777217", "f32"),
        ("2049", "f16"),
        ("170141183460469231731687303715884105727", "f64"),
        ("1e39", "f32"),
        ("65520.0", "f16"),
        ("1.5", "u32"),
        ("true", "u8"),
        ("1", "pred"),
        ("'1'", "u8"),
        ("1", "f8e5m2"),
        ("1", "s4"),
        ("1.0", "c64"),
    ] {
        let message = bytes(text, ty).unwrap_err();
        assert!(message.starts_with(&format!("expected a value of the type {ty}, found ")));
    }
    // Every type of parameters has bytes.
    for ty in PARAMETER_TYPES {
        let text = if ty.is_pred() { "true" } else { "1" };
        let found = bytes(text, ty.lower_name()).unwrap();
        assert_eq!(found.len(), ty.byte_width(), "{ty}");
    }
}

/// A NaN's bits reach the kernel unchanged.
#[test]
fn numbers_of_the_same_type_keep_their_bits() {
    let mut site = site();
    let signalling = f32::from_bits(0xff80_0123);
    site.attributes = [("x".to_owned(), Attribute::scalar(signalling))].into();
    let facts = Facts::new(&site);
    let x = Expression::parse("if(true, attributes.x, 0.0)", &undeclared(), &ANY).unwrap();
    let value = x.evaluate(&facts).unwrap();
    assert_eq!(
        value.encode(ElementType::F32),
        Ok(vec![0x23, 0x01, 0x80, 0xff])
    );
}

#[test]
fn texts_of_callers_are_shown_on_one_line() {
    let mut site = site();
    let text = Attribute::String(
        b"a\x1b[2J\nb\xff"
            .iter()
            .copied()
            .chain(vec![b'x'; 9999])
            .collect(),
    );
    site.attributes = [("x".to_owned(), text)].into();
    let facts = Facts::new(&site);
    let x = Expression::parse("attributes.x", &undeclared(), &ANY).unwrap();
    let shown = x.evaluate(&facts).unwrap().to_string();
    assert!(shown.starts_with("a\u{fffd}[2J b\u{fffd}xx"), "{shown}");
    assert_eq!(shown.chars().count(), 64);
}
