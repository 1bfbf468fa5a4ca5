//! Generates the committed seeds, mostly from the conformance suite's cases. `callbox-fuzz seeds`
//! writes them.

use std::collections::HashSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use callbox::policy::Policy;
use callbox::{ArrayShape, ElementType};
use callbox_cli::files::{npy, tensors};
use fastrand::Rng;
use serde_json::Value;

use crate::drive::home;
use crate::{TARGETS, Target};

/// Limits on a target's number of seeds and on their length.
const MOST: usize = 64;
const MOST_BYTES: usize = 1500;

/// Replaces the seeds of all targets, keeping one candidate per distinct outcome.
///
/// # Errors
/// Files that cannot be read or written.
pub fn write() -> Result<()> {
    let found = Found::read(&home().join("../cases"))?;
    for target in TARGETS {
        let folder = home().join("seeds").join(target.name);
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        let seeds = chosen(target, found.candidates(target.name));
        for (i, seed) in seeds.iter().enumerate() {
            fs::write(folder.join(format!("{i:02}")), seed)?;
        }
    }
    Ok(())
}

fn chosen(target: &Target, candidates: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut seen = HashSet::new();
    let fits = candidates
        .into_iter()
        .filter(|seed| seed.len() <= MOST_BYTES.min(target.max_len));
    // A candidate that panics is a find, not a seed.
    let outcome = |seed: &Vec<u8>| catch_unwind(|| (target.run)(seed)).ok();
    let new = fits.filter(|seed| outcome(seed).is_some_and(|outcome| seen.insert(outcome)));
    new.take(MOST).collect()
}

/// The material found in the cases.
#[derive(Default)]
struct Found {
    programs: Vec<String>,
    metadata: Vec<String>,
    policies: Vec<String>,
    modules: Vec<Vec<u8>>,
    arrays: Vec<Vec<u8>>,
}

impl Found {
    fn read(folder: &Path) -> Result<Self> {
        let mut found = Self::default();
        for file in files(folder)? {
            let extension = file.extension().and_then(|e| e.to_str());
            let bytes = fs::read(&file).with_context(|| file.display().to_string())?;
            match extension {
                Some("hlo") => found.programs.push(String::from_utf8(bytes)?),
                Some("npy") => found.arrays.push(bytes),
                Some("wat") => found
                    .modules
                    .extend(wat::parse_bytes(&bytes).ok().map(|m| m.to_vec())),
                Some("json") => found.case(&serde_json::from_slice(&bytes)?),
                _ => {}
            }
        }
        Ok(found)
    }

    /// Collects material from any part of a case.
    fn case(&mut self, value: &Value) {
        match value {
            Value::Array(values) => values.iter().for_each(|value| self.case(value)),
            Value::Object(entries) => {
                for (key, value) in entries {
                    match key.as_str() {
                        "text" => self.programs.extend(lines(value)),
                        "metadata" => self.metadata.extend(lines(value)),
                        "policy" => self.policies.push(value.to_string()),
                        "wat" => {
                            let module = lines(value).and_then(|text| wat::parse_str(text).ok());
                            self.modules.extend(module);
                        }
                        _ => self.case(value),
                    }
                }
            }
            _ => {}
        }
    }

    fn candidates(&self, target: &str) -> Vec<Vec<u8>> {
        let bytes = |texts: &[String]| texts.iter().map(|text| text.clone().into_bytes()).collect();
        match target {
            "hlo_text" => bytes(&self.programs),
            "metadata" => bytes(&self.metadata),
            "policy" => {
                let whole = Policy::default().to_json().unwrap_or_default();
                bytes(&[self.policies.as_slice(), &[whole, GRANTS.to_owned()]].concat())
            }
            "manifest" => bytes(&manifests().unwrap_or_default()),
            "attributes" => {
                let texts = self.programs.iter().filter_map(|text| attributes(text));
                let texts = texts.map(|text| [b"\0", text.as_bytes()].concat());
                texts.chain(random(&[1], 8, 200)).collect()
            }
            "arrays" => self
                .arrays
                .iter()
                .map(|file| prefixed(0, 255, file))
                .chain(arrays())
                .collect(),
            "module" => {
                let modules = self
                    .modules
                    .iter()
                    .map(|wasm| [&[1], wasm.as_slice()].concat());
                let kinds: Vec<u8> = (0..16)
                    .map(|i| i << 1)
                    .chain([0xc0, 0xc4, 0xe0, 0xe4])
                    .collect();
                random(&kinds, 2, 1200).chain(modules).collect()
            }
            "bundle" => crate::targets::bundle::candidates(),
            "cost" => {
                // Headers of manifests, .npy and .safetensors files have the most frames.
                let headers = random(&[1, 6, 7], 100, 250);
                random(&Vec::from_iter(0..12), 16, 200)
                    .chain(headers)
                    .collect()
            }
            _ => random(&[0], 16, 400).collect(),
        }
    }
}

/// Returns the guests' manifests, each cut to one target.
fn manifests() -> Result<Vec<String>> {
    let mut found = Vec::new();
    for file in files(&home().join("../../guests"))? {
        if file.file_name().is_none_or(|name| name != "callbox.json") {
            continue;
        }
        let whole: Value = serde_json::from_slice(&fs::read(&file)?)?;
        let targets = whole["targets"].as_array().cloned().unwrap_or_default();
        for target in targets {
            let mut one = whole.clone();
            one["targets"] = Value::Array(vec![target]);
            found.push(one.to_string());
        }
    }
    Ok(found)
}

const GRANTS: &str = r#"{"traps": "explicit", "deterministic": true, "grants": {"log": "warn"},
"targets": {"f": {"directories": [{"path": "/a", "name": "/b", "access": "read_write"}], "clock": true, "randomness": {"seed": 3}}}}"#;

/// Returns a text, or the joined lines of one.
fn lines(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(lines) => {
            let line = |line: &Value| match line {
                Value::String(text) => text.clone(),
                value => value.to_string(),
            };
            Some(lines.iter().map(line).collect::<Vec<_>>().join("\n"))
        }
        _ => None,
    }
}

/// Returns the first dictionary in a program's `backend_config`, up to the end of its line.
fn attributes(program: &str) -> Option<&str> {
    let (_, rest) = program.split_once("backend_config={")?;
    let line = &rest[..rest.find('\n').unwrap_or(rest.len())];
    let end = line.rfind('}')?;
    let start = program.len() - rest.len() - 1;
    Some(&program[start..=start + 1 + end])
}

/// Generates `count` inputs for each of these first bytes, random after it.
fn random(first: &[u8], count: usize, length: usize) -> impl Iterator<Item = Vec<u8>> {
    let mut random = Rng::with_seed(5);
    let firsts: Vec<u8> = first.iter().flat_map(|&byte| vec![byte; count]).collect();
    firsts.into_iter().map(move |byte| {
        let rest = (1..length).map(|_| random.u8(..));
        std::iter::once(byte).chain(rest).collect()
    })
}

fn prefixed(format: u8, expected: u8, file: &[u8]) -> Vec<u8> {
    [&[format, expected], file].concat()
}

/// Generates files of every element type.
fn arrays() -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    for (i, &element_type) in ElementType::ALL.iter().enumerate() {
        let dimensions = [[2, 3].as_slice(), &[4], &[]][i % 3];
        let Ok(shape) = ArrayShape::new(element_type, dimensions) else {
            continue;
        };
        let elements = vec![1; shape.byte_size()];
        if let Some(name) = npy::type_name(element_type) {
            let file = [npy::header(name, dimensions), elements.clone()].concat();
            files.push(prefixed(0, 255, &file));
        }
        if let Ok(file) = tensors::file(&[("x".to_owned(), &shape, &elements)]) {
            files.push(prefixed(1, 255, &file));
        }
    }
    files
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(self::files(&path)?)
        } else {
            files.push(path)
        }
    }
    files.sort();
    Ok(files)
}
