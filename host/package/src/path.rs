//! The paths of files in a package.

use std::collections::BTreeMap;

use callbox_core::untrusted_text::shown_name;

/// Names that Windows reserves for devices, whatever follows their first dot.
const DEVICES: [&str; 4] = ["aux", "con", "nul", "prn"];

/// Checks a path: names separated by `/`, each safe to create on every system.
///
/// # Errors
/// A message about the first rule that the path breaks.
pub(crate) fn check(path: &str, most: usize) -> Result<(), String> {
    let refuse = |reason: String| {
        Err(format!(
            "\"{}\" cannot be the path of a file in a package: {reason}",
            shown_name(path)
        ))
    };
    if path.len() > most {
        return refuse(format!(
            "it has {} bytes, at most {most} are allowed",
            path.len()
        ));
    }
    if path.starts_with('/') {
        return refuse("it is absolute".to_owned());
    }
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-+/".contains(c);
    if let Some(c) = path.chars().find(|&c| !is_allowed(c)) {
        return refuse(format!("it has the character {c:?}"));
    }
    for name in path.split('/') {
        let stem = name.split('.').next().unwrap_or_default();
        let stem = stem.to_ascii_lowercase();
        let is_port = |prefix| {
            stem.strip_prefix(prefix)
                .is_some_and(|rest: &str| rest.len() == 1 && rest.as_bytes()[0].is_ascii_digit())
        };
        if name.is_empty() {
            return refuse("it has an empty name".to_owned());
        }
        if name.starts_with('.') || name.ends_with('.') {
            return refuse(format!("the name \"{name}\" begins or ends with a dot"));
        }
        if DEVICES.contains(&stem.as_str()) || is_port("com") || is_port("lpt") {
            return refuse(format!("the name \"{name}\" is a device on Windows"));
        }
    }
    Ok(())
}

/// The paths of a package, compared without case.
#[derive(Default)]
pub(crate) struct Paths<'a> {
    /// Each path and each of its folders, in lower case, with the path that it belongs to and
    /// whether it is a folder.
    seen: BTreeMap<String, (&'a str, bool)>,
}

impl<'a> Paths<'a> {
    /// Adds a path.
    ///
    /// # Errors
    /// A message if the path differs from an earlier one in case alone, or if one of them is a
    /// folder of the other.
    pub(crate) fn add(&mut self, path: &'a str) -> Result<(), String> {
        let lower = path.to_ascii_lowercase();
        let folders = lower.match_indices('/').map(|(at, _)| &lower[..at]);
        for folder in folders {
            let original = &path[..folder.len()];
            match self.seen.get(folder) {
                Some(&(other, is_folder)) if !is_folder || &other[..folder.len()] != original => {
                    return Err(collision(other, path));
                }
                Some(_) => {}
                None => _ = self.seen.insert(folder.to_owned(), (path, true)),
            }
        }
        match self.seen.insert(lower, (path, false)) {
            Some((other, false)) if other == path => {
                Err(format!("the file \"{path}\" occurs twice"))
            }
            Some((other, _)) => Err(collision(other, path)),
            None => Ok(()),
        }
    }
}

fn collision(one: &str, other: &str) -> String {
    format!("the paths \"{one}\" and \"{other}\" collide where case does not count")
}
