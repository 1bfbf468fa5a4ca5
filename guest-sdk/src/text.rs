//! Messages composed of parts. `format!` would bring the formatting machinery into every kernel,
//! which is several times as large as a small kernel.

use alloc::string::String;

use crate::abi;
use crate::shape::Dimensions;

/// A part of a message.
#[derive(Clone, Copy)]
pub(crate) enum Part<'a> {
    Text(&'a str),
    Number(u64),
    /// As XLA writes them: `[2,3]`.
    Dimensions(&'a [i64]),
}

impl<'a> From<&'a str> for Part<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a String> for Part<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(text)
    }
}

impl From<u32> for Part<'_> {
    fn from(number: u32) -> Self {
        Self::Number(u64::from(number))
    }
}

impl From<usize> for Part<'_> {
    fn from(number: usize) -> Self {
        Self::Number(number as u64)
    }
}

impl<'a> From<Dimensions<'a>> for Part<'a> {
    fn from(Dimensions(dimensions): Dimensions<'a>) -> Self {
        Self::Dimensions(dimensions)
    }
}

/// Returns the text of all parts.
pub(crate) fn concat(parts: &[Part<'_>]) -> String {
    let mut text = String::new();
    for &part in parts {
        append(&mut text, part);
    }
    text
}

/// Appends a part. A text that no memory is left for is cut.
pub(crate) fn append(text: &mut String, part: Part<'_>) {
    match part {
        Part::Text(part) => abi::push_str(text, part),
        Part::Number(number) => abi::push_str(text, digits(number, &mut [0; 20])),
        Part::Dimensions(dimensions) => {
            let mut separator = "[";
            for dimension in dimensions {
                abi::push_str(text, separator);
                abi::push_str(text, if *dimension < 0 { "-" } else { "" });
                append(text, Part::Number(dimension.unsigned_abs()));
                separator = ",";
            }
            abi::push_str(text, if dimensions.is_empty() { "[]" } else { "]" });
        }
    }
}

/// Appends a part on a line of its own.
pub(crate) fn append_line(text: &mut String, line: &str) {
    if !text.is_empty() {
        append(text, Part::Text("\n"));
    }
    append(text, Part::Text(line));
}

/// Returns the decimal digits of a number, which are written to the end of `room`.
pub(crate) fn digits(mut number: u64, room: &mut [u8; 20]) -> &str {
    let mut first = room.len();
    for digit in room.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        first -= 1;
        if number == 0 {
            break;
        }
    }
    str::from_utf8(room.get(first..).unwrap_or_default()).unwrap_or_default()
}

/// Composes a message of texts, numbers and dimensions.
macro_rules! text {
    ($($part:expr),* $(,)?) => {
        $crate::text::concat(&[$($crate::text::Part::from($part)),*])
    };
}
pub(crate) use text;

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn numbers_have_the_digits_that_the_standard_library_writes() {
        for number in [0, 9, 10, 4096, u64::from(u32::MAX), u64::MAX] {
            assert_eq!(digits(number, &mut [0; 20]), number.to_string());
        }
    }

    #[test]
    fn dimensions_are_written_as_they_are_displayed() {
        for dimensions in [&[][..], &[7], &[2, 0, 300], &[-1, i64::MIN, i64::MAX]] {
            let dimensions = Dimensions(dimensions);
            assert_eq!(concat(&[Part::from(dimensions)]), dimensions.to_string());
        }
    }

    #[test]
    fn parts_follow_each_other() {
        let found = String::from("F32");
        assert_eq!(
            text!["expected ", 3_usize, " of ", &found],
            "expected 3 of F32"
        );
        let mut lines = String::new();
        append_line(&mut lines, "a");
        append_line(&mut lines, "b");
        assert_eq!(lines, "a\nb");
    }
}
