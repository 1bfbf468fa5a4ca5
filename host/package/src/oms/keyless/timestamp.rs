//! Timestamps of authorities (RFC 3161): a signed statement that a signature existed at a time.
//!
//! A token is a message of CMS (RFC 5652) with one signer, whose certificate is the first one of an
//! authority of the [`TrustedRoot`]. Certificates in the token do not count.

use std::time::Duration;

use rustls_pki_types::{CertificateDer, UnixTime};
use sha2::{Digest, Sha256, Sha384, Sha512};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use super::super::certificate::ALGORITHMS;
use super::super::der::{
    Der, GENERALIZED_TIME, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, element, time,
};
use super::root::{Authority, TrustedRoot};

const INTEGER: u8 = 0x02;
const SET: u8 = 0x31;

const MALFORMED: &str = "its timestamp (RFC 3161) is malformed, or of a kind that is not supported";

/// Context-specific tag 0, constructed.
const TAG_0: u8 = 0xa0;

/// Object identifiers in DER: the type of signed messages of CMS, and the one of timestamps.
const SIGNED_DATA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 2];
const TIMESTAMP: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 16, 1, 4];

/// Attributes of signers: the type and the digest of the message, and the signer's certificate.
const CONTENT_TYPE: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 3];
const MESSAGE_DIGEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 4];
const CERTIFICATE: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 16, 2, 47];

/// The hash algorithms SHA-256, SHA-384 and SHA-512, up to the last byte.
const SHA2: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2];

/// The purpose "time stamping" (RFC 5280).
const TIME_STAMPING: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 8];

/// What a token says, and the signature of it.
struct Token<'a> {
    /// The digest of what was stamped.
    imprint: Hashed<'a>,
    time: Duration,
    /// What the signer signed, in DER.
    attributes: Vec<u8>,
    signature: &'a [u8],
    /// The digest of the signer's certificate.
    certificate: Hashed<'a>,
}

/// A digest and its algorithm.
struct Hashed<'a> {
    algorithm: Hash,
    digest: &'a [u8],
}

#[derive(Clone, Copy)]
enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

/// The time at which an authority of the root stamped a signature.
///
/// # Errors
/// The reason why the token does not prove it.
pub(super) fn time_of(
    root: &TrustedRoot,
    response: &[u8],
    signature: &[u8],
) -> Result<Duration, String> {
    let token = Token::read(response).ok_or(MALFORMED)?;
    if !token.imprint.is_of(signature) {
        return Err("its timestamp is of another signature".to_owned());
    }
    let mut reason = "its timestamp is of no authority of the trusted root".to_owned();
    for authority in &root.timestamp_authorities {
        match token.check(authority) {
            Ok(()) => return Ok(token.time),
            Err(Some(error)) => reason = error,
            Err(None) => {}
        }
    }
    Err(reason)
}

impl<'a> Token<'a> {
    /// Reads the response of an authority.
    fn read(response: &'a [u8]) -> Option<Self> {
        let mut response = only(response, SEQUENCE)?;
        let mut status = Der(response.value(SEQUENCE)?);
        // Granted, or granted with changes.
        if !matches!(status.value(INTEGER)?, [0 | 1]) {
            return None;
        }
        let mut token = Der(response.value(SEQUENCE)?);
        if token.value(OBJECT_IDENTIFIER)? != SIGNED_DATA {
            return None;
        }
        let mut signed = only(token.value(TAG_0)?, SEQUENCE)?;
        signed.value(INTEGER)?;
        signed.value(SET)?;
        let mut content = Der(signed.value(SEQUENCE)?);
        if content.value(OBJECT_IDENTIFIER)? != TIMESTAMP {
            return None;
        }
        let content = Der(content.value(TAG_0)?).value(OCTET_STRING)?;
        // Certificates and revocation lists come before the signers.
        let signers = loop {
            match signed.next()? {
                (SET, signers) => break signers,
                (0xa0 | 0xa1, _) => {}
                _ => return None,
            }
        };
        let signer = only(signers, SEQUENCE)?;
        let (imprint, time) = statement(content)?;
        Self::signed(signer, content, imprint, time)
    }

    /// Reads the part of the only signer, whose attributes must be of this content.
    fn signed(
        mut signer: Der<'a>,
        content: &[u8],
        imprint: Hashed<'a>,
        time: Duration,
    ) -> Option<Self> {
        signer.value(INTEGER)?;
        // The name of the signer.
        signer.next()?;
        let algorithm = Hash::read(signer.value(SEQUENCE)?)?;
        let attributes = signer.value(TAG_0)?;
        signer.value(SEQUENCE)?;
        let signature = signer.value(OCTET_STRING)?;
        let kind = attribute(attributes, CONTENT_TYPE)?;
        if Der(kind).value(OBJECT_IDENTIFIER)? != TIMESTAMP {
            return None;
        }
        let digest = Der(attribute(attributes, MESSAGE_DIGEST)?).value(OCTET_STRING)?;
        if !(Hashed { algorithm, digest }).is_of(content) {
            return None;
        }
        // The first of the certificates is the one of the signer (RFC 5816).
        let certificates = Der(attribute(attributes, CERTIFICATE)?).value(SEQUENCE)?;
        let all = Der(certificates).value(SEQUENCE)?;
        let mut first = Der(Der(all).value(SEQUENCE)?);
        let (algorithm, digest) = match first.next()? {
            (SEQUENCE, algorithm) => (Hash::read(algorithm)?, first.value(OCTET_STRING)?),
            (OCTET_STRING, digest) => (Hash::Sha256, digest),
            _ => return None,
        };
        Some(Self {
            imprint,
            time,
            // They are signed with their own tag (RFC 5652, section 5.4).
            attributes: element(SET, attributes),
            signature,
            certificate: Hashed { algorithm, digest },
        })
    }

    /// Checks that an authority signed the token, when both its certificates and it were valid. The
    /// error is `None` for a token of another authority.
    fn check(&self, authority: &Authority) -> Result<(), Option<String>> {
        let Some((first, [between @ .., top])) = authority.chain.split_first() else {
            return Err(None);
        };
        if !self.certificate.is_of(first.der()) {
            return Err(None);
        }
        let wrong = |error: webpki::Error| {
            Some(format!(
                "the certificate of its timestamp's authority is not valid for it: {error}"
            ))
        };
        if !authority.is_valid_at(self.time) {
            let message = "the authority of its timestamp was not valid at that time";
            return Err(Some(message.to_owned()));
        }
        let anchor = CertificateDer::from(top.der());
        let anchors = [anchor_from_trusted_cert(&anchor).map_err(wrong)?];
        let between: Vec<_> = between.iter().map(|one| one.der().into()).collect();
        let der = CertificateDer::from(first.der());
        let signer = EndEntityCert::try_from(&der).map_err(wrong)?;
        let checked = signer.verify_for_usage(
            ALGORITHMS,
            &anchors,
            &between,
            UnixTime::since_unix_epoch(self.time),
            KeyUsage::required(TIME_STAMPING),
            None,
            None,
        );
        checked.map_err(wrong)?;
        let mut algorithms = ALGORITHMS.iter();
        let is_signed = algorithms.any(|algorithm| {
            let signed = signer.verify_signature(*algorithm, &self.attributes, self.signature);
            signed.is_ok()
        });
        if is_signed {
            return Ok(());
        }
        Err(Some("its authority did not sign its timestamp".to_owned()))
    }
}

impl Hashed<'_> {
    fn is_of(&self, bytes: &[u8]) -> bool {
        match self.algorithm {
            Hash::Sha256 => Sha256::digest(bytes)[..] == *self.digest,
            Hash::Sha384 => Sha384::digest(bytes)[..] == *self.digest,
            Hash::Sha512 => Sha512::digest(bytes)[..] == *self.digest,
        }
    }
}

impl Hash {
    /// Reads the identifier of an algorithm.
    fn read(identifier: &[u8]) -> Option<Self> {
        let found = Der(identifier).value(OBJECT_IDENTIFIER)?;
        match found.strip_prefix(SHA2)? {
            [1] => Some(Self::Sha256),
            [2] => Some(Self::Sha384),
            [3] => Some(Self::Sha512),
            _ => None,
        }
    }
}

/// The digest and the time that a token states.
fn statement(content: &[u8]) -> Option<(Hashed<'_>, Duration)> {
    let mut fields = only(content, SEQUENCE)?;
    if fields.value(INTEGER)? != [1] {
        return None;
    }
    // The policy of the authority.
    fields.value(OBJECT_IDENTIFIER)?;
    let mut imprint = Der(fields.value(SEQUENCE)?);
    let imprint = Hashed {
        algorithm: Hash::read(imprint.value(SEQUENCE)?)?,
        digest: imprint.value(OCTET_STRING)?,
    };
    // The serial number.
    fields.value(INTEGER)?;
    let stamped = str::from_utf8(fields.value(GENERALIZED_TIME)?).ok()?;
    // Parts of seconds do not count.
    let seconds = match stamped.split_once('.') {
        Some((seconds, part)) => {
            let part = part.strip_suffix('Z')?;
            let is_part = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            is_part.then(|| format!("{seconds}Z"))?
        }
        None => stamped.to_owned(),
    };
    Some((imprint, time(GENERALIZED_TIME, seconds.as_bytes())?))
}

/// The only value of an attribute that occurs once.
fn attribute<'a>(attributes: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut attributes = Der(attributes);
    let mut found = None;
    while !attributes.0.is_empty() {
        let mut attribute = Der(attributes.value(SEQUENCE)?);
        if attribute.value(OBJECT_IDENTIFIER)? == name {
            let value = attribute.value(SET)?;
            let mut values = Der(value);
            values.next()?;
            if found.is_some() || !values.0.is_empty() {
                return None;
            }
            found = Some(value);
        }
    }
    found
}

/// The contents of the only element of some DER.
fn only(der: &[u8], tag: u8) -> Option<Der<'_>> {
    let mut der = Der(der);
    let value = der.value(tag)?;
    der.0.is_empty().then_some(Der(value))
}
