//! What may go to a terminal. Names and documentation of guests, and names of files, are strangers' text.

/// The text with everything replaced that could steer a terminal or reorder a line. Line ends and tabs stay.
pub(super) fn printable(text: &str) -> String {
    let replace = |c: char| match c {
        '\n' | '\t' => c,
        _ if is_hidden(c) => char::REPLACEMENT_CHARACTER,
        _ => c,
    };
    text.chars().map(replace).collect()
}

/// A name on one line: what is replaced in a text is escaped here, so that names stay apart.
pub(super) fn name(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match is_hidden(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

/// Whether a character steers a terminal or the direction of text, or is not seen. The library has the same list for guests' texts.
pub(super) fn is_hidden(c: char) -> bool {
    let reorders = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{206f}'
    );
    let is_not_seen = matches!(
        c,
        '\u{ad}' | '\u{180e}' | '\u{200b}' | '\u{2060}'..='\u{2065}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    );
    c.is_control() || reorders || is_not_seen
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
