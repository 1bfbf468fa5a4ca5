//! The references of `callbox fetch`.

use std::path::{Path, PathBuf};

use callbox::StatusCode;

use super::http::{Address, quoted};
use super::spelling;
use crate::failure::Failure;

/// What to fetch, and the digest that it must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) place: Place,
    /// SHA-256 in hexadecimal: of the file, or for the Hub of the metadata.
    pub(crate) digest: Option<String>,
}

/// Where a package is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    File(PathBuf),
    Web(Address),
    Hub(HubReference),
    Oci(OciReference),
}

/// An artefact in a registry of containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OciReference {
    /// The host, and the port if it is another one than usual.
    pub(crate) host: String,
    pub(crate) path: String,
    /// Empty if there is a digest.
    pub(crate) tag: String,
    /// The digest of the manifest, `sha256:HEX`.
    pub(crate) digest: Option<String>,
}

impl OciReference {
    /// The name in locks and in rules about signatures.
    pub(crate) fn name(&self) -> String {
        let mark = if self.digest.is_some() { '@' } else { ':' };
        format!("oci:{}/{}{mark}{}", self.host, self.path, self.version())
    }

    /// The tag or the digest.
    pub(crate) fn version(&self) -> &str {
        self.digest.as_deref().unwrap_or(&self.tag)
    }
}

/// A revision of a repository of kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HubReference {
    pub(crate) repository: String,
    /// A branch, tag or commit.
    pub(crate) revision: String,
    /// The major version that the package must have.
    pub(crate) major: Option<String>,
}

impl Reference {
    /// The name in locks and in rules about signatures. `None` for a file, whose path is another
    /// one on each machine.
    pub(crate) fn name(&self) -> Option<String> {
        match &self.place {
            Place::File(_) => None,
            Place::Web(address) => Some(address.text()),
            Place::Hub(hub) => Some(hub.name()),
            Place::Oci(oci) => Some(oci.name()),
        }
    }

    /// The same failure, with this reference if no host could be asked: the addresses of the hosts
    /// of a registry or the Hub are not what the user wrote.
    pub(crate) fn in_failure(&self, failure: Failure) -> Failure {
        let status = failure.status();
        match self.name() {
            Some(name)
                if status.code() == StatusCode::Unavailable
                    && !status.message().contains(&name) =>
            {
                failure.context(crate::text::name(&name))
            }
            _ => failure,
        }
    }
}

impl HubReference {
    /// Whether the revision is a commit, which never moves.
    pub(crate) fn is_commit(&self) -> bool {
        let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        self.revision.len() == 40 && self.revision.bytes().all(is_digit)
    }

    /// The name in locks and in rules about signatures.
    pub(crate) fn name(&self) -> String {
        format!("hf:{}@{}", self.repository, self.revision)
    }
}

/// Reads `hf:ORG/NAME@VERSION`, `oci:HOST/PATH:TAG`, `https://...` or a path, with `#sha256:HEX`
/// or not.
pub(crate) fn parse(text: &str) -> Result<Reference, String> {
    const MARK: &str = "#sha256:";
    let (place, digest) = match text.rsplit_once(MARK) {
        Some((place, digest)) => (place, Some(self::digest(digest)?)),
        None => (text, None),
    };
    let is_path = !place.contains(':');
    if let Some((_, other)) = place.rsplit_once('#').filter(|_| !is_path) {
        return Err(format!(
            "expected nothing or #sha256:DIGEST, found {}",
            quoted(&format!("#{other}"))
        ));
    }
    let place = if let Some(rest) = place.strip_prefix("hf:") {
        Place::Hub(hub(rest)?)
    } else if let Some(rest) = place.strip_prefix("oci:") {
        Place::Oci(oci(rest)?)
    } else if place.contains("://") {
        Place::Web(web(place)?)
    } else if place.is_empty() {
        return Err(
            "expected hf:ORG/NAME@VERSION, oci:HOST/PATH:TAG, https://... or a path".to_owned(),
        );
    } else {
        Place::File(Path::new(place).to_owned())
    };
    Ok(Reference { place, digest })
}

/// Checks the digest of a pin.
pub(crate) fn digest(text: &str) -> Result<String, String> {
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
    let port = if address.is_secure() { 443 } else { 80 };
    spelling::authority(address.authority(), port)
        .and_then(|()| spelling::path(address.path()))
        .map_err(|expected| format!("{expected}, found {}", quoted(&address.text())))?;
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

/// Reads `HOST/PATH:TAG` or `HOST/PATH@sha256:HEX`.
fn oci(text: &str) -> Result<OciReference, String> {
    let expected = || {
        let found = quoted(text);
        format!("expected oci:HOST/PATH:TAG or oci:HOST/PATH@sha256:HEX, found {found}")
    };
    let (host, rest) = text.split_once('/').ok_or_else(expected)?;
    let (path, tag, digest) = match rest.split_once('@') {
        Some((path, digest)) => (path, "", Some(digest)),
        None => {
            let (path, tag) = rest.split_once(':').ok_or_else(expected)?;
            (path, tag, None)
        }
    };
    let is_host = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-:".contains(c);
    // Without one of these, the first name could be meant for another tool's usual registry.
    let is_named = host.contains(['.', ':']) || host == "localhost";
    if !is_named || !host.chars().all(is_host) || !host.starts_with(|c: char| c.is_alphanumeric()) {
        let found = quoted(host);
        return Err(format!(
            "expected the host of a registry in lower case, found {found}"
        ));
    }
    // Registries of this machine are asked without TLS.
    let plain = Address::parse(&format!("http://{host}/"));
    let is_plain = plain.is_ok_and(|plain| plain.is_loopback());
    spelling::authority(host, if is_plain { 80 } else { 443 })
        .map_err(|expected| format!("{expected}, found {}", quoted(host)))?;
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_part = |part: &str| {
        part.starts_with(is_plain)
            && part.ends_with(is_plain)
            && part.chars().all(|c| is_plain(c) || "._-".contains(c))
    };
    if path.len() > 255 || !path.split('/').all(is_part) {
        return Err(format!(
            "expected a path of lower-case letters, digits and `._-`, found {}",
            quoted(path)
        ));
    }
    match digest {
        Some(digest) => self::digest(digest.strip_prefix("sha256:").ok_or_else(expected)?)?,
        None => self::tag(tag)?,
    };
    Ok(OciReference {
        host: host.to_owned(),
        path: path.to_owned(),
        tag: tag.to_owned(),
        digest: digest.map(str::to_owned),
    })
}

/// Checks a tag of a registry.
fn tag(tag: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if tag.len() <= 128
        && tag.chars().all(is_plain)
        && !tag.is_empty()
        && !tag.starts_with(['.', '-'])
    {
        return Ok(tag.to_owned());
    }
    Err(format!(
        "expected a tag of ASCII letters, digits and `._-`, found {}",
        quoted(tag)
    ))
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
        for text in [
            "oci:localhost:5000/a/b-c:1.0.0",
            &format!("oci:a.b/c@sha256:{digest}"),
        ] {
            assert_eq!(parse(text).unwrap().name().unwrap(), text);
        }
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
            ("oci:host/path:tag", "expected the host of a registry"),
            (
                "oci:Host.example/path:tag",
                "expected the host of a registry",
            ),
            ("oci:host.example/path", "expected oci:HOST/PATH:TAG"),
            ("oci:host.example/Path:tag", "expected a path of lower-case"),
            (
                "oci:host.example/a/../b:tag",
                "expected a path of lower-case",
            ),
            ("oci:host.example/a//b:tag", "expected a path of lower-case"),
            ("oci:host.example/a:", "expected a tag"),
            ("oci:host.example/a:b/c", "expected a tag"),
            ("oci:host.example/a@sha512:00", "expected oci:HOST/PATH:TAG"),
            ("oci:host.example/a@sha256:00", "expected a SHA-256 of 64"),
            (
                "oci:host.example:443/a:1",
                "expected the default port to be left out",
            ),
            ("oci:localhost:05000/a:1", "expected a port from 1 to 65535"),
            ("oci:host.example./a:1", "expected a host in lower case"),
            ("https://Host.example/a", "expected a host in lower case"),
            (
                "https://host.example:443/a",
                "expected the default port to be left out",
            ),
            ("https://host.example/a//b", "expected a path without `//`"),
            (
                "https://host.example/%61",
                "expected letters, digits, `-._~`",
            ),
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
