//! Checks that the JSON Schema and the parser agree on the fields, the required fields, and the
//! names in lists.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::{FORMAT, ImageKind, Manifest};
use super::EVERYTHING;
use crate::expression::PARAMETER_TYPES;
use callbox_core::values::{ElementType, StatusCode};

fn schema() -> Value {
    serde_json::from_str(include_str!("../../../callbox.schema.json")).unwrap()
}

/// The places of the objects in the sample, and of their descriptions in the schema.
const OBJECTS: [(&str, &str); 12] = [
    ("", ""),
    ("/images/0", "/$defs/image"),
    ("/targets/0", "/$defs/target"),
    ("/targets/0/operands/0", "/$defs/buffer"),
    ("/targets/0/results/0", "/$defs/buffer"),
    ("/targets/0/attributes/1", "/$defs/attribute"),
    ("/targets/0/attributes/2", "/$defs/attribute"),
    ("/targets/0/checks/0", "/$defs/check"),
    ("/targets/0/launches/0", "/$defs/launch"),
    (
        "/targets/0/launches/0/parameters/0",
        "/$defs/parameter/oneOf/0",
    ),
    (
        "/targets/0/launches/0/parameters/2",
        "/$defs/parameter/oneOf/2",
    ),
    (
        "/targets/0/launches/0/parameters/3",
        "/$defs/parameter/oneOf/3",
    ),
];

fn names(object: &Value) -> BTreeSet<String> {
    object.as_object().unwrap().keys().cloned().collect()
}

fn strings(list: &Value) -> BTreeSet<String> {
    let list = list.as_array().unwrap().iter();
    list.map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// Everything, and two attributes that have all fields between them, of which no kind has all.
fn sample() -> Value {
    let mut sample: Value = serde_json::from_str(EVERYTHING).unwrap();
    let attributes = sample.pointer_mut("/targets/0/attributes").unwrap();
    attributes.as_array_mut().unwrap().extend([
        json!({
            "name": "range",
            "kind": "dictionary",
            "element_type": "f32",
            "fields": [{"name": "lo", "kind": "scalar", "element_type": "f32"}],
            "optional": true,
        }),
        json!({
            "name": "mode",
            "kind": "scalar",
            "element_type": "s32",
            "variants": {"Down": -1, "Up": 1},
            "optional": true,
        }),
    ]);
    sample
}

fn is_read(sample: &Value) -> bool {
    Manifest::parse(&sample.to_string()).is_ok()
}

/// The sample with a changed object.
fn changed(place: &str, change: impl FnOnce(&mut serde_json::Map<String, Value>)) -> Value {
    let mut sample = sample();
    change(sample.pointer_mut(place).unwrap().as_object_mut().unwrap());
    sample
}

#[test]
fn the_schema_has_the_readers_fields() {
    let schema = schema();
    let sample = sample();
    assert!(is_read(&sample));
    for (place, described) in OBJECTS {
        let described = schema.pointer(described).unwrap();
        assert_eq!(described["additionalProperties"], json!(false), "{place}");
        let properties = names(&described["properties"]);
        // The sample has each field of the schema, and the parser reads it.
        let alike = OBJECTS
            .iter()
            .filter(|(_, of)| schema.pointer(of) == Some(described));
        let present: BTreeSet<_> = alike
            .flat_map(|(place, _)| names(sample.pointer(place).unwrap()))
            .collect();
        assert_eq!(present, properties, "{place}");
        for name in &properties {
            let wrong = changed(place, |object| {
                object.insert(name.clone(), json!({"x": null}));
            });
            assert!(!is_read(&wrong), "{place}: {name} is not read");
        }
        // The parser lists the fields that it knows. A parameter has four kinds, each with its own.
        let unknown = changed(place, |object| {
            object.insert("zzzzzzzz".to_owned(), json!(1));
        });
        let status = Manifest::parse(&unknown.to_string()).unwrap_err();
        let (_, known) = status.message().split_once("fields ").unwrap();
        let (known, _) = known.split_once(", found").unwrap();
        let known: BTreeSet<_> = known.split(", ").map(str::to_owned).collect();
        if place.contains("parameters") {
            assert!(known.is_superset(&properties), "{place}")
        } else {
            assert_eq!(known, properties, "{place}")
        }
        for name in &properties {
            let without = changed(place, |object| {
                object.remove(name);
            });
            let required = described.get("required").map(strings).unwrap_or_default();
            let together = described
                .get("dependentRequired")
                .map(names)
                .unwrap_or_default();
            let is_needed = required.contains(name) || together.contains(name);
            let is_missed = match Manifest::parse(&without.to_string()) {
                Ok(_) => false,
                // Another field may refer to the removed one.
                Err(status) => !status.message().contains("that are declared"),
            };
            assert_eq!(is_missed, is_needed, "{place}: without {name}");
        }
    }
    let kinds = schema.pointer("/$defs/parameter/oneOf").unwrap();
    let kinds = kinds.as_array().unwrap().iter();
    let all: BTreeSet<_> = kinds.flat_map(|kind| names(&kind["properties"])).collect();
    let expected = ["operand", "result", "scratch", "type", "value"];
    assert_eq!(all, expected.map(str::to_owned).into());
}

#[test]
fn the_schema_has_the_readers_names() {
    let schema = schema();
    let listed = |place: &str| strings(schema.pointer(place).unwrap());
    let set = |names: &[&str]| {
        names
            .iter()
            .map(|&name| name.to_owned())
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(
        schema.pointer("/properties/format/const").unwrap(),
        &json!(FORMAT)
    );
    let types: Vec<_> = ElementType::ALL.iter().map(|ty| ty.lower_name()).collect();
    assert_eq!(listed("/$defs/element_type/enum"), set(&types));
    let types = PARAMETER_TYPES.map(ElementType::lower_name);
    assert_eq!(
        listed("/$defs/parameter/oneOf/3/properties/type/enum"),
        set(&types)
    );
    let codes = StatusCode::ALL
        .into_iter()
        .filter(|code| *code != StatusCode::Ok);
    let codes: Vec<_> = codes.map(StatusCode::name).collect();
    assert_eq!(listed("/$defs/check/properties/code/enum"), set(&codes));
    let extensions = ImageKind::ALL.map(ImageKind::extension).join("|");
    let pattern = schema
        .pointer("/$defs/image/properties/file/pattern")
        .unwrap();
    assert!(
        pattern
            .as_str()
            .unwrap()
            .ends_with(&format!("\\.({extensions})$"))
    );
    for (place, name, path) in [
        (
            "/$defs/target/properties/api_versions/items/enum",
            "api_versions",
            "/targets/0/api_versions/0",
        ),
        (
            "/$defs/attribute/properties/kind/enum",
            "kind",
            "/targets/0/attributes/0/kind",
        ),
    ] {
        let listed = listed(place);
        let mut sample: Value = serde_json::from_str(EVERYTHING).unwrap();
        *sample.pointer_mut(path).unwrap() = json!("zzzzzzzz");
        let status = Manifest::parse(&sample.to_string()).unwrap_err();
        // The parser's message lists all of them.
        for one in &listed {
            assert!(status.message().contains(one.as_str()), "{name}: {one}");
        }
        let expected = if name == "kind" { 5 } else { 4 };
        assert_eq!(listed.len(), expected);
    }
}
