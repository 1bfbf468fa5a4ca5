#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::call::{ApiVersion, Stage};
use crate::values::{ElementType, Literal};

fn buffer(element_types: &[ElementType], rank: usize) -> BufferSignature {
    BufferSignature {
        name: "x".to_owned(),
        element_types: element_types.to_vec(),
        rank: Some(rank),
        dimensions: None,
        optional: false,
    }
}

fn attribute(name: &str, kind: &str, element_type: Option<ElementType>) -> AttributeSignature {
    AttributeSignature {
        name: name.to_owned(),
        kind: kind.to_owned(),
        element_type,
        fields: None,
        variants: None,
        optional: false,
    }
}

fn optional(name: &str) -> AttributeSignature {
    AttributeSignature {
        optional: true,
        ..attribute(name, "scalar", Some(ElementType::F32))
    }
}

fn signature(attributes: Vec<AttributeSignature>) -> Signature {
    Signature {
        name: "f".to_owned(),
        api_versions: vec![ApiVersion::TypedFfi],
        stages: vec![Stage::Execute],
        operands: Some(vec![
            buffer(&[ElementType::F32], 1),
            buffer(&[ElementType::F32, ElementType::F64], 1),
        ]),
        results: Some(vec![buffer(&[ElementType::F32], 0)]),
        remaining_operands: false,
        remaining_results: false,
        attributes: Some(attributes),
        documentation: String::new(),
        traits: Vec::new(),
        derivative_of: None,
    }
}

fn site(operands: &[&str], result: &str, attributes: Vec<(&str, Attribute)>) -> CallSite {
    let operands = operands.iter().map(|text| text.parse().unwrap()).collect();
    let mut site = CallSite::new("f", operands, result.parse().unwrap());
    let owned = |(name, value): (&str, Attribute)| (name.to_owned(), value);
    site.attributes = attributes.into_iter().map(owned).collect();
    site
}

/// The error of a call whose buffers fit, or an empty string.
fn message(declared: Vec<AttributeSignature>, attributes: Vec<(&str, Attribute)>) -> String {
    let site = site(&["f32[2]", "f64[2]"], "f32[]", attributes);
    let signature = signature(declared);
    let checked = signature.check(&site);
    let alone = signature.check_attributes(&site.attributes);
    assert_eq!(checked, alone, "both checks say the same");
    match checked {
        Ok(()) => String::new(),
        Err(status) => status.message().to_owned(),
    }
}

fn undecoded(bad: &str, diagnostics: &[&str]) -> String {
    format!(
        "Failed to decode all FFI handler {bad}\nDiagnostics:\n{}",
        diagnostics.join("\n")
    )
}

#[test]
fn counts_fail_alone() {
    for (operands, result, expected) in [
        (
            &["s32[1]"][..],
            "(f32[], f32[])",
            "Wrong number of arguments: expected 2 but got 1",
        ),
        (
            &["s32[1]", "f32[1]"],
            "(f32[], f32[])",
            "Wrong number of results: expected 1 but got 2",
        ),
    ] {
        let status = signature(vec![]).check(&site(operands, result, vec![]));
        assert_eq!(status.unwrap_err().message(), expected);
    }
}

#[test]
fn all_parameters_are_reported_together() {
    let declared = vec![attribute("n", "scalar", Some(ElementType::S32))];
    let attributes = vec![("n", Attribute::scalar(1.0_f32))];
    let status = signature(declared).check(&site(&["s32[1]", "f64[1,1]"], "f64[]", attributes));
    assert_eq!(
        status.unwrap_err().message(),
        undecoded(
            "operands (bad operands at: 0, 1, 2; bad attributes: n)",
            &[
                "operand x: Wrong buffer dtype: expected F32 but got S32",
                "operand x: Wrong buffer rank: expected 1 but got 2",
                "result x: Wrong buffer dtype: expected F32 but got F64",
                "attribute n: Wrong scalar data type: expected S32 but got F32",
            ]
        )
    );
    let status = signature(vec![]).check(&site(&["f32[1]", "pred[1]"], "f32[]", vec![]));
    assert_eq!(
        status.unwrap_err().message(),
        undecoded(
            "operands (bad operands at: 1)",
            &["operand x: Wrong buffer dtype: expected F32 or F64 but got PRED"]
        )
    );
}

#[test]
fn attributes_of_another_type_are_refused() {
    let array = Literal::from_bytes("f32[1]".parse().unwrap(), vec![0; 4]).unwrap();
    for (kind, found, expected) in [
        (
            "scalar",
            Attribute::Dictionary(Dictionary::new()),
            "attribute n: Wrong attribute type: expected scalar but got dictionary",
        ),
        (
            "string",
            Attribute::scalar(1_i32),
            "attribute n: Wrong attribute type: expected string but got scalar",
        ),
        (
            "scalar",
            Attribute::scalar(1.0_f64),
            "attribute n: Wrong scalar data type: expected S32 but got F64",
        ),
        (
            "array",
            Attribute::array(array).unwrap(),
            "attribute n: Wrong array data type: expected S32 but got F32",
        ),
    ] {
        let declared = vec![attribute("n", kind, Some(ElementType::S32))];
        let found = message(declared, vec![("n", found)]);
        assert_eq!(
            found,
            undecoded("attributes (bad attributes: n)", &[expected])
        );
    }
}

#[test]
fn required_attributes_are_compared_place_by_place() {
    let one = || Attribute::scalar(1_i32);
    for (attributes, expected) in [
        (
            vec![],
            "Wrong number of attributes: expected 2 but got 0".to_owned(),
        ),
        (
            vec![("a", one()), ("n", one()), ("mode", "x".into())],
            "Wrong number of attributes: expected 2 but got 3 with name(s): a, mode, n".to_owned(),
        ),
        (
            vec![("mode", "x".into()), ("m", one())],
            undecoded(
                "attributes (bad attributes: n, mode)",
                &[
                    "Attribute name mismatch: mode vs n",
                    "Attribute name mismatch: m vs mode",
                ],
            ),
        ),
        (vec![("mode", "x".into()), ("n", one())], String::new()),
    ] {
        let declared = vec![
            attribute("n", "scalar", None),
            attribute("mode", "string", None),
        ];
        assert_eq!(message(declared, attributes), expected);
    }
    assert_eq!(message(vec![], vec![("whatever", one())]), "");
}

#[test]
fn optional_attributes_are_found_by_name() {
    let one = || Attribute::scalar(1.0_f32);
    for (attributes, expected) in [
        (
            vec![],
            "Wrong number of attributes: expected 1 to 2 but got 0".to_owned(),
        ),
        (
            vec![("scale", one())],
            undecoded(
                "attributes (bad attributes: n)",
                &["Missing attribute: expected n but got scale"],
            ),
        ),
        (
            vec![("n", one()), ("shift", one())],
            "Unknown attribute: expected one of n, scale but got shift".to_owned(),
        ),
        (
            vec![("n", one()), ("scale", Attribute::scalar(1_i32))],
            undecoded(
                "attributes (bad attributes: scale)",
                &["attribute scale: Wrong scalar data type: expected F32 but got S32"],
            ),
        ),
        (vec![("n", one())], String::new()),
    ] {
        let n = attribute("n", "scalar", Some(ElementType::F32));
        assert_eq!(message(vec![n, optional("scale")], attributes), expected);
    }
}

#[test]
fn few_of_many_names_are_listed() {
    let declared: Vec<_> = (0..5000).map(|i| optional(&format!("a{i:04}"))).collect();
    let text = message(declared, vec![("b", Attribute::scalar(1.0_f32))]);
    assert!(
        text.starts_with("Unknown attribute: expected one of a0000, a0001, "),
        "{text}"
    );
    assert!(
        text.ends_with("a0015, ... (5000 in all) but got b"),
        "{text}"
    );
}
