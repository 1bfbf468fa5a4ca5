//! Guests generated from scripts. Each step calls one WASI preview 1 function and leaves a record
//! of the outcome.

mod guest;

use std::sync::Arc;

use callbox::call::ApiVersion;
use callbox::policy::Grants;
use callbox::wasm::{Engine, Module};
use callbox::{CallSite, ElementType, Result, Shape};
use serde::Deserialize;

use self::guest::RECORD;
pub(crate) use self::guest::guest;

/// The outcome of a step: its error number, the number it returned (a descriptor or a length), and
/// its bytes.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) errno: u32,
    pub(crate) number: u32,
    pub(crate) bytes: Vec<u8>,
}

/// A step: one call.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    /// The name of the call: see `CALLS` in `guest.rs`.
    #[serde(rename = "do")]
    pub(crate) what: String,
    /// The descriptor that it uses.
    #[serde(default = "granted")]
    pub(crate) at: Descriptor,
    /// A second descriptor.
    #[serde(default = "granted")]
    pub(crate) to: Descriptor,
    /// A path, or the data to write.
    #[serde(default)]
    pub(crate) path: Text,
    /// A second path.
    #[serde(default)]
    pub(crate) target: Text,
    /// Flags: `r` and `w` for reading and writing, `c` to create, `x` to fail if the file exists,
    /// `t` to truncate, `d` for a directory, `f` to follow a symbolic link at the end, `a` to
    /// append.
    #[serde(default)]
    pub(crate) flags: String,
    /// A number.
    #[serde(default)]
    pub(crate) number: i64,
    /// The name of the expected error number.
    #[serde(default = "success")]
    pub(crate) errno: String,
    /// The text that it must read.
    #[serde(default)]
    pub(crate) text: Option<String>,
    /// The expected file type, by its number in WASI: 3 is a directory, 4 a file, 7 a symbolic
    /// link.
    #[serde(default)]
    pub(crate) kind: Option<u8>,
}

/// Returns the first granted directory.
fn granted() -> Descriptor {
    Descriptor::Number(3)
}

fn success() -> String {
    "success".to_owned()
}

/// A descriptor: a number, or the one that a step opened, as `"$0"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Descriptor {
    Number(u32),
    Of(String),
}

/// A text, or bytes that are not UTF-8.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Text {
    Plain(String),
    Hex { hex: String },
    Repeat { repeat: (String, usize) },
}

impl Default for Text {
    fn default() -> Self {
        Self::Plain(String::new())
    }
}

impl Text {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Plain(text) => text.clone().into_bytes(),
            Self::Hex { hex } => {
                let digits = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
                (0..hex.len()).step_by(2).map(digits).collect()
            }
            Self::Repeat { repeat } => repeat.0.repeat(repeat.1).into_bytes(),
        }
    }
}

/// Returns the number of a WASI preview 1 error, by its name in the specification.
pub(crate) fn errno(name: &str) -> u32 {
    let numbers = [
        ("success", 0),
        ("acces", 2),
        ("badf", 8),
        ("busy", 10),
        ("exist", 20),
        ("ilseq", 25),
        ("inval", 28),
        ("io", 29),
        ("isdir", 31),
        ("loop", 32),
        ("mfile", 33),
        ("nametoolong", 37),
        ("noent", 44),
        ("notdir", 54),
        ("notempty", 55),
        ("notsup", 58),
        ("perm", 63),
        ("spipe", 70),
        ("xdev", 75),
    ];
    let found = numbers.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("{name}: no error")).1
}

/// Loads the guest of a script.
pub(crate) fn load(engine: &Engine, grants: &Grants, steps: &[Step]) -> Result<Arc<Module>> {
    engine.load_with(&wat::parse_str(guest(steps)).unwrap(), grants)
}

/// Runs a script once, in an instance of its own.
pub(crate) fn run(engine: &Engine, grants: &Grants, steps: &[Step]) -> Result<Vec<Record>> {
    run_module(&load(engine, grants, steps)?, steps.len())
}

/// Runs a script's guest once, in an instance of its own.
pub(crate) fn run_module(module: &Arc<Module>, steps: usize) -> Result<Vec<Record>> {
    let mut bytes = vec![0; steps * RECORD];
    let result = Shape::array(ElementType::U8, &[bytes.len()])?;
    let mut site = CallSite::new("f", Vec::new(), result);
    site.api_version = ApiVersion::Original;
    module.prepare_call(site)?.call(&[], &mut [&mut bytes])?;
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    let records = bytes.chunks(RECORD).map(|record| Record {
        errno: word(&record[..4]),
        number: word(&record[4..8]),
        bytes: record[8..].to_vec(),
    });
    Ok(records.collect())
}
