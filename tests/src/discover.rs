//! Finds the cases: every `.json` file below a folder is one.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A case's file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    /// Its path below the folder, with `/` and without `.json`: the test's name.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
}

/// What the names of hostile guests' cases begin with.
const HOSTILE: &str = "hostile";

/// Where this repository's cases are: what works, and what is refused.
#[must_use]
pub fn folder() -> PathBuf {
    crate::root::root().join("tests/cases")
}

/// Where the cases of hostile guests are. After each of their steps something healthy runs in the same place.
#[must_use]
pub fn hostile_folder() -> PathBuf {
    crate::root::root().join("tests").join(HOSTILE)
}

/// All cases, in the order of their names. Those of hostile guests are named `hostile/...`.
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

/// The file of the case of this name, below the repository's root.
#[must_use]
pub fn file_of(name: &str) -> String {
    let is_hostile = name
        .strip_prefix(HOSTILE)
        .is_some_and(|rest| rest.starts_with('/'));
    let folder = if is_hostile { "tests" } else { "tests/cases" };
    format!("{folder}/{name}.json")
}

/// The cases below a folder, in the order of their names.
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

/// Files below a folder that no case in their own folder names: text that nobody runs.
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
            match path.is_dir() {
                true => folders.push(path),
                false => files.push(path),
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
