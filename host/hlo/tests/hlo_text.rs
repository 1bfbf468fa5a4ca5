//! The printed text of every program among the conformance cases reads back as that program.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and the cases are files of the repository"
)]

use std::path::{Path, PathBuf};

use callbox_hlo::Program;

#[test]
fn the_cases_programs_survive_printing() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases");
    let mut printed = 0;
    for path in files(&folder) {
        let Some(text) = program(&path) else {
            continue;
        };
        // Some cases have invalid texts.
        let Ok(program) = Program::from_hlo_text(&text) else {
            continue;
        };
        let text = program.to_hlo_text();
        let again = match Program::from_hlo_text(&text) {
            Ok(again) => again,
            Err(error) => panic!("{}: {error}\n{text}", path.display()),
        };
        assert!(again == program, "{}:\n{text}", path.display());
        assert_eq!(again.to_string(), text);
        printed += 1;
    }
    assert!(printed > 200, "{printed}");
}

/// The HLO text in a file or in a case.
fn program(path: &Path) -> Option<String> {
    let is = |ending: &str| path.extension().is_some_and(|found| found == ending);
    if is("hlo") {
        return Some(std::fs::read_to_string(path).unwrap());
    }
    if !is("json") {
        return None;
    }
    let case = std::fs::read_to_string(path).unwrap();
    let case: serde_json::Value = serde_json::from_str(&case).ok()?;
    let lines = case.get("program")?.get("text")?.as_array()?;
    let lines = lines.iter().map(|line| line.as_str());
    Some(lines.collect::<Option<Vec<_>>>()?.join("\n"))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let nested = paths.map(|path| {
        if path.is_dir() {
            files(&path)
        } else {
            vec![path]
        }
    });
    nested.collect::<Vec<_>>().concat()
}
