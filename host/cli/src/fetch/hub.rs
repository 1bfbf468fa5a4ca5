//! Kernels of the Hugging Face Hub, through its HTTP interface for files.

use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;

use callbox::{Blame, Result, Status, StatusCode};
use callbox_core::json::{Object, objects};
use callbox_package::{Limits, MANIFEST};
use serde::Deserialize;

use super::bundles::{self, OF_FOLDER};
use super::cache::{Cache, digest};
use super::http::{Address, Client, Rules, Token, denied, lie, quoted};
use super::reference::HubReference;
use crate::signing::BESIDE;
use crate::{output, regular_file};

/// The folder of the variant in a repository of kernels.
pub(crate) const VARIANT: &str = "build/callbox-wasm32";

/// The file that names all others of the variant.
pub(crate) const METADATA: &str = "metadata.json";

const FORMAT: u64 = 1;

/// The largest metadata, and the most files that they name.
pub(crate) const MOST_METADATA: usize = 256 << 10;
const MOST_FILES: usize = 1024;

/// The largest file with a token.
const MOST_TOKEN: usize = 4096;

const ENDPOINT: &str = "https://huggingface.co";

/// What `metadata.json` says: its author's claims, apart from the digests.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Metadata {
    format: u64,
    pub(crate) name: String,
    pub(crate) version: String,
    #[expect(dead_code, reason = "the package's header has it too")]
    license: String,
    #[serde(default)]
    #[expect(dead_code, reason = "the package's header has it too")]
    derivatives: BTreeMap<String, String>,
    module: String,
    #[serde(default)]
    manifest: Option<String>,
    #[serde(deserialize_with = "objects")]
    files: Vec<FileEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileEntry {
    path: String,
    size: usize,
    sha256: String,
}

/// What the caller wants of a kernel.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// The commit of a lock.
    pub(crate) commit: Option<String>,
    /// The digest of the metadata, and who wants it.
    pub(crate) digest: Option<(String, String)>,
}

/// A package of the Hub, whose digest was checked.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) package: Vec<u8>,
    /// The file name of the package.
    pub(crate) name: String,
    pub(crate) entry: HubEntry,
}

/// What a lock has of a kernel.
#[derive(Clone, Debug)]
pub(crate) struct HubEntry {
    pub(crate) commit: String,
    /// SHA-256 and size of the metadata.
    pub(crate) digest: String,
    pub(crate) size: usize,
}

/// The Hub, or a part of it that was downloaded before.
pub(crate) struct Hub {
    endpoint: Address,
    cache: Cache,
    /// `None`: offline.
    client: Option<Client>,
    token: Option<Token>,
}

impl Hub {
    /// The Hub of the environment.
    pub(crate) fn open(is_offline: bool) -> Result<Self> {
        let text = variable("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned());
        let text = text.trim_end_matches('/');
        let endpoint = Address::parse(text);
        let endpoint = endpoint
            .map_err(|message| Status::invalid_argument(format!("HF_ENDPOINT: {message}")))?;
        let client = (!is_offline && !is_set("HF_HUB_OFFLINE")).then(|| Client::new(&endpoint));
        Ok(Self {
            token: token(&endpoint),
            cache: cache()?,
            client: client.transpose()?,
            endpoint,
        })
    }

    /// The address, without a `/` at its end.
    pub(crate) fn endpoint(&self) -> String {
        self.endpoint.text().trim_end_matches('/').to_owned()
    }

    /// What a command needs that writes to the Hub.
    pub(crate) fn writer(&self) -> Result<(&Client, &Token)> {
        let client = self.client.as_ref().ok_or_else(|| {
            failed("expected the Hub to be reachable, found HF_HUB_OFFLINE".to_owned())
        })?;
        let token = self.token.as_ref().ok_or_else(|| {
            denied(
                "expected a token with the right to write: set HF_TOKEN, or run `hf auth login`"
                    .to_owned(),
            )
        })?;
        Ok((client, token))
    }

    /// Downloads the package of a kernel, unless it was downloaded before.
    pub(crate) fn fetch(&self, reference: &HubReference, wanted: &Wanted) -> Result<Found> {
        let in_kernel = |status: Status| status.context(&reference.repository);
        let commit = match &wanted.commit {
            Some(commit) => commit.clone(),
            None => self.commit(reference)?,
        };
        let text = self.metadata(reference, &commit, wanted)?;
        let found = digest(&text);
        if let Some((wanted, who)) = &wanted.digest
            && *wanted != found
        {
            let message = format!("{who} the digest {wanted}, found {found}");
            return Err(in_kernel(denied(message)));
        }
        let metadata = Metadata::read(&text).map_err(in_kernel)?;
        let major = metadata.version.split('.').next();
        if reference.major.is_some() && major != reference.major.as_deref() {
            let (branch, version) = (&reference.revision, quoted(&metadata.version));
            let message = format!("expected its version on the branch {branch}, found {version}");
            return Err(in_kernel(failed(message)));
        }
        self.cache.keep(&text);
        self.cache.take_note(&self.key(reference, &commit), &found);
        let module = metadata.module().map_err(in_kernel)?;
        let package = self.file(reference, &commit, module)?;
        metadata.check(&package).map_err(in_kernel)?;
        Ok(Found {
            name: module.path.clone(),
            package,
            entry: HubEntry {
                commit,
                digest: found,
                size: text.len(),
            },
        })
    }

    /// The commit that a branch or tag has now, or offline the last known one.
    fn commit(&self, reference: &HubReference) -> Result<String> {
        let revision = &reference.revision;
        if reference.is_commit() {
            return Ok(revision.clone());
        }
        let key = self.key(reference, revision);
        let Some(client) = &self.client else {
            return self.cache.note(&key).ok_or_else(|| offline(reference));
        };
        let address = self.address(reference, revision, METADATA)?;
        let commit = client.commit(&address, self.token.as_ref())?;
        self.cache.take_note(&key, &commit);
        Ok(commit)
    }

    fn metadata(&self, reference: &HubReference, commit: &str, wanted: &Wanted) -> Result<Vec<u8>> {
        let known = self.cache.note(&self.key(reference, commit));
        let wanted = wanted.digest.as_ref().map(|(digest, _)| digest);
        // What the hub once sent for the commit need not be what the caller wants.
        let known = known.filter(|known| wanted.is_none_or(|wanted| wanted == known));
        if let Some(text) = known.and_then(|known| self.cache.file(&known, MOST_METADATA)) {
            return Ok(text);
        }
        let client = self.client.as_ref().ok_or_else(|| offline(reference))?;
        let address = self.address(reference, commit, METADATA)?;
        let within = format!("/{}/", reference.repository);
        let rules = Rules {
            token: self.token.as_ref(),
            // Any other host could send other metadata.
            may_leave: false,
            within: Some(&within),
            most: MOST_METADATA,
            commit: Some(commit),
            digest: None,
            cache: None,
        };
        client.get(&address, rules)
    }

    /// The bytes of a file, which have its digest.
    fn file(&self, reference: &HubReference, commit: &str, file: &FileEntry) -> Result<Vec<u8>> {
        if let Some(known) = self.cache.file(&file.sha256, file.size) {
            return Ok(known);
        }
        let client = self.client.as_ref().ok_or_else(|| offline(reference))?;
        let address = self.address(reference, commit, &file.path)?;
        let within = format!("/{}/", reference.repository);
        let rules = Rules {
            token: self.token.as_ref(),
            may_leave: true,
            within: Some(&within),
            most: file.size,
            commit: Some(commit),
            digest: Some(&file.sha256),
            cache: Some(&self.cache),
        };
        let contents = client.get(&address, rules)?;
        let found = digest(&contents);
        if contents.len() != file.size || found != file.sha256 {
            let (size, sha256) = (file.size, &file.sha256);
            return Err(lie(format!(
                "{address}: expected {size} bytes with SHA-256 {sha256}, found {} with {found}",
                contents.len()
            )));
        }
        self.cache.keep(&contents);
        Ok(contents)
    }

    /// The bundle of signatures of a module, whose signature was not checked.
    pub(crate) fn bundle(
        &self,
        reference: &HubReference,
        commit: &str,
        module: &str,
    ) -> Result<Option<Vec<u8>>> {
        let within = format!("/{}/", reference.repository);
        let beside = format!("{VARIANT}/{module}{BESIDE}");
        for path in [&beside, OF_FOLDER] {
            let address = self.address_in_repository(reference, commit, path)?;
            let key = format!("{} {path}", self.key(reference, commit));
            let wanted = bundles::Wanted {
                address: &address,
                token: self.token.as_ref(),
                within: Some(&within),
                key: &key,
            };
            let found = bundles::get(self.client.as_ref(), &self.cache, &wanted)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn address(&self, reference: &HubReference, revision: &str, path: &str) -> Result<Address> {
        self.address_in_repository(reference, revision, &format!("{VARIANT}/{path}"))
    }

    fn address_in_repository(
        &self,
        reference: &HubReference,
        revision: &str,
        path: &str,
    ) -> Result<Address> {
        let (endpoint, repository) = (self.endpoint(), &reference.repository);
        let text = format!("{endpoint}/kernels/{repository}/resolve/{revision}/{path}");
        Address::parse(&text).map_err(Status::invalid_argument)
    }

    /// The key of a note, which is the one of the Python package.
    fn key(&self, reference: &HubReference, revision: &str) -> String {
        let endpoint = self.endpoint();
        format!("{endpoint} kernel {} {revision}", reference.repository)
    }
}

impl Metadata {
    /// Reads `metadata.json`, which a stranger wrote.
    pub(crate) fn read(text: &[u8]) -> Result<Self> {
        let Object(metadata) = serde_json::from_slice::<Object<Self>>(text)
            .map_err(|error| wrong(crate::text::name(&error.to_string())))?;
        if metadata.format != FORMAT {
            let found = metadata.format;
            return Err(wrong(format!(
                "expected `format` {FORMAT}, found {found}: a newer callbox wrote this variant"
            )));
        }
        if metadata.files.len() > MOST_FILES {
            return Err(wrong(format!(
                "expected at most {MOST_FILES} files, found more"
            )));
        }
        if metadata
            .manifest
            .as_ref()
            .is_some_and(|name| name != MANIFEST)
        {
            return Err(wrong(format!("expected {MANIFEST:?} as the `manifest`")));
        }
        Ok(metadata)
    }

    /// The paths of all files.
    pub(crate) fn paths(self) -> Vec<String> {
        self.files.into_iter().map(|file| file.path).collect()
    }

    /// The entry of the package, whose path is the name of a file that can be written anywhere.
    fn module(&self) -> Result<&FileEntry> {
        let expected = format!("{}.wasm", self.name);
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
        let begins = self.name.starts_with(|c: char| c.is_ascii_lowercase());
        if !begins || !self.name.chars().all(is_plain) || self.name.len() > 64 {
            let found = quoted(&self.name);
            return Err(wrong(format!(
                "expected a `name` of lower-case letters, digits, `-` and `_`, found {found}"
            )));
        }
        if self.module != expected {
            let found = quoted(&self.module);
            return Err(wrong(format!(
                "expected the `module` {expected}, found {found}"
            )));
        }
        let mut entries = self.files.iter().filter(|file| file.path == expected);
        let (Some(entry), None) = (entries.next(), entries.next()) else {
            return Err(wrong(format!("expected {expected} once in `files`")));
        };
        let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if entry.sha256.len() != 64 || !entry.sha256.bytes().all(is_digit) {
            return Err(wrong(format!(
                "expected a SHA-256 of 64 lower-case hexadecimal digits, found {}",
                quoted(&entry.sha256)
            )));
        }
        let most = Limits::default().package_bytes;
        if entry.size > most {
            let message = format!("{METADATA}: expected a file of at most {most} bytes");
            return Err(Status::new(
                StatusCode::ResourceExhausted,
                Blame::Guest,
                message,
            ));
        }
        Ok(entry)
    }

    /// Checks that a package is the one that the metadata describes.
    fn check(&self, package: &[u8]) -> Result<()> {
        let package = callbox_package::read(package, &Limits::default())?;
        let header = package.header();
        if (&header.name, &header.version) == (&self.name, &self.version) {
            return Ok(());
        }
        let (name, version) = (quoted(&self.name), quoted(&self.version));
        Err(wrong(format!(
            "expected the package {name} of version {version}, found {:?} of version {:?}",
            header.name, header.version
        )))
    }
}

/// The cache of the environment.
pub(crate) fn cache() -> Result<Cache> {
    Cache::open(home()?.join("callbox"))
}

/// The folder `HF_HOME`.
fn home() -> Result<PathBuf> {
    if let Some(home) = variable("HF_HOME") {
        return Ok(home.into());
    }
    let cache = variable("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(env::home_dir()?.join(".cache")));
    let cache = cache.ok_or_else(|| failed("expected HF_HOME or a home folder".to_owned()))?;
    Ok(cache.join("huggingface"))
}

/// The user's token: `HF_TOKEN`, or the one that `hf auth login` keeps.
fn token(endpoint: &Address) -> Option<Token> {
    let given = variable("HF_TOKEN").or_else(|| variable("HUGGING_FACE_HUB_TOKEN"));
    let kept = || {
        if is_set("HF_HUB_DISABLE_IMPLICIT_TOKEN") {
            return None;
        }
        let path = variable("HF_TOKEN_PATH").map(PathBuf::from);
        let path = path.or_else(|| Some(home().ok()?.join("token")))?;
        let text = regular_file::read(&path, MOST_TOKEN).ok()?;
        String::from_utf8(text).ok()
    };
    let token = Token::new(&given.or_else(kept)?)?;
    if endpoint.is_secure() || endpoint.is_loopback() {
        return Some(token);
    }
    output::warn(&"the token is not sent: HF_ENDPOINT is not an https address");
    None
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// Whether a variable is set to a true value.
fn is_set(name: &str) -> bool {
    let value = variable(name).unwrap_or_default().to_ascii_uppercase();
    ["1", "ON", "YES", "TRUE"].contains(&value.as_str())
}

fn wrong(message: String) -> Status {
    let status = Status::new(StatusCode::InvalidArgument, Blame::Guest, message);
    status.context(METADATA)
}

fn failed(message: String) -> Status {
    Status::new(StatusCode::FailedPrecondition, Blame::Caller, message)
}

fn offline(reference: &HubReference) -> Status {
    let name = reference.name();
    let message = format!("{name} was not downloaded before, and this command is offline");
    Status::new(StatusCode::Unavailable, Blame::Caller, message)
}
