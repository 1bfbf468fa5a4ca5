//! A guest's text, made fit to be shown.

use crate::values::Status;

/// What a guest wrote, as at most `limit` bytes of UTF-8 without control characters but for line ends and tabs. `total` is how long it
/// was, of which `bytes` is all or the beginning.
pub(super) fn sanitize(bytes: &[u8], total: usize, limit: usize) -> String {
    let kept = &bytes[..bytes.len().min(limit)];
    let mut text: String = String::from_utf8_lossy(kept)
        .chars()
        .map(printable)
        .collect();
    if total > kept.len() {
        // A character that the cut split shows as replacement characters at the end.
        text.truncate(text.trim_end_matches(char::REPLACEMENT_CHARACTER).len());
        text.push_str(&format!("... ({} of {total} bytes shown)", kept.len()));
    }
    text
}

/// The same failure with a message that is fit to be shown, whatever of a guest's is in it.
pub(super) fn clean_message(status: Status, limit: usize) -> Status {
    status.map_message(|message| sanitize(message.as_bytes(), message.len(), limit))
}

/// The character, or the replacement character for what could steer a terminal or reorder a line.
fn printable(c: char) -> char {
    let reorders = matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    match c {
        '\n' | '\t' => c,
        _ if c.is_control() || reorders => char::REPLACEMENT_CHARACTER,
        _ => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        ] {
            assert_eq!(sanitize(bytes, total, limit), shown);
        }
    }
}
