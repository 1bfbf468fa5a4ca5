#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::Signature;
use crate::call::signature::dimensions::tests::target;
use crate::values::ArrayShape;

/// The results as text, or the message.
fn inferred(signature: &Signature, operands: &[&str]) -> String {
    let operands: Vec<ArrayShape> = operands.iter().map(|text| array(text)).collect();
    match signature.infer_results(&operands) {
        Ok(shapes) => shapes
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" "),
        Err(status) => {
            assert_eq!(status.code().name(), "INVALID_ARGUMENT");
            status.message().to_owned()
        }
    }
}

fn array(text: &str) -> ArrayShape {
    let shape: crate::values::Shape = text.parse().unwrap();
    shape.as_array().unwrap().clone()
}

fn unknown(what: &str) -> String {
    format!(
        "expected the shapes of the results to be said, for \"f\" does not declare them: {what}"
    )
}

#[test]
fn declared_dimensions_are_filled_in() {
    let grad = target(
        r#"[ {"name": "x", "element_types": ["f32", "f64"], "dimensions": ["..", "n"]}, {"name": "w", "element_types": ["f32"], "dimensions": ["n", "m"]}]"#,
        r#"[ {"name": "dx", "element_types": ["f32", "f64"], "dimensions": ["..", 2, "m", "n"]}, {"name": "total", "element_types": ["s64"], "rank": 0}, {"name": "more", "optional": true}]"#,
        &[],
    );
    assert_eq!(
        inferred(&grad, &["f64[7,8,3]", "f32[3,5]"]),
        "f64[7,8,2,5,3] s64[]"
    );
    assert_eq!(
        inferred(&grad, &["f32[3]{0}", "f32[3,5]{0,1}"]),
        "f32[2,5,3] s64[]"
    );
    assert_eq!(
        inferred(&grad, &["f32[3]"]),
        "Wrong number of arguments: expected 2 but got 1"
    );
    let wrong = inferred(&grad, &["s32[3]", "f32[3,5]"]);
    assert!(
        wrong.ends_with("Wrong buffer dtype: expected F32 or F64 but got S32"),
        "{wrong}"
    );
    let wrong = inferred(&grad, &["f32[3]", "f32[4,5]"]);
    assert!(
        wrong.ends_with(
            "Wrong buffer dimensions: expected w: [n, m] with n = 3 (from x) but got [4,5]"
        ),
        "{wrong}"
    );
}

#[test]
fn what_is_not_declared_is_named() {
    let results = |results: &str| {
        let operands = r#"[{"name": "x", "dimensions": ["n"]}]"#;
        inferred(&target(operands, results, &[]), &["f32[3]"])
    };
    assert_eq!(results("null"), unknown("its results are not declared"));
    assert_eq!(results("[]"), "");
    for (result, what) in [
        (
            r#"{"name": "y", "dimensions": ["n"]}"#,
            "no element type is declared of y",
        ),
        (
            r#"{"dimensions": ["n"], "element_types": ["f32", "f64"]}"#,
            "several element types are declared, but for no operand the same ones, of result 0",
        ),
        (
            r#"{"name": "y", "element_types": ["f32"], "rank": 1}"#,
            "the dimensions of y are not declared",
        ),
        (
            r#"{"name": "y", "element_types": ["f32"], "dimensions": ["n", "m"]}"#,
            "no operand says what m is in the dimensions [n, m] of y",
        ),
        (
            r#"{"name": "y", "element_types": ["f32"], "dimensions": ["..", "n"]}"#,
            "no operand says what .. is in the dimensions [.., n] of y",
        ),
    ] {
        assert_eq!(results(&format!("[{result}]")), unknown(what));
    }
    let mut remaining = target("[]", "[]", &[]);
    remaining.remaining_results = true;
    assert_eq!(
        inferred(&remaining, &[]),
        unknown("it takes any number of results")
    );
    // Declared sizes may exceed those of any array.
    let large = r#"[{"element_types": ["f32"], "dimensions": [18446744073709551615, 2]}]"#;
    assert!(results(large).starts_with("expected a shape whose size in bytes is at most"));
}

#[test]
fn elementwise_results_are_like_the_operands() {
    let y = r#"[{"name": "y", "element_types": ["f32"]}]"#;
    let add = target("null", y, &["elementwise"]);
    assert_eq!(
        inferred(&add, &["f32[]", "s32[2,3]", "f32[2,3]"]),
        "f32[2,3]"
    );
    assert_eq!(inferred(&add, &["f32[]"]), "f32[]");
    assert_eq!(inferred(&add, &[]), "f32[]");
    let wrong = inferred(&add, &["f32[2]", "f32[3]"]);
    assert!(
        wrong.contains("expected operand 1: [2] as operand 0 has them"),
        "{wrong}"
    );
    // The same with dimensions, and if only the result declares a rank.
    let x = r#"[{"name": "x", "dimensions": ["..", "n"]}, {"rank": 0}]"#;
    let named = r#"[{"name": "y", "element_types": ["f32"], "dimensions": ["..", "n"]}]"#;
    let scale = target(x, named, &["elementwise"]);
    assert_eq!(inferred(&scale, &["f32[2,3]", "f32[]"]), "f32[2,3]");
    let flat = r#"[{"name": "y", "element_types": ["f32"], "rank": 1}]"#;
    let flat = target(r#"[{"name": "x"}]"#, flat, &["elementwise"]);
    assert_eq!(inferred(&flat, &["f32[4]"]), "f32[4]");
    assert_eq!(
        inferred(&flat, &["f32[4,1]"]),
        "Wrong buffer rank: expected y of rank 1 but got [4,1] from the operands, because the target is elementwise"
    );
    // Without the trait, the result is unknown.
    assert!(inferred(&target("[{}]", y, &[]), &["f32[2]"]).contains("of y are not declared"));
}

#[test]
fn expressions_are_computed() {
    let halves = target(
        r#"[{"name": "x", "element_types": ["f32"], "dimensions": ["..", "2*n"]}]"#,
        r#"[{"name": "y", "element_types": ["f32"], "dimensions": ["..", "n", "n/2+1", "n-3"]}]"#,
        &[],
    );
    assert_eq!(inferred(&halves, &["f32[4,10]"]), "f32[4,5,3,2]");
    assert_eq!(
        inferred(&halves, &["f32[4]"]),
        "Wrong buffer dimensions: expected y: [.., n, n/2+1, n-3] with .. = [] (from x), n = 2 (from x), n/2+1 = 2 but n-3 is no size"
    );
    let odd = inferred(&halves, &["f32[5]"]);
    assert!(
        odd.ends_with("Wrong buffer dimensions: expected x: [.., 2*n] but got [5]"),
        "{odd}"
    );
    let upward = target(
        r#"[{"name": "x", "dimensions": ["n/2"]}]"#,
        r#"[{"name": "y", "element_types": ["f32"], "dimensions": ["n"]}]"#,
        &[],
    );
    assert_eq!(
        inferred(&upward, &["f32[5]"]),
        unknown("no operand says what n is in the dimensions [n] of y")
    );
    let huge = target(
        r#"[{"name": "x", "element_types": ["f32"], "dimensions": ["n"]}]"#,
        r#"[{"name": "y", "element_types": ["f32"], "dimensions": ["9223372036854775807*n"]}]"#,
        &[],
    );
    assert!(inferred(&huge, &["f32[3]"]).ends_with("but 9223372036854775807*n is no size"));
    assert!(inferred(&huge, &["f32[1]"]).contains("9223372036854775807"));
}
