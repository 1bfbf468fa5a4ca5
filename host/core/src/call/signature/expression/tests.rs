#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use super::*;

fn expression(text: &str) -> Expression {
    match parse(text) {
        Ok(Parsed::Expression(expression)) => expression,
        Ok(Parsed::Size(size)) => panic!("{text}: a size of {size}"),
        Err(reason) => panic!("{text}: {reason}"),
    }
}

fn refused(text: &str) -> String {
    match parse(text) {
        Ok(_) => panic!("{text} is not refused"),
        Err(reason) => reason,
    }
}

/// The size for `n = 7`, `m = 3`.
fn size(text: &str) -> Option<usize> {
    expression(text).evaluate(|symbol| match symbol {
        "n" => Some(7),
        "m" => Some(3),
        _ => None,
    })
}

#[test]
fn operators_have_their_usual_precedence_and_division_rounds_down() {
    for (text, value) in [
        ("n/2", Some(3)),
        ("n/2+1", Some(4)),
        ("1+n/2", Some(4)),
        ("n-m-1", Some(3)),
        ("n-(m-1)", Some(5)),
        ("n/m/2", Some(1)),
        ("n*m/2", Some(10)),
        ("2 * ( n + m )", Some(20)),
        ("((n))", Some(7)),
        ("(n+m-1)/m", Some(3)),
        // Rounds down, not towards zero.
        ("(m-n)/3+2", Some(0)),
        ("m-n", None),
        ("n/(m-3)", None),
        ("n+k", None),
        ("m-3", Some(0)),
    ] {
        assert_eq!(size(text), value, "{text}");
    }
    assert_eq!(expression(" 2 * ( n+1 ) ").to_string(), "2*(n+1)");
    assert!(matches!(parse("4*(2+1)"), Ok(Parsed::Size(12))));
}

#[test]
fn a_size_determines_a_symbol_in_which_the_expression_is_linear() {
    let solve = |text: &str, found: usize| match expression(text)
        .solve(found, |symbol| (symbol == "m").then_some(3))
    {
        Solution::Symbol(symbol, size) => format!("{symbol} = {size}"),
        Solution::Open([first, second]) => format!("Open: {first}, {second}"),
        other => format!("{other:?}"),
    };
    for (text, found, expected) in [
        ("2*n", 8, "n = 4"),
        ("2*n", 7, "Differs"),
        ("n+1", 1, "n = 0"),
        ("n+1", 0, "Differs"),
        ("9-n", 4, "n = 5"),
        ("9-n", 10, "Differs"),
        ("n*m+n", 8, "n = 2"),
        ("(4*n+3)/2", 9, "n = 4"),
        ("(4*n+3)/2", 10, "Differs"),
        ("n/2", 4, "Open: n, n"),
        ("m/n", 4, "Open: n, n"),
        ("n*n", 4, "Open: n, n"),
        ("n+k", 4, "Open: n, k"),
        ("(n-n)*m", 0, "Fits"),
        ("n-n+m", 4, "Differs"),
        ("2*m", 6, "Fits"),
        ("2*m", 5, "Differs"),
        ("n+m/(m-3)", 5, "Differs"),
    ] {
        assert_eq!(solve(text, found), expected, "{text} = {found}");
    }
}

#[test]
fn a_symbol_is_determined_for_all_sizes_or_by_another_dimension() {
    for (text, determined) in [
        ("2*n+1", true),
        ("9-n", true),
        ("(4*n+3)/2", true),
        ("n*m", true),
        ("m*(n+1)-n", true),
        // Zero where m and k are equal, which the call finds out.
        ("(m-k)*n", true),
        ("n/(3-2)", true),
        ("n*6/4*2", false),
        ("n*6/(4-1)", true),
        ("n/2", false),
        ("n*n", false),
        ("m/n", false),
        ("n-n+m", false),
        ("(2-2)*n", false),
        ("n*(1/2)", false),
        // Whether a size divides another depends on the call.
        ("n*m/k", false),
        ("n*m/m", false),
        ("1000003*n/k", false),
        ("n/(1-1)", false),
        ("n+j", false),
    ] {
        let expression = expression(text);
        let found = expression.determines(|symbol| symbol == "m" || symbol == "k");
        assert_eq!(found, determined.then_some("n"), "{text}");
    }
}

#[test]
fn overflow_is_no_size() {
    for text in [
        "n*18446744073709551615*18446744073709551615",
        "n*n*n*n*n*n*n*n*n*n*n*n*n*n*n*n*n*n*n*n*n*n*n*n*n*n*n*n*n*n*n*n",
        // The smallest number of 128 bits, which has no negation.
        "(0-n-1)*2*9223372036854775808/(0-1)",
    ] {
        let largest = expression(text).evaluate(|_| Some(usize::MAX));
        assert_eq!(largest, None, "{text}");
    }
    let smallest = "(0-9223372036854775808)*9223372036854775808*2";
    assert_eq!(
        expression(&format!("{smallest}-n")).solve(1, |_| None),
        Solution::Differs
    );
    assert_eq!(refused(&format!("{smallest}/(0-1)")), "which is no size");
    assert_eq!(
        expression(&format!("{smallest}/(m-m-1)")).evaluate(|_| Some(1)),
        None
    );
}

#[test]
fn what_is_no_expression_is_refused() {
    for (text, reason) in [
        ("n+", "which lacks a size or a symbol at its end"),
        ("", "which lacks a size or a symbol at its end"),
        ("-n", r#"which has "-" in place of a size or a symbol"#),
        ("n m", r#"which has "m" in place of an operator"#),
        ("2(n)", r#"which has "(" in place of an operator"#),
        ("2n", "whose 2n is no number"),
        (
            "18446744073709551616*n",
            "whose 18446744073709551616 is no number",
        ),
        ("(n", "whose `(` has no `)`"),
        ("n)", "whose `)` has no `(`"),
        ("()", r#"which has ")" in place of a size or a symbol"#),
        ("n%2", r#"which has "%" in place of an operator"#),
        ("n*é", "which has other characters"),
        ("1-2", "which is no size"),
        ("1/0", "which is no size"),
        ("..", r#"which has "." in place of a size or a symbol"#),
    ] {
        assert_eq!(refused(text), reason, "{text}");
    }
    let nested = format!("{}n{}", "(".repeat(120), ")".repeat(120));
    assert_eq!(expression(&nested).evaluate(|_| Some(5)), Some(5));
    let long = format!("{}n", "(".repeat(300));
    assert_eq!(refused(&long), "which is too long");
}

/// Texts of all expressions of a few operators over these terms.
fn expressions() -> Vec<String> {
    let terms = ["n", "m", "k", "2", "3"].map(str::to_owned);
    let combined = |left: &[String], right: &[String]| {
        let pairs = left
            .iter()
            .flat_map(|left| right.iter().map(move |right| (left, right)));
        let combined = pairs.flat_map(|(left, right)| {
            ['+', '-', '*', '/'].map(|operator| format!("({left}{operator}{right})"))
        });
        combined.collect::<Vec<_>>()
    };
    let two = combined(&terms, &terms);
    let three = combined(&two, &terms);
    let four = combined(&two, &two);
    [two, three, four].concat()
}

#[test]
fn what_is_determined_when_it_is_loaded_is_determined_in_each_call() {
    let mut determined = 0;
    for text in expressions() {
        let Ok(Parsed::Expression(expression)) = parse(&text) else {
            continue;
        };
        let is_known = |symbol: &str| symbol != "n";
        if expression.determines(is_known).is_none() {
            continue;
        }
        determined += 1;
        for (m, k) in [(0, 0), (1, 1), (2, 3), (5, 4), (6, 6), (1_000_003, 7)] {
            let known = |symbol: &str| match symbol {
                "m" => Some(m),
                "k" => Some(k),
                _ => None,
            };
            for n in [0, 1, 2, 3, 10, 999] {
                let with_n = |symbol: &str| {
                    if symbol == "n" {
                        Some(n)
                    } else {
                        known(symbol)
                    }
                };
                let Some(found) = expression.evaluate(with_n) else {
                    continue;
                };
                let solution = expression.solve(found, known);
                // `Fits` where the unknown is multiplied by zero.
                let is_sound = matches!(solution, Solution::Symbol("n", size) if size == n)
                    || solution == Solution::Fits;
                assert!(is_sound, "{text} = {found} with {m}, {k}: {solution:?}");
            }
        }
    }
    assert!(determined > 1000, "{determined}");
}
