//! Certificates of those who sign bundles.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callbox_core::values::{Result, Status};
use rustls_pki_types::{CertificateDer, SignatureVerificationAlgorithm, UnixTime};
use sha2::{Digest, Sha256};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert, ring as algorithms};

use super::der::{BIT_STRING, Der, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, time};
use super::keys::EcdsaKey;

/// The purpose "code signing" (RFC 5280), as an object identifier in DER.
pub(super) const CODE_SIGNING: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 3];

/// The extension with the uses of a key, as an object identifier in DER.
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];

/// The extension with the purposes of a certificate, as an object identifier in DER.
const PURPOSES: &[u8] = &[0x55, 0x1d, 0x25];

/// The algorithms by which certificates may be signed.
pub(super) const ALGORITHMS: &[&dyn SignatureVerificationAlgorithm] = &[
    algorithms::ECDSA_P256_SHA256,
    algorithms::ECDSA_P256_SHA384,
    algorithms::ECDSA_P384_SHA256,
    algorithms::ECDSA_P384_SHA384,
    algorithms::ED25519,
    algorithms::RSA_PKCS1_2048_8192_SHA256,
    algorithms::RSA_PKCS1_2048_8192_SHA384,
    algorithms::RSA_PKCS1_2048_8192_SHA512,
];

/// A certificate in DER.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Certificate(Vec<u8>);

impl Certificate {
    /// Reads the certificates of a PEM file.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the file has no certificate, or anything else.
    pub fn from_file(contents: &[u8]) -> Result<Vec<Self>> {
        const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
        const END: &str = "-----END CERTIFICATE-----";
        let wrong = || {
            Status::invalid_argument(
                "expected certificates in a PEM file (`BEGIN CERTIFICATE`), found other contents",
            )
        };
        let mut left = str::from_utf8(contents).unwrap_or_default().trim();
        let mut certificates = Vec::new();
        while !left.is_empty() {
            let inner = left
                .strip_prefix(BEGIN)
                .and_then(|text| text.split_once(END));
            let (inner, rest) = inner.ok_or_else(wrong)?;
            let text: String = inner.split_ascii_whitespace().collect();
            let der = STANDARD.decode(text).map_err(|_| wrong())?;
            certificates.push(Self::from_der(der).ok_or_else(wrong)?);
            left = rest.trim_start();
        }
        if certificates.is_empty() {
            return Err(wrong());
        }
        Ok(certificates)
    }

    /// A certificate in DER. `None` if it is malformed, or older than version 3.
    pub(crate) fn from_der(der: Vec<u8>) -> Option<Self> {
        let certificate = CertificateDer::from(&der[..]);
        let is_read = EndEntityCert::try_from(&certificate).is_ok();
        is_read.then_some(Self(der))
    }

    pub(crate) fn der(&self) -> &[u8] {
        &self.0
    }

    /// The certificate's key, a SubjectPublicKeyInfo in DER.
    pub(crate) fn key(&self) -> Vec<u8> {
        let certificate = CertificateDer::from(self.der());
        EndEntityCert::try_from(&certificate)
            .map(|certificate| certificate.subject_public_key_info().to_vec())
            .unwrap_or_default()
    }

    /// The key of the first certificate of a chain, if this authority vouches for it.
    ///
    /// The chain is checked at the time from which its first certificate is valid: a bundle does
    /// not prove when it was signed.
    ///
    /// # Errors
    /// The reason.
    pub(crate) fn signer_of(&self, chain: &[Self]) -> Result<EcdsaKey, String> {
        let authority = CertificateDer::from(self.der());
        let anchor = anchor_from_trusted_cert(&authority).map_err(|error| error.to_string())?;
        let [signer, between @ ..] = chain else {
            return Err("the bundle has no certificate".to_owned());
        };
        let key = EcdsaKey::from_der(&signer.key());
        let key = key.ok_or("its certificate has no key of ECDSA on P-256 or P-384")?;
        let facts = Facts::of(signer.der()).ok_or("its certificate is malformed")?;
        if !facts.signs {
            return Err("its certificate is not for signatures".to_owned());
        }
        let between: Vec<_> = between.iter().map(|one| one.der().into()).collect();
        let signer = CertificateDer::from(signer.der());
        let signer = EndEntityCert::try_from(&signer).map_err(|error| error.to_string())?;
        let anchors = [anchor];
        let checked = signer.verify_for_usage(
            ALGORITHMS,
            &anchors,
            &between,
            UnixTime::since_unix_epoch(facts.start),
            KeyUsage::required_if_present(CODE_SIGNING),
            None,
            None,
        );
        checked
            .map(|_| key)
            .map_err(|error| format!("its certificate is not valid for it: {error}"))
    }
}

impl fmt::Display for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = Sha256::digest(&self.0);
        write!(f, "the certificate sha256:{}", hex::encode(digest))
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// What `webpki` does not tell of a certificate.
struct Facts {
    /// The time from which the certificate is valid, since 1970.
    start: Duration,
    /// Whether its key is for signatures, or it is for code signing.
    signs: bool,
}

impl Facts {
    fn of(der: &[u8]) -> Option<Self> {
        let mut certificate = Der(Der(der).value(SEQUENCE)?);
        let mut fields = Der(certificate.value(SEQUENCE)?);
        let mut found = Self {
            start: Duration::ZERO,
            signs: false,
        };
        // The version, the serial number, the algorithm and the issuer.
        for _ in 0..4 {
            fields.next()?;
        }
        let (kind, start) = Der(fields.value(SEQUENCE)?).next()?;
        found.start = time(kind, start)?;
        while let Some((tag, value)) = fields.next() {
            // Context-specific tag 3: the extensions.
            if tag != 0xa3 {
                continue;
            }
            let mut extensions = Der(Der(value).value(SEQUENCE)?);
            while let Some((SEQUENCE, extension)) = extensions.next() {
                found.signs |= signs(Der(extension))?;
            }
        }
        Some(found)
    }
}

/// Whether an extension says that a certificate's key is for signatures.
fn signs(mut extension: Der<'_>) -> Option<bool> {
    let name = extension.value(OBJECT_IDENTIFIER)?;
    let mut next = extension.next()?;
    if next.0 != OCTET_STRING {
        // Whether the extension is critical.
        next = extension.next()?;
    }
    match name {
        // The first bit, after the number of unused bits: digital signatures.
        KEY_USAGE => {
            let bits = Der(next.1).value(BIT_STRING)?;
            Some(bits.get(1).is_some_and(|bits| bits & 0x80 != 0))
        }
        PURPOSES => {
            let mut purposes = Der(Der(next.1).value(SEQUENCE)?);
            while let Some((_, purpose)) = purposes.next() {
                if purpose == CODE_SIGNING {
                    return Some(true);
                }
            }
            Some(false)
        }
        _ => Some(false),
    }
}
