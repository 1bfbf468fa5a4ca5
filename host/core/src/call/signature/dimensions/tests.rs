#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::call::signature::json;
use crate::call::{ApiVersion, CallSite, Stage};

/// A buffer as JSON metadata.
fn buffer(declared: &str) -> Result<BufferSignature, String> {
    Ok(json::read(&format!("[{declared}]"))?.remove(0))
}

/// A target with these operands, results and traits. `null` means undeclared.
pub(in crate::call::signature) fn target(
    operands: &str,
    results: &str,
    traits: &[&str],
) -> Signature {
    let buffers = |list: &str| (list != "null").then(|| json::read(list).unwrap());
    Signature {
        name: "f".to_owned(),
        api_versions: vec![ApiVersion::TypedFfi],
        stages: vec![Stage::Execute],
        operands: buffers(operands),
        results: buffers(results),
        remaining_operands: false,
        remaining_results: false,
        attributes: None,
        documentation: String::new(),
        traits: traits.iter().map(|&name| name.to_owned()).collect(),
        derivative_of: None,
    }
}

/// The diagnostics of a call site, or an empty string.
fn wrong(signature: &Signature, operands: &[&str], result: &str) -> String {
    let operands = operands.iter().map(|text| text.parse().unwrap()).collect();
    let site = CallSite::new("f", operands, result.parse().unwrap());
    match signature.check(&site) {
        Ok(()) => String::new(),
        Err(status) => match status.message().split_once("Diagnostics:\n") {
            Some((_, diagnostics)) => diagnostics.to_owned(),
            None => status.message().to_owned(),
        },
    }
}

#[test]
fn dimensions_say_the_rank() {
    for (declared, shown, rank) in [
        ("[]", "x: any type[]", Some(0)),
        (r#"["n", 4, "_m1"]"#, "x: any type[n, 4, _m1]", Some(3)),
        (r#"[".."]"#, "x: any type[..]", None),
        (r#"["..", "n"]"#, "x: any type[.., n]", None),
        (
            "[18446744073709551615]",
            "x: any type[18446744073709551615]",
            Some(1),
        ),
    ] {
        let read = buffer(&format!(r#"{{"name": "x", "dimensions": {declared}}}"#)).unwrap();
        assert_eq!((read.to_string().as_str(), read.rank), (shown, rank));
    }
    let both = |rank: usize, dimensions: &str| {
        buffer(&format!(
            r#"{{"rank": {rank}, "dimensions": {dimensions}}}"#
        ))
    };
    assert_eq!(both(2, r#"["n", "m"]"#).unwrap().rank, Some(2));
    assert_eq!(both(3, r#"["..", "m"]"#).unwrap().rank, Some(3));
    assert_eq!(
        both(0, r#"["..", "m"]"#).unwrap_err(),
        "expected the rank that the dimensions [.., m] have, found 0"
    );
    assert_eq!(
        both(1, r#"["n", "m"]"#).unwrap_err(),
        "expected the rank that the dimensions [n, m] have, found 1"
    );
}

#[test]
fn what_is_no_dimension_is_refused() {
    let refused = |declared: &str| buffer(&format!(r#"{{"dimensions": {declared}}}"#)).unwrap_err();
    let long = format!("\"{}\"", "n".repeat(65));
    assert_eq!(
        refused(r#"["n", ".."]"#),
        "expected \"..\" as the first of the dimensions alone, found it as number 1"
    );
    assert!(refused(r#"["..", ".."]"#).contains("found it as number 1"));
    assert_eq!(
        refused("[-1]"),
        "expected each of the dimensions to be a size, a symbol of at most 64 letters, digits and underscores that begins with no digit, an expression such as \"n/2\", or \"..\", found -1"
    );
    for (entry, found) in [
        ("1.5", "found 1.5"),
        (r#""2n""#, "found \"2n\", whose 2n is no number"),
        (
            r#""""#,
            "found \"\", which lacks a size or a symbol at its end",
        ),
        (
            r#""n m""#,
            "found \"n m\", which has \"m\" in place of an operator",
        ),
        (r#""é""#, "found \"é\", which has other characters"),
        (long.as_str(), "found a text of 65 bytes"),
        ("null", "found null"),
        ("true", "found true"),
        (r#"["n"]"#, "found a list"),
        ("{}", "found an object"),
    ] {
        let message = refused(&format!("[{entry}]"));
        assert!(message.ends_with(found), "{message}");
    }
    assert_eq!(
        refused(&format!("{:?}", [1; 256])),
        "expected at most 255 dimensions, found 256"
    );
}

#[test]
fn symbols_are_the_same_throughout_a_call() {
    let norm = target(
        r#"[{"name": "x", "dimensions": ["..", "n"]}, {"dimensions": ["n"]}]"#,
        r#"[{"name": "y", "dimensions": ["..", "n"]}]"#,
        &[],
    );
    for fitting in [
        (["f32[2,3]", "f32[3]"], "f32[2,3]"),
        (["f32[3]", "f32[3]"], "f32[3]"),
        (["f32[5,0,3]", "f32[3]"], "f32[5,0,3]"),
    ] {
        assert_eq!(wrong(&norm, &fitting.0, fitting.1), "");
    }
    for (operands, result, expected) in [
        (
            ["f32[3,4]", "f32[4]"],
            "f32[3,5]",
            "Wrong buffer dimensions: expected y: [.., n] with .. = [3] (from x), n = 4 (from x) but got [3,5]",
        ),
        (
            ["f32[3,4]", "f32[4]"],
            "f32[4]",
            "Wrong buffer dimensions: expected y: [.., n] with .. = [3] (from x), n = 4 (from x) but got [4]",
        ),
        (
            ["f32[4]", "f32[5]"],
            "f32[4]",
            "Wrong buffer dimensions: expected operand 1: [n] with n = 4 (from x) but got [5]",
        ),
        // A mismatched buffer binds nothing: the next one determines n.
        (
            ["f32[]", "f32[5]"],
            "f32[6]",
            "Wrong buffer dimensions: expected x: [.., n] but got []\nWrong buffer dimensions: expected y: [.., n] with n = 5 (from operand 1) but got [6]",
        ),
        (
            ["f32[4]", "f32[1,4]"],
            "f32[4]",
            "operand 1: Wrong buffer rank: expected 1 but got 2",
        ),
    ] {
        assert_eq!(wrong(&norm, &operands, result), expected);
    }
}

#[test]
fn sizes_and_squares_are_held_against_the_call() {
    let square = target(
        r#"[{"name": "a", "dimensions": ["n", "n"]}, {"name": "b", "dimensions": [3, "m"], "optional": true}]"#,
        r#"[{"name": "y", "dimensions": ["m"]}]"#,
        &[],
    );
    assert_eq!(wrong(&square, &["f32[2,2]", "f32[3,5]"], "f32[5]"), "");
    // A symbol that occurs only in results can have any value.
    assert_eq!(wrong(&square, &["f32[2,2]"], "f32[7]"), "");
    assert_eq!(
        wrong(&square, &["f32[2,3]"], "f32[7]"),
        "Wrong buffer dimensions: expected a: [n, n] but got [2,3]"
    );
    assert_eq!(
        wrong(&square, &["f32[2,2]", "f32[4,5]"], "f32[5]"),
        "Wrong buffer dimensions: expected b: [3, m] but got [4,5]"
    );
}

#[test]
fn elementwise_targets_have_one_list_of_dimensions() {
    // Undeclared operands count as well.
    let mut add = target(
        r#"[{"name": "x"}, {"name": "k", "rank": 0}]"#,
        r#"[{"name": "y"}]"#,
        &["elementwise"],
    );
    add.remaining_operands = true;
    assert!(add.has_trait("pure"));
    assert_eq!(wrong(&add, &["f32[2,3]", "f32[]"], "f32[2,3]"), "");
    assert_eq!(wrong(&add, &["f32[]", "f32[]"], "f32[]"), "");
    assert_eq!(
        wrong(&add, &["f32[2,3]", "f32[]"], "f32[6]"),
        "Wrong buffer dimensions: expected y: [2,3] as x has them, because the target is elementwise, but got [6]"
    );
    assert_eq!(
        wrong(&add, &["f32[]", "f32[]", "f32[4]", "f32[5]"], "f32[4]"),
        "Wrong buffer dimensions: expected operand 3: [4] as operand 2 has them, because the target is elementwise, but got [5]"
    );
    // Each result has as many elements as the operands.
    assert!(wrong(&add, &["f32[2]", "f32[]"], "f32[]").contains("expected y: [2]"));
}

#[test]
fn dimensions_that_contradict_elementwise_are_refused() {
    let refused = |operands: &str, results: &str| {
        let target = target(operands, results, &["elementwise"]);
        target.with_implied_traits().err().unwrap_or_default()
    };
    let x = |dimensions: &str| format!(r#"[{{"name": "x", "dimensions": {dimensions}}}]"#);
    for fitting in [
        (x(r#"[".."]"#).as_str(), x(r#"[".."]"#).as_str()),
        (x(r#"["n", "m"]"#).as_str(), r#"[{"rank": 2}]"#),
        (x(r#"["..", "m"]"#).as_str(), r#"[{"rank": 2}, {}]"#),
        (x("[]").as_str(), x(r#"["..", "m"]"#).as_str()),
        (x("[]").as_str(), x("[]").as_str()),
        (
            x(r#"[".."]"#).as_str(),
            r#"[{"dimensions": [".."], "rank": 3}]"#,
        ),
        ("null", "null"),
    ] {
        assert_eq!(refused(fitting.0, fitting.1), "");
    }
    assert_eq!(
        refused(&x(r#"["n"]"#), r#"[{"name": "y", "dimensions": ["m"]}]"#),
        "expected a target of the trait elementwise to declare the same dimensions for its operands and results, found x: [n] and y: [m]"
    );
    assert_eq!(
        refused(r#"[{"rank": 1}, {"rank": 0}]"#, r#"[{"rank": 2}]"#),
        "expected a target of the trait elementwise to declare the same dimensions for its operands and results, found operand 0: [?] and result 0: [?,?]"
    );
    for list in [r#"["n", 4]"#, r#"["n", "n"]"#] {
        assert!(
            refused(&x(list), &x(list))
                .starts_with("expected a target of the trait elementwise to take any dimensions of a rank, found x: [n, ")
        );
    }
    for contradiction in [
        (x(r#"["..", "n"]"#).as_str(), r#"[{"rank": 0}]"#),
        (x(r#"["n"]"#).as_str(), x("[]").as_str()),
        // The list and the rank fit the first result, but not each other.
        (
            r#"[{"dimensions": ["..", "n"]}, {"rank": 2}]"#,
            r#"[{"rank": 3}]"#,
        ),
    ] {
        assert!(refused(contradiction.0, contradiction.1).contains("the same dimensions"));
    }
    let mut older = target("null", "null", &["elementwise"]);
    older.api_versions = vec![ApiVersion::Original];
    assert_eq!(
        older.with_implied_traits().unwrap_err(),
        "expected a target of the trait elementwise to be called by API_VERSION_TYPED_FFI alone, found API_VERSION_ORIGINAL"
    );
}

#[test]
fn elementwise_is_pure_where_it_is_read() {
    let traits = |traits| {
        let target = target("null", "null", traits);
        target.with_implied_traits().unwrap().traits
    };
    assert_eq!(traits(&["elementwise"]), ["elementwise", "pure"]);
    assert_eq!(traits(&["pure", "elementwise"]), ["pure", "elementwise"]);
    assert_eq!(traits(&["other"]), ["other"]);
}

#[test]
fn long_lists_and_names_are_cut_in_messages() {
    let symbols: Vec<_> = (0..200).map(|i| format!("n{i}")).collect();
    let buffer = |name: &str| format!(r#"{{"name": "{name}", "dimensions": {symbols:?}}}"#);
    let many = target(&format!("[{}]", buffer("x")), "[]", &[]);
    let ones = vec!["1"; 200].join(",");
    assert_eq!(wrong(&many, &[&format!("f32[{ones}]")], "()"), "");
    let twice = target(&format!("[{}, {}]", buffer("x"), buffer("w")), "[]", &[]);
    let zeros = vec!["0"; 200].join(",");
    let message = wrong(
        &twice,
        &[&format!("f32[{ones}]"), &format!("f32[{zeros}]")],
        "()",
    );
    assert!(message.len() < 1000, "{message}");
    assert!(
        message.contains("n15, ... 200 in all] with n0 = 1 (from x), "),
        "{message}"
    );
    // A name is cut between characters.
    let name = format!("x{}", "é".repeat(100));
    let one = target(
        &format!(r#"[{{"name": "{name}", "dimensions": [1]}}]"#),
        "[]",
        &[],
    );
    let expected = format!("expected x{}...: [1] but got [2]", "é".repeat(31));
    let message = wrong(&one, &["f32[2]"], "()");
    assert!(message.ends_with(&expected), "{message}");
}

#[test]
fn targets_that_take_batches_declare_them() {
    let x = |dimensions: &str| format!(r#"[{{"name": "x", "dimensions": {dimensions}}}]"#);
    let refused = |operands: &str, results: &str, traits: &[&str]| {
        let target = target(operands, results, traits);
        target.with_implied_traits().err().unwrap_or_default()
    };
    let (batch, none) = (x(r#"["batch", "n"]"#), x(r#"["n"]"#));
    assert_eq!(refused(&batch, &batch, &["batched"]), "");
    let traits = target(&batch, &batch, &["batched"]).with_implied_traits();
    assert_eq!(traits.unwrap().traits, ["batched", "pure"]);
    assert_eq!(
        refused(&batch, &none, &["batched"]),
        "expected a target of the trait batched to declare batch as the first dimension of each result and as no later one, found x: [n]"
    );
    assert_eq!(
        refused(&x(r#"["n", "batch"]"#), &batch, &["batched"]),
        "expected a target of the trait batched to declare batch as the first dimension of each result and as no later one, found x: [n, batch]"
    );
    for (operands, results) in [
        (none.as_str(), batch.as_str()),
        (&batch, "null"),
        ("null", &batch),
    ] {
        assert_eq!(
            refused(operands, results, &["batched"]),
            "expected a target of the trait batched to declare its results, and an operand with batch as its first dimension"
        );
    }
    assert_eq!(
        refused("null", "null", &["elementwise", "batched"]),
        "expected a target of one of the traits batched and elementwise, found both"
    );
    let mut older = target(&batch, &batch, &["batched"]);
    older.api_versions = vec![ApiVersion::Original];
    assert_eq!(
        older.with_implied_traits().unwrap_err(),
        "expected a target of the trait batched to be called by API_VERSION_TYPED_FFI alone, found API_VERSION_ORIGINAL"
    );
}

#[test]
fn expressions_unify_in_any_order() {
    let declared = |operands: &str, results: &str| target(operands, results, &[]);
    let halves = declared(
        r#"[{"name": "x", "dimensions": ["..", "n/2"]}, {"name": "w", "dimensions": ["2*m", "n"]}]"#,
        r#"[{"name": "y", "dimensions": ["..", "m+n"]}]"#,
    );
    assert_eq!(wrong(&halves, &["f32[5,3]", "f32[4,7]"], "f32[5,9]"), "");
    assert_eq!(
        wrong(&halves, &["f32[5,4]", "f32[4,7]"], "f32[5,9]"),
        "Wrong buffer dimensions: expected x: [.., n/2] with .. = [5] (from x), n = 7 (from w), n/2 = 3 but got [5,4]"
    );
    assert_eq!(
        wrong(&halves, &["f32[5,3]", "f32[3,7]"], "f32[5,9]"),
        "Wrong buffer dimensions: expected w: [2*m, n] but got [3,7]"
    );
    assert_eq!(
        wrong(&halves, &["f32[5,3]", "f32[4,7]"], "f32[5,8]"),
        "Wrong buffer dimensions: expected y: [.., m+n] with .. = [5] (from x), m = 2 (from w), n = 7 (from w), m+n = 9 but got [5,8]"
    );
    // A symbol that only a result has.
    let upward = declared(
        r#"[{"name": "x", "dimensions": ["n/2"]}]"#,
        r#"[{"name": "y", "dimensions": ["n"]}]"#,
    );
    assert_eq!(wrong(&upward, &["f32[3]"], "f32[7]"), "");
    assert_eq!(
        wrong(&upward, &["f32[3]"], "f32[8]"),
        "Wrong buffer dimensions: expected x: [n/2] with n = 8 (from y), n/2 = 4 but got [3]"
    );
    // Each of two expressions needs a symbol of the other buffer.
    let crossed = declared(
        r#"[{"name": "x", "dimensions": ["n/2", "k"]}, {"name": "z", "dimensions": ["k/2", "n"]}]"#,
        "[]",
    );
    assert_eq!(wrong(&crossed, &["f32[2,7]", "f32[3,5]"], "()"), "");
    assert_eq!(
        wrong(&crossed, &["f32[2,7]", "f32[4,5]"], "()"),
        "Wrong buffer dimensions: expected z: [k/2, n] with k = 7 (from x), k/2 = 3 but got [4,5]"
    );
}

#[test]
fn symbols_of_expressions_are_determined() {
    let checked = |operands: &str, results: &str| {
        let signature = target(operands, results, &[]);
        signature.with_implied_traits().map(|_| ())
    };
    for (operands, results) in [
        (
            r#"[{"dimensions": ["2*n"]}]"#,
            r#"[{"dimensions": ["n/2"]}]"#,
        ),
        (r#"[{"dimensions": ["n/2"]}]"#, r#"[{"dimensions": ["n"]}]"#),
        (r#"[{"dimensions": ["n+m", "m+k", "k"]}]"#, "[]"),
        (r#"[{"dimensions": ["n*m", "m"]}]"#, "null"),
    ] {
        assert_eq!(checked(operands, results), Ok(()), "{operands} {results}");
    }
    assert_eq!(
        checked(r#"[{"name": "x", "dimensions": ["n/2"]}]"#, "[]").unwrap_err(),
        "x: no dimension determines n of n/2: expected n as a dimension of its own, or in one such as 2*n+1"
    );
    for operands in [
        r#"[{"dimensions": ["n+m", "n-m"]}]"#,
        r#"[{"dimensions": ["n*n"]}]"#,
        r#"[{"dimensions": ["n-n"]}]"#,
        r#"[{"dimensions": ["n/m", "m"]}]"#,
    ] {
        assert!(checked(operands, "[]").is_err(), "{operands}");
    }
    let batched = target(
        r#"[{"dimensions": ["batch", "2*batch"]}]"#,
        r#"[{"dimensions": ["batch"]}]"#,
        &["batched"],
    );
    assert!(
        batched
            .with_implied_traits()
            .unwrap_err()
            .contains("[batch, 2*batch]")
    );
    let elementwise = target(
        r#"[{"dimensions": ["n+0"]}]"#,
        r#"[{"dimensions": ["n+0"]}]"#,
        &["elementwise"],
    );
    assert!(elementwise.with_implied_traits().is_err());
}
