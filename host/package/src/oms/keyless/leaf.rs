//! The certificate of a keyless signer: its names, and the proof that a log of certificates saw it.

use std::time::Duration;

use callbox_core::untrusted_text::shown_name;

use super::super::der::{Der, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, element};
use super::root::{TrustedRoot, Validity};
use super::sha256;

/// The names of a certificate's subject (RFC 5280), as an object identifier in DER.
const SUBJECT_NAMES: &[u8] = &[0x55, 0x1d, 0x11];

/// The timestamps of logs of certificates (RFC 6962): 1.3.6.1.4.1.11129.2.4.2.
const TIMESTAMPS: &[u8] = &[0x2b, 6, 1, 4, 1, 0xd6, 0x79, 2, 4, 2];

/// The OpenID provider, as plain text: 1.3.6.1.4.1.57264.1.1.
const ISSUER_TEXT: &[u8] = &[0x2b, 6, 1, 4, 1, 0x83, 0xbf, 0x30, 1, 1];

/// The OpenID provider, as a string in DER: 1.3.6.1.4.1.57264.1.8.
const ISSUER: &[u8] = &[0x2b, 6, 1, 4, 1, 0x83, 0xbf, 0x30, 1, 8];

const UTF8_STRING: u8 = 0x0c;

/// The tags of names that are email addresses and URIs.
const EMAIL: u8 = 0x81;
const URI: u8 = 0x86;

/// The tag of the extensions.
const EXTENSIONS: u8 = 0xa3;

/// SHA-256 and ECDSA, as TLS 1.2 numbers them.
const ECDSA_SHA256: [u8; 2] = [4, 3];

/// What a certificate says that `webpki` does not tell.
pub(super) struct Leaf {
    validity: Validity,
    /// The names, each an email address or a URI. `None` stands for a name of another kind.
    names: Vec<Option<String>>,
    /// The provider, once or twice.
    issuers: Vec<String>,
    timestamps: Vec<Timestamp>,
    /// The part of the certificate that is signed, without the timestamps.
    unstamped: Vec<u8>,
}

/// The signature of a log that saw a certificate, a "signed certificate timestamp".
struct Timestamp {
    log: [u8; 32],
    milliseconds: u64,
    extensions: Vec<u8>,
    algorithm: [u8; 2],
    signature: Vec<u8>,
}

impl Leaf {
    /// Reads a certificate. `None` if it is malformed.
    pub(super) fn of(der: &[u8]) -> Option<Self> {
        let mut certificate = Der(Der(der).value(SEQUENCE)?);
        let mut fields = Der(certificate.value(SEQUENCE)?);
        let mut unstamped = Vec::new();
        // The version, the serial number, the algorithm and the issuer.
        for _ in 0..4 {
            unstamped.extend(fields.whole()?.1);
        }
        let (_, validity) = fields.whole()?;
        unstamped.extend(validity);
        let mut leaf = Self {
            validity: Validity::of_field(Der(validity).value(SEQUENCE)?)?,
            names: Vec::new(),
            issuers: Vec::new(),
            timestamps: Vec::new(),
            unstamped: Vec::new(),
        };
        while let Some((tag, field)) = fields.whole() {
            if tag == EXTENSIONS {
                let kept = leaf.read_extensions(Der(field).value(EXTENSIONS)?)?;
                let kept = element(SEQUENCE, &kept);
                unstamped.extend(element(EXTENSIONS, &kept));
            } else {
                unstamped.extend(field);
            }
        }
        leaf.unstamped = element(SEQUENCE, &unstamped);
        fields.0.is_empty().then_some(leaf)
    }

    /// Reads the extensions, and returns all but the timestamps.
    fn read_extensions(&mut self, field: &[u8]) -> Option<Vec<u8>> {
        let mut extensions = Der(Der(field).value(SEQUENCE)?);
        let mut kept = Vec::new();
        while !extensions.0.is_empty() {
            let (_, whole) = extensions.whole()?;
            let mut extension = Der(Der(whole).value(SEQUENCE)?);
            let kind = extension.value(OBJECT_IDENTIFIER)?;
            let mut next = extension.next()?;
            if next.0 != OCTET_STRING {
                // Whether the extension is critical.
                next = extension.next()?;
            }
            let value = next.1;
            match kind {
                TIMESTAMPS if self.timestamps.is_empty() => {
                    self.timestamps = timestamps(Der(value).value(OCTET_STRING)?)?;
                    continue;
                }
                TIMESTAMPS => return None,
                SUBJECT_NAMES => self.read_names(value)?,
                ISSUER_TEXT => self.issuers.push(text(value)?),
                ISSUER => self.issuers.push(text(Der(value).value(UTF8_STRING)?)?),
                _ => {}
            }
            kept.extend(whole);
        }
        Some(kept)
    }

    fn read_names(&mut self, value: &[u8]) -> Option<()> {
        let mut names = Der(Der(value).value(SEQUENCE)?);
        while !names.0.is_empty() {
            let (tag, name) = names.next()?;
            let is_text = matches!(tag, EMAIL | URI);
            self.names
                .push(if is_text { Some(text(name)?) } else { None });
        }
        Some(())
    }

    pub(super) fn is_valid_at(&self, time: Duration) -> bool {
        self.validity.has(time)
    }

    /// The one name, an email address or a URI.
    pub(super) fn name(&self) -> Option<&str> {
        match &self.names[..] {
            [Some(name)] => Some(name),
            _ => None,
        }
    }

    /// The provider. `None` if there is none, or the certificate contradicts itself.
    pub(super) fn issuer(&self) -> Option<&str> {
        let (first, rest) = self.issuers.split_first()?;
        rest.iter().all(|other| other == first).then_some(first)
    }

    /// Checks the names.
    ///
    /// # Errors
    /// The reason.
    pub(super) fn check_names(&self, name: &str, issuer: &str) -> Result<(), String> {
        let found = self.name();
        let found = found.ok_or("its certificate does not name one email address or URI")?;
        if found != name {
            let found = shown_name(found);
            return Err(format!("its certificate is of another identity, {found}"));
        }
        let found = self.issuer();
        let found = found.ok_or("its certificate does not name one issuer")?;
        if found != issuer {
            let found = shown_name(found);
            return Err(format!("its identity is by another issuer, {found}"));
        }
        Ok(())
    }

    /// Checks that a log of the root saw the certificate. `issuer` is the key of who issued it.
    ///
    /// # Errors
    /// The reason.
    pub(super) fn check_seen(&self, root: &TrustedRoot, issuer: &[u8]) -> Result<(), String> {
        if self.timestamps.is_empty() {
            return Err("its certificate has no timestamp of a log of certificates".to_owned());
        }
        let is_seen = |timestamp: &Timestamp| {
            let message = timestamp.message(&self.unstamped, issuer);
            let time = Duration::from_millis(timestamp.milliseconds);
            let mut logs = root.certificate_logs.iter();
            message.is_some_and(|message| {
                logs.any(|log| {
                    log.id == timestamp.log
                        && log.is_valid_at(time)
                        && timestamp.algorithm == ECDSA_SHA256
                        && log.key.has_signed(&message, &timestamp.signature)
                })
            })
        };
        if self.timestamps.iter().any(is_seen) {
            return Ok(());
        }
        Err("no log of certificates of the trusted root has seen its certificate".to_owned())
    }
}

impl Timestamp {
    /// What the log signed: that it saw a certificate before its issuer signed it.
    fn message(&self, unstamped: &[u8], issuer: &[u8]) -> Option<Vec<u8>> {
        let length = u32::try_from(unstamped.len()).ok()?.to_be_bytes();
        // Version 1, a timestamp of a certificate, and the type "precertificate".
        let mut message = vec![0, 0];
        message.extend(self.milliseconds.to_be_bytes());
        message.extend([0, 1]);
        message.extend(sha256(issuer));
        message.extend(length[0].eq(&0).then_some(&length[1..])?);
        message.extend(unstamped);
        message.extend(u16::try_from(self.extensions.len()).ok()?.to_be_bytes());
        message.extend(&self.extensions);
        Some(message)
    }
}

/// A list of timestamps (RFC 6962, section 3.3). Those of other versions are left out.
fn timestamps(list: &[u8]) -> Option<Vec<Timestamp>> {
    let mut all = TlsReader(list);
    let mut list = TlsReader(all.counted()?);
    let mut found = Vec::new();
    while !list.0.is_empty() {
        let mut one = TlsReader(list.counted()?);
        if one.take::<1>()? != [0] {
            continue;
        }
        found.push(Timestamp {
            log: one.take()?,
            milliseconds: u64::from_be_bytes(one.take()?),
            extensions: one.counted()?.to_vec(),
            algorithm: one.take()?,
            signature: one.counted()?.to_vec(),
        });
        one.is_at_end()?;
    }
    all.is_at_end()?;
    Some(found)
}

/// The rest of a structure in the encoding of TLS.
struct TlsReader<'a>(&'a [u8]);

impl<'a> TlsReader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    /// Bytes after their number, of two bytes.
    fn counted(&mut self) -> Option<&'a [u8]> {
        let length = u16::from_be_bytes(self.take()?);
        let (taken, rest) = self.0.split_at_checked(length.into())?;
        self.0 = rest;
        Some(taken)
    }

    fn is_at_end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

fn text(bytes: &[u8]) -> Option<String> {
    str::from_utf8(bytes).ok().map(str::to_owned)
}
