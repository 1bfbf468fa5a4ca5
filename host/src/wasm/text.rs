//! A guest's text, made fit to be shown.

use crate::values::Status;

/// The longest name that a module's things may have to be found by it, in bytes.
const MAX_NAME: usize = 1024;

/// What a guest wrote, as at most `limit` bytes of UTF-8 without control characters but for line ends and tabs, and a note if that is
/// not all. `total` is how long it was, of which `bytes` is all or the beginning.
pub(crate) fn sanitize(bytes: &[u8], total: usize, limit: usize) -> String {
    let (mut text, shown) = fill(&bytes[..bytes.len().min(limit)], limit);
    if total > shown {
        // A character that the cut split shows as a replacement character at the end.
        if text.ends_with(char::REPLACEMENT_CHARACTER) {
            text.pop();
        }
        text.push_str(&format!("... ({shown} of {total} bytes shown)"));
    }
    text
}

/// As much as `limit` bytes of text can show, and how much that is of `bytes`: a replacement character takes more than what it replaces.
fn fill(bytes: &[u8], limit: usize) -> (String, usize) {
    let mut text = String::new();
    let mut shown = 0;
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid().chars().map(|c| (printable(c), c.len_utf8()));
        let invalid = (char::REPLACEMENT_CHARACTER, chunk.invalid().len());
        let invalid = (invalid.1 > 0).then_some(invalid);
        for (c, taken) in valid.chain(invalid) {
            if text.len() + c.len_utf8() > limit {
                // The cut of the guest's own text, and not of what stands in its place, is the limit itself.
                let is_last = shown + taken == bytes.len() && bytes.len() == limit;
                return (text, if is_last { limit } else { shown });
            }
            text.push(c);
            shown += taken;
        }
    }
    (text, shown)
}

/// A name of a module's, made fit to be shown: what cannot stand in a line or between quotation marks is escaped, and what is too long is
/// cut. A name that is not plain never becomes one that is: names that are found by what is shown are plain.
pub(super) fn shown_name(name: &str) -> String {
    if is_plain(name) {
        return name.to_owned();
    }
    let mut shown = String::new();
    for c in name.chars() {
        if shown.len() >= MAX_NAME {
            shown.push_str(&format!("\\... ({} bytes)", name.len()));
            break;
        }
        match is_escaped(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

/// Whether a name can be used: [`shown_name`] leaves it as it is.
pub(super) fn is_plain(name: &str) -> bool {
    name.len() <= MAX_NAME && !name.chars().any(is_escaped)
}

fn is_escaped(c: char) -> bool {
    matches!(c, '"' | '\\') || is_hidden(c)
}

/// The same failure with a message that is fit to be shown, whatever of a guest's is in it.
pub(crate) fn clean_message(status: Status, limit: usize) -> Status {
    status.map_message(|message| sanitize(message.as_bytes(), message.len(), limit))
}

/// The same on one line: what quotes a file, and not what a target says.
pub(super) fn clean_line(status: Status, limit: usize) -> Status {
    clean_message(status, limit).map_message(|message| message.replace(['\n', '\t'], " "))
}

/// The character, or the replacement character for what could steer a terminal or reorder a line.
fn printable(c: char) -> char {
    match c {
        '\n' | '\t' => c,
        _ if is_hidden(c) => char::REPLACEMENT_CHARACTER,
        _ => c,
    }
}

/// Whether a character steers a terminal or the direction of text, or is not seen. The command line has the same list.
fn is_hidden(c: char) -> bool {
    let reorders = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{206f}');
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
