//! Paths, descriptors and permissions. The cases are in `paths.json`.

use callbox::policy::{Access, Grants};
use callbox::wasm::Engine;
use serde::Deserialize;

use crate::script::{self, Record, Step, errno};
use crate::tree::{SECRET, Tree};

/// A script with its own files.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    /// The grants. Default: `in`, for reading and writing.
    #[serde(default = "in_to_write")]
    grants: Vec<Grant>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Grant {
    folder: String,
    access: Access,
}

fn in_to_write() -> Vec<Grant> {
    vec![Grant {
        folder: "in".to_owned(),
        access: Access::ReadWrite,
    }]
}

#[test]
fn each_path_gives_what_it_must() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("paths.json")).unwrap();
    assert!(cases.len() >= 40, "{}", cases.len());
    let engine = Engine::new().unwrap();
    let problems: Vec<_> = cases.iter().flat_map(|case| check(&engine, case)).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Runs a case. Returns the problems, so that all cases run.
fn check(engine: &Engine, case: &Case) -> Vec<String> {
    let tree = Tree::new();
    let directories = case.grants.iter();
    let grants = Grants {
        directories: directories
            .map(|grant| tree.directory(&grant.folder, grant.access))
            .collect(),
        ..Grants::default()
    };
    // Files without a write grant stay unchanged.
    let unwritable = ["out", "in", "two"].into_iter().filter(|folder| {
        let mut grants = case.grants.iter();
        !grants.any(|grant| grant.folder == *folder && grant.access == Access::ReadWrite)
    });
    let before: Vec<_> = unwritable
        .map(|folder| (folder, tree.everything_in(folder)))
        .collect();
    let mut problems = match script::run(engine, &grants, &case.steps) {
        Ok(records) => std::iter::zip(&case.steps, &records)
            .enumerate()
            .filter_map(|(i, (step, record))| {
                compare(step, record).map(|problem| format!("step {i}, {}: {problem}", step.what))
            })
            .collect(),
        Err(status) => vec![status.to_string()],
    };
    for (folder, before) in before {
        if tree.everything_in(folder) != before {
            problems.push(format!("{folder:?} changed"));
        }
    }
    problems
        .into_iter()
        .map(|problem| format!("{}: {problem}", case.name))
        .collect()
}

fn compare(step: &Step, record: &Record) -> Option<String> {
    if record.errno != errno(&step.errno) {
        return Some(format!(
            "expected {} of {:?}, found {}",
            step.errno, step.path, record.errno
        ));
    }
    let text = String::from_utf8_lossy(&record.bytes);
    let shown = text.trim_end_matches('\0');
    if text.contains(SECRET) && step.text.is_none() {
        return Some(format!("read {shown:?}"));
    }
    // The offset of the file type in WASI's file status record.
    const KIND: usize = 16;
    if step.kind.is_some_and(|kind| kind != record.bytes[KIND]) {
        return Some(format!("found a file of kind {}", record.bytes[KIND]));
    }
    match &step.text {
        Some(expected) if expected != shown => {
            Some(format!("expected {expected:?}, found {shown:?}"))
        }
        _ => None,
    }
}
