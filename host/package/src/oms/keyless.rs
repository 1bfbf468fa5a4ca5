//! Keyless bundles: a certificate for a few minutes names who signed, and a transparency log says
//! when.
//!
//! Everything is checked offline, against the [`TrustedRoot`] that the user names:
//!
//! 1. The log signed the time of its entry (the inclusion promise), or timestamp authorities of the
//!    root stamped the signature (RFC 3161), and a Merkle proof (RFC 6962) leads from the entry to
//!    a tree whose head the log signed.
//! 2. The entry is of this signature, certificate and content.
//! 3. The certificate was valid at each of these times, an authority of the root issued it for
//!    signing code, and a certificate transparency log of the root signed that it saw it.
//! 4. The certificate names the identity, and the OpenID provider that vouched for it.

mod entry;
mod leaf;
mod root;
mod timestamp;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use callbox_core::untrusted_text::shown_name;
use callbox_core::values::{Result, Status};
use rustls_pki_types::{CertificateDer, UnixTime};
use sha2::{Digest, Sha256};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

pub(super) use self::entry::{LogEntry, RawEntry};
use self::leaf::Leaf;
use self::root::Authority;
pub use self::root::TrustedRoot;
use super::certificate::{ALGORITHMS, CODE_SIGNING, Certificate};
use super::keys::{EcdsaKey, other_algorithm};

/// Who may have signed a keyless bundle: an email address or a URI, and the OpenID provider that
/// vouches for it, as a trusted root sees them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    name: String,
    issuer: String,
    root: Arc<TrustedRoot>,
}

/// What a keyless bundle has to prove its signature with.
pub(super) struct Evidence<'a> {
    pub(super) certificates: &'a [Certificate],
    pub(super) entries: &'a [LogEntry],
    /// Whether each entry needs a proof, as from version 0.2 of the format on.
    pub(super) needs_proof: bool,
    /// The responses of timestamp authorities (RFC 3161).
    pub(super) timestamps: &'a [Vec<u8>],
    pub(super) message: &'a [u8],
    pub(super) payload: &'a [u8],
    pub(super) signature: &'a [u8],
}

impl Identity {
    /// An identity, and the address of its OpenID provider, such as `https://accounts.google.com`.
    /// Both must be equal to those of a certificate.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if one of them is empty.
    pub fn new(
        name: impl Into<String>,
        issuer: impl Into<String>,
        root: Arc<TrustedRoot>,
    ) -> Result<Self> {
        let (name, issuer) = (name.into(), issuer.into());
        if name.is_empty() || issuer.is_empty() {
            return Err(Status::invalid_argument(
                "expected an identity and its issuer, found an empty one",
            ));
        }
        Ok(Self { name, issuer, root })
    }

    /// The key of the certificate, if the evidence proves that this identity signed.
    ///
    /// # Errors
    /// The reason.
    pub(super) fn signer_of(&self, evidence: &Evidence<'_>) -> Result<EcdsaKey, String> {
        let first = evidence.certificates.first();
        let certificate = first.ok_or("the bundle has no certificate")?;
        let key = certificate.key();
        let key = EcdsaKey::from_der(&key).ok_or_else(|| {
            let found = other_algorithm(&key).unwrap_or("another one");
            format!("expected a key of ECDSA on P-256 or P-384 in its certificate, found {found}")
        })?;
        let [entry] = evidence.entries else {
            return Err(format!(
                "expected one entry of a transparency log, found {}",
                evidence.entries.len()
            ));
        };
        let times = evidence.times(&self.root, entry)?;
        let leaf = Leaf::of(certificate.der()).ok_or("its certificate is malformed")?;
        for time in &times {
            entry.check_log(&self.root, *time, evidence.needs_proof)?;
        }
        entry.check_contents(evidence, certificate)?;
        for (at, time) in times.into_iter().enumerate() {
            if !leaf.is_valid_at(time) {
                let what = if at == 0 && entry.has_time() {
                    "log entry"
                } else {
                    "timestamp"
                };
                return Err(format!(
                    "its certificate was not valid at the time of its {what}"
                ));
            }
            let issuer = issuer_of(&self.root, certificate, time)?;
            leaf.check_seen(&self.root, &issuer.key())?;
        }
        leaf.check_names(&self.name, &self.issuer)?;
        Ok(key)
    }

    /// Whether a key is that of an authority of the root that vouches for the certificate.
    pub(super) fn has_authority_with(&self, evidence: &Evidence<'_>, key: &[u8]) -> bool {
        let ([certificate, ..], [entry, ..]) = (evidence.certificates, evidence.entries) else {
            return false;
        };
        let times = evidence.times(&self.root, entry).unwrap_or_default();
        self.root.authorities.iter().any(|authority| {
            let mut chain = authority.chain.iter();
            let issued = |time: &Duration| issued_by(authority, certificate, *time).is_ok();
            chain.any(|one| one.key() == key) && times.iter().any(issued)
        })
    }
}

impl Evidence<'_> {
    /// When the signature existed: as the log says, and as each authority of the root says that
    /// stamped it. A timestamp that no authority of the root signed is left out.
    ///
    /// # Errors
    /// The reason why there is no such time.
    fn times(&self, root: &TrustedRoot, entry: &LogEntry) -> Result<Vec<Duration>, String> {
        let mut times = Vec::new();
        if entry.has_time() {
            times.push(entry.time());
        }
        let mut reason =
            "its log entry has no signed time (inclusion promise), and the bundle has \
                          no timestamp of an authority (RFC 3161)"
                .to_owned();
        for timestamp in self.timestamps {
            match timestamp::time_of(root, timestamp, self.signature) {
                Ok(time) => times.push(time),
                Err(error) => reason = error,
            }
        }
        if times.is_empty() {
            return Err(reason);
        }
        Ok(times)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, issuer) = (shown_name(&self.name), shown_name(&self.issuer));
        write!(f, "{name} of {issuer}")
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Whom the certificate of a keyless bundle names, and the provider. Nothing is checked.
pub(super) fn claimed(certificate: &Certificate) -> Option<(String, String)> {
    let leaf = Leaf::of(certificate.der())?;
    Some((leaf.name()?.to_owned(), leaf.issuer()?.to_owned()))
}

/// The certificate of the root that issued a certificate, if it is valid at a time.
fn issuer_of(
    root: &TrustedRoot,
    certificate: &Certificate,
    time: Duration,
) -> Result<Certificate, String> {
    let authorities = root.authorities.iter();
    let mut reason = "no authority of the trusted root was valid at the time of its log entry";
    let mut found = String::new();
    for authority in authorities.filter(|authority| authority.is_valid_at(time)) {
        match issued_by(authority, certificate, time) {
            Ok(issuer) => return Ok(issuer),
            Err(error) => {
                reason = "no authority of the trusted root issued its certificate for signing code";
                found = format!(": {error}");
            }
        }
    }
    Err(format!("{reason}{found}"))
}

fn issued_by(
    authority: &Authority,
    certificate: &Certificate,
    time: Duration,
) -> Result<Certificate, String> {
    let [between @ .., top] = &authority.chain[..] else {
        return Err("it has no certificate".to_owned());
    };
    let anchor = CertificateDer::from(top.der());
    let anchors = [anchor_from_trusted_cert(&anchor).map_err(|error| error.to_string())?];
    let between: Vec<_> = between.iter().map(|one| one.der().into()).collect();
    let der = CertificateDer::from(certificate.der());
    let signer = EndEntityCert::try_from(&der).map_err(|error| error.to_string())?;
    let path = signer.verify_for_usage(
        ALGORITHMS,
        &anchors,
        &between,
        UnixTime::since_unix_epoch(time),
        KeyUsage::required(CODE_SIGNING),
        None,
        None,
    );
    let path = path.map_err(|error| error.to_string())?;
    let first = path.intermediate_certificates().next();
    let issuer = first.map(|issuer| issuer.der().to_vec());
    let issuer = issuer.unwrap_or_else(|| top.der().to_vec());
    Certificate::from_der(issuer).ok_or_else(|| "it is malformed".to_owned())
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}
