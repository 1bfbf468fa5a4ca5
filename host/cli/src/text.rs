//! Escapes untrusted text for a terminal: names and documentation of guests, and names of files.

use callbox_core::untrusted_text::is_hidden;

/// Replaces characters that could control a terminal or reorder a line. Line ends and tabs stay.
pub(super) fn printable(text: &str) -> String {
    let replace = |c: char| match c {
        '\n' | '\t' => c,
        _ if is_hidden(c) => char::REPLACEMENT_CHARACTER,
        _ => c,
    };
    text.chars().map(replace).collect()
}

/// A name on one line. Characters are escaped rather than replaced, so that names stay distinct.
pub(super) fn name(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_a_terminal() {
        assert_eq!(
            printable("a\x1b[31m\r\n\tb\u{9b}"),
            "a\u{fffd}[31m\u{fffd}\n\tb\u{fffd}"
        );
        assert_eq!(name("a\x1b\n\u{202e}é"), "a\\u{1b}\\n\\u{202e}é");
    }
}
