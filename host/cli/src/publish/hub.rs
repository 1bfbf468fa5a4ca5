//! The Hugging Face Hub, through the HTTP interface that its own client uses.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callbox::{Blame, Status, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{BundleChange, Content, Published, check_replaces, lfs, wrong};
use crate::failure::Outcome;
use crate::fetch::cache::digest;
use crate::fetch::http::{Address, Call, Client, Reply, Rules, Token, lie, quoted};
use crate::fetch::hub::{Hub, METADATA, MOST_METADATA, Metadata, VARIANT};
use crate::fetch::reference::HubReference;
use crate::pack::hub::Variant;
use crate::signing::{BESIDE, MOST_BUNDLE};

/// How many bytes of a file the Hub looks at to choose how to store it.
const SAMPLE: usize = 512;

/// The largest answer.
const MOST_ANSWER: usize = 4 << 20;

/// What the user allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choices {
    pub(super) replaces: bool,
    pub(super) is_private: bool,
}

/// A repository of kernels on the Hub.
pub(super) struct Repository<'a> {
    pub(super) client: &'a Client,
    pub(super) endpoint: String,
    pub(super) name: &'a str,
    pub(super) token: &'a Token,
}

/// The branches of a repository.
#[derive(Deserialize)]
struct Refs {
    branches: Vec<Branch>,
}

#[derive(Deserialize)]
struct Branch {
    name: String,
    #[serde(rename = "targetCommit")]
    commit: String,
}

/// How the Hub wants each file.
#[derive(Deserialize)]
struct Modes {
    files: Vec<Mode>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mode {
    path: String,
    upload_mode: String,
    #[serde(default)]
    should_ignore: bool,
}

#[derive(Deserialize)]
struct Committed {
    #[serde(rename = "commitOid")]
    commit: String,
}

/// What a commit does with the files of the variant.
struct Changes {
    written: BTreeMap<String, Vec<u8>>,
    removed: Vec<String>,
    /// The path of the bundle of signatures.
    bundle: String,
}

/// Puts the variant of a package and its bundle into a branch, in one commit.
pub(super) fn publish(
    content: Content<'_>,
    reference: &HubReference,
    choices: Choices,
    published: &mut Published,
) -> Outcome<()> {
    published.to = reference.name();
    let package = content.package;
    let version = &package.header().version;
    if let Some(major) = &reference.major
        && version.split('.').next() != Some(major)
    {
        let message = format!("expected a package of version {major}, found {version}");
        return Err(wrong(&message));
    }
    if reference.is_commit() {
        return Err(wrong("expected a version or a branch, found a commit"));
    }
    let hub = Hub::open(false)?;
    let (client, token) = hub.writer()?;
    let repository = Repository {
        client,
        endpoint: hub.endpoint(),
        name: &reference.repository,
        token,
    };
    let variant = Variant::new(package)?;
    published.hub_digest = Some(variant.digest.clone());
    let bundle = format!("{}{BESIDE}", variant.module);
    let has_bundle = content.bundle.is_some();
    published.bundle = has_bundle.then(|| format!("{VARIANT}/{bundle}"));
    let parent = repository.branch(&reference.revision, choices.is_private)?;
    let earlier = repository.file(&parent, METADATA, MOST_METADATA)?;
    let is_same = earlier
        .as_deref()
        .is_some_and(|text| digest(text) == variant.digest);
    if let Some(text) = &earlier
        && !is_same
        && !choices.replaces
    {
        let found = Metadata::read(text)?;
        check_replaces(package, (&found.name, &found.version), &published.to)?;
    }
    let found = match &earlier {
        Some(_) => repository.file(&parent, &bundle, MOST_BUNDLE)?,
        None => None,
    };
    let change = content.bundle_change(found.as_deref());
    if is_same && change != BundleChange::Keep && found.is_some() && !choices.replaces {
        let message = "another bundle of signatures is there: --replace replaces or removes it";
        let status = Status::new(StatusCode::FailedPrecondition, Blame::Caller, message);
        return Err(status.context(format!("{VARIANT}/{bundle}")).into());
    }
    if is_same && change == BundleChange::Keep {
        published.changed = false;
        published.commit = Some(parent);
        return Ok(());
    }
    let mut changes = Changes {
        removed: gone(earlier.as_deref(), &variant),
        written: if is_same {
            BTreeMap::new()
        } else {
            variant.files
        },
        bundle,
    };
    let path = changes.bundle.clone();
    match (change, content.bundle) {
        (BundleChange::Write, Some(bundle)) => {
            changes.written.insert(path, bundle.to_vec());
        }
        (BundleChange::Remove, _) => changes.removed.push(path),
        _ => {}
    }
    let header = package.header();
    let summary = format!("Publish {} {} with callbox", header.name, header.version);
    let commit = repository.commit(&summary, &changes, (&reference.revision, &parent))?;
    published.commit = Some(commit);
    Ok(())
}

/// The files of an earlier version that the new one lacks.
fn gone(earlier: Option<&[u8]>, variant: &Variant) -> Vec<String> {
    let metadata = earlier.and_then(|text| Metadata::read(text).ok());
    let paths = metadata
        .map(|metadata| metadata.paths())
        .unwrap_or_default();
    let is_gone = |path: &String| !variant.files.contains_key(path);
    paths.into_iter().filter(is_gone).collect()
}

impl Repository<'_> {
    /// The commit of a branch. The repository and the branch are made if they are missing.
    fn branch(&self, branch: &str, is_private: bool) -> Outcome<String> {
        let mut refs = self.refs()?;
        if refs.is_none() {
            self.create(is_private)?;
            refs = self.refs()?;
        }
        let find = |refs: &Option<Refs>| {
            let mut branches = refs.iter().flat_map(|refs| &refs.branches);
            let found = branches.find(|found| found.name == branch);
            found.map(|found| found.commit.clone())
        };
        let mut found = find(&refs);
        if found.is_none() {
            self.post(&format!("branch/{branch}"), &json!({}))?;
            found = find(&self.refs()?);
        }
        let found = found.ok_or_else(|| {
            lie(format!(
                "{}: the branch {branch} was made, and is missing",
                self.name
            ))
        })?;
        let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if found.len() != 40 || !found.bytes().all(is_digit) {
            let found = quoted(&found);
            let name = self.name;
            let message =
                format!("{name}: expected a commit of 40 hexadecimal digits, found {found}");
            return Err(lie(message).into());
        }
        Ok(found)
    }

    /// The branches, or `None` if there is no repository.
    fn refs(&self) -> Outcome<Option<Refs>> {
        let address = self.api("refs")?;
        let reply = self.ask("GET", &address, None)?;
        if reply.status == 404 {
            return Ok(None);
        }
        Ok(Some(reply.done(&address)?.json(&address)?))
    }

    fn create(&self, is_private: bool) -> Outcome<()> {
        let (organization, name) = self.name.split_once('/').unwrap_or_default();
        let mut payload = json!({"name": name, "organization": organization, "type": "kernel"});
        if is_private {
            payload["visibility"] = "private".into();
        }
        let address = self.address("api/repos/create")?;
        let body = payload.to_string();
        let reply = self.ask(
            "POST",
            &address,
            Some(("application/json", body.as_bytes())),
        )?;
        // Another command made it meanwhile.
        if reply.status != 409 {
            reply.done(&address)?;
        }
        Ok(())
    }

    /// A file of the variant that a commit has.
    fn file(&self, commit: &str, path: &str, most: usize) -> Outcome<Option<Vec<u8>>> {
        let name = self.name;
        let address = self.address(&format!("kernels/{name}/resolve/{commit}/{VARIANT}/{path}"))?;
        let within = format!("/{name}/");
        let rules = Rules {
            token: Some(self.token),
            // Its digest is not known.
            may_leave: false,
            within: Some(&within),
            most,
            commit: Some(commit),
            digest: None,
            cache: None,
        };
        match self.client.get(&address, rules) {
            Err(status) if status.code() == StatusCode::NotFound => Ok(None),
            found => Ok(found.map(Some)?),
        }
    }

    /// Makes the commit, whose parent is the one that was looked at.
    fn commit(
        &self,
        summary: &str,
        changes: &Changes,
        (branch, parent): (&str, &str),
    ) -> Outcome<String> {
        let value = json!({"summary": summary, "description": "", "parentCommit": parent});
        let mut lines = vec![json!({"key": "header", "value": value})];
        for (path, mode) in self.modes(changes, branch)? {
            let bytes = &changes.written[&path];
            let path = format!("{VARIANT}/{path}");
            lines.push(match mode.as_str() {
                "regular" => json!({"key": "file", "value": {
                    "content": STANDARD.encode(bytes), "path": path, "encoding": "base64"}}),
                _ => {
                    lfs::upload(self, bytes, branch)?;
                    json!({"key": "lfsFile", "value": {
                        "path": path, "algo": "sha256", "oid": digest(bytes), "size": bytes.len()}})
                }
            });
        }
        lines.extend(changes.removed.iter().map(|path| {
            let path = format!("{VARIANT}/{path}");
            json!({"key": "deletedFile", "value": {"path": path}})
        }));
        let body: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let address = self.api(&format!("commit/{branch}"))?;
        let body = Some(("application/x-ndjson", body.as_bytes()));
        let reply = self.ask("POST", &address, body)?.done(&address)?;
        Ok(reply.json::<Committed>(&address)?.commit)
    }

    /// How the Hub wants each file: `regular`, or `lfs`.
    fn modes(&self, changes: &Changes, branch: &str) -> Outcome<Vec<(String, String)>> {
        if changes.written.is_empty() {
            return Ok(Vec::new());
        }
        let files = changes.written.iter().map(|(path, bytes)| {
            let sample = STANDARD.encode(&bytes[..bytes.len().min(SAMPLE)]);
            json!({"path": format!("{VARIANT}/{path}"), "sample": sample, "size": bytes.len()})
        });
        let payload = json!({"files": files.collect::<Vec<_>>()});
        let (address, reply) = self.post(&format!("preupload/{branch}"), &payload)?;
        let modes: Modes = reply.json(&address)?;
        let mode_of = |path: &String| {
            let full = format!("{VARIANT}/{path}");
            let mode = modes.files.iter().find(|mode| mode.path == full);
            match mode {
                Some(mode) if mode.should_ignore => {
                    let message = format!("the repository's .gitignore leaves out {full}");
                    Err(Status::new(
                        StatusCode::FailedPrecondition,
                        Blame::Caller,
                        message,
                    ))
                }
                // The Hub has another host send such a file, from which no bundle is taken.
                Some(mode) if mode.upload_mode == "lfs" && *path == changes.bundle => {
                    let message = format!(
                        "the repository's .gitattributes put {full} into the storage for large \
                         files, from which bundles are not fetched"
                    );
                    Err(Status::new(
                        StatusCode::FailedPrecondition,
                        Blame::Caller,
                        message,
                    ))
                }
                Some(mode) if matches!(mode.upload_mode.as_str(), "regular" | "lfs") => {
                    // Storage takes no empty files.
                    let is_empty = changes.written[path].is_empty();
                    let mode = if is_empty {
                        "regular"
                    } else {
                        &mode.upload_mode
                    };
                    Ok((path.clone(), mode.to_owned()))
                }
                _ => Err(lie(format!(
                    "{address}: expected `regular` or `lfs` for {full}"
                ))),
            }
        };
        Ok(changes
            .written
            .keys()
            .map(mode_of)
            .collect::<callbox::Result<_>>()?)
    }

    fn post(&self, path: &str, payload: &Value) -> Outcome<(Address, Reply)> {
        let address = self.api(path)?;
        let body = payload.to_string();
        let reply = self.ask(
            "POST",
            &address,
            Some(("application/json", body.as_bytes())),
        )?;
        let reply = reply.done(&address)?;
        Ok((address, reply))
    }

    /// Makes a request with the token.
    pub(super) fn ask(
        &self,
        method: &'static str,
        address: &Address,
        body: Option<(&str, &[u8])>,
    ) -> Outcome<Reply> {
        let headers = body.map(|(kind, _)| [("Content-Type", kind)]);
        let call = Call {
            method,
            address,
            token: Some(self.token),
            headers: headers.as_ref().map_or(&[], |headers| headers),
            body: body.map(|(_, body)| body),
            most: MOST_ANSWER,
        };
        Ok(self.client.send(call)?)
    }

    fn api(&self, path: &str) -> Outcome<Address> {
        self.address(&format!("api/kernels/{}/{path}", self.name))
    }

    /// An address of the Hub.
    pub(super) fn address(&self, path: &str) -> Outcome<Address> {
        let text = format!("{}/{path}", self.endpoint);
        Ok(Address::parse(&text).map_err(Status::invalid_argument)?)
    }
}
