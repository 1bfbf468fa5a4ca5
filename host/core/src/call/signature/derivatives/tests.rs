#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::call::signature::dimensions::tests::target;

fn named(
    name: &str,
    operands: &str,
    results: &str,
    of: Option<(&str, DerivativeMode)>,
) -> Signature {
    let of = of.map(|(target, mode)| DerivativeOf {
        target: target.to_owned(),
        mode,
    });
    Signature {
        name: name.to_owned(),
        derivative_of: of,
        ..target(operands, results, &[])
    }
}

fn checked(targets: &[Signature]) -> String {
    let targets = targets.iter().map(|t| (t.name.clone(), t.clone()));
    match check(&targets.collect()) {
        Ok(()) => String::new(),
        Err((name, message)) => format!("{name}: {message}"),
    }
}

const REAL: &str = r#"{"element_types": ["f32", "f64"]}"#;
const INTEGER: &str = r#"{"element_types": ["s32"]}"#;

/// A list of `count` declarations of real arrays, and one of integers if there is one.
fn list(count: usize, has_integer: bool) -> String {
    let integer = has_integer.then_some(INTEGER);
    let all: Vec<_> = std::iter::repeat_n(REAL, count).chain(integer).collect();
    format!("[{}]", all.join(", "))
}

#[test]
fn derivatives_of_both_modes_are_accepted() {
    let f = named("f", &list(2, true), &list(1, true), None);
    let vjp = named(
        "f_vjp",
        &format!("[{REAL}, {REAL}, {INTEGER}, {REAL}]"),
        &list(2, false),
        Some(("f", DerivativeMode::Vjp)),
    );
    let jvp = named(
        "f_jvp",
        &format!("[{REAL}, {REAL}, {INTEGER}, {REAL}, {REAL}]"),
        &list(1, false),
        Some(("f", DerivativeMode::Jvp)),
    );
    let all = [f, vjp, jvp];
    assert_eq!(checked(&all), "");
    assert_eq!(
        all[2].derivative_of.as_ref().unwrap().to_string(),
        "jvp of f"
    );
}

#[test]
fn derivatives_that_cannot_be_are_refused() {
    let f = || named("f", &list(1, false), &list(1, false), None);
    let vjp =
        |name, operands, results| named(name, operands, results, Some(("f", DerivativeMode::Vjp)));
    let (two, one) = (list(2, false), list(1, false));
    assert_eq!(checked(&[f(), vjp("g", &two, &one)]), "");
    assert_eq!(
        checked(&[vjp("g", &two, &one)]),
        "g: expected derivative_of to be the name of another target of the module, found \"f\""
    );
    assert_eq!(
        checked(&[vjp("f", &two, &one)]),
        "f: expected derivative_of to be the name of another target of the module, found \"f\""
    );
    assert_eq!(
        checked(&[f(), vjp("g", &two, &one), vjp("h", &two, &one)]),
        "h: expected one vjp of f, found g and h"
    );
    assert_eq!(
        checked(&[f(), vjp("g", &one, &one)]),
        "g: expected the vjp of f to have 2 operands, found 1"
    );
    assert_eq!(
        checked(&[f(), vjp("g", &two, &two)]),
        "g: expected the vjp of f to have 1 results, found 2"
    );
}

#[test]
fn counts_that_a_call_determines_are_not_compared() {
    let f = |operands: &str| named("f", operands, &list(1, false), None);
    let g = |operands: &str| {
        named(
            "g",
            operands,
            &list(3, false),
            Some(("f", DerivativeMode::Vjp)),
        )
    };
    for operands in [
        "null",
        "[{}]",
        r#"[{"element_types": ["f32", "s32"]}]"#,
        r#"[{"element_types": ["f32"], "optional": true}]"#,
    ] {
        assert_eq!(
            checked(&[f(operands), g(&list(4, false))]),
            "",
            "{operands}"
        );
    }
    let mut more = f(&list(1, false));
    more.remaining_operands = true;
    assert_eq!(checked(&[more, g(&list(4, false))]), "");
}
