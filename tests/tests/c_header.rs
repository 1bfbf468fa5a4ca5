//! What `guest-sdk/include/callbox.h` says of records and numbers against what the host has. That the C compiler lays the records out so, the header
//! asserts itself.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use callbox::call::Stage;
use callbox::frame::abi::{self, RECORDS};
use callbox::{ElementType, StatusCode};

fn header() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest-sdk/include/callbox.h");
    fs::read_to_string(path).unwrap()
}

/// The header's name of a record's field.
fn field_name(record: &str, field: &str) -> String {
    match (record, field) {
        ("buffer", "aliased-operand") => "alias".to_owned(),
        ("call-frame", "literal" | "functions") => format!("{field}_since_1_1"),
        _ => field.replace('-', "_"),
    }
}

#[test]
fn records_are_asserted_to_lie_as_the_host_lays_them() {
    let header = header();
    for record in RECORDS {
        let name = format!("callbox_{}", record.name.replace('-', "_"));
        let size = format!("CALLBOX_ASSERT(sizeof({name}) == {});", record.size);
        assert!(header.contains(&size), "{size}");
        for (field, offset) in record.fields {
            let field = field_name(record.name, field);
            let line = format!("CALLBOX_ASSERT_FIELD({name}, {field}, {offset});");
            assert!(header.contains(&line), "{line}");
        }
    }
}

/// The constants of an enumeration, with their numbers: none is given one.
fn numbers(header: &str, name: &str) -> BTreeMap<usize, String> {
    let (_, rest) = header.split_once(&format!("enum {name} {{")).unwrap();
    let (body, _) = rest.split_once('}').unwrap();
    let constants = body.split(',').map(|constant| constant.trim().to_owned());
    constants.enumerate().collect()
}

#[test]
fn numbers_are_xlas() {
    let header = header();
    let types = numbers(&header, "callbox_element_type");
    for (&number, name) in &types {
        if let Some(element_type) = ElementType::from_number(u8::try_from(number).unwrap()) {
            assert_eq!(*name, format!("CALLBOX_{}", element_type.upper_name()));
        }
    }
    assert_eq!(types.len(), 34);
    let codes = numbers(&header, "callbox_status_code");
    let expected = StatusCode::ALL.map(|code| (code.number().into(), format!("CALLBOX_{code}")));
    assert_eq!(codes, BTreeMap::from(expected));
    let stages = numbers(&header, "callbox_stage");
    let name = |stage: Stage| format!("CALLBOX_STAGE_{}", stage.name().to_ascii_uppercase());
    let expected = Stage::ALL.map(|stage| (stage as usize, name(stage)));
    assert_eq!(stages, BTreeMap::from(expected));
    let kinds = numbers(&header, "callbox_attribute_kind");
    for (number, name) in [
        (abi::attribute::KIND_ARRAY, "ARRAY"),
        (abi::attribute::KIND_DICTIONARY, "DICTIONARY"),
        (abi::attribute::KIND_SCALAR, "SCALAR"),
        (abi::attribute::KIND_STRING, "STRING"),
        (abi::attribute::KIND_FUNCTION, "FUNCTION"),
    ] {
        assert_eq!(kinds[&number.into()], format!("CALLBOX_KIND_{name}"));
    }
}

#[test]
fn the_version_is_the_hosts() {
    let line = format!(
        "#define CALLBOX_VERSION ({}u << 16 | {}u)",
        abi::MAJOR,
        abi::MINOR
    );
    assert!(header().contains(&line), "{line}");
}
