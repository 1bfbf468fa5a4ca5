//! Keys of Ed25519, as text and in files.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callbox_core::untrusted_text::shown_name;
use callbox_core::values::{Result, Status};
use ed25519_compact::{KeyPair, Seed, Signature};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The beginning of a public key as text.
const PREFIX: &str = "ed25519:";

/// The DER of a public key, before its 32 bytes (RFC 8410).
const PUBLIC_DER: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

/// The DER of a secret key, before its 32 bytes (RFC 8410).
const SECRET_DER: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// A public key. Its text is `ed25519:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublicKey([u8; 32]);

/// A secret key, which signs. It is wiped from memory when it is dropped.
pub struct SecretKey(KeyPair);

impl PublicKey {
    /// The key with these bytes.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if no secret key belongs to the bytes, or a weak one.
    pub fn from_bytes(bytes: [u8; 32]) -> Result<Self> {
        let checked = ed25519_compact::PublicKey::new(bytes).validate();
        checked.map(|()| Self(bytes)).map_err(|_| {
            Status::invalid_argument("expected a public key of Ed25519, found other bytes")
        })
    }

    /// Reads a file with a public key: PEM, as `openssl pkey -pubout` writes it, the 33 bytes of
    /// the WebAssembly conventions, or the key's text.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the file is none of these.
    pub fn from_file(contents: &[u8]) -> Result<Self> {
        if let [0x01, key @ ..] = contents
            && let Ok(key) = key.try_into()
        {
            return Self::from_bytes(key);
        }
        match str::from_utf8(contents).map(str::trim) {
            Ok(text) if text.starts_with(PREFIX) => text.parse(),
            Ok(text) => match pem(text, "PUBLIC KEY").as_deref().and_then(public_of_der) {
                Some(key) => Self::from_bytes(key),
                None => Err(not_a_key("public", "PUBLIC KEY")),
            },
            Err(_) => Err(not_a_key("public", "PUBLIC KEY")),
        }
    }

    /// The bytes of the key.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 32] {
        self.0
    }

    /// The identifier that `wasmsign2` gives this key: the start of an HMAC.
    pub(crate) fn short_id(&self) -> [u8; 12] {
        let mut id = [0; 12];
        // A key of any length is valid for HMAC.
        if let Ok(mac) = Hmac::<Sha256>::new_from_slice(&self.0) {
            let mac = mac.chain_update(b"key_id").finalize().into_bytes();
            id.copy_from_slice(&mac[..12]);
        }
        id
    }

    /// The key as a SubjectPublicKeyInfo in DER.
    pub(crate) fn to_der(self) -> Vec<u8> {
        [&PUBLIC_DER[..], &self.0].concat()
    }

    /// Whether `signature` is this key's signature of `message`.
    pub(crate) fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let Ok(signature) = Signature::from_slice(signature) else {
            return false;
        };
        let key = ed25519_compact::PublicKey::new(self.0);
        key.verify(message, &signature).is_ok()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", hex::encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for PublicKey {
    type Err = Status;

    fn from_str(text: &str) -> Result<Self> {
        let mut bytes = [0; 32];
        let digits = text.strip_prefix(PREFIX).unwrap_or_default();
        hex::decode_to_slice(digits, &mut bytes).map_err(|_| {
            Status::invalid_argument(format!(
                "expected a public key such as {PREFIX} and 64 hexadecimal digits, found \"{}\"",
                shown_name(text)
            ))
        })?;
        Self::from_bytes(bytes)
    }
}

impl SecretKey {
    /// The key with this seed.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the seed has only zeros.
    pub fn from_bytes(seed: &[u8; 32]) -> Result<Self> {
        let pair = KeyPair::try_from_seed(Seed::new(*seed));
        let pair = pair.map_err(|_| {
            Status::invalid_argument("expected a secret key of Ed25519, found only zeros")
        });
        Ok(Self(pair?))
    }

    /// Reads a file with a secret key: PEM, as `openssl genpkey -algorithm ed25519` writes it, or
    /// the 65 bytes of the WebAssembly conventions.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the file is neither. The message quotes nothing of it.
    pub fn from_file(contents: &[u8]) -> Result<Self> {
        if let [0x81, seed_and_key @ ..] = contents
            && let Some((seed, public)) = seed_and_key.split_first_chunk()
        {
            let key = Self::from_bytes(seed)?;
            return if public == key.public().0 {
                Ok(key)
            } else {
                Err(Status::invalid_argument(
                    "expected a pair of keys of Ed25519, found keys that do not belong together",
                ))
            };
        }
        let text = str::from_utf8(contents).unwrap_or_default();
        let der = pem(text, "PRIVATE KEY");
        let seed = der.as_deref().and_then(|der| der.strip_prefix(&SECRET_DER));
        match seed.and_then(|seed| seed.try_into().ok()) {
            Some(seed) => Self::from_bytes(seed),
            None => Err(not_a_key("secret", "PRIVATE KEY")),
        }
    }

    /// The public key that belongs to this key.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(*self.0.pk)
    }

    /// The signature of a message.
    pub(crate) fn sign(&self, message: &[u8]) -> [u8; 64] {
        *self.0.sk.sign(message, None)
    }
}

impl fmt::Debug for SecretKey {
    /// Shows the public key alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey of {}", self.public())
    }
}

fn public_of_der(der: &[u8]) -> Option<[u8; 32]> {
    der.strip_prefix(&PUBLIC_DER)?.try_into().ok()
}

/// The contents of a PEM file with one object of this label.
pub(crate) fn pem(text: &str, label: &str) -> Option<Vec<u8>> {
    let text = text.trim().strip_prefix("-----BEGIN ")?;
    let text = text.strip_prefix(label)?.strip_prefix("-----")?;
    let text = text.strip_suffix("-----")?.strip_suffix(label)?;
    let text = text.strip_suffix("-----END ")?;
    let text: String = text.split_ascii_whitespace().collect();
    STANDARD.decode(text).ok()
}

fn not_a_key(kind: &str, label: &str) -> Status {
    Status::invalid_argument(format!(
        "expected a {kind} key of Ed25519 in a PEM file (`BEGIN {label}`), found other contents"
    ))
}
