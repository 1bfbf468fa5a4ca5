//! The entry of a transparency log for a signature.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callbox_core::json::{self, Limited};
use callbox_core::untrusted_text::shown_name;
use callbox_core::values::{Result, StatusCode};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::super::certificate::Certificate;
use super::super::{decoded, guest, invalid, malformed};
use super::root::{Log, TrustedRoot};
use super::{Evidence, sha256};

/// The most hashes of a proof: a tree has at most 2^64 leaves.
const MAX_HASHES: usize = 64;

/// The most lines with signatures of a tree head.
const MAX_SIGNATURES: usize = 64;

/// An entry as a bundle has it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct RawEntry {
    /// Missing numbers are 0: the JSON of protocol buffers leaves them out.
    #[serde(default, deserialize_with = "number")]
    log_index: u64,
    log_id: RawId,
    kind_version: Option<KindVersion>,
    #[serde(default, deserialize_with = "number")]
    integrated_time: u64,
    inclusion_promise: Option<RawPromise>,
    inclusion_proof: Option<RawProof>,
    canonicalized_body: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawId {
    key_id: String,
}

#[derive(Deserialize)]
struct KindVersion {
    kind: String,
    version: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawPromise {
    signed_entry_timestamp: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawProof {
    #[serde(default, deserialize_with = "number")]
    log_index: u64,
    root_hash: String,
    #[serde(deserialize_with = "number")]
    tree_size: u64,
    #[serde(default)]
    hashes: Limited<String, MAX_HASHES>,
    checkpoint: Option<RawCheckpoint>,
}

#[derive(Deserialize)]
struct RawCheckpoint {
    envelope: String,
}

/// An entry that was read.
#[derive(Clone, Debug)]
pub(in super::super) struct LogEntry {
    log: Vec<u8>,
    index: u64,
    /// When the log took the entry, in seconds since 1970.
    time: u64,
    /// The log's signature of the entry with its time.
    promise: Option<Vec<u8>>,
    proof: Option<Proof>,
    body: Vec<u8>,
    record: Record,
}

/// The way from an entry to the head of the log's tree.
#[derive(Clone, Debug)]
struct Proof {
    index: u64,
    size: u64,
    root: [u8; 32],
    hashes: Vec<[u8; 32]>,
    /// The tree's head, signed.
    checkpoint: Option<String>,
}

/// The most memory of the values in an entry's body.
const MOST_BODY: usize = 8 << 20;

/// What an entry says.
#[derive(Clone, Debug)]
struct Record {
    signature: Vec<u8>,
    /// The signer's certificate, in DER. `None` if the entry has another key, or several.
    certificate: Option<Vec<u8>>,
    content: Content,
}

/// The SHA-256 of what was signed.
#[derive(Clone, Debug)]
enum Content {
    /// Of the message: the payload and its type.
    Message(Vec<u8>),
    Payload(Vec<u8>),
}

impl LogEntry {
    /// Reads an entry.
    ///
    /// # Errors
    /// Blamed on the guest: INVALID_ARGUMENT for a malformed entry, UNIMPLEMENTED for one of
    /// another kind, and RESOURCE_EXHAUSTED for more than 64 hashes.
    pub(in super::super) fn read(raw: RawEntry) -> Result<Self> {
        let body = decoded("log entry", &raw.canonicalized_body)?;
        // Real ones have some kilobytes.
        json::check_memory(&body, json::MAP, MOST_BODY).map_err(|error| malformed(&error))?;
        let value: Value = serde_json::from_slice(&body).map_err(|error| malformed(&error))?;
        let record = Record::read(&value, raw.kind_version.as_ref())?;
        let promise = raw.inclusion_promise;
        let promise = promise.map(|promise| decoded("promise", &promise.signed_entry_timestamp));
        Ok(Self {
            log: decoded("log's identifier", &raw.log_id.key_id)?,
            index: raw.log_index,
            time: raw.integrated_time,
            promise: promise.transpose()?,
            proof: raw.inclusion_proof.map(Proof::read).transpose()?,
            body,
            record,
        })
    }

    /// Whether the log signed a time. Logs of version 2 do not.
    pub(super) fn has_time(&self) -> bool {
        self.promise.is_some()
    }

    /// When the log took the entry. [`check_log`](Self::check_log) checks it.
    pub(super) fn time(&self) -> Duration {
        Duration::from_secs(self.time)
    }

    /// Checks that a log of the root has the entry. The time is the one that the log signed, if it
    /// signed any.
    ///
    /// # Errors
    /// The reason.
    pub(super) fn check_log(
        &self,
        root: &TrustedRoot,
        time: Duration,
        needs_proof: bool,
    ) -> Result<(), String> {
        let mut logs = root.logs.iter();
        let log = logs.find(|log| log.id[..] == self.log && log.is_valid_at(time));
        let log = log.ok_or("its log entry is of no log of the trusted root")?;
        if let Some(promise) = &self.promise
            && !log.key.has_signed(self.promised().as_bytes(), promise)
        {
            return Err("the log did not sign its entry and the time of it".to_owned());
        }
        let needs_proof = needs_proof || self.promise.is_none();
        match &self.proof {
            Some(proof) if needs_proof || proof.checkpoint.is_some() => {
                proof.check(&self.body, log)
            }
            None if needs_proof => Err("its log entry has no inclusion proof".to_owned()),
            _ => Ok(()),
        }
    }

    /// What the promise signs, in canonical JSON.
    fn promised(&self) -> String {
        format!(
            "{{\"body\":\"{}\",\"integratedTime\":{},\"logID\":\"{}\",\"logIndex\":{}}}",
            STANDARD.encode(&self.body),
            self.time,
            hex::encode(&self.log),
            self.index
        )
    }

    /// Checks that the entry is of a signature.
    ///
    /// # Errors
    /// The reason.
    pub(super) fn check_contents(
        &self,
        evidence: &Evidence<'_>,
        certificate: &Certificate,
    ) -> Result<(), String> {
        let record = &self.record;
        let (found, expected) = match &record.content {
            Content::Message(digest) => (digest, evidence.message),
            Content::Payload(digest) => (digest, evidence.payload),
        };
        if found[..] != sha256(expected) {
            return Err("its log entry is of other content".to_owned());
        }
        if record.signature != evidence.signature {
            return Err("its log entry is of another signature".to_owned());
        }
        if record.certificate.as_deref() != Some(certificate.der()) {
            return Err("its log entry is of another certificate".to_owned());
        }
        Ok(())
    }
}

impl Proof {
    fn read(raw: RawProof) -> Result<Self> {
        let hashes = raw.hashes.within().map_err(|found| {
            let message = format!("expected a proof of at most {MAX_HASHES} hashes, found {found}");
            guest(StatusCode::ResourceExhausted, message)
        })?;
        let hash = |text: &String| {
            let bytes = decoded("hash", text)?;
            <[u8; 32]>::try_from(bytes)
                .map_err(|_| invalid("expected hashes of 32 bytes in the proof of the bundle"))
        };
        Ok(Self {
            index: raw.log_index,
            size: raw.tree_size,
            root: hash(&raw.root_hash)?,
            hashes: hashes.iter().map(hash).collect::<Result<_>>()?,
            checkpoint: raw.checkpoint.map(|checkpoint| checkpoint.envelope),
        })
    }

    fn check(&self, body: &[u8], log: &Log) -> Result<(), String> {
        if self.root_from(body) != Some(self.root) {
            return Err("the inclusion proof of its log entry is of another entry".to_owned());
        }
        let checkpoint = self.checkpoint.as_deref();
        let checkpoint = checkpoint.ok_or("its log entry has no checkpoint")?;
        let head = signed_head(checkpoint, log);
        let (size, root) = head.ok_or("the log did not sign the checkpoint of its entry")?;
        if size != self.size || root != self.root {
            return Err("the checkpoint of its log entry is of another tree".to_owned());
        }
        Ok(())
    }

    /// The hash of the tree that the proof leads to (RFC 9162, section 2.1.3.2).
    fn root_from(&self, body: &[u8]) -> Option<[u8; 32]> {
        let mut node = self.index;
        let mut last = self.size.checked_sub(1).filter(|&last| node <= last)?;
        let mut hash: [u8; 32] = Sha256::new()
            .chain_update([0])
            .chain_update(body)
            .finalize()
            .into();
        for other in &self.hashes {
            if last == 0 {
                return None;
            }
            if node & 1 == 1 || node == last {
                hash = parent(other, &hash);
                while node & 1 == 0 && node != 0 {
                    node >>= 1;
                    last >>= 1;
                }
            } else {
                hash = parent(&hash, other);
            }
            node >>= 1;
            last >>= 1;
        }
        (last == 0).then_some(hash)
    }
}

fn parent(left: &[u8; 32], right: &[u8; 32]) -> [u8; 32] {
    let digest = Sha256::new().chain_update([1]);
    digest
        .chain_update(left)
        .chain_update(right)
        .finalize()
        .into()
}

/// The size and the hash of the tree in a checkpoint that a log signed: a text, an empty line, and
/// lines with signatures.
fn signed_head(checkpoint: &str, log: &Log) -> Option<(u64, [u8; 32])> {
    let (text, signatures) = checkpoint.split_once("\n\n")?;
    let signed = format!("{text}\n");
    let is_signature = |line: &str| {
        let signature = line
            .strip_prefix("\u{2014} ")
            .and_then(|line| line.rsplit_once(' '));
        let signature = signature.and_then(|(_, signature)| STANDARD.decode(signature).ok());
        // The first bytes name the key.
        let signature = signature
            .as_deref()
            .and_then(|all| all.strip_prefix(&log.id[..4]));
        signature.is_some_and(|signature| log.key.has_signed(signed.as_bytes(), signature))
    };
    if !signatures.lines().take(MAX_SIGNATURES).any(is_signature) {
        return None;
    }
    let mut lines = text.lines().skip(1);
    let size = lines.next()?.parse().ok()?;
    let root = STANDARD.decode(lines.next()?).ok()?;
    Some((size, root.try_into().ok()?))
}

impl Record {
    fn read(body: &Value, named: Option<&KindVersion>) -> Result<Self> {
        let text = |pointer: &str| {
            let text = body.pointer(pointer).and_then(Value::as_str);
            text.ok_or_else(|| {
                invalid(format!(
                    "the bundle is malformed: its log entry has no {pointer:?}"
                ))
            })
        };
        let base64 = |pointer: &str| decoded("log entry", text(pointer)?);
        let one = |pointer: &str| {
            let all = body.pointer(pointer).and_then(Value::as_array);
            match all.map_or(0, Vec::len) {
                1 => Ok(()),
                found => Err(invalid(format!(
                    "expected one signature in the log entry of the bundle, found {found}"
                ))),
            }
        };
        let algorithm = |pointer: &str, expected: &str| {
            let kind = text(&format!("{pointer}/algorithm"))?;
            super::super::expect("the hash in the log entry", expected, kind)
        };
        let digest = |pointer: &str| -> Result<Vec<u8>> {
            algorithm(pointer, "sha256")?;
            // A digest that is none differs from each.
            Ok(hex::decode(text(&format!("{pointer}/value"))?).unwrap_or_default())
        };
        let pem = |pointer: &str| -> Result<Option<Vec<u8>>> {
            let certificates = Certificate::from_file(&base64(pointer)?);
            Ok(match certificates.as_deref() {
                Ok([one]) => Some(one.der().to_vec()),
                _ => None,
            })
        };
        // The form of logs of version 2.
        let digest_2 = |pointer: &str| -> Result<Vec<u8>> {
            algorithm(pointer, "SHA2_256")?;
            base64(&format!("{pointer}/digest"))
        };
        let der = |pointer: &str| -> Result<Option<Vec<u8>>> {
            let certificate = format!("{pointer}/x509Certificate/rawBytes");
            match body.pointer(&certificate) {
                Some(_) => base64(&certificate).map(Some),
                None => Ok(None),
            }
        };
        let (kind, version) = (text("/kind")?, text("/apiVersion")?);
        if named.is_some_and(|named| named.kind != kind || named.version != version) {
            return Err(invalid(
                "the bundle contradicts itself: the kind of its log entry is not that of the body",
            ));
        }
        match (kind, version) {
            ("hashedrekord", "0.0.1") => Ok(Self {
                signature: base64("/spec/signature/content")?,
                certificate: pem("/spec/signature/publicKey/content")?,
                content: Content::Message(digest("/spec/data/hash")?),
            }),
            ("dsse", "0.0.1") => {
                one("/spec/signatures")?;
                Ok(Self {
                    signature: base64("/spec/signatures/0/signature")?,
                    certificate: pem("/spec/signatures/0/verifier")?,
                    content: Content::Payload(digest("/spec/payloadHash")?),
                })
            }
            ("intoto", "0.0.2") => {
                const SIGNATURES: &str = "/spec/content/envelope/signatures";
                one(SIGNATURES)?;
                // The signature is encoded twice.
                let signature = base64(&format!("{SIGNATURES}/0/sig"))?;
                let signature = String::from_utf8_lossy(&signature);
                Ok(Self {
                    signature: decoded("log entry", &signature)?,
                    certificate: pem(&format!("{SIGNATURES}/0/publicKey"))?,
                    content: Content::Payload(digest("/spec/content/payloadHash")?),
                })
            }
            ("hashedrekord", "0.0.2") => {
                const SPEC: &str = "/spec/hashedRekordV002";
                Ok(Self {
                    signature: base64(&format!("{SPEC}/signature/content"))?,
                    certificate: der(&format!("{SPEC}/signature/verifier"))?,
                    content: Content::Message(digest_2(&format!("{SPEC}/data"))?),
                })
            }
            ("dsse", "0.0.2") => {
                const SPEC: &str = "/spec/dsseV002";
                one(&format!("{SPEC}/signatures"))?;
                Ok(Self {
                    signature: base64(&format!("{SPEC}/signatures/0/content"))?,
                    certificate: der(&format!("{SPEC}/signatures/0/verifier"))?,
                    content: Content::Payload(digest_2(&format!("{SPEC}/payloadHash"))?),
                })
            }
            _ => Err(guest(
                StatusCode::Unimplemented,
                format!(
                    "expected hashedrekord or dsse 0.0.1 or 0.0.2, or intoto 0.0.2 as the log \
                     entry of the bundle, found \"{} {}\"",
                    shown_name(kind),
                    shown_name(version)
                ),
            )),
        }
    }
}

/// A number, also as text: the JSON of protocol buffers quotes large ones.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    deserializer.deserialize_any(NumberVisitor)
}

struct NumberVisitor;

impl Visitor<'_> for NumberVisitor {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of at most 64 bits")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<u64, E> {
        Ok(number)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
        text.parse()
            .map_err(|_| E::custom("expected a number of at most 64 bits"))
    }
}
