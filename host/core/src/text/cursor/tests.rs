//! Tests of each kind of token.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;

/// The message, without the position.
fn message(text: &str, read: impl FnOnce(&mut Cursor<'_>) -> Parsed<()>) -> String {
    let status = read(&mut Cursor::new(text)).unwrap_err().into_status(text);
    status.message().lines().next().unwrap().to_owned()
}

#[test]
fn spaces_and_comments_are_skipped() {
    let mut cursor = Cursor::new("\u{feff} /* a */\t// b\r\n  %x.1-y /*index=5*/, 12");
    assert_eq!(cursor.name("a name").unwrap().text, "x.1-y");
    assert!(cursor.take(","));
    assert_eq!(cursor.number().unwrap(), 12);
    assert!(cursor.is_at_end());
}

#[test]
fn what_was_found_is_said() {
    for (text, found) in [
        ("", "found the end of the text"),
        ("12x", "found \"12x\""),
        ("'", "found '\\''"),
        ("é", "found 'é'"),
        ("\u{7}", "found '\\u{7}'"),
        ("\"a\"", "found a string"),
        ("/* a", "found a comment that does not end"),
        ("% x", "found \"%\""),
    ] {
        let text = message(text, |cursor| cursor.name("a name").map(drop));
        assert!(
            text.ends_with(&format!("expected a name, {found}")),
            "{text}"
        );
    }
}

#[test]
fn numbers_have_bounds() {
    assert_eq!(
        message("18446744073709551616", |c| c.number().map(drop)),
        "line 1, column 1: expected a number below 2^64, found 18446744073709551616"
    );
    assert_eq!(
        message("-1", |c| c.number().map(drop)),
        "line 1, column 1: expected a number that is not negative, found \"-1\""
    );
}

#[test]
fn braces_heed_strings() {
    let mut cursor = Cursor::new(r#"{a={"}\""}, b} rest"#);
    assert_eq!(cursor.braces().unwrap(), r#"{a={"}\""}, b}"#);
    assert_eq!(cursor.word(), Some("rest"));
    for text in ["{", "{{}", "{\"}", "{\"\\"] {
        assert_eq!(
            message(text, |c| c.braces().map(drop)),
            "line 1, column 1: expected '}' that closes this '{', found the end of the text"
        );
    }
}

#[test]
fn strings_end() {
    assert_eq!(Cursor::new(r#" "a\"\101" "#).string().unwrap(), b"a\"A");
    for text in ["\"", "\"a\\\"", "\"a\\"] {
        assert_eq!(
            message(text, |c| c.string().map(drop)),
            "line 1, column 1: expected '\"' at the end of this string, found the end of the text"
        );
    }
    assert_eq!(
        message(r#""ab\q""#, |c| c.string().map(drop)),
        "line 1, column 4: expected an escape such as \\n or \\303, found \"\\\\q\""
    );
}

#[test]
fn shapes_are_shapes() {
    assert_eq!(
        Cursor::new("f32[2]{0} x").shape().unwrap().to_string(),
        "f32[2]{0}"
    );
    assert_eq!(
        message("add(x)", |c| c.shape().map(drop)),
        "line 1, column 1: expected a shape such as f32[2,3], found \"add\""
    );
    for (text, found) in [
        (
            "(f32[2], s32[x])",
            "line 1, column 14: expected a number that is not negative, found \"x\"",
        ),
        (
            "f32[2]{0,0}",
            "line 1, column 1: expected a layout that names each of 2 dimensions once, found {0,0}",
        ),
        (
            "f32[<=3]",
            "line 1, column 5: dynamic dimensions are not supported",
        ),
    ] {
        assert_eq!(message(text, |c| c.shape().map(drop)), found);
    }
}
