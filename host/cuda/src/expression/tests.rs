#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod declared;
mod failures;
mod hostile;
mod parameters;
mod values;

use super::{Expression, Facts, Kind};
use callbox_core::call::{
    ApiVersion, AttributeSignature, BufferSignature, CallSite, Signature, Stage,
};
use callbox_core::values::{Attribute, Dictionary, ElementType, Literal};

const ANY: [Kind; 4] = [Kind::Integer, Kind::Float, Kind::Boolean, Kind::Text];

/// A target that declares nothing.
fn undeclared() -> Signature {
    Signature {
        name: "f".to_owned(),
        api_versions: vec![ApiVersion::TypedFfi],
        stages: vec![Stage::Execute],
        ..Signature::default()
    }
}

/// A target of one operand of rank 2, one result, and an attribute of each kind.
fn declared() -> Signature {
    let buffer = |rank| BufferSignature {
        name: String::new(),
        element_types: Vec::new(),
        rank,
        dimensions: None,
        optional: false,
    };
    let attribute =
        |(name, kind, element_type): (&str, &str, Option<ElementType>)| AttributeSignature {
            name: name.to_owned(),
            kind: kind.to_owned(),
            element_type,
            fields: None,
            variants: None,
            optional: false,
        };
    let attributes = [
        ("n", "scalar", Some(ElementType::S32)),
        ("eps", "scalar", Some(ElementType::F32)),
        ("any", "scalar", None),
        ("flag", "scalar", Some(ElementType::Pred)),
        ("complex", "scalar", Some(ElementType::C64)),
        ("strides", "array", Some(ElementType::S64)),
        ("mode", "string", None),
        ("inner", "dictionary", None),
        ("callee", "function", None),
    ];
    Signature {
        operands: Some(vec![buffer(Some(2))]),
        results: Some(vec![buffer(None)]),
        attributes: Some(attributes.map(attribute).to_vec()),
        ..undeclared()
    }
}

/// A call of f32[6,35] and (s8[], (bf16[4])) to f64[2,3,5], with attributes and eleven opaque
/// bytes.
fn site() -> CallSite {
    let shapes = ["f32[6,35]", "(s8[], (bf16[4]))"].map(|text| text.parse().unwrap());
    let mut site = CallSite::new("f", shapes.to_vec(), "f64[2,3,5]".parse().unwrap());
    let inner = Dictionary::from([("count".to_owned(), Attribute::scalar(7_u8))]);
    let array = |literal: Literal| Attribute::array(literal).unwrap();
    let strides = Literal::array(&[2, 2], &[35_i64, 1, -9, i64::MIN]).unwrap();
    let attributes = [
        ("n", Attribute::scalar(-12_i32)),
        ("eps", Attribute::scalar(0.5_f32)),
        ("nan", Attribute::scalar(f32::NAN)),
        ("flag", Attribute::scalar(true)),
        ("strides", array(strides)),
        ("empty", array(Literal::array::<f32>(&[0], &[]).unwrap())),
        ("mode", Attribute::from("same")),
        ("inner", Attribute::Dictionary(inner)),
        ("callee", Attribute::Function("g".to_owned())),
        ("f8", Attribute::Scalar("f8e5m2".parse().map(one).unwrap())),
    ];
    site.attributes = attributes
        .map(|(name, value)| (name.to_owned(), value))
        .into();
    // 0xfffefdfc, then 1.5 as an f32, then three bytes.
    site.opaque = [0xfc, 0xfd, 0xfe, 0xff, 0, 0, 0xc0, 0x3f, 1, 2, 3].to_vec();
    site
}

fn one(ty: ElementType) -> Literal {
    let shape = callbox_core::values::ArrayShape::scalar(ty);
    Literal::from_bytes(shape, vec![0; ty.byte_width()]).unwrap()
}

/// The value for [`site`], or the message without the expression.
fn value(text: &str, signature: &Signature) -> String {
    let site = site();
    let facts = Facts::new(&site);
    let expression = Expression::parse(text, signature, &ANY);
    let value = expression
        .as_ref()
        .map_err(Clone::clone)
        .and_then(|expression| expression.evaluate(&facts));
    match value {
        Ok(value) => value.to_string(),
        Err(status) => {
            assert_eq!(status.code().name(), "INVALID_ARGUMENT");
            let (_, place) = status.message().split_once(", column ").unwrap();
            place.to_owned()
        }
    }
}

#[test]
fn the_whole_has_the_kind_that_its_place_takes() {
    let message = |text: &str, kinds: &[Kind]| {
        let read = Expression::parse(text, &undeclared(), kinds);
        read.map_or_else(|status| status.message().to_owned(), |_| String::new())
    };
    assert_eq!(
        message("1 < 2", &[Kind::Integer]),
        "expression \"1 < 2\", column 1: expected an integer, found a truth value"
    );
    assert_eq!(
        message("'x'", &[Kind::Float, Kind::Integer]),
        "expression \"'x'\", column 1: expected a floating-point number or an integer, found a text"
    );
    // Without a declaration the kind depends on the call site.
    assert_eq!(message("attributes.mode", &[Kind::Integer]), "");
    let site = site();
    let facts = Facts::new(&site);
    let read = |text| Expression::parse(text, &undeclared(), &ANY).unwrap();
    let mode = read("attributes.mode");
    assert_eq!(
        mode.size(&facts, "a size", 0, 9).unwrap_err().message(),
        "expression \"attributes.mode\", column 1: expected a size from 0 to 9, found same"
    );
    assert_eq!(
        mode.truth(&facts).unwrap_err().message(),
        "expression \"attributes.mode\", column 1: expected a truth value, found same"
    );
    for (text, size) in [
        ("0", None),
        ("1", Some(1)),
        ("9", Some(9)),
        ("10", None),
        ("-1", None),
    ] {
        let found = read(text).size(&facts, "a size", 1, 9).ok();
        assert_eq!(found, size, "{text}");
    }
    assert!(
        read("18446744073709551616")
            .size(&facts, "a size", 0, u64::MAX)
            .is_err()
    );
}
