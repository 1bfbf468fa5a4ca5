//! Places in the text, and errors that show them.

use std::borrow::Cow;

use crate::values::{Blame, Status, StatusCode};

/// How much of a line an error shows, and how much of that before its place, in characters.
const SHOWN: usize = 112;
const SHOWN_BEFORE: usize = 72;

/// How many characters of the text an error quotes.
const QUOTED: usize = 80;

/// What is wrong, and where: an offset into the text in bytes.
#[derive(Debug)]
pub(super) struct Diagnostic {
    code: StatusCode,
    at: usize,
    message: String,
}

/// What reading gives, or what is wrong.
pub(super) type Parsed<T> = Result<T, Diagnostic>;

impl Diagnostic {
    /// The text is wrong.
    pub(super) fn invalid(at: usize, message: impl Into<String>) -> Self {
        Self::new(StatusCode::InvalidArgument, at, message)
    }

    /// The text is right, and says something that callbox does not do.
    pub(super) fn unimplemented(at: usize, message: impl Into<String>) -> Self {
        Self::new(StatusCode::Unimplemented, at, message)
    }

    /// The text takes more than it may.
    pub(super) fn exhausted(at: usize, message: impl Into<String>) -> Self {
        Self::new(StatusCode::ResourceExhausted, at, message)
    }

    /// What another module found wrong with what stands here.
    pub(super) fn of_status(at: usize, status: &Status) -> Self {
        Self::new(status.code(), at, status.message())
    }

    /// If this says that an attribute is of a kind that callbox does not do, the same as XLA says it (xla/ffi/attribute_map.cc): an attribute
    /// that it refuses makes the text wrong.
    pub(super) fn of_attribute(self, name: &str) -> Self {
        if self.code != StatusCode::Unimplemented {
            return self;
        }
        let (name, why) = (shortened(name), self.message);
        let message = format!("Unsupported attribute type for attribute: {name}: {why}");
        Self::invalid(self.at, message)
    }

    /// The same, of a text that stands at `start` in another.
    pub(super) fn moved_by(self, start: usize) -> Self {
        Self {
            at: self.at + start,
            ..self
        }
    }

    /// The same, of a text that stands quoted at `at` in another.
    pub(super) fn quoted_at(self, at: usize, what: &str) -> Self {
        let message = format!("{} at byte {} of {what}", self.message, self.at);
        Self {
            at,
            message,
            ..self
        }
    }

    /// The status that shows the place in this text.
    pub(super) fn into_status(self, text: &str) -> Status {
        Status::new(self.code, Blame::Caller, show(text, self.at, &self.message))
    }

    fn new(code: StatusCode, at: usize, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, at, message }
    }
}

/// The message with its line and column, the line itself, and a caret under the place.
pub(super) fn show(text: &str, at: usize, message: &str) -> String {
    // What is missing at the end is missing behind the last word, not on an empty line below it.
    let at = match text.get(at..) {
        Some(rest) if !rest.trim_start().is_empty() => at,
        _ => text.trim_end().len(),
    };
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let end = text[at..]
        .find('\n')
        .map_or(text.len(), |length| at + length);
    let column = text[start..at].chars().count() + 1;
    let (shown, caret) = excerpt(text[start..end].trim_end(), at - start);
    format!(
        "line {}, column {column}: {message}\n    {shown}\n    {:caret$}^",
        line_number(text, at),
        ""
    )
}

/// The line, from 1, that this offset is on.
pub(super) fn line_number(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at]
        .iter()
        .filter(|&&byte| byte == b'\n')
        .count()
}

/// Text to be quoted in a message: its first characters, if there are many.
pub(super) fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => Cow::Owned(format!("{}...", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// The part of a line around an offset, and how far into it the offset is. All of it is printable ASCII, so that a caret stands where
/// it should whatever the line contains, and a terminal does nothing but print it.
fn excerpt(line: &str, offset: usize) -> (String, usize) {
    let offset = offset.min(line.len());
    let indent = line.len() - line.trim_start().len();
    let mut before = line[..offset].char_indices().rev();
    let cut = before.nth(SHOWN_BEFORE - 1).map_or(0, |(start, _)| start);
    let start = cut.max(indent.min(offset));
    let left = SHOWN - line[start..offset].chars().count();
    let mut behind = line[offset..].char_indices();
    let end = behind
        .nth(left)
        .map_or(line.len(), |(length, _)| offset + length);
    let mut shown = String::from(if start > indent { "..." } else { "" });
    shown.extend(line[start..offset].chars().map(visible));
    let caret = shown.len();
    shown.extend(line[offset..end].chars().map(visible));
    shown += if end < line.len() { "..." } else { "" };
    (shown, caret)
}

fn visible(character: char) -> Cow<'static, str> {
    match character {
        '\t' => " ".into(),
        ' '..='~' => character.to_string().into(),
        _ => character.escape_unicode().to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let at = text.find('@').unwrap_or(text.len());
        assert_eq!(show(text, at, "message"), expected);
    }

    #[test]
    fn the_caret_is_under_the_place() {
        check(
            "first\n  second @third\nfourth",
            "line 2, column 10: message\n    second @third\n           ^",
        );
        check("@", "line 1, column 1: message\n    @\n    ^");
        check(
            "a\r\nb @\r\n",
            "line 2, column 3: message\n    b @\n      ^",
        );
    }

    #[test]
    fn the_end_is_behind_the_last_word() {
        check(
            "first\nsecond\n\n",
            "line 2, column 7: message\n    second\n          ^",
        );
        check("", "line 1, column 1: message\n    \n    ^");
    }

    #[test]
    fn whatever_is_not_plain_text_is_escaped_and_counted() {
        check(
            "\tx\ty @",
            "line 1, column 6: message\n    x y @\n        ^",
        );
        check(
            "\u{1b}[31m é漢 @",
            concat!(
                "line 1, column 10: message\n",
                "    \\u{1b}[31m \\u{e9}\\u{6f22} @\n",
                "                              ^",
            ),
        );
    }

    #[test]
    fn long_lines_are_cut_around_the_place() {
        let text = format!("{}@{}", "a".repeat(100), "b".repeat(100));
        let shown = show(&text, 100, "message");
        let expected = format!(
            "line 1, column 101: message\n    ...{}@{}...\n    {}^",
            "a".repeat(72),
            "b".repeat(39),
            " ".repeat(75)
        );
        assert_eq!(shown, expected);
        let early = show(&text, 1, "message");
        let expected = format!(
            "line 1, column 2: message\n    {}@{}...\n     ^",
            "a".repeat(100),
            "b".repeat(11)
        );
        assert_eq!(early, expected);
    }
}
