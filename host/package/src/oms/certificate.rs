//! Certificates of those who sign bundles.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callbox_core::values::{Result, Status};
use rustls_pki_types::{CertificateDer, SignatureVerificationAlgorithm, UnixTime};
use sha2::{Digest, Sha256};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert, ring as algorithms};

use super::keys::EcdsaKey;

/// The purpose "code signing" (RFC 5280), as an object identifier in DER.
const CODE_SIGNING: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 3];

/// The extension with the uses of a key, as an object identifier in DER.
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];

/// The extension with the purposes of a certificate, as an object identifier in DER.
const PURPOSES: &[u8] = &[0x55, 0x1d, 0x25];

const BIT_STRING: u8 = 0x03;
const OBJECT_IDENTIFIER: u8 = 0x06;
const OCTET_STRING: u8 = 0x04;
const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The algorithms by which certificates may be signed.
const ALGORITHMS: &[&dyn SignatureVerificationAlgorithm] = &[
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

/// The rest of some DER.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The tag and the value of the next element.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let [tag, length, rest @ ..] = self.0 else {
            return None;
        };
        let (length, rest) = if *length < 0x80 {
            (usize::from(*length), rest)
        } else {
            let digits = usize::from(length & 0x7f);
            let (digits, rest) = rest.split_at_checked(digits)?;
            if digits.len() > 3 {
                return None;
            }
            let length = digits
                .iter()
                .fold(0, |sum, &digit| sum << 8 | usize::from(digit));
            (length, rest)
        };
        let (value, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*tag, value))
    }

    /// The value of the next element, if it has this tag.
    fn value(&mut self, expected: u8) -> Option<&'a [u8]> {
        let (tag, value) = self.next()?;
        (tag == expected).then_some(value)
    }
}

/// A time in UTC, `YYMMDDHHMMSSZ` or with four digits of the year, since 1970.
fn time(kind: u8, text: &[u8]) -> Option<Duration> {
    let text = str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let years = match kind {
        UTC_TIME => 2,
        GENERALIZED_TIME => 4,
        _ => return None,
    };
    if !is_digits || text.len() != years + 10 {
        return None;
    }
    let number = |at: usize| text[at..at + 2].parse::<u64>().ok();
    let year = match (kind, text[..years].parse::<u64>().ok()?) {
        (UTC_TIME, year) if year < 50 => 2000 + year,
        (UTC_TIME, year) => 1900 + year,
        (_, year) => year,
    };
    let (month, day) = (number(years)?, number(years + 2)?);
    // Days since 1 March of the year 0, so that a leap day is the last of its year.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year.checked_sub(1)?, month + 9)
    };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day;
    let days = days.checked_sub(719_469)?;
    let (hours, minutes, seconds) = (number(years + 4)?, number(years + 6)?, number(years + 8)?);
    Some(Duration::from_secs(
        days * 86400 + hours * 3600 + minutes * 60 + seconds,
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{GENERALIZED_TIME, UTC_TIME, time};

    #[test]
    fn times_are_counted_since_1970() {
        for (kind, text, expected) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "000229235959Z", Some(951_868_799)),
            (UTC_TIME, "261123185838Z", Some(1_795_460_318)),
            (GENERALIZED_TIME, "20261123185838Z", Some(1_795_460_318)),
            (GENERALIZED_TIME, "21000301000000Z", Some(4_107_542_400)),
            (UTC_TIME, "690101000000Z", None),
            (UTC_TIME, "20261123185838Z", None),
            (UTC_TIME, "26112318583Z", None),
            (UTC_TIME, "261123185838+", None),
            (GENERALIZED_TIME, "00000101000000Z", None),
        ] {
            let expected = expected.map(Duration::from_secs);
            assert_eq!(time(kind, text.as_bytes()), expected, "{text}");
        }
    }
}
