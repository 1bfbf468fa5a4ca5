//! Keys of ECDSA, which sign bundles.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callbox_core::untrusted_text::shown_name;
use callbox_core::values::{Result, Status};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1,
    ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    EcdsaVerificationAlgorithm, KeyPair, UnparsedPublicKey,
};
use sha2::{Digest, Sha256};

use crate::keys::pem;

/// The DER of a public key on P-256, before its point (RFC 5480).
const P256_DER: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// The DER of a public key on P-384, before its point (RFC 5480).
const P384_DER: [u8; 23] = [
    0x30, 0x76, 0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b,
    0x81, 0x04, 0x00, 0x22, 0x03, 0x62, 0x00,
];

/// The object identifiers in the DER of public keys that cannot be used, and their algorithms.
const OTHERS: [(&[u8], &str); 5] = [
    (
        &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x23],
        "a key of ECDSA on P-521",
    ),
    (
        &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x0a],
        "a key of ECDSA on secp256k1",
    ),
    (
        &[
            0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01,
        ],
        "a key of RSA",
    ),
    (&[0x06, 0x03, 0x2b, 0x65, 0x70], "a key of Ed25519"),
    (&[0x06, 0x03, 0x2b, 0x65, 0x71], "a key of Ed448"),
];

/// The first byte of a point that is not compressed.
const UNCOMPRESSED: u8 = 4;

/// The curve of a key, each with the hash that model signing uses with it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Curve {
    P256,
    P384,
}

/// A public key of ECDSA on P-256 or P-384. Its text is `ecdsa-p256:` or `ecdsa-p384:` and the
/// point, not compressed, in hexadecimal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EcdsaKey {
    curve: Curve,
    point: Vec<u8>,
}

/// A secret key of ECDSA on P-256 or P-384.
pub struct EcdsaSecretKey {
    pair: EcdsaKeyPair,
    public: EcdsaKey,
}

impl Curve {
    const ALL: [Self; 2] = [Self::P256, Self::P384];

    fn prefix(self) -> &'static str {
        match self {
            Self::P256 => "ecdsa-p256:",
            Self::P384 => "ecdsa-p384:",
        }
    }

    fn der(self) -> &'static [u8] {
        match self {
            Self::P256 => &P256_DER,
            Self::P384 => &P384_DER,
        }
    }

    fn point_bytes(self) -> usize {
        match self {
            Self::P256 => 65,
            Self::P384 => 97,
        }
    }

    fn verifying(self) -> &'static EcdsaVerificationAlgorithm {
        match self {
            Self::P256 => &ECDSA_P256_SHA256_ASN1,
            Self::P384 => &ECDSA_P384_SHA384_ASN1,
        }
    }

    fn signing(self) -> &'static EcdsaSigningAlgorithm {
        match self {
            Self::P256 => &ECDSA_P256_SHA256_ASN1_SIGNING,
            Self::P384 => &ECDSA_P384_SHA384_ASN1_SIGNING,
        }
    }
}

/// What a public key in DER is instead, for a message.
pub(super) fn other_algorithm(der: &[u8]) -> Option<&'static str> {
    // The algorithm comes first.
    let start = &der[..der.len().min(32)];
    let mut others = OTHERS.into_iter();
    let is_there = |id: &[u8]| start.windows(id.len()).any(|part| part == id);
    others.find_map(|(id, name)| is_there(id).then_some(name))
}

impl EcdsaKey {
    /// Reads a file with a public key: PEM, as `openssl pkey -pubout` writes it, or the key's text.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the file is neither, or has a key of another algorithm or curve.
    pub fn from_file(contents: &[u8]) -> Result<Self> {
        let text = str::from_utf8(contents).unwrap_or_default().trim();
        if Curve::ALL
            .iter()
            .any(|curve| text.starts_with(curve.prefix()))
        {
            return text.parse();
        }
        let der = pem(text, "PUBLIC KEY").unwrap_or_default();
        Self::from_der(&der).ok_or_else(|| {
            Status::invalid_argument(format!(
                "expected a public key of ECDSA on P-256 or P-384 in a PEM file (`BEGIN PUBLIC \
                 KEY`), found {}",
                other_algorithm(&der).unwrap_or("other contents")
            ))
        })
    }

    /// The key of a SubjectPublicKeyInfo in DER.
    pub(crate) fn from_der(der: &[u8]) -> Option<Self> {
        let mut curves = Curve::ALL.into_iter();
        curves.find_map(|curve| Self::new(curve, der.strip_prefix(curve.der())?))
    }

    fn new(curve: Curve, point: &[u8]) -> Option<Self> {
        let is_point = point.len() == curve.point_bytes() && point[0] == UNCOMPRESSED;
        is_point.then(|| Self {
            curve,
            point: point.to_vec(),
        })
    }

    /// The key as a SubjectPublicKeyInfo in DER.
    pub(crate) fn to_der(&self) -> Vec<u8> {
        [self.curve.der(), &self.point].concat()
    }

    /// The name of the key in a bundle: SHA-256 of its PEM file, in hexadecimal.
    pub(crate) fn hint(&self) -> String {
        let text = STANDARD.encode(self.to_der());
        let mut digest = Sha256::new();
        digest.update("-----BEGIN PUBLIC KEY-----\n");
        for line in text.as_bytes().chunks(64) {
            digest.update(line);
            digest.update("\n");
        }
        digest.update("-----END PUBLIC KEY-----\n");
        hex::encode(digest.finalize())
    }

    /// Whether `signature`, in DER, is this key's signature of `message`.
    pub(crate) fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let key = UnparsedPublicKey::new(self.curve.verifying(), &self.point);
        key.verify(message, signature).is_ok()
    }
}

impl fmt::Display for EcdsaKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.curve.prefix(), hex::encode(&self.point))
    }
}

impl fmt::Debug for EcdsaKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for EcdsaKey {
    type Err = Status;

    fn from_str(text: &str) -> Result<Self> {
        let mut curves = Curve::ALL.into_iter();
        let key = curves.find_map(|curve| {
            let point = hex::decode(text.strip_prefix(curve.prefix())?).ok()?;
            Self::new(curve, &point)
        });
        key.ok_or_else(|| {
            Status::invalid_argument(format!(
                "expected a public key such as ecdsa-p256:04 and 128 hexadecimal digits, found \
                 \"{}\"",
                shown_name(text)
            ))
        })
    }
}

impl EcdsaSecretKey {
    /// Reads a file with a secret key: PEM, as `openssl genpkey -algorithm EC` writes it.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the file is none. The message quotes nothing of it.
    pub fn from_file(contents: &[u8]) -> Result<Self> {
        let text = str::from_utf8(contents).unwrap_or_default();
        let der = pem(text, "PRIVATE KEY").unwrap_or_default();
        let random = SystemRandom::new();
        let mut curves = Curve::ALL.into_iter();
        let key = curves.find_map(|curve| {
            let pair = EcdsaKeyPair::from_pkcs8(curve.signing(), &der, &random).ok()?;
            let public = EcdsaKey::new(curve, pair.public_key().as_ref())?;
            Some(Self { pair, public })
        });
        key.ok_or_else(|| {
            Status::invalid_argument(
                "expected a secret key of ECDSA on P-256 or P-384 in a PEM file (`BEGIN PRIVATE \
                 KEY`), found other contents",
            )
        })
    }

    /// The public key that belongs to this key.
    #[must_use]
    pub fn public(&self) -> &EcdsaKey {
        &self.public
    }

    /// The signature of a message, in DER.
    pub(crate) fn sign(&self, message: &[u8]) -> Result<Vec<u8>> {
        let signature = self.pair.sign(&SystemRandom::new(), message);
        let signature = signature
            .map_err(|_| Status::internal("the system gave no random bytes for a signature"))?;
        Ok(signature.as_ref().to_vec())
    }
}

impl fmt::Debug for EcdsaSecretKey {
    /// Shows the public key alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EcdsaSecretKey of {}", self.public)
    }
}
