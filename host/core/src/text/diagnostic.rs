//! Diagnostics: what is wrong with a text, and where.

use std::borrow::Cow;
use std::fmt::{self, Write};

use crate::untrusted_text::is_hidden;
use crate::values::{Blame, Status, StatusCode};

/// A value and its position in the text.
#[derive(Debug)]
pub struct Placed<T> {
    /// The value.
    pub value: T,
    /// Its offset in the text, in bytes.
    pub at: usize,
}

/// The most characters of a line that an excerpt shows, and of those before the position.
const SHOWN: usize = 112;
const SHOWN_BEFORE: usize = 72;

/// The most characters of a name that a message quotes.
const QUOTED: usize = 80;

/// The most bytes of a message. A program chooses the names and shapes that messages quote, and how
/// many of them.
const MAX_MESSAGE: usize = 4096;

/// An error in a text, with its position as an offset in bytes.
#[derive(Debug)]
pub struct Diagnostic {
    code: StatusCode,
    at: usize,
    message: String,
}

/// The result of reading a part of a text.
pub type Parsed<T> = Result<T, Diagnostic>;

impl Diagnostic {
    /// The text is malformed: INVALID_ARGUMENT.
    pub fn invalid(at: usize, message: impl Into<String>) -> Self {
        Self::new(StatusCode::InvalidArgument, at, message)
    }

    /// The text is well formed, but callbox does not support its meaning: UNIMPLEMENTED.
    pub fn unimplemented(at: usize, message: impl Into<String>) -> Self {
        Self::new(StatusCode::Unimplemented, at, message)
    }

    /// The text is past a limit: RESOURCE_EXHAUSTED.
    pub fn exhausted(at: usize, message: impl Into<String>) -> Self {
        Self::new(StatusCode::ResourceExhausted, at, message)
    }

    /// The status of a check that knows no positions, for the text at `at`.
    #[must_use]
    pub fn of_status(at: usize, status: &Status) -> Self {
        Self::new(status.code(), at, status.message())
    }

    /// Rewrites UNIMPLEMENTED for the attribute `name` as XLA words it, with XLA's code
    /// INVALID_ARGUMENT (xla/ffi/attribute_map.cc). Other diagnostics stay as they are.
    #[must_use]
    pub(super) fn of_attribute(self, name: &str) -> Self {
        if self.code != StatusCode::Unimplemented {
            return self;
        }
        let (name, why) = (shortened(name), self.message);
        let message = format!("Unsupported attribute type for attribute: {name}: {why}");
        Self::invalid(self.at, message)
    }

    /// Translates the position from a part of the text to the whole. The part starts at `start`.
    #[must_use]
    pub fn moved_by(self, start: usize) -> Self {
        Self {
            at: self.at + start,
            ..self
        }
    }

    /// Translates the position from a string's content to the string at `at`. Escapes make the
    /// offset within the string inexact, so that the message names the byte of its content `what`.
    #[must_use]
    pub fn quoted_at(self, at: usize, what: &str) -> Self {
        let message = format!("{} at byte {} of {what}", self.message, self.at);
        Self {
            at,
            message,
            ..self
        }
    }

    /// The status, with line, column and an excerpt of this text.
    #[must_use]
    pub fn into_status(self, text: &str) -> Status {
        let message = with_excerpt(text, self.at, &escaped(&self.message));
        Status::new(self.code, Blame::Caller, message)
    }

    /// The status of a text of one line: with the column, and without an excerpt.
    #[must_use]
    pub(super) fn into_line(self, text: &str) -> Status {
        let column = text[..self.at].chars().count() + 1;
        let message = format!("column {column}: {}", escaped(&self.message));
        Status::new(self.code, Blame::Caller, message)
    }

    fn new(code: StatusCode, at: usize, message: impl Into<String>) -> Self {
        let message = message.into();
        let message = match message.len() {
            0..=MAX_MESSAGE => message,
            _ => bounded_message(format_args!("{message}")),
        };
        Self { code, at, message }
    }
}

/// The message without what a name in it may have for a terminal, or to look like another line.
fn escaped(message: &str) -> String {
    let mut escaped = String::with_capacity(message.len());
    for c in message.chars() {
        if is_hidden(c) {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// The message with its line and column, the line itself, and a caret under the position.
fn with_excerpt(text: &str, at: usize, message: &str) -> String {
    // An error at the end of the text is shown behind the last word, not on an empty line.
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

/// The line of this offset, counted from 1.
#[must_use]
pub fn line_number(text: &str, at: usize) -> usize {
    1 + text[..at].matches('\n').count()
}

/// Formats a message of at most 4 KiB. Formatting stops there, and `...` shows the cut.
#[must_use]
pub fn bounded_message(message: fmt::Arguments<'_>) -> String {
    /// Accepts text up to a length, and fails at the first character that does not fit.
    struct Bounded(String);

    impl fmt::Write for Bounded {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let room = MAX_MESSAGE - self.0.len();
            let fits = &text[..text.floor_char_boundary(room)];
            self.0.push_str(fits);
            if fits.len() == text.len() {
                Ok(())
            } else {
                Err(fmt::Error)
            }
        }
    }

    let mut bounded = Bounded(String::new());
    let is_whole = bounded.write_fmt(message).is_ok();
    bounded.0 + if is_whole { "" } else { "..." }
}

/// The first characters of a text that a message quotes.
#[must_use]
pub fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => Cow::Owned(format!("{}...", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// The part of a line around an offset, and the offset within that part. All of it is printable
/// ASCII, so that the caret is under the position and no terminal interprets the excerpt.
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
        assert_eq!(with_excerpt(text, at, "message"), expected);
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
    fn messages_are_cut_and_formatting_stops_there() {
        struct Endless;
        impl fmt::Display for Endless {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                loop {
                    f.write_str("é")?;
                }
            }
        }
        let message = bounded_message(format_args!("{Endless} and more"));
        assert_eq!(message, "é".repeat(MAX_MESSAGE / 2) + "...");
        assert_eq!(bounded_message(format_args!("a{}", 1)), "a1");
    }

    #[test]
    fn long_lines_are_cut_around_the_place() {
        let text = format!("{}@{}", "a".repeat(100), "b".repeat(100));
        let shown = with_excerpt(&text, 100, "message");
        let expected = format!(
            "line 1, column 101: message\n    ...{}@{}...\n    {}^",
            "a".repeat(72),
            "b".repeat(39),
            " ".repeat(75)
        );
        assert_eq!(shown, expected);
        let early = with_excerpt(&text, 1, "message");
        let expected = format!(
            "line 1, column 2: message\n    {}@{}...\n     ^",
            "a".repeat(100),
            "b".repeat(11)
        );
        assert_eq!(early, expected);
    }
}
