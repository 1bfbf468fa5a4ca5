//! Sanitizes text from guests before it is shown.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::path::Path;

use crate::values::Status;

/// The longest name in a module that can be looked up, in bytes.
const MAX_NAME: usize = 1024;

/// A guest's text as at most `limit` bytes of UTF-8, with a note if it was cut.
///
/// Control characters other than line ends and tabs are replaced. `bytes` is the text or its
/// beginning, and `total` is the length of the whole.
pub fn sanitize(bytes: &[u8], total: usize, limit: usize) -> String {
    let (mut text, shown) = fill(&bytes[..bytes.len().min(limit)], limit);
    if total > shown {
        // A character that was split by the cut has become a replacement character.
        if text.ends_with(char::REPLACEMENT_CHARACTER) {
            text.pop();
        }
        text.push_str(&format!("... ({shown} of {total} bytes shown)"));
    }
    text
}

/// A guest's text between quotation marks, which it cannot end.
///
/// Quotation marks and backslashes are escaped, and each line after the first is indented and
/// marked, so that no line of the guest's can pass for one of the host's.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\n  | "),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// The beginning of a text, as far as it fits into `limit` bytes. Formatting stops there.
pub fn formatted(text: fmt::Arguments<'_>, limit: usize) -> String {
    struct Limited {
        text: String,
        limit: usize,
    }

    impl Write for Limited {
        fn write_str(&mut self, part: &str) -> fmt::Result {
            let room = self.limit - self.text.len();
            self.text.push_str(&part[..part.floor_char_boundary(room)]);
            if part.len() > room {
                return Err(fmt::Error);
            }
            Ok(())
        }
    }

    let mut limited = Limited {
        text: String::new(),
        limit,
    };
    // An error says that the text was longer.
    let _ = limited.write_fmt(text);
    limited.text
}

/// The text that fits into `limit` bytes, and the number of `bytes` that it stands for: a
/// replacement character is longer than the byte that it replaces.
fn fill(bytes: &[u8], limit: usize) -> (String, usize) {
    let mut text = String::new();
    let mut shown = 0;
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid().chars().map(|c| (printable(c), c.len_utf8()));
        let invalid = (char::REPLACEMENT_CHARACTER, chunk.invalid().len());
        let invalid = (invalid.1 > 0).then_some(invalid);
        for (c, taken) in valid.chain(invalid) {
            if text.len() + c.len_utf8() > limit {
                // If the guest's own text was cut at the limit, all of it counts as shown.
                let is_last = shown + taken == bytes.len() && bytes.len() == limit;
                return (text, if is_last { limit } else { shown });
            }
            text.push(c);
            shown += taken;
        }
    }
    (text, shown)
}

/// A name in a message of callbox's: one that could be read as text of callbox is quoted.
#[must_use]
pub fn label(name: &str) -> Cow<'_, str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "_-.$/".contains(c);
    if name.chars().all(is_word) {
        Cow::Borrowed(name)
    } else {
        Cow::Owned(format!("\"{}\"", shown_name(name)))
    }
}

/// A name from a module for messages: characters that cannot be in a line or between quotation
/// marks are escaped, and a name past 1 KiB is cut.
///
/// The result for a name that is not plain is never a plain name, so that a name that is shown
/// cannot pass for another one that can be looked up.
pub fn shown_name(name: &str) -> String {
    if is_plain(name) {
        return name.to_owned();
    }
    let mut shown = String::new();
    for c in name.chars() {
        if shown.len() >= MAX_NAME {
            shown.push_str(&format!("\\... ({} bytes)", name.len()));
            break;
        }
        if is_escaped(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// A path for messages, as [`shown_name`]: a stranger can have named a file.
pub fn shown_path(path: &Path) -> String {
    shown_name(&path.to_string_lossy())
}

/// Whether [`shown_name`] leaves this name as it is. Only plain names can be looked up.
pub fn is_plain(name: &str) -> bool {
    name.len() <= MAX_NAME && !name.chars().any(is_escaped)
}

fn is_escaped(c: char) -> bool {
    matches!(c, '"' | '\\') || is_hidden(c)
}

/// Sanitizes a status whose message may contain text from a guest.
pub fn clean_message(status: Status, limit: usize) -> Status {
    status.map_message(|message| sanitize(message.as_bytes(), message.len(), limit))
}

/// Sanitizes a message on one line: for messages that quote a file rather than a target.
pub fn clean_line(status: Status, limit: usize) -> Status {
    clean_message(status, limit).map_message(|message| message.replace(['\n', '\t'], " "))
}

/// The character, or the replacement character if it could control a terminal or reorder a line.
fn printable(c: char) -> char {
    match c {
        '\n' | '\t' => c,
        _ if is_hidden(c) => char::REPLACEMENT_CHARACTER,
        _ => c,
    }
}

/// Whether a character controls a terminal or the direction of text, separates lines, or is
/// invisible: Unicode's Default_Ignorable_Code_Point (DerivedCoreProperties.txt, Unicode 17.0) as a
/// whole, which includes Bidi_Control, and the format characters of annotations.
pub fn is_hidden(c: char) -> bool {
    let is_separator = matches!(c, '\u{2028}' | '\u{2029}');
    let is_annotation = matches!(c, '\u{fff9}'..='\u{fffb}');
    c.is_control() || is_separator || is_annotation || is_default_ignorable(c)
}

fn is_default_ignorable(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fff8}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use proptest::string::string_regex;
    use proptest::{prop_assert, proptest};

    use super::*;

    /// The classes of the rule. The crate `regex-syntax` has tables of Unicode of its own.
    const HIDDEN: &str =
        r"\p{Default_Ignorable_Code_Point}\p{Bidi_Control}\p{Cc}\p{Zl}\p{Zp}\u{fff9}-\u{fffb}";

    proptest! {
        #[test]
        fn hidden_characters_are_those_of_unicode(
            hidden in string_regex(&format!("[{HIDDEN}]{{500}}")).unwrap(),
            shown in string_regex(&format!("[^{HIDDEN}]{{500}}")).unwrap(),
        ) {
            for c in hidden.chars() {
                prop_assert!(is_hidden(c), "{c:?}");
            }
            for c in shown.chars() {
                prop_assert!(!is_hidden(c), "{c:?}");
            }
        }
    }

    #[test]
    fn text_is_cut_and_cleaned() {
        for (bytes, total, limit, shown) in [
            (&b"plain"[..], 5, 10, "plain"),
            (
                b"a\x1b[31mb\x00c\td\n",
                12,
                20,
                "a\u{fffd}[31mb\u{fffd}c\td\n",
            ),
            (b"a\xffb", 3, 10, "a\u{fffd}b"),
            ("a\u{202e}b".as_bytes(), 5, 10, "a\u{fffd}b"),
            (b"0123456789", 10, 4, "0123... (4 of 10 bytes shown)"),
            ("aé".as_bytes(), 3, 2, "a... (2 of 3 bytes shown)"),
            (b"abc", 1_000_000, 3, "abc... (3 of 1000000 bytes shown)"),
            (b"", 0, 0, ""),
            ("a\u{200b}b\u{feff}".as_bytes(), 7, 10, "a\u{fffd}b\u{fffd}"),
            // What stands in the place of a byte has three.
            (&[0xff; 9], 9, 9, "\u{fffd}\u{fffd}... (3 of 9 bytes shown)"),
            (b"a\xff\xff\xffb", 5, 5, "a... (2 of 5 bytes shown)"),
        ] {
            assert_eq!(sanitize(bytes, total, limit), shown);
        }
    }

    #[test]
    fn quotations_cannot_be_ended() {
        for (text, shown) in [
            ("", r#""""#),
            ("no luck", r#""no luck""#),
            (r#"a" trapped: \"#, r#""a\" trapped: \\""#),
            ("a\ntarget", "\"a\n  | target\""),
        ] {
            assert_eq!(quoted(text), shown);
        }
    }

    #[test]
    fn formatting_stops_at_the_limit() {
        struct Endless;
        impl fmt::Display for Endless {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                loop {
                    f.write_str("é")?;
                }
            }
        }
        assert_eq!(formatted(format_args!("{Endless}"), 5), "éé");
        assert_eq!(formatted(format_args!("a{}", 12), 3), "a12");
        assert_eq!(formatted(format_args!("abcd"), 3), "abc");
    }

    #[test]
    fn names_stay_apart() {
        for (name, shown) in [
            ("softmax.prepare", "softmax.prepare"),
            ("a\u{1b}[2J", "a\\u{1b}[2J"),
            ("a\\u{1b}[2J", "a\\\\u{1b}[2J"),
            ("a\" \"b", "a\\\" \\\"b"),
            ("line\nend\u{202e}", "line\\nend\\u{202e}"),
            ("größe", "größe"),
        ] {
            assert_eq!(shown_name(name), shown);
            assert_eq!(is_plain(name), name == shown);
        }
        let long = "n".repeat(100_000);
        assert!(shown_name(&long).ends_with("n\\... (100000 bytes)"));
        assert!(shown_name(&long).len() < 1100 && !is_plain(&long));
    }
}
