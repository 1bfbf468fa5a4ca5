//! Finds the cases: each `.json` file below a folder.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The file of a case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    /// The path below the folder, with `/` and without `.json`. It names the test.
    pub name: String,
    /// The file's path.
    pub path: PathBuf,
}

/// The first component of the names of hostile cases.
const HOSTILE: &str = "hostile";

/// Returns the folder of the ordinary cases.
#[must_use]
pub fn folder() -> PathBuf {
    crate::root::root().join("tests/cases")
}

/// Returns the folder of the hostile guests' cases. A healthy guest runs after each of their steps.
#[must_use]
pub fn hostile_folder() -> PathBuf {
    crate::root::root().join("tests").join(HOSTILE)
}

/// Returns all cases, sorted by name. Those of hostile guests are named `hostile/...`.
///
/// # Errors
/// A folder that cannot be read.
pub fn all() -> Result<Vec<Found>> {
    let mut found = cases(&folder())?;
    found.extend(cases(&hostile_folder())?.into_iter().map(|case| Found {
        name: format!("{HOSTILE}/{}", case.name),
        ..case
    }));
    found.sort();
    Ok(found)
}

/// Returns the path of the named case's file, relative to the repository's root.
#[must_use]
pub fn file_of(name: &str) -> String {
    let is_hostile = name
        .strip_prefix(HOSTILE)
        .is_some_and(|rest| rest.starts_with('/'));
    let folder = if is_hostile { "tests" } else { "tests/cases" };
    format!("{folder}/{name}.json")
}

/// Returns the cases below a folder, sorted by name.
///
/// # Errors
/// A folder that cannot be read.
pub fn cases(folder: &Path) -> Result<Vec<Found>> {
    let mut found: Vec<_> = files(folder)?
        .into_iter()
        .filter_map(|path| {
            let name = path
                .strip_prefix(folder)
                .ok()?
                .to_str()?
                .strip_suffix(".json")?;
            let name = name.replace(std::path::MAIN_SEPARATOR, "/");
            Some(Found { name, path })
        })
        .collect();
    found.sort();
    Ok(found)
}

/// Returns the files below a folder that no case in the same folder names.
///
/// # Errors
/// A file or folder that cannot be read.
pub fn strays(folder: &Path) -> Result<Vec<PathBuf>> {
    let files = files(folder)?;
    let (cases, others): (Vec<_>, Vec<_>) = files
        .into_iter()
        .partition(|path| path.extension().is_some_and(|e| e == "json"));
    let mut named = BTreeSet::new();
    for case in &cases {
        let text =
            fs::read_to_string(case).with_context(|| format!("cannot read {}", case.display()))?;
        let folder = case.parent().unwrap_or(folder).to_owned();
        let words = text
            .split('"')
            .map(|word| word.split('#').next().unwrap_or(word));
        named.extend(words.map(|word| folder.join(word)));
    }
    Ok(others
        .into_iter()
        .filter(|path| !named.contains(path))
        .collect())
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path)
            } else {
                files.push(path)
            }
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_files() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let found = all().unwrap();
        let hostile = |case: &&Found| case.path.starts_with(hostile_folder());
        assert!(found.iter().filter(hostile).count() > 0);
        for case in &found {
            let file = root.join(file_of(&case.name));
            assert_eq!(
                file.canonicalize().unwrap(),
                case.path.canonicalize().unwrap()
            );
            let is_named_so = case.name.starts_with("hostile/");
            assert_eq!(is_named_so, hostile(&case), "{}", case.name);
        }
    }
}
