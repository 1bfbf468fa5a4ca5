//! Repeated pieces, with which a small case describes a large file.

use serde::Deserialize;

/// A text, or an object with repetitions.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Piece {
    Text(String),
    Repeated(Repeated),
}

/// Either `text` or `hex`, repeated. In a text, `{i}` becomes the repetition's index, and `{i+1}`
/// the next one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Repeated {
    #[serde(default = "once")]
    repeat: usize,
    #[serde(default)]
    text: String,
    #[serde(default)]
    hex: String,
}

fn once() -> usize {
    1
}

/// Concatenates all pieces and their repetitions.
pub(crate) fn join(pieces: &[Piece]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Text(text) => bytes.extend_from_slice(text.as_bytes()),
            Piece::Repeated(piece) => piece.add_to(&mut bytes),
        }
    }
    bytes
}

impl Repeated {
    fn add_to(&self, bytes: &mut Vec<u8>) {
        let digits: Vec<u8> = self.hex.bytes().filter(|byte| *byte != b' ').collect();
        let digit = |byte: u8| (byte as char).to_digit(16).unwrap() as u8;
        let hex: Vec<u8> = digits
            .chunks_exact(2)
            .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
            .collect();
        for i in 0..self.repeat {
            let text = self.text.replace("{i}", &i.to_string());
            let text = text.replace("{i+1}", &(i + 1).to_string());
            bytes.extend_from_slice(text.as_bytes());
            bytes.extend_from_slice(&hex);
        }
    }
}
