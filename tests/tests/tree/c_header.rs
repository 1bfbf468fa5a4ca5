//! The records and numbers of `guest-sdk/include/callbox.h` against those of `callbox-abi`. The
//! header itself asserts that the C compiler lays the records out so.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use callbox_abi::{AttributeKind, ElementType, LogLevel, MAJOR, MINOR, Stage, StatusCode};
use callbox_tests::abi_records::records;

fn header() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest-sdk/include/callbox.h");
    fs::read_to_string(path).unwrap()
}

/// Returns the header's name for a record's field.
fn field_name(record: &str, field: &str) -> String {
    match (record, field) {
        ("buffer", "aliased-operand") => "alias".to_owned(),
        ("call-frame", "literal" | "functions") => format!("{field}_since_1_1"),
        _ => field.replace('-', "_"),
    }
}

#[test]
fn the_header_asserts_the_layout_of_the_records() {
    let header = header();
    for record in records() {
        let name = format!("callbox_{}", record.name.replace('-', "_"));
        let size = format!("CALLBOX_ASSERT(sizeof({name}) == {});", record.size);
        assert!(header.contains(&size), "{size}");
        for (field, offset) in &record.fields {
            let field = field_name(&record.name, field);
            let line = format!("CALLBOX_ASSERT_FIELD({name}, {field}, {offset});");
            assert!(header.contains(&line), "{line}");
        }
    }
}

/// Returns the constants of an enumeration with their numbers. The header assigns none explicitly.
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
    for kind in AttributeKind::ALL {
        let name = kind.name().to_ascii_uppercase();
        assert_eq!(kinds[&kind.number().into()], format!("CALLBOX_KIND_{name}"));
    }
    let levels = numbers(&header, "callbox_log_level");
    let name = |level: LogLevel| format!("CALLBOX_LOG_{}", level.name().to_ascii_uppercase());
    let expected = LogLevel::ALL.map(|level| (level as usize, name(level)));
    assert_eq!(levels, BTreeMap::from(expected));
}

#[test]
fn the_version_is_the_hosts() {
    let line = format!("#define CALLBOX_VERSION ({}u << 16 | {}u)", MAJOR, MINOR);
    assert!(header().contains(&line), "{line}");
}
