//! Modules that cases run: built guests, and WebAssembly written in the case.

mod piece;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use callbox_abi::METADATA_SECTION;
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use self::piece::Piece;
use crate::literal;

/// The JSON of a module: a name, or an object.
#[derive(Debug)]
pub enum ModuleText {
    /// A built guest's name, or the name of a `.wat` file beside the case.
    Name(String),
    /// A source, and changes to it.
    Object(Box<ModuleObject>),
}

/// The JSON object of a module: one of the first five keys, and any of the others.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModuleObject {
    guest: Option<String>,
    /// Lines of WebAssembly text.
    wat: Option<Vec<Piece>>,
    file: Option<String>,
    hex: Option<String>,
    /// The bytes of the module, concatenated.
    bytes: Option<Vec<Piece>>,
    /// Entries of the added section `callbox.targets`: objects as JSON, strings verbatim.
    metadata: Option<Vec<Value>>,
    /// The contents of the added section `callbox.targets`, concatenated.
    metadata_bytes: Option<Vec<Piece>>,
    /// The number of leading bytes to keep.
    truncate: Option<usize>,
}

/// The source of a module, and the changes to it.
#[derive(Clone, Debug)]
pub struct ModuleSource {
    origin: Origin,
    metadata: Option<Vec<u8>>,
    truncate: Option<usize>,
}

#[derive(Clone, Debug)]
enum Origin {
    Guest(String),
    Bytes(Vec<u8>),
}

impl<'de> Deserialize<'de> for ModuleText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(name) => Ok(Self::Name(name)),
            object => serde_json::from_value(object)
                .map(Self::Object)
                .map_err(de::Error::custom),
        }
    }
}

impl ModuleSource {
    /// Reads a case's module. The files that it names are in `folder`.
    ///
    /// # Errors
    /// Keys that exclude each other, a missing file, malformed WebAssembly text.
    pub fn read(text: ModuleText, folder: &Path) -> Result<Self> {
        let object = match text {
            ModuleText::Name(name) => return Self::of_name(&name, folder),
            ModuleText::Object(object) => *object,
        };
        let origin = match (
            object.guest,
            object.wat,
            object.file,
            object.hex,
            object.bytes,
        ) {
            (Some(guest), None, None, None, None) => Origin::Guest(guest),
            (None, Some(lines), None, None, None) => Origin::Bytes(assemble_lines(&lines)?),
            (None, None, Some(file), None, None) => of_file(&file, folder)?,
            (None, None, None, Some(hex), None) => Origin::Bytes(literal::bytes_of_hex(&hex)?),
            (None, None, None, None, Some(pieces)) => Origin::Bytes(piece::join(&pieces, "")?),
            _ => bail!("expected exactly one of guest, wat, file, hex and bytes"),
        };
        Ok(Self {
            origin,
            metadata: metadata(object.metadata, object.metadata_bytes)?,
            truncate: object.truncate,
        })
    }

    /// Resolves a built guest (`add_n`, `add_n.wasm`) or a `.wat` file in `folder`.
    ///
    /// # Errors
    /// As for [`ModuleSource::read`].
    pub fn of_name(name: &str, folder: &Path) -> Result<Self> {
        let origin = if name.ends_with(".wat") {
            of_file(name, folder)?
        } else {
            Origin::Guest(name.strip_suffix(".wasm").unwrap_or(name).to_owned())
        };
        Ok(Self {
            origin,
            metadata: None,
            truncate: None,
        })
    }

    /// Returns the guest's name, if this is an unchanged built guest.
    #[must_use]
    pub fn guest(&self) -> Option<&str> {
        match &self.origin {
            Origin::Guest(name) if self.metadata.is_none() && self.truncate.is_none() => Some(name),
            _ => None,
        }
    }

    /// Returns the module's bytes.
    ///
    /// # Errors
    /// A guest that was not built, or a module shorter than the bytes to keep.
    pub fn bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = match &self.origin {
            Origin::Guest(name) => read_guest(name)?,
            Origin::Bytes(bytes) => bytes.clone(),
        };
        if let Some(metadata) = &self.metadata {
            append_section(&mut bytes, METADATA_SECTION, metadata);
        }
        if let Some(length) = self.truncate {
            ensure!(
                length < bytes.len(),
                "expected more than {length} bytes to truncate, found {}",
                bytes.len()
            );
            bytes.truncate(length);
        }
        Ok(bytes)
    }
}

/// Returns the repository's root folder.
#[must_use]
pub fn repository() -> PathBuf {
    crate::root::root()
}

/// Reads a guest that `cargo xtask guests` built.
///
/// # Errors
/// A guest that was not built.
pub fn read_guest(name: &str) -> Result<Vec<u8>> {
    let path = repository()
        .join("target/guests")
        .join(format!("{name}.wasm"));
    fs::read(&path)
        .with_context(|| format!("cannot read {}: run cargo xtask guests", path.display()))
}

fn of_file(file: &str, folder: &Path) -> Result<Origin> {
    let text =
        fs::read_to_string(folder.join(file)).with_context(|| format!("cannot read {file}"))?;
    assemble(&text)
        .with_context(|| file.to_owned())
        .map(Origin::Bytes)
}

fn assemble_lines(lines: &[Piece]) -> Result<Vec<u8>> {
    assemble(&String::from_utf8(piece::join(lines, "\n")?)?)
}

/// Builds the section `callbox.targets`, if the case adds one.
fn metadata(entries: Option<Vec<Value>>, pieces: Option<Vec<Piece>>) -> Result<Option<Vec<u8>>> {
    let entry = |value: &Value| match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    match (entries, pieces) {
        (Some(entries), None) => {
            let text = entries.iter().map(entry).collect::<Vec<_>>().join("\n");
            Ok(Some(text.into_bytes()))
        }
        (None, Some(pieces)) => piece::join(&pieces, "").map(Some),
        (None, None) => Ok(None),
        (Some(_), Some(_)) => bail!("expected at most one of metadata and metadata_bytes"),
    }
}

/// Assembles WebAssembly text.
fn assemble(text: &str) -> Result<Vec<u8>> {
    Ok(wat::parse_str(text)?)
}

/// Appends a custom section.
fn append_section(module: &mut Vec<u8>, name: &str, contents: &[u8]) {
    let mut section = leb128(name.len());
    section.extend_from_slice(name.as_bytes());
    section.extend_from_slice(contents);
    module.push(0);
    module.extend(leb128(section.len()));
    module.extend(section);
}

/// Encodes a size as WebAssembly's LEB128.
fn leb128(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let byte = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            bytes.push(byte);
            return bytes;
        }
        bytes.push(byte | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Result<ModuleSource> {
        ModuleSource::read(serde_json::from_str(text)?, Path::new("."))
    }

    #[test]
    fn metadata_becomes_a_section() {
        let plain = source(r#"{"wat": ["(module)"]}"#).unwrap().bytes().unwrap();
        assert_eq!(plain, b"\0asm\x01\0\0\0");
        let with = source(r#"{"wat": ["(module)"], "metadata": [{"name": "f"}, "{"]}"#).unwrap();
        let written =
            wat::parse_str(r#"(module (@custom "callbox.targets" "{\"name\":\"f\"}\n{"))"#)
                .unwrap();
        assert_eq!(with.bytes().unwrap(), written);
    }

    #[test]
    fn pieces_are_repeated() {
        let module = source(
            r#"{"bytes": [{"hex": "0061736d01"}, {"repeat": 3, "hex": "00"}], "metadata_bytes": ["a", {"repeat": 2, "text": "{i}"}, {"hex": "ff"}]}"#,
        );
        let module = module.unwrap().bytes().unwrap();
        assert_eq!(
            module,
            [
                b"\0asm\x01\0\0\0\0\x14\x0fcallbox.targets".as_slice(),
                b"a01\xff"
            ]
            .concat()
        );
        let functions =
            source(r#"{"wat": ["(module", {"repeat": 2, "text": "(func $f{i})"}, ")"]}"#);
        let written = wat::parse_str("(module (func $f0) (func $f1))").unwrap();
        assert_eq!(functions.unwrap().bytes().unwrap(), written);
    }

    #[test]
    fn modules_are_cut() {
        let cut = source(r#"{"wat": ["(module)"], "truncate": 5}"#).unwrap();
        assert_eq!(cut.bytes().unwrap(), b"\0asm\x01");
        assert!(
            source(r#"{"wat": ["(module)"], "truncate": 8}"#)
                .unwrap()
                .bytes()
                .is_err()
        );
    }

    #[test]
    fn wrong_modules_are_refused() {
        for text in [
            r#"{}"#,
            r#"{"wat": ["(module)"], "hex": ""}"#,
            r#"{"wat": ["(modul)"]}"#,
            r#"{"bytes": [{"repeat": 3}]}"#,
            r#"{"bytes": [{"text": "a", "hex": "00"}]}"#,
            r#"{"hex": "", "metadata": [], "metadata_bytes": []}"#,
            r#"{"guest": "f", "wat": null, "metdata": []}"#,
            r#""missing.wat""#,
            r#"3"#,
        ] {
            assert!(source(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_guest_that_was_not_built_says_what_to_do() {
        let error = source(r#""no_such_guest""#).unwrap().bytes().unwrap_err();
        assert!(format!("{error:#}").contains("run cargo xtask guests"));
    }

    #[test]
    fn sizes_are_encoded() {
        assert_eq!(leb128(0), [0]);
        assert_eq!(leb128(127), [127]);
        assert_eq!(leb128(300), [0xac, 2]);
    }
}
