//! The plans of call sites.

use super::super::{Manifest, PlannedCall, PlannedLaunch, PlannedParameter, check_parameters};
use super::EVERYTHING;
use callbox_core::call::CallSite;
use callbox_core::values::{Attribute, Blame, Result, StatusCode};

fn site(operands: &[&str], result: &str) -> CallSite {
    let operands = operands.iter().map(|text| text.parse().unwrap());
    let site = CallSite::new("scale", operands.collect(), result.parse().unwrap());
    site.with_attributes([("n".to_owned(), Attribute::scalar(1.5_f32))].into())
}

fn plan(site: &CallSite) -> Result<PlannedCall> {
    let manifest = Manifest::parse(EVERYTHING).unwrap();
    manifest.targets[0].plan(site)
}

#[test]
fn a_call_site_gets_numbers() {
    let planned = plan(&site(&["f32[33,40]"], "f32[33,40]")).unwrap();
    let bytes = |bytes: &[u8]| PlannedParameter::Bytes(bytes.to_vec());
    let launch = PlannedLaunch {
        image: 0,
        entry: "scale".to_owned(),
        grid: [3, 3, 1],
        block: [16, 16, 1],
        shared_bytes: 1024,
        parameters: vec![
            PlannedParameter::Operand(0),
            PlannedParameter::Result(0),
            PlannedParameter::Scratch(0),
            bytes(&[40, 0, 0, 0]),
            bytes(&[0x28, 5, 0, 0, 0, 0, 0, 0]),
            bytes(&[0, 0, 0xc0, 0x3f]),
            bytes(&[0]),
        ],
    };
    let expected = PlannedCall {
        scratch: vec![5280, 0],
        launches: vec![launch],
    };
    assert_eq!(planned, expected);
}

#[test]
fn leaves_are_counted_through_tuples() {
    let planned = plan(&site(
        &["(f32[1,2], f32[1,2])", "s32[]"],
        "(f32[2,1], token[])",
    ))
    .unwrap();
    assert_eq!(
        planned.launches[0].parameters[6],
        PlannedParameter::Bytes(vec![1])
    );
    assert_eq!(
        planned.launches[0].parameters[3],
        PlannedParameter::Bytes(vec![2, 0, 0, 0])
    );
}

#[test]
fn a_launch_whose_condition_fails_is_left_out() {
    // A grid of size 0 is impossible.
    let planned = plan(&site(&["f32[0,4]"], "f32[0,4]")).unwrap();
    assert_eq!(planned.launches, []);
    assert_eq!(planned.scratch, [0, 0]);
}

#[test]
fn a_failed_check_is_the_targets_own_words() {
    let status = plan(&site(&["f32[2,2]"], "f32[2,3]")).unwrap_err();
    assert_eq!(status.code(), StatusCode::OutOfRange);
    assert_eq!((status.blame(), status.recoverable()), (Blame::Guest, true));
    assert_eq!(
        status.message(),
        "the guest says \"expected {as many} elements, found 4 and 6 by 1.5\""
    );
    // An expression without a value does not hide the check.
    let mut without = site(&["f32[2,2]"], "f32[2,3]");
    without.attributes.clear();
    let status = plan(&without).unwrap_err();
    assert!(
        status.message().ends_with("found 4 and 6 by ?\""),
        "{status}"
    );
}

/// A plan for a target whose launch has this value in a field.
fn altered(field: &str, value: &str) -> Result<PlannedCall> {
    let mut launch = vec![
        ("image", "\"i\""),
        ("entry", "\"k\""),
        ("parameters", "[]"),
        ("grid", "[\"1\"]"),
        ("block", "[\"1\"]"),
    ];
    launch.retain(|(name, _)| *name != field);
    launch.push((field, value));
    let fields: Vec<_> = launch
        .iter()
        .map(|(name, value)| format!("{name:?}: {value}"))
        .collect();
    let text = format!(
        r#"{{"format": 1, "images": [{{"name": "i", "file": "i.ptx"}}], "targets": [{{"name": "f", "scratch": ["0"], "launches": [{{{}}}]}}]}}"#,
        fields.join(", ")
    );
    let site = site(&["f32[65536,65536]", "f32[0]"], "f32[3]");
    Manifest::parse(&text)?.targets[0].plan(&site)
}

#[test]
fn rules_without_a_value_name_field_expression_and_column() {
    for (field, value, expected) in [
        (
            "grid",
            r#"["operands[1].elements"]"#,
            "launches[0].grid[0]: expression \"operands[1].elements\", column 1: expected a grid size from 1 to 2147483647, found 0",
        ),
        (
            "grid",
            r#"["operands[0].elements"]"#,
            "launches[0].grid[0]: expression \"operands[0].elements\", column 1: expected a grid size from 1 to 2147483647, found 4294967296",
        ),
        (
            "grid",
            r#"["1", "65536"]"#,
            "launches[0].grid[1]: expression \"65536\", column 1: expected a grid size from 1 to 65535, found 65536",
        ),
        (
            "grid",
            r#"["1", "1", "-1"]"#,
            "launches[0].grid[2]: expression \"-1\", column 1: expected a grid size from 1 to 65535, found -1",
        ),
        (
            "grid",
            r#"["opaque_u32(0)"]"#,
            "launches[0].grid[0]: expression \"opaque_u32(0)\", column 12: expected 4 of 0 opaque bytes, found the offset 0",
        ),
        (
            "block",
            r#"["1025"]"#,
            "launches[0].block[0]: expression \"1025\", column 1: expected a block size from 1 to 1024, found 1025",
        ),
        (
            "block",
            r#"["1", "1", "65"]"#,
            "launches[0].block[2]: expression \"65\", column 1: expected a block size from 1 to 64, found 65",
        ),
        (
            "block",
            r#"["32", "33"]"#,
            "launches[0].block: expected at most 1024 threads, found 32 * 33 * 1 = 1056",
        ),
        (
            "shared_memory",
            r#""-1""#,
            "launches[0].shared_memory: expression \"-1\", column 1: expected a size in bytes from 0 to 4294967295, found -1",
        ),
        (
            "when",
            r#""attributes.n""#,
            "launches[0].when: expression \"attributes.n\", column 1: expected a truth value, found 1.5",
        ),
        (
            "parameters",
            r#"[{"operand": 2}]"#,
            "launches[0].parameters[0]: expected operand 2 at the call site, found 2 operands",
        ),
        (
            "parameters",
            r#"[{"scratch": 0}, {"result": 1}]"#,
            "launches[0].parameters[1]: expected result 1 at the call site, found 1 results",
        ),
        (
            "parameters",
            r#"[{"value": "operands[0].elements", "type": "u32"}]"#,
            "launches[0].parameters[0]: expression \"operands[0].elements\", column 1: expected a value of the type u32, found 4294967296",
        ),
    ] {
        let status = altered(field, value).unwrap_err();
        assert_eq!(status.code(), StatusCode::InvalidArgument, "{value}");
        assert_eq!(status.message(), expected, "{value}");
    }
    let largest = altered("block", r#"["16", "1", "64"]"#).unwrap();
    assert_eq!(largest.launches[0].block, [16, 1, 64]);
    let many = vec![r#"{"scratch": 0}"#; 4096].join(", ");
    let status = altered("parameters", &format!("[{many}]")).unwrap_err();
    assert_eq!(
        status.message(),
        "launches[0].parameters: expected at most 32764 bytes, found 32768"
    );
}

/// A driver reports `[8, 8, 8, 4]` at `[0, 8, 16, 24]` for a kernel of three pointers and an
/// integer.
#[test]
fn parameters_are_held_against_the_kernel() {
    let bytes = |size| PlannedParameter::Bytes(vec![0; size]);
    let launch = PlannedLaunch {
        image: 0,
        entry: "k".to_owned(),
        grid: [1; 3],
        block: [1; 3],
        shared_bytes: 0,
        parameters: vec![
            PlannedParameter::Operand(0),
            bytes(1),
            bytes(4),
            PlannedParameter::Result(2),
            bytes(2),
        ],
    };
    let right = [(0, 8), (8, 1), (12, 4), (16, 8), (24, 2)];
    assert_eq!(check_parameters(&launch, &right), Ok(()));
    for (place, wrong, expected) in [
        (
            0,
            (0, 4),
            "kernel \"k\": parameter 0, the address of operand 0: expected 8 bytes at offset 0, found 4 at 0 in the image",
        ),
        (
            2,
            (16, 8),
            "kernel \"k\": parameter 2, a value: expected 4 bytes at offset 12, found 8 at 16 in the image",
        ),
        (
            3,
            (16, 4),
            "kernel \"k\": parameter 3, the address of result 2: expected 8 bytes at offset 16, found 4 at 16 in the image",
        ),
    ] {
        let mut found = right;
        found[place] = wrong;
        let status = check_parameters(&launch, &found).unwrap_err();
        assert_eq!(status.message(), expected);
    }
    let status = check_parameters(&launch, &right[..4]).unwrap_err();
    assert_eq!(
        status.message(),
        "kernel \"k\": expected the 5 parameters of the manifest, found 4 in the image"
    );
}
