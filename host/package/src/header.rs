//! The header of a package.

use std::collections::BTreeMap;

use callbox_core::untrusted_text::{is_hidden, shown_name};
use serde::{Deserialize, Serialize};

/// The version of the format.
pub const FORMAT: u64 = 1;

/// The longest name and version, in bytes.
const MAX_NAME: usize = 64;

/// The longest other text, in bytes.
const MAX_TEXT: usize = 4096;

/// The name, version and origin of a package.
///
/// In JSON, the keys are the fields' names; empty optional fields are left out, and unknown keys
/// are errors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// The version of the package format: [`FORMAT`].
    pub format: u64,
    /// The name: lower-case letters, digits, `-` and `_`, with a letter first.
    pub name: String,
    /// The version: three numbers such as `1.0.0`, optionally with a suffix such as `-rc.1`.
    pub version: String,
    /// The licence, as an SPDX expression such as `Apache-2.0 OR MIT`.
    pub license: String,
    /// One paragraph about the package.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Where the source is: a URL, with the revision if there is one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// The target that computes the derivative (vjp) of each target that has one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub derivatives: BTreeMap<String, String>,
}

impl Header {
    /// A header without optional fields.
    #[must_use]
    pub fn new(name: &str, version: &str, license: &str) -> Self {
        Self {
            format: FORMAT,
            name: name.to_owned(),
            version: version.to_owned(),
            license: license.to_owned(),
            description: String::new(),
            source: String::new(),
            derivatives: BTreeMap::new(),
        }
    }

    /// Reads a header from JSON in any layout, as authors write it.
    ///
    /// # Errors
    /// A message about the first thing that is wrong.
    pub fn from_json(json: &[u8]) -> Result<Self, String> {
        let header: Self = serde_json::from_slice(json)
            .map_err(|error| format!("the header is wrong: {}", shown_name(&error.to_string())))?;
        header.check()?;
        Ok(header)
    }

    /// The compact JSON of a package.
    pub(crate) fn to_json(&self) -> Result<Vec<u8>, String> {
        self.check()?;
        serde_json::to_vec(self).map_err(|error| error.to_string())
    }

    fn check(&self) -> Result<(), String> {
        if self.format != FORMAT {
            return Err(format!(
                "expected `format` {FORMAT}, found {}: a newer callbox wrote this package",
                self.format
            ));
        }
        if !is_name(&self.name) {
            return Err(format!(
                "expected a `name` of at most {MAX_NAME} lower-case letters, digits, `-` and `_` \
                 with a letter first, found \"{}\"",
                shown_name(&self.name)
            ));
        }
        if !is_version(&self.version) {
            return Err(format!(
                "expected a `version` such as 1.0.0 or 1.0.0-rc.1, found \"{}\"",
                shown_name(&self.version)
            ));
        }
        if self.license.trim().is_empty() {
            return Err("expected a `license`, found none".to_owned());
        }
        for (key, text) in [
            ("license", &self.license),
            ("description", &self.description),
            ("source", &self.source),
        ] {
            check_text(key, text)?;
        }
        for (target, derivative) in &self.derivatives {
            check_text("derivatives", target)?;
            check_text("derivatives", derivative)?;
            if target == derivative {
                return Err(format!(
                    "`derivatives` names \"{}\" as its own derivative",
                    shown_name(target)
                ));
            }
        }
        Ok(())
    }
}

/// Checks a text that is shown to users.
fn check_text(key: &str, text: &str) -> Result<(), String> {
    if text.len() > MAX_TEXT {
        return Err(format!(
            "expected at most {MAX_TEXT} bytes of `{key}`, found {}",
            text.len()
        ));
    }
    match text.chars().find(|&c| is_hidden(c)) {
        Some(c) => Err(format!(
            "`{key}` has the character {c:?}, which cannot be shown"
        )),
        None => Ok(()),
    }
}

fn is_name(name: &str) -> bool {
    let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
    name.len() <= MAX_NAME
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(is_allowed)
}

/// Whether a text is `NUMBER.NUMBER.NUMBER`, optionally followed by `-` or `+` and a suffix.
fn is_version(version: &str) -> bool {
    let (core, suffix) = match version.find(['-', '+']) {
        Some(at) => (&version[..at], Some(&version[at + 1..])),
        None => (version, None),
    };
    let is_number = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_digit())
            && (part == "0" || !part.starts_with('0'))
    };
    let is_suffix = |suffix: &str| {
        let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"-+.".contains(&b);
        !suffix.is_empty() && suffix.bytes().all(is_allowed)
    };
    version.len() <= MAX_NAME
        && core.split('.').count() == 3
        && core.split('.').all(is_number)
        && suffix.is_none_or(is_suffix)
}
