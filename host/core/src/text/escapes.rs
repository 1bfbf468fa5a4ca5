//! Escapes in strings: those of C in HLO text, and those of MLIR in attributes.

/// The offset of a wrong escape in the text between the quotes, and the message.
type WrongEscape = (usize, String);

/// The bytes of a string in HLO text: `absl::CUnescape`.
pub(super) fn unescape_c(raw: &str) -> Result<Vec<u8>, WrongEscape> {
    unescape(raw, "\\n or \\303", |rest| {
        match rest.as_bytes().first()? {
            b'0'..=b'7' => octal(rest),
            b'x' | b'X' => hexadecimal(&rest[1..]).map(|(bytes, length)| (bytes, length + 1)),
            b'u' => code_point(rest, 4),
            b'U' => code_point(rest, 8),
            letter => letter_escape(*letter),
        }
    })
}

/// The bytes of a string in MLIR: two hexadecimal digits, `n`, `t`, `"` or `\` behind a `\`.
pub(super) fn unescape_mlir(raw: &str) -> Result<Vec<u8>, WrongEscape> {
    unescape(raw, "\\n or \\C3", |rest| {
        match rest.as_bytes().first()? {
            letter @ (b'n' | b't' | b'"' | b'\\') => letter_escape(*letter),
            _ => {
                let byte = u8::from_str_radix(rest.get(..2)?, 16).ok()?;
                (!rest.starts_with('+')).then(|| (vec![byte], 2))
            }
        }
    })
}

/// A string of HLO text for these bytes: `absl::CEscape`.
#[must_use]
pub fn escape_c(bytes: &[u8]) -> String {
    escape(bytes, |byte, text| match byte {
        b'\n' => text.push_str("\\n"),
        b'\r' => text.push_str("\\r"),
        b'\t' => text.push_str("\\t"),
        b'"' | b'\'' | b'\\' => text.extend(['\\', char::from(byte)]),
        b' '..=b'~' => text.push(char::from(byte)),
        _ => {
            text.push('\\');
            text.extend([6, 3, 0].map(|shift| digit(byte >> shift & 7)));
        }
    })
}

/// A string of MLIR for these bytes: LLVM's `printEscapedString`.
pub(super) fn escape_mlir(bytes: &[u8]) -> String {
    escape(bytes, |byte, text| match byte {
        b'\\' => text.push_str("\\\\"),
        b'"' => text.push_str("\\22"),
        b' '..=b'~' => text.push(char::from(byte)),
        _ => text.extend(['\\', digit(byte >> 4), digit(byte & 15)]),
    })
}

/// A text to which `push` appends each byte. It makes no text of its own for each: arrays and
/// strings of attributes may have many.
fn escape(bytes: &[u8], push: impl Fn(u8, &mut String)) -> String {
    let mut text = String::with_capacity(bytes.len());
    bytes.iter().for_each(|&byte| push(byte, &mut text));
    text
}

/// A digit below 16, in upper case.
fn digit(value: u8) -> char {
    char::from(b"0123456789ABCDEF"[usize::from(value & 15)])
}

/// Replaces the escapes of a string. `escape` receives the text behind a `\` and returns the bytes
/// that the escape stands for and its length.
fn unescape(
    raw: &str,
    examples: &str,
    escape: impl Fn(&str) -> Option<(Vec<u8>, usize)>,
) -> Result<Vec<u8>, WrongEscape> {
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(start) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..start]);
        let Some((escaped, length)) = escape(&rest[start + 1..]) else {
            let found: String = rest[start..].chars().take(2).collect();
            let message = format!("expected an escape such as {examples}, found {:?}", found);
            return Err((raw.len() - rest.len() + start, message));
        };
        bytes.extend(escaped);
        rest = &rest[start + 1 + length..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    Ok(bytes)
}

fn letter_escape(letter: u8) -> Option<(Vec<u8>, usize)> {
    let byte = match letter {
        b'a' => 7,
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 11,
        b'\\' | b'?' | b'\'' | b'"' => letter,
        _ => return None,
    };
    Some((vec![byte], 1))
}

/// Up to three octal digits.
fn octal(rest: &str) -> Option<(Vec<u8>, usize)> {
    let digits = rest.bytes().take(3);
    let length = digits.take_while(|b| (b'0'..=b'7').contains(b)).count();
    let byte = u8::from_str_radix(&rest[..length], 8).ok()?;
    Some((vec![byte], length))
}

/// All hexadecimal digits that follow.
fn hexadecimal(rest: &str) -> Option<(Vec<u8>, usize)> {
    let length = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
    let byte = u8::from_str_radix(&rest[..length], 16).ok()?;
    Some((vec![byte], length))
}

/// A character as this many hexadecimal digits behind a letter.
fn code_point(rest: &str, digits: usize) -> Option<(Vec<u8>, usize)> {
    let text = rest.get(1..=digits)?;
    if !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let character = char::from_u32(u32::from_str_radix(text, 16).ok()?)?;
    Some((character.to_string().into_bytes(), digits + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts are those that JAX 0.10.2 prints for a `legacy_backend_config` of these bytes.
    #[test]
    fn what_xla_escapes_is_restored() {
        for (text, bytes) in [
            (r#"a\"b\n\\\t\'\303\251"#, "a\"b\n\\\t'é".as_bytes()),
            (r"\000\001\177", &[0, 1, 127]),
            (r"\x41\x0041 \u00e9\U0001F600\0", "AA é😀\0".as_bytes()),
        ] {
            assert_eq!(unescape_c(text), Ok(bytes.to_vec()));
        }
    }

    /// The text is what JAX 0.10.2 prints for attributes of these bytes.
    #[test]
    fn what_mlir_escapes_is_restored() {
        let text = r"he said \22hi\22\0A\09\\ \00 \C3\A9 \7F";
        assert_eq!(
            unescape_mlir(text),
            Ok("he said \"hi\"\n\t\\ \0 é \x7f".as_bytes().to_vec())
        );
        assert_eq!(unescape_mlir(r"\FF\00ab"), Ok(vec![0xff, 0, b'a', b'b']));
    }

    #[test]
    fn what_is_escaped_is_as_xla_and_mlir_have_it() {
        let bytes = "a\"b\n\\\t'é\0\u{1}\u{7f}\r".as_bytes();
        let text = escape_c(bytes);
        assert_eq!(text, r#"a\"b\n\\\t\'\303\251\000\001\177\r"#);
        assert_eq!(unescape_c(&text), Ok(bytes.to_vec()));
        let text = escape_mlir(bytes);
        assert_eq!(text, r"a\22b\0A\\\09'\C3\A9\00\01\7F\0D");
        assert_eq!(unescape_mlir(&text), Ok(bytes.to_vec()));
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unescape_c(&escape_c(&all)), Ok(all.clone()));
        assert_eq!(unescape_mlir(&escape_mlir(&all)), Ok(all));
    }

    #[test]
    fn what_is_no_escape_is_refused() {
        for (text, at, found) in [
            (r"a\q", 1, r#""\\q""#),
            (r"\777", 0, r#""\\7""#),
            (r"\x", 0, r#""\\x""#),
            (r"\x100", 0, r#""\\x""#),
            (r"\ud800", 0, r#""\\u""#),
            (r"\u12", 0, r#""\\u""#),
            ("\\é", 0, r#""\\é""#),
        ] {
            let message = format!("expected an escape such as \\n or \\303, found {found}");
            assert_eq!(unescape_c(text), Err((at, message)));
        }
        for text in [r"\r", r"\0", r"\+1", "\\é", "\\"] {
            assert!(unescape_mlir(text).is_err(), "{text}");
        }
    }
}
