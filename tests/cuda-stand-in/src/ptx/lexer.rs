//! From characters to tokens.

use super::module::ParseError;

/// A token and where it stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind<'a>,
    /// The line of the text, from 1.
    pub(super) line: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    /// A name, directive, register or mnemonic: letters, digits and `_$%.`, with `::` inside.
    Word(&'a str),
    /// What begins with a digit, as it is written.
    Number(&'a str),
    /// What stands between quotation marks.
    Text,
    Mark(char),
    End,
}

impl std::fmt::Display for Kind<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Word(word) | Self::Number(word) => write!(f, "`{word}`"),
            Self::Text => f.write_str("a string"),
            Self::Mark(mark) => write!(f, "`{mark}`"),
            Self::End => f.write_str("the end of the text"),
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}

/// All tokens of a text, without its comments. The last one is [`Kind::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, ParseError> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::with_capacity(text.len() / 4);
    let (mut at, mut line) = (0, 1);
    // What a driver is handed ends with a NUL.
    while at < bytes.len() && bytes[at] != 0 {
        let start = at;
        let byte = bytes[at];
        let next = bytes.get(at + 1).copied();
        at += 1;
        let kind = match byte {
            b'\n' => {
                line += 1;
                continue;
            }
            b' ' | b'\t' | b'\r' => continue,
            b'/' if next == Some(b'/') => {
                while at < bytes.len() && bytes[at] != b'\n' {
                    at += 1;
                }
                continue;
            }
            b'/' if next == Some(b'*') => {
                let Some(length) = text[at + 1..].find("*/") else {
                    let message = "a comment begins here that does not end".into();
                    return Err(ParseError { line, message });
                };
                let end = at + 1 + length + 2;
                line += bytes[at..end].iter().filter(|&&b| b == b'\n').count();
                at = end;
                continue;
            }
            b'"' => {
                while at < bytes.len() && bytes[at] != b'"' && bytes[at] != b'\n' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                if bytes.get(at) != Some(&b'"') {
                    let message = "a string begins here that does not end".into();
                    return Err(ParseError { line, message });
                }
                at += 1;
                Kind::Text
            }
            b'0'..=b'9' => {
                while at < bytes.len() && continues_number(&bytes[start..=at]) {
                    at += 1;
                }
                Kind::Number(&text[start..at])
            }
            _ if is_word(byte) => {
                loop {
                    if at < bytes.len() && is_word(bytes[at]) {
                        at += 1;
                    } else if bytes[at..].starts_with(b"::") {
                        at += 2;
                    } else {
                        break;
                    }
                }
                Kind::Word(&text[start..at])
            }
            b'{' | b'}' | b'[' | b']' | b'(' | b')' | b'<' | b'>' | b',' | b';' | b':' | b'+'
            | b'-' | b'!' | b'@' | b'|' | b'=' | b'~' => Kind::Mark(char::from(byte)),
            _ => {
                let found = text[start..].chars().next().unwrap_or('?');
                let message = format!("{found:?} is no character of PTX");
                return Err(ParseError { line, message });
            }
        };
        tokens.push(Token { kind, line });
    }
    tokens.push(Token {
        kind: Kind::End,
        line,
    });
    Ok(tokens)
}

/// Whether the last of these bytes belongs to the number that the others begin.
fn continues_number(bytes: &[u8]) -> bool {
    let Some((&last, number)) = bytes.split_last() else {
        return false;
    };
    let is_exponent = !number.starts_with(b"0x") && matches!(number.last(), Some(b'e' | b'E'));
    let is_bits = number.len() > 1 && matches!(number[1], b'x' | b'X' | b'f' | b'F' | b'd' | b'D');
    last.is_ascii_alphanumeric()
        || last == b'.'
        || (is_exponent && !is_bits && matches!(last, b'+' | b'-'))
}

/// The bits of a number as it is written, as an integer of 64 bits.
pub(super) fn integer(number: &str) -> Option<u64> {
    let digits = number.trim_end_matches(['U', 'u']);
    if let Some(hex) = digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        u64::from_str_radix(hex, 16).ok()
    } else if let Some(binary) = digits.strip_prefix("0b").or(digits.strip_prefix("0B")) {
        u64::from_str_radix(binary, 2).ok()
    } else if digits.len() > 1 && digits.starts_with('0') {
        u64::from_str_radix(digits, 8).ok()
    } else {
        digits.parse().ok()
    }
}

/// A floating-point number as it is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Floating {
    /// `0f` and the eight digits of an f32.
    Single(u32),
    /// `0d` and the sixteen digits of an f64, or a decimal number.
    Double(u64),
}

pub(super) fn floating(number: &str) -> Option<Floating> {
    if let Some(hex) = number.strip_prefix("0f").or(number.strip_prefix("0F")) {
        (hex.len() == 8)
            .then(|| u32::from_str_radix(hex, 16).ok())?
            .map(Floating::Single)
    } else if let Some(hex) = number.strip_prefix("0d").or(number.strip_prefix("0D")) {
        (hex.len() == 16)
            .then(|| u64::from_str_radix(hex, 16).ok())?
            .map(Floating::Double)
    } else if number.contains(['.', 'e', 'E']) && !number.starts_with("0x") {
        number
            .parse::<f64>()
            .ok()
            .map(|value| Floating::Double(value.to_bits()))
    } else {
        None
    }
}
