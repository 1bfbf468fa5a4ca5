//! The references of `callbox fetch`.

use std::path::{Path, PathBuf};

use super::http::{Address, quoted};

/// What to fetch, and the digest that it must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    pub(super) place: Place,
    /// SHA-256 in hexadecimal: of the file, or for the Hub of the metadata.
    pub(super) digest: Option<String>,
}

/// Where a package is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    File(PathBuf),
    Web(Address),
    Hub(HubReference),
}

/// A revision of a repository of kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HubReference {
    pub(super) repository: String,
    /// A branch, tag or commit.
    pub(super) revision: String,
    /// The major version that the package must have.
    pub(super) major: Option<String>,
}

impl HubReference {
    /// The name in locks and in rules about signatures.
    pub(super) fn name(&self) -> String {
        format!("hf:{}@{}", self.repository, self.revision)
    }
}

/// Reads `hf:ORG/NAME@VERSION`, `https://...` or a path, with `#sha256:HEX` or not.
pub(super) fn parse(text: &str) -> Result<Reference, String> {
    const MARK: &str = "#sha256:";
    let (place, digest) = match text.rsplit_once(MARK) {
        Some((place, digest)) => (place, Some(self::digest(digest)?)),
        None => (text, None),
    };
    let place = if let Some(rest) = place.strip_prefix("hf:") {
        Place::Hub(hub(rest)?)
    } else if place.contains("://") {
        Place::Web(web(place)?)
    } else if place.starts_with("oci:") {
        let message = "references of OCI registries are not supported: expected";
        return Err(format!(
            "{message} hf:ORG/NAME@VERSION, https://... or a path"
        ));
    } else if place.is_empty() {
        return Err("expected hf:ORG/NAME@VERSION, https://... or a path".to_owned());
    } else {
        Place::File(Path::new(place).to_owned())
    };
    Ok(Reference { place, digest })
}

/// Checks the digest of a pin.
pub(super) fn digest(text: &str) -> Result<String, String> {
    let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if text.len() == 64 && text.bytes().all(is_digit) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "expected a SHA-256 of 64 lower-case hexadecimal digits, found {}",
        quoted(text)
    ))
}

/// An https address. Without TLS, only this machine is asked.
fn web(text: &str) -> Result<Address, String> {
    let address = Address::parse(text)?;
    if address.is_secure() || address.is_loopback() {
        return Ok(address);
    }
    Err(format!("expected an https address, found {}", quoted(text)))
}

fn hub(text: &str) -> Result<HubReference, String> {
    let expected = || format!("expected hf:ORG/NAME@VERSION, found {}", quoted(text));
    let (repository, version) = text.split_once('@').ok_or_else(expected)?;
    let (owner, name) = repository.split_once('/').ok_or_else(expected)?;
    // Letters of other scripts look like these.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_name = |part: &str| {
        part.len() <= 96
            && part.chars().all(is_plain)
            && part.starts_with(|c: char| c.is_ascii_alphanumeric())
    };
    if !is_name(owner) || !is_name(name) {
        return Err(format!(
            "expected ORG/NAME of ASCII letters, digits and `._-`, found {}",
            quoted(repository)
        ));
    }
    if !is_name(version) {
        return Err(format!(
            "expected a version such as 1, or a branch, tag or commit of ASCII letters, digits \
             and `._-`, found {}",
            quoted(version)
        ));
    }
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let major = version.strip_prefix('v').unwrap_or(version);
    // A commit can consist of digits alone.
    let major = (is_number(major) && version.len() < 40).then(|| major.to_owned());
    Ok(HubReference {
        repository: repository.to_owned(),
        revision: match &major {
            Some(major) => format!("v{major}"),
            None => version.to_owned(),
        },
        major,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn references_name_a_place_and_a_digest() {
        let digest = "0a".repeat(32);
        let pinned = parse(&format!("hf:org/rms-norm@1#sha256:{digest}")).unwrap();
        assert_eq!(pinned.digest, Some(digest.clone()));
        let Place::Hub(hub) = pinned.place else {
            unreachable!("a reference of the Hub");
        };
        assert_eq!(hub.name(), "hf:org/rms-norm@v1");
        assert_eq!(hub.major.as_deref(), Some("1"));
        for (text, name, major) in [
            ("hf:o/n@v12", "hf:o/n@v12", Some("12")),
            ("hf:o/n@main", "hf:o/n@main", None),
        ] {
            let Place::Hub(hub) = parse(text).unwrap().place else {
                unreachable!("a reference of the Hub");
            };
            assert_eq!((hub.name().as_str(), hub.major.as_deref()), (name, major));
        }
        let file = parse(&format!("a#1/k.wasm#sha256:{digest}")).unwrap();
        assert_eq!(file.place, Place::File("a#1/k.wasm".into()));
        parse("https://example.com/k.wasm").unwrap();
        parse("http://127.0.0.1:8080/k.wasm").unwrap();
    }

    #[test]
    fn wrong_references_are_refused() {
        let upper = "0A".repeat(32);
        for (text, message) in [
            ("", "expected hf:ORG/NAME@VERSION"),
            ("hf:org/name", "expected hf:ORG/NAME@VERSION, found"),
            ("hf:name@1", "expected hf:ORG/NAME@VERSION, found"),
            ("hf:../name@1", "expected ORG/NAME of ASCII letters"),
            ("hf:org/n\u{430}me@1", "expected ORG/NAME of ASCII letters"),
            ("hf:org/a/b@1", "expected ORG/NAME of ASCII letters"),
            ("hf:org/name@a/../b", "expected a version such as 1"),
            ("hf:org/name@", "expected a version such as 1"),
            ("oci:host/path:tag", "OCI registries are not supported"),
            ("http://example.com/k.wasm", "expected an https address"),
            (
                "http://127.0.0.1.example.com/k",
                "expected an https address",
            ),
            ("ftp://example.com/k.wasm", "expected an https address"),
            ("https://user:key@example.com/k", "without a user name"),
            ("k.wasm#sha256:00", "expected a SHA-256 of 64"),
            (
                &format!("k.wasm#sha256:{upper}"),
                "expected a SHA-256 of 64",
            ),
        ] {
            let found = parse(text).unwrap_err();
            assert!(found.contains(message), "{text:?}: {found}");
        }
    }
}
