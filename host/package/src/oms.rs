//! Bundles: detached signatures in the OpenSSF model-signing format, as the Python package
//! `model-signing` reads and writes them.
//!
//! A bundle is a file of sigstore (version 0.1, 0.2 or 0.3) with a DSSE envelope. The envelope has
//! one signature of an in-toto statement, which lists each file of a folder with its SHA-256. A
//! bundle of one file has the one name `.`.
//!
//! A bundle is signed with a key of ECDSA, or with such a key and the chain of certificates for it.
//! A keyless bundle proves an [`Identity`] by a certificate and by sigstore's logs.

mod certificate;
mod der;
mod keyless;
mod keys;
mod statement;

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callbox_core::json::Limited;
use callbox_core::untrusted_text::shown_name;
use callbox_core::values::{Blame, Result, Status, StatusCode};
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};

use self::keyless::{Evidence, LogEntry, RawEntry};
use self::statement::{Statement, files_of};

pub use certificate::Certificate;
pub use keyless::{Identity, TrustedRoot};
pub use keys::{EcdsaKey, EcdsaSecretKey};
pub use statement::{LEFT_OUT, SignedFiles};

/// The largest bundle, in bytes.
const MAX_BYTES: usize = 16 << 20;

/// The most certificates of a bundle.
const MAX_CERTIFICATES: usize = 16;

/// The most log entries of a bundle.
const MAX_ENTRIES: usize = 16;

/// The most timestamps of a bundle.
const MAX_TIMESTAMPS: usize = 16;

const MEDIA_TYPE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

/// Other media types, each with whether its log entries need a proof.
const OTHER_TYPES: [(&str, bool); 3] = [
    ("application/vnd.dev.sigstore.bundle+json;version=0.3", true),
    ("application/vnd.dev.sigstore.bundle+json;version=0.2", true),
    (
        "application/vnd.dev.sigstore.bundle+json;version=0.1",
        false,
    ),
];

const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";

/// The name of the only file of a bundle that is not of a folder.
pub const ONE_FILE: &str = ".";

/// A bundle that was read. Its signature is checked by [`verify`](Self::verify) alone.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// The bytes that are signed.
    message: Vec<u8>,
    payload: Vec<u8>,
    signature: Vec<u8>,
    certificates: Vec<Certificate>,
    /// Whether the bundle has the one certificate of a keyless signer.
    is_keyless: bool,
    entries: Vec<LogEntry>,
    needs_proof: bool,
    /// The responses of timestamp authorities (RFC 3161).
    timestamps: Vec<Vec<u8>>,
    files: SignedFiles,
}

/// The signer of a bundle whom a user trusts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BundleSigner {
    /// The owner of a key.
    Key(EcdsaKey),
    /// Each whose certificate for signing code this authority vouches for.
    Authority(Certificate),
    /// Who proved this identity when they signed, without a key of their own.
    Identity(Identity),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BundleFile {
    media_type: String,
    verification_material: Material,
    dsse_envelope: Envelope,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Material {
    x509_certificate_chain: Option<Chain>,
    /// The certificate of a keyless bundle.
    certificate: Option<RawCertificate>,
    #[serde(default)]
    tlog_entries: Limited<RawEntry, MAX_ENTRIES>,
    timestamp_verification_data: Option<Timestamps>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Timestamps {
    #[serde(default)]
    rfc3161_timestamps: Limited<RawTimestamp, MAX_TIMESTAMPS>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawTimestamp {
    signed_timestamp: String,
}

#[derive(Deserialize)]
struct Chain {
    certificates: Limited<RawCertificate, MAX_CERTIFICATES>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawCertificate {
    raw_bytes: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload: String,
    payload_type: String,
    signatures: Limited<EnvelopeSignature, 1>,
}

#[derive(Deserialize)]
struct EnvelopeSignature {
    sig: String,
}

impl Bundle {
    /// Reads a bundle, without checking its signature.
    ///
    /// # Errors
    /// Blamed on the guest: INVALID_ARGUMENT if the bundle is malformed or contradicts itself,
    /// UNIMPLEMENTED for another version, another kind of log entry or another way of hashing, and
    /// RESOURCE_EXHAUSTED for more than 16 MiB, 16 certificates, log entries or timestamps.
    pub fn read(json: &[u8]) -> Result<Self> {
        if json.len() > MAX_BYTES {
            return Err(exhausted("bytes", MAX_BYTES, json.len()));
        }
        let file: BundleFile = serde_json::from_slice(json).map_err(|error| malformed(&error))?;
        let other = OTHER_TYPES.iter().find(|other| other.0 == file.media_type);
        if other.is_none() {
            expect("`mediaType`", MEDIA_TYPE, &file.media_type)?;
        }
        let material = file.verification_material;
        let is_keyless = material.certificate.is_some();
        let chain = match (material.certificate, material.x509_certificate_chain) {
            (Some(_), Some(_)) => {
                return Err(invalid(
                    "expected a certificate or a chain in the bundle, found both",
                ));
            }
            (Some(one), None) => vec![one],
            (None, chain) => within(
                "certificates",
                chain.map_or_else(Limited::default, |chain| chain.certificates),
            )?,
        };
        let timestamps = material.timestamp_verification_data;
        let timestamps = timestamps.map_or_else(Limited::default, |data| data.rfc3161_timestamps);
        let mut timestamps = within("timestamps", timestamps)?;
        let mut entries = within("log entries", material.tlog_entries)?;
        if chain.is_empty() {
            // They prove nothing about a key.
            entries.clear();
            timestamps.clear();
        }
        let timestamps = timestamps.iter();
        let timestamps = timestamps.map(|one| decoded("timestamp", &one.signed_timestamp));
        let certificates = chain.iter().map(|certificate| {
            let der = decoded("certificate", &certificate.raw_bytes)?;
            Certificate::from_der(der)
                .ok_or_else(|| invalid("the bundle has a malformed certificate"))
        });
        let envelope = file.dsse_envelope;
        expect("`payloadType`", PAYLOAD_TYPE, &envelope.payload_type)?;
        let signatures = envelope.signatures.within();
        let found = signatures.as_ref().map_or_else(|found| *found, Vec::len);
        let Some(signature) = signatures.ok().and_then(|mut one| one.pop()) else {
            return Err(invalid(format!(
                "expected one signature in the bundle, found {found}"
            )));
        };
        let payload = decoded("payload", &envelope.payload)?;
        Ok(Self {
            certificates: certificates.collect::<Result<_>>()?,
            is_keyless,
            entries: entries
                .into_iter()
                .map(LogEntry::read)
                .collect::<Result<_>>()?,
            needs_proof: other.is_none_or(|other| other.1),
            timestamps: timestamps.collect::<Result<_>>()?,
            signature: decoded("signature", &signature.sig)?,
            message: message(&payload),
            files: files_of(&payload)?,
            payload,
        })
    }

    /// The files that the bundle lists.
    #[must_use]
    pub fn files(&self) -> &SignedFiles {
        &self.files
    }

    /// Whether the bundle lists a file of these bytes, under any name.
    #[must_use]
    pub fn lists(&self, bytes: &[u8]) -> bool {
        let digest: [u8; 32] = Sha256::digest(bytes).into();
        self.files.values().any(|file| *file == digest)
    }

    /// Checks that a signer signed the bundle.
    ///
    /// # Errors
    /// PERMISSION_DENIED with the reason.
    pub fn verify(&self, signer: &BundleSigner) -> Result<()> {
        self.refusal(signer).map_or(Ok(()), |reason| {
            let message = format!("expected a bundle that {signer} signed: {reason}");
            let code = StatusCode::PermissionDenied;
            Err(Status::new(code, Blame::Caller, message))
        })
    }

    /// Why the bundle does not count as one that a signer signed.
    pub(crate) fn refusal(&self, signer: &BundleSigner) -> Option<String> {
        let key = match signer {
            BundleSigner::Key(key) => Ok(key.clone()),
            // Anybody with an identity has a certificate of such an authority.
            BundleSigner::Authority(_) if self.is_keyless => {
                Err("the bundle is keyless: expected an identity with its issuer".to_owned())
            }
            BundleSigner::Authority(authority) => authority.signer_of(&self.certificates),
            BundleSigner::Identity(identity) => identity.signer_of(&self.evidence()),
        };
        match key {
            Ok(key) if key.has_signed(&self.message, &self.signature) => None,
            Ok(_) => Some("the signature is not by its key".to_owned()),
            Err(reason) => Some(reason),
        }
    }

    fn evidence(&self) -> Evidence<'_> {
        Evidence {
            certificates: &self.certificates,
            entries: &self.entries,
            needs_proof: self.needs_proof,
            timestamps: &self.timestamps,
            message: &self.message,
            payload: &self.payload,
            signature: &self.signature,
        }
    }

    /// The identity and its issuer that the certificate of a bundle names. Nothing of it is
    /// checked: [`verify`](Self::verify) does so.
    #[must_use]
    pub fn claimed_identity(&self) -> Option<(String, String)> {
        self.certificates.first().and_then(keyless::claimed)
    }

    /// Whether the bundle uses a key: to sign, or in a certificate.
    pub(crate) fn uses(&self, key: &[u8], signer: &BundleSigner) -> bool {
        let mut certificates = self.certificates.iter();
        let mut is_certified = || certificates.any(|certificate| certificate.key() == key);
        match signer {
            BundleSigner::Key(signer) => signer.to_der() == key,
            BundleSigner::Authority(authority) => authority.key() == key || is_certified(),
            BundleSigner::Identity(identity) => {
                identity.has_authority_with(&self.evidence(), key) || is_certified()
            }
        }
    }
}

impl BundleSigner {
    /// Reads a public key or the certificate of an authority: PEM, or the text of a key.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the contents are neither, or several certificates.
    pub fn from_file(contents: &[u8]) -> Result<Self> {
        if !contents
            .trim_ascii_start()
            .starts_with(b"-----BEGIN CERTIFICATE-----")
        {
            return EcdsaKey::from_file(contents).map(Self::Key);
        }
        let mut certificates = Certificate::from_file(contents)?;
        match (certificates.pop(), &certificates[..]) {
            (Some(certificate), []) => Ok(Self::Authority(certificate)),
            _ => Err(Status::invalid_argument(format!(
                "expected the one certificate of an authority, found {}",
                certificates.len() + 1
            ))),
        }
    }

    /// The public key, a SubjectPublicKeyInfo in DER. An identity has none.
    pub(crate) fn key(&self) -> Option<Vec<u8>> {
        match self {
            Self::Key(key) => Some(key.to_der()),
            Self::Authority(certificate) => Some(certificate.key()),
            Self::Identity(_) => None,
        }
    }
}

impl fmt::Display for BundleSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => key.fmt(f),
            Self::Authority(certificate) => certificate.fmt(f),
            Self::Identity(identity) => identity.fmt(f),
        }
    }
}

/// Signs files: the text of a bundle. `name` is that of the folder or file, for people. `chain` has
/// the certificate of the key and those between it and an authority, or nothing.
///
/// # Errors
/// INVALID_ARGUMENT if the first certificate is of another key, and those of [`Bundle::read`].
pub fn sign_files(
    name: &str,
    files: &SignedFiles,
    key: &EcdsaSecretKey,
    chain: &[Certificate],
) -> Result<String> {
    let material = match chain.first() {
        None => json!({"publicKey": {"hint": key.public().hint()}, "tlogEntries": []}),
        Some(first) if first.key() == key.public().to_der() => {
            let raw = chain.iter().map(|one| STANDARD.encode(one.der()));
            let chain: Vec<_> = raw.map(|raw| json!({"rawBytes": raw})).collect();
            json!({"x509CertificateChain": {"certificates": chain}, "tlogEntries": []})
        }
        Some(_) => {
            return Err(Status::invalid_argument(
                "expected the certificate of the secret key first, found one of another key",
            ));
        }
    };
    let statement = serde_json::to_vec(&Statement::new(name, files));
    let payload = statement.map_err(|error| Status::internal(error.to_string()))?;
    let bundle = json!({
        "mediaType": MEDIA_TYPE,
        "verificationMaterial": material,
        "dsseEnvelope": {
            "payload": STANDARD.encode(&payload),
            "payloadType": PAYLOAD_TYPE,
            "signatures": [{"sig": STANDARD.encode(key.sign(&message(&payload))?), "keyid": ""}],
        },
    });
    let text = bundle.to_string();
    Bundle::read(text.as_bytes())?;
    Ok(text)
}

/// The bytes that a signature of an envelope signs.
fn message(payload: &[u8]) -> Vec<u8> {
    let start = format!(
        "DSSEv1 {} {PAYLOAD_TYPE} {} ",
        PAYLOAD_TYPE.len(),
        payload.len()
    );
    [start.as_bytes(), payload].concat()
}

fn decoded(what: &str, text: &str) -> Result<Vec<u8>> {
    let wrong = |_| invalid(format!("expected the {what} of the bundle as base64"));
    STANDARD.decode(text).map_err(wrong)
}

fn expect(what: &str, expected: &str, found: &str) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(guest(
        StatusCode::Unimplemented,
        format!(
            "expected {expected:?} as {what} of the bundle, found \"{}\"",
            shown_name(found)
        ),
    ))
}

fn malformed(error: &impl ToString) -> Status {
    let error = error.to_string();
    invalid(format!("the bundle is malformed: {}", shown_name(&error)))
}

/// The items of a list that is not too long.
fn within<T, const MOST: usize>(what: &str, list: Limited<T, MOST>) -> Result<Vec<T>> {
    list.within().map_err(|found| exhausted(what, MOST, found))
}

fn exhausted(what: &str, most: usize, found: usize) -> Status {
    guest(
        StatusCode::ResourceExhausted,
        format!("expected a bundle of at most {most} {what}, found {found}"),
    )
}

fn invalid(message: impl Into<String>) -> Status {
    guest(StatusCode::InvalidArgument, message)
}

fn guest(code: StatusCode, message: impl Into<String>) -> Status {
    Status::new(code, Blame::Guest, message)
}
