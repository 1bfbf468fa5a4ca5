//! The line of a value in a JSON text, which is searched for only when an error is reported.

use super::document::PathStep;

/// The line, from 1, of the value at `path` in valid JSON, or of the last value on the path that
/// exists.
pub(super) fn line(text: &str, path: &[PathStep]) -> usize {
    let mut scanner = Scanner {
        bytes: text.as_bytes(),
        at: 0,
    };
    scanner.space();
    for step in path {
        let before = scanner.at;
        let found = match step {
            PathStep::Field(name) => scanner.enter_field(name),
            PathStep::Index(index) => scanner.enter_index(*index),
        };
        if found.is_none() {
            scanner.at = before;
            break;
        }
    }
    let newlines = scanner.bytes[..scanner.at].iter().filter(|&&b| b == b'\n');
    1 + newlines.count()
}

/// A position in a text. Invalid JSON ends the search.
struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn take(&mut self, expected: u8) -> Option<()> {
        (self.peek()? == expected).then(|| self.at += 1)
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    /// Moves to the value of a field of the object that begins here.
    fn enter_field(&mut self, name: &str) -> Option<()> {
        self.take(b'{')?;
        loop {
            self.space();
            let start = self.at;
            self.string()?;
            let key: String = serde_json::from_slice(&self.bytes[start..self.at]).ok()?;
            self.space();
            self.take(b':')?;
            self.space();
            if key == name {
                return Some(());
            }
            self.value()?;
            self.space();
            self.take(b',')?;
        }
    }

    /// Moves to an element of the list that begins here.
    fn enter_index(&mut self, index: usize) -> Option<()> {
        self.take(b'[')?;
        self.space();
        for _ in 0..index {
            self.value()?;
            self.space();
            self.take(b',')?;
            self.space();
        }
        (self.peek()? != b']').then_some(())
    }

    fn string(&mut self) -> Option<()> {
        self.take(b'"')?;
        loop {
            match self.peek()? {
                b'"' => break self.take(b'"'),
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
    }

    /// Moves past the value that begins here.
    fn value(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.peek()? {
                b'"' => self.string()?,
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    self.at += 1;
                }
                // A number or a word, and what separates values.
                _ => self.at += 1,
            }
            let ends = matches!(
                self.peek(),
                None | Some(b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t')
            );
            if depth == 0 && ends {
                return Some(());
            }
        }
    }
}
