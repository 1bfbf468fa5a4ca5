//! `trusted_root.json` of sigstore: whose certificates and logs count.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callbox_core::untrusted_text::shown_name;
use callbox_core::values::{Blame, Result, Status, StatusCode};
use ring::signature::{ED25519, UnparsedPublicKey};
use serde::Deserialize;

use super::super::certificate::Certificate;
use super::super::der::{Der, GENERALIZED_TIME, SEQUENCE, time};
use super::super::keys::EcdsaKey;
use super::sha256;

/// The largest trusted root, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// The DER of a public key of Ed25519, before the key (RFC 8410).
const ED25519_DER: &[u8] = &[0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];

/// How the media types of trusted roots begin.
const MEDIA_TYPES: [&str; 3] = [
    "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
    "application/vnd.dev.sigstore.trustedroot+json;version=0.2",
    "application/vnd.dev.sigstore.trustedroot.v0.2+json",
];

/// The authorities and logs whom a user trusts to say who signed, and when: a `trusted_root.json`
/// of sigstore. Logs with keys other than of ECDSA or Ed25519 are ignored.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TrustedRoot {
    pub(super) authorities: Vec<Authority>,
    pub(super) timestamp_authorities: Vec<Authority>,
    /// The transparency logs of signatures.
    pub(super) logs: Vec<Log>,
    /// The logs of certificate transparency.
    pub(super) certificate_logs: Vec<Log>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Authority {
    /// From the one that issues certificates to signers, or signs timestamps, to the one that is
    /// trusted.
    pub(super) chain: Vec<Certificate>,
    validity: Validity,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Log {
    pub(super) id: [u8; 32],
    pub(super) key: LogKey,
    validity: Validity,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LogKey {
    Ecdsa(EcdsaKey),
    /// As logs of version 2 have it.
    Ed25519([u8; 32]),
}

/// A time span, both ends included.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Validity {
    pub(super) start: Duration,
    pub(super) end: Option<Duration>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RootFile {
    media_type: String,
    #[serde(default)]
    tlogs: Vec<LogFile>,
    certificate_authorities: Vec<AuthorityFile>,
    #[serde(default)]
    ctlogs: Vec<LogFile>,
    #[serde(default)]
    timestamp_authorities: Vec<AuthorityFile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuthorityFile {
    cert_chain: ChainFile,
    #[serde(default)]
    valid_for: ValidityFile,
}

#[derive(Deserialize)]
struct ChainFile {
    certificates: Vec<RawBytes>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawBytes {
    raw_bytes: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogFile {
    public_key: KeyFile,
    log_id: Option<LogId>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogId {
    key_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeyFile {
    raw_bytes: String,
    #[serde(default)]
    valid_for: ValidityFile,
}

#[derive(Default, Deserialize)]
struct ValidityFile {
    start: Option<String>,
    end: Option<String>,
}

impl TrustedRoot {
    /// Reads a `trusted_root.json`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it is malformed, has no authority, no log of each kind with a key of
    /// ECDSA or Ed25519, or such a log without the time from which its key counts; UNIMPLEMENTED
    /// for another version, and RESOURCE_EXHAUSTED for more than 1 MiB.
    pub fn from_json(json: &[u8]) -> Result<Self> {
        if json.len() > MAX_BYTES {
            let message = format!(
                "expected a trusted root of at most {MAX_BYTES} bytes, found {}",
                json.len()
            );
            return Err(status(StatusCode::ResourceExhausted, message));
        }
        let file: RootFile = serde_json::from_slice(json)
            .map_err(|error| wrong(&shown_name(&error.to_string()).to_string()))?;
        if !MEDIA_TYPES.contains(&file.media_type.as_str()) {
            let message = format!(
                "expected a trusted root of version 0.1 or 0.2, found \"{}\"",
                shown_name(&file.media_type)
            );
            return Err(status(StatusCode::Unimplemented, message));
        }
        let authorities = file.certificate_authorities.iter().map(Authority::read);
        let stamping = file.timestamp_authorities.iter();
        // Some have no certificate: nothing is signed by those.
        let stamping = stamping.filter(|file| !file.cert_chain.certificates.is_empty());
        let root = Self {
            authorities: authorities.collect::<Result<_>>()?,
            timestamp_authorities: stamping.map(Authority::read).collect::<Result<_>>()?,
            logs: logs(&file.tlogs)?,
            certificate_logs: logs(&file.ctlogs)?,
        };
        for (is_empty, what) in [
            (root.authorities.is_empty(), "certificate authority"),
            (
                root.logs.is_empty(),
                "transparency log with a key of ECDSA or Ed25519",
            ),
            (
                root.certificate_logs.is_empty(),
                "log of certificates with a key of ECDSA or Ed25519",
            ),
        ] {
            if is_empty {
                return Err(wrong(&format!("it has no {what}")));
            }
        }
        Ok(root)
    }
}

impl fmt::Debug for TrustedRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authorities = self.authorities.len();
        write!(f, "TrustedRoot of {authorities} authorities")
    }
}

impl Authority {
    fn read(file: &AuthorityFile) -> Result<Self> {
        let certificates = file.cert_chain.certificates.iter();
        let chain = certificates.map(|raw| {
            let der = STANDARD.decode(&raw.raw_bytes).ok();
            der.and_then(Certificate::from_der)
                .ok_or_else(|| wrong("an authority has a malformed certificate"))
        });
        let chain = chain.collect::<Result<Vec<_>>>()?;
        if chain.is_empty() {
            return Err(wrong("an authority has no certificate"));
        }
        Ok(Self {
            chain,
            validity: Validity::read(&file.valid_for)?,
        })
    }

    /// Whether the authority counts at a time, and its topmost certificate, which `webpki` takes
    /// at any time, is valid.
    pub(super) fn is_valid_at(&self, time: Duration) -> bool {
        let top = self.chain.last().map(Certificate::der);
        let is_valid = |validity: Validity| validity.has(time);
        self.validity.has(time) && top.and_then(Validity::of_certificate).is_some_and(is_valid)
    }
}

impl Log {
    pub(super) fn is_valid_at(&self, time: Duration) -> bool {
        self.validity.has(time)
    }
}

impl Validity {
    fn read(file: &ValidityFile) -> Result<Self> {
        let read = |text: &String| {
            timestamp(text).ok_or_else(|| {
                wrong(&format!(
                    "expected a time in UTC, found \"{}\"",
                    shown_name(text)
                ))
            })
        };
        let start = file.start.as_ref().map(read).transpose()?;
        Ok(Self {
            start: start.unwrap_or_default(),
            end: file.end.as_ref().map(read).transpose()?,
        })
    }

    /// When a certificate is valid.
    fn of_certificate(der: &[u8]) -> Option<Self> {
        let mut certificate = Der(Der(der).value(SEQUENCE)?);
        let mut fields = Der(certificate.value(SEQUENCE)?);
        // The version, the serial number, the algorithm and the issuer.
        for _ in 0..4 {
            fields.next()?;
        }
        Self::of_field(fields.value(SEQUENCE)?)
    }

    /// The validity of a certificate, from the contents of its field.
    pub(super) fn of_field(field: &[u8]) -> Option<Self> {
        let mut times = Der(field);
        let (kind, start) = times.next()?;
        let start = time(kind, start)?;
        let (kind, end) = times.next()?;
        Some(Self {
            start,
            end: Some(time(kind, end)?),
        })
    }

    pub(super) fn has(&self, time: Duration) -> bool {
        self.start <= time && self.end.is_none_or(|end| time <= end)
    }
}

impl LogKey {
    pub(super) fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Ecdsa(key) => key.has_signed(message, signature),
            Self::Ed25519(key) => {
                let key = UnparsedPublicKey::new(&ED25519, key);
                key.verify(message, signature).is_ok()
            }
        }
    }
}

/// The logs with keys of ECDSA and Ed25519. The identifier of a log is the SHA-256 of its key. For
/// Ed25519 the file names it, as it also depends on the log's name.
fn logs(files: &[LogFile]) -> Result<Vec<Log>> {
    let mut logs = Vec::new();
    let mut known = BTreeSet::new();
    for file in files {
        let key = STANDARD.decode(&file.public_key.raw_bytes);
        let key = key.map_err(|_| wrong("expected the key of a log as base64"))?;
        let named = file.log_id.as_ref();
        let named = named.map(|id| STANDARD.decode(&id.key_id).unwrap_or_default());
        let (id, key) = if let Some(ecdsa) = EcdsaKey::from_der(&key) {
            let id = sha256(&key);
            if named.is_some_and(|named| named != id) {
                return Err(wrong("the identifier of a log is not that of its key"));
            }
            (id, LogKey::Ecdsa(ecdsa))
        } else if let Some(ed25519) = key.strip_prefix(ED25519_DER)
            && let Ok(ed25519) = ed25519.try_into()
        {
            let id = named.unwrap_or_else(|| sha256(&key).to_vec());
            let id = id.try_into();
            let id = id.map_err(|_| wrong("expected an identifier of 32 bytes for a log"))?;
            (id, LogKey::Ed25519(ed25519))
        } else {
            continue;
        };
        let valid_for = &file.public_key.valid_for;
        // As in sigstore-go. The times of an authority may be missing, as its
        // certificates have times, too. Nothing else bounds those of a key.
        if valid_for.start.is_none() {
            return Err(wrong(
                "expected `validFor` with a `start` for the key of a log, found none",
            ));
        }
        let validity = Validity::read(valid_for)?;
        if known.insert((id, validity.clone())) {
            logs.push(Log { id, key, validity });
        }
    }
    Ok(logs)
}

/// A time such as `2021-03-07T03:20:29.000Z`, since 1970. Parts of seconds do not count.
fn timestamp(text: &str) -> Option<Duration> {
    let (seconds, part) = text.strip_suffix('Z')?.split_at_checked(19)?;
    let is_part = part.is_empty()
        || part
            .strip_prefix('.')
            .is_some_and(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    let bytes = seconds.as_bytes();
    if !is_part || separators.iter().any(|&(at, sign)| bytes[at] != sign) {
        return None;
    }
    let mut digits: String = seconds.split(['-', 'T', ':']).collect();
    digits.push('Z');
    time(GENERALIZED_TIME, digits.as_bytes())
}

fn wrong(reason: &str) -> Status {
    Status::invalid_argument(format!("the trusted root is wrong: {reason}"))
}

fn status(code: StatusCode, message: String) -> Status {
    Status::new(code, Blame::Caller, message)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::timestamp;

    #[test]
    fn timestamps_are_counted_since_1970() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2026-11-23T18:58:38Z", Some(1_795_460_318)),
            ("2026-11-23T18:58:38.999Z", Some(1_795_460_318)),
            ("2026-11-23T18:58:38.Z", None),
            ("2026-11-23T18:58:38", None),
            ("2026-11-23T18:58:38+00:00", None),
            ("2026-11-23 18:58:38Z", None),
            ("2026-1-023T18:58:38Z", None),
            ("", None),
            (
                "\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}Z",
                None,
            ),
        ] {
            assert_eq!(timestamp(text), expected.map(Duration::from_secs), "{text}");
        }
    }
}
