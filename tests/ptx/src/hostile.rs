//! The kernels of `tests/ptx/hostile`. The first line of each file has its launch and what must
//! happen, as JSON behind `//! `. The line that ends with `// here` is the one that the refusal or
//! the record names.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::launch::LaunchData;

/// The entry of each hostile kernel.
pub const ENTRY: &str = "k";

/// A hostile kernel.
#[derive(Clone, Debug)]
pub struct Hostile {
    /// The name of the file, without its extension.
    pub name: String,
    /// The file's text.
    pub text: String,
    /// The first line.
    pub case: Case,
    /// The number of the line that ends with `// here`, from 1.
    pub here: Option<u32>,
}

/// The first line of a hostile kernel.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// What the kernel tries.
    pub doc: String,
    /// What must happen.
    pub expect: Expectation,
    /// The launch.
    pub launch: LaunchData,
}

/// What must happen.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Expectation {
    /// The verifier refuses the kernel.
    Refused {
        /// The rules that may be named.
        refused: Rules,
        /// The line, where it is not the one that ends with `// here`.
        line: Option<u32>,
    },
    /// The fenced kernel notes a fault: `access`, `trap`, `assertion` or `stopped`.
    Fault {
        /// The fault.
        fault: String,
        /// The noted offset.
        offset: Option<i64>,
        /// The parameter whose buffer is named.
        param: Option<usize>,
        /// The thread, in block (0, 0, 0).
        thread: Option<[u32; 3]>,
    },
    /// The fenced kernel runs to its end.
    Passes {
        /// Always true.
        passes: bool,
    },
}

/// Rules of the verifier, by name.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Rules {
    /// This rule.
    One(String),
    /// One of these, depending on how the kernel is launched.
    AnyOf(Vec<String>),
}

impl Rules {
    /// Whether a refusal may name this rule.
    pub fn has(&self, name: &str) -> bool {
        match self {
            Self::One(rule) => rule == name,
            Self::AnyOf(rules) => rules.iter().any(|rule| rule == name),
        }
    }

    /// The rule that is refused first when the kernel is called by a manifest.
    pub fn first(&self) -> &str {
        match self {
            Self::One(rule) => rule,
            Self::AnyOf(rules) => rules.first().map_or("", String::as_str),
        }
    }
}

/// Reads all hostile kernels, in the order of their names.
///
/// # Errors
/// A file that cannot be read, or whose first line is malformed.
pub fn all(root: &Path) -> Result<Vec<Hostile>> {
    let folder = root.join("tests/ptx/hostile");
    let entries = std::fs::read_dir(&folder);
    let entries = entries.with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    paths.sort();
    let read =
        |path: &std::path::PathBuf| Hostile::read(path).with_context(|| path.display().to_string());
    paths.iter().map(read).collect()
}

impl Hostile {
    fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)?;
        let head = text
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("//! "));
        let case =
            serde_json::from_str::<Case>(head.context("expected a first line after `//! `")?)?;
        let here = text
            .lines()
            .zip(1..)
            .find(|(line, _)| line.ends_with("// here"));
        let here = here.map(|(_, number)| number);
        let name = path.file_stem().unwrap_or_default();
        Ok(Self {
            name: name.to_string_lossy().into_owned(),
            text,
            case,
            here,
        })
    }
}
