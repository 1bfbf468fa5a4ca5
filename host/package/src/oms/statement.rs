//! The statement of a bundle, which lists the files that it signs.

use std::collections::BTreeMap;

use callbox_core::untrusted_text::shown_name;
use callbox_core::values::Result;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{expect, invalid, malformed};

const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";
const PREDICATE_TYPE: &str = "https://model_signing/signature/v1.0";

/// The files of git, which bundles leave out.
pub const LEFT_OUT: [&str; 4] = [".git", ".gitattributes", ".github", ".gitignore"];

/// The files that a bundle signs: each path, with `/` between names, and its SHA-256.
pub type SignedFiles = BTreeMap<String, [u8; 32]>;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Statement {
    #[serde(rename = "_type")]
    kind: String,
    subject: Vec<Subject>,
    predicate_type: String,
    predicate: Predicate,
}

#[derive(Serialize, Deserialize)]
struct Subject {
    name: String,
    digest: SubjectDigest,
}

#[derive(Serialize, Deserialize)]
struct SubjectDigest {
    sha256: String,
}

#[derive(Serialize, Deserialize)]
struct Predicate {
    serialization: Serialization,
    resources: Vec<Resource>,
}

#[derive(Serialize, Deserialize)]
struct Serialization {
    method: String,
    hash_type: String,
    #[serde(default)]
    allow_symlinks: bool,
    /// Written alone: the files are those that are listed.
    #[serde(default, skip_deserializing)]
    ignore_paths: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Resource {
    name: String,
    algorithm: String,
    digest: String,
}

impl Statement {
    /// The statement of a folder or file with this name.
    pub(super) fn new(name: &str, files: &SignedFiles) -> Self {
        let resources = files.iter().map(|(name, digest)| Resource {
            name: name.clone(),
            algorithm: "sha256".to_owned(),
            digest: hex::encode(digest),
        });
        Self {
            kind: STATEMENT_TYPE.to_owned(),
            subject: vec![Subject {
                name: name.to_owned(),
                digest: SubjectDigest {
                    sha256: hex::encode(root(files.values())),
                },
            }],
            predicate_type: PREDICATE_TYPE.to_owned(),
            predicate: Predicate {
                serialization: Serialization {
                    method: "files".to_owned(),
                    hash_type: "sha256".to_owned(),
                    allow_symlinks: false,
                    ignore_paths: LEFT_OUT.map(str::to_owned).to_vec(),
                },
                resources: resources.collect(),
            },
        }
    }
}

/// The digest of a statement's subject: of all digests, in the order of the statement.
fn root<'a>(digests: impl Iterator<Item = &'a [u8; 32]>) -> [u8; 32] {
    let digest = digests.fold(Sha256::new(), |sum, digest| sum.chain_update(digest));
    digest.finalize().into()
}

/// The files of a statement.
pub(super) fn files_of(payload: &[u8]) -> Result<SignedFiles> {
    let statement: Statement = serde_json::from_slice(payload).map_err(|e| malformed(&e))?;
    expect("`_type`", STATEMENT_TYPE, &statement.kind)?;
    expect("`predicateType`", PREDICATE_TYPE, &statement.predicate_type)?;
    let predicate = statement.predicate;
    expect("`method`", "files", &predicate.serialization.method)?;
    expect("`hash_type`", "sha256", &predicate.serialization.hash_type)?;
    let mut digests = Vec::new();
    let mut files = SignedFiles::new();
    for resource in predicate.resources {
        expect("`algorithm`", "sha256", &resource.algorithm)?;
        let mut digest = [0; 32];
        hex::decode_to_slice(&resource.digest, &mut digest).map_err(|_| {
            invalid(format!(
                "expected a SHA-256 of 64 hexadecimal digits, found \"{}\"",
                shown_name(&resource.digest)
            ))
        })?;
        digests.push(digest);
        if files.contains_key(&resource.name) {
            return Err(invalid(format!(
                "the bundle lists \"{}\" twice",
                shown_name(&resource.name)
            )));
        }
        files.insert(resource.name, digest);
    }
    let found = hex::encode(root(digests.iter()));
    match &statement.subject[..] {
        [subject] if subject.digest.sha256 == found => Ok(files),
        [_] => Err(invalid(
            "the bundle contradicts itself: its digest is not that of its files",
        )),
        more => Err(invalid(format!(
            "expected one subject in the bundle, found {}",
            more.len()
        ))),
    }
}
