//! Texts that try to do harm.

use super::super::Expression;
use super::{ANY, undeclared, value};

/// Runs on an eighth of a thread's usual stack.
#[test]
fn hostile_texts_are_refused_at_once() {
    let thread = std::thread::Builder::new().stack_size(256 << 10);
    thread.spawn(hostile_texts).unwrap().join().unwrap();
}

fn hostile_texts() {
    let deep = [
        "(".repeat(10_000),
        "-".repeat(10_000) + "1",
        "!".repeat(10_000) + "true",
        "if(".repeat(10_000),
        "opaque_u32(".repeat(10_000),
        "operands[0].dims[".repeat(10_000),
        "attributes.a[".repeat(10_000),
    ];
    for text in deep {
        let short: String = text.chars().take(4000).collect();
        let found = value(&short, &undeclared());
        assert!(found.contains("nests at most 32 deep"), "{found}");
        let found = value(&text, &undeclared());
        assert!(
            found.starts_with("1: expected an expression of at most 4096 bytes"),
            "{found}"
        );
    }
    let long = "1+".repeat(1 << 19) + "1";
    let status = Expression::parse(&long, &undeclared(), &ANY).unwrap_err();
    assert!(status.message().len() < 500, "{status}");
    // The maximum length, without nesting.
    let chain = "1+".repeat(2047) + "1";
    assert_eq!(value(&chain, &undeclared()), "2048");
    let nested = "(".repeat(31) + "1" + &")".repeat(31);
    assert_eq!(value(&nested, &undeclared()), "1");
    let nested = format!("({nested})");
    assert!(value(&nested, &undeclared()).contains("deep"));
}

/// Every prefix of an expression, and every expression with one more byte, is parsed or refused.
#[test]
fn pieces_of_expressions_do_not_panic() {
    let text =
        "if(has(attributes.a) && 1.5e3 <= attributes.b[1 + -2], min(1, opaque_u32(2)) % 3, 'é')";
    for end in (0..=text.len()).filter(|&end| text.is_char_boundary(end)) {
        for more in ["", "\0", "'", "[", "(", ".", "1", "e", "é", "-", " "] {
            value_or_message(&format!("{}{more}{}", &text[..end], &text[end..]));
            value_or_message(&format!("{}{more}", &text[..end]));
        }
    }
}

fn value_or_message(text: &str) {
    let found = value(text, &undeclared());
    assert!(!found.is_empty(), "{text}");
}
