//! Attributes that are not JSON: MLIR's text, and arrays in files.

use callbox::{Attribute, attributes_from_mlir};

use crate::arguments;
use crate::arrays::ArrayFile;

/// The beginnings of MLIR's texts of dictionaries, arrays and complex numbers.
const MLIR: [&str; 4] = ["{", "dense<", "array<", "#complex"];

/// Reads an attribute in MLIR's notation, such as `{lo = -8.0 : f32}`, if the text is one.
pub(super) fn mlir(text: &str) -> Option<Attribute> {
    let begins = MLIR.iter().any(|start| text.starts_with(start));
    if !begins && !text.contains(" : ") {
        return None;
    }
    let mut read = attributes_from_mlir(&format!("{{value = {text}}}")).ok()?;
    let attribute = read.remove("value");
    attribute.filter(|_| read.is_empty())
}

/// Reads the name of a file with an array, which is the rest of `@FILE`.
pub(super) fn file(text: &str) -> Result<ArrayFile, String> {
    if text.ends_with(".npy") || text.contains(".safetensors#") {
        return arguments::array_file(text);
    }
    Err(format!(
        "expected @FILE.npy or @FILE.safetensors#TENSOR, found \"@{text}\"; only a program has \
         functions"
    ))
}
