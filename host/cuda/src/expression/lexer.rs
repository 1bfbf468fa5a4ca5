//! The tokens of an expression.

use super::{MAX_LENGTH, Problem};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Name(String),
    Integer(i128),
    Float(f64),
    Text(String),
    Symbol(&'static str),
    End,
}

impl Token {
    /// The token as messages show it.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Name(name) => format!("{name:?}"),
            Self::Integer(value) => value.to_string(),
            Self::Float(value) => format!("{value:?}"),
            Self::Text(text) => format!("the text {text:?}"),
            Self::Symbol(symbol) => format!("\"{symbol}\""),
            Self::End => "its end".to_owned(),
        }
    }
}

/// Longer symbols come before their prefixes.
const SYMBOLS: [&str; 21] = [
    "||", "&&", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "!", "(", ")", "[", "]",
    ",", ".", "?",
];

/// The tokens, each with its column. The last one is the end.
pub(super) fn tokens(text: &str) -> Result<Vec<(Token, usize)>, Problem> {
    if text.len() > MAX_LENGTH {
        let message = format!(
            "expected an expression of at most {MAX_LENGTH} bytes, found {}",
            text.len()
        );
        return Err(Problem::new(1, message));
    }
    let mut tokens = Vec::new();
    let (mut rest, mut column) = (text, 1);
    loop {
        let trimmed = rest.trim_start_matches([' ', '\t']);
        column += rest.len() - trimmed.len();
        if trimmed.is_empty() {
            tokens.push((Token::End, column));
            return Ok(tokens);
        }
        let (token, length) = token(trimmed, column)?;
        tokens.push((token, column));
        column += trimmed[..length].chars().count();
        rest = &trimmed[length..];
    }
}

/// The first token of a text that is not empty, and its length in bytes.
fn token(text: &str, column: usize) -> Result<(Token, usize), Problem> {
    let first = text.chars().next().unwrap_or_default();
    if first.is_ascii_digit() {
        return number(text, column);
    }
    if first.is_ascii_alphabetic() || first == '_' {
        let length = run(text, |b| b.is_ascii_alphanumeric() || b == b'_');
        return Ok((Token::Name(text[..length].to_owned()), length));
    }
    if first == '\'' {
        let inner = &text[1..];
        return match inner.find(|c: char| c == '\'' || c.is_control()) {
            Some(end) if inner[end..].starts_with('\'') => {
                Ok((Token::Text(inner[..end].to_owned()), end + 2))
            }
            _ => Err(Problem::new(
                column,
                "expected a text that ends with ' and has no control characters",
            )),
        };
    }
    match SYMBOLS.iter().find(|symbol| text.starts_with(**symbol)) {
        Some(&"?") => Err(Problem::new(
            column,
            "expected if(condition, a, b), found \"?\"",
        )),
        Some(symbol) => Ok((Token::Symbol(symbol), symbol.len())),
        None => {
            let message = format!("expected a number, a name or an operator, found {first:?}");
            Err(Problem::new(column, message))
        }
    }
}

/// A decimal integer, or a number with a point or an exponent.
fn number(text: &str, column: usize) -> Result<(Token, usize), Problem> {
    // A letter right behind a number belongs to it: `12ab` is an error, not `12` and `ab`.
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let length = decimal(text);
    let length = length + run(&text[length..], is_word);
    let word = &text[..length];
    let token = if word.contains(['.', 'e', 'E']) {
        let value = word.parse::<f64>().ok().filter(|value| value.is_finite());
        value.map(Token::Float)
    } else {
        word.parse().ok().map(Token::Integer)
    };
    let token = token.ok_or_else(|| {
        let shown: String = word.chars().take(64).collect();
        Problem::new(
            column,
            format!("expected a number below 2^127, found \"{shown}\""),
        )
    })?;
    Ok((token, length))
}

fn decimal(text: &str) -> usize {
    let digits = |text: &str| run(text, |b| b.is_ascii_digit());
    let mut length = digits(text);
    if let Some(fraction) = text[length..].strip_prefix('.')
        && digits(fraction) > 0
    {
        length += 1 + digits(fraction);
    }
    if let Some(exponent) = text[length..].strip_prefix(['e', 'E']) {
        let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if digits(unsigned) > 0 {
            length += 1 + (exponent.len() - unsigned.len()) + digits(unsigned);
        }
    }
    length
}

/// The length of the longest prefix whose bytes are all of a kind.
fn run(text: &str, is_of_kind: impl Fn(u8) -> bool) -> usize {
    text.bytes().take_while(|&byte| is_of_kind(byte)).count()
}
