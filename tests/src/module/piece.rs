//! Repeated pieces, with which a small case describes a large file.

use anyhow::{Result, bail, ensure};
use serde::Deserialize;

use crate::literal;

/// Upper bound of a file's size, which protects the machine from a typing error in a case.
const MOST: usize = 256 << 20;

/// A text, or an object with repetitions.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Piece {
    Text(String),
    Object(Object),
}

/// Either `text` or `hex`, repeated. `{i}` in a repeated text becomes the repetition's index, from
/// 0.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Object {
    repeat: Option<usize>,
    text: Option<String>,
    hex: Option<String>,
}

/// Concatenates all pieces and their repetitions, separated by `between`.
pub(super) fn join(pieces: &[Piece], between: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut add = |piece: &[u8]| {
        if !bytes.is_empty() {
            bytes.extend_from_slice(between.as_bytes());
        }
        bytes.extend_from_slice(piece);
        ensure!(
            bytes.len() <= MOST,
            "expected a file of at most {MOST} bytes"
        );
        Ok(())
    };
    for piece in pieces {
        match piece {
            Piece::Text(text) => add(text.as_bytes())?,
            Piece::Object(object) => object.each(&mut add)?,
        }
    }
    Ok(bytes)
}

impl Object {
    fn each(&self, add: &mut impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut numbers = 0..self.repeat.unwrap_or(1);
        match (&self.text, &self.hex) {
            (Some(text), None) if self.repeat.is_some() && text.contains("{i}") => {
                numbers.try_for_each(|i| add(text.replace("{i}", &i.to_string()).as_bytes()))
            }
            (Some(text), None) => numbers.try_for_each(|_| add(text.as_bytes())),
            (None, Some(hex)) => {
                let bytes = literal::bytes_of_hex(hex)?;
                numbers.try_for_each(|_| add(&bytes))
            }
            _ => bail!("expected a piece to have exactly one of text and hex"),
        }
    }
}
