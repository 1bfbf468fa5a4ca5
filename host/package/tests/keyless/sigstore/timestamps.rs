//! The timestamps of an authority (RFC 3161 and RFC 5652).

use super::der::{ECDSA_SHA256, YEARS, authority, der, name, signed, tbs};
use super::{Sigstore, sha256};

/// What a timestamp authority signs.
#[derive(Clone)]
pub(crate) struct Stamp {
    pub(crate) time: &'static str,
    /// Whether the authority's certificate is for servers.
    pub(crate) is_for_servers: bool,
    /// Whether it is of another signature.
    pub(crate) is_of_other: bool,
    /// Whether another key signs it.
    pub(crate) has_other_key: bool,
    /// Whether its attributes are of other contents.
    pub(crate) has_other_contents: bool,
    /// Whether it names another certificate.
    pub(crate) has_other_certificate: bool,
}

impl Default for Stamp {
    fn default() -> Self {
        Self {
            // The same as `TIME`.
            time: "20260102000500Z",
            is_for_servers: false,
            is_of_other: false,
            has_other_key: false,
            has_other_contents: false,
            has_other_certificate: false,
        }
    }
}

impl Sigstore {
    pub(super) fn stamper_root_certificate(&self) -> Vec<u8> {
        let name = name("stamper root");
        let tbs = tbs(&name, YEARS, &name, &self.stamper_root, &[authority()]);
        signed(&tbs, &self.stamper_root)
    }

    /// The certificate of the key that signs timestamps, for that or for servers.
    pub(crate) fn stamper_certificate(&self, is_for_servers: bool) -> &[u8] {
        &self.stamper_certificates[usize::from(is_for_servers)]
    }

    /// The response of the timestamp authority (RFC 3161 and RFC 5652).
    pub(super) fn timestamp(&self, stamp: &Stamp, signature: &[u8]) -> Vec<u8> {
        let sha2 = der(0x30, &der(6, &hex::decode("608648016503040201").unwrap()));
        let oid = |text: &str| der(6, &hex::decode(text).unwrap());
        let stamped = if stamp.is_of_other {
            b"other"
        } else {
            signature
        };
        let imprint = [sha2.clone(), der(4, &sha256(stamped))].concat();
        let contents = [
            vec![2, 1, 1],
            oid("2a0304"),
            der(0x30, &imprint),
            vec![2, 1, 7],
            der(0x18, stamp.time.as_bytes()),
            // The accuracy of a second, and a nonce.
            der(0x30, &[2, 1, 1]),
            vec![2, 2, 1, 2],
        ];
        let contents = der(0x30, &contents.concat());
        let kind = oid("2a864886f70d0109100104");
        let attribute =
            |name: &str, value: &[u8]| der(0x30, &[oid(name), der(0x31, value)].concat());
        let certificate = if stamp.has_other_certificate {
            self.stamper_root_certificate()
        } else {
            self.stamper_certificate(stamp.is_for_servers).to_vec()
        };
        let digested = if stamp.has_other_contents {
            b"other"
        } else {
            &contents[..]
        };
        let named = der(0x30, &der(0x30, &der(0x30, &der(4, &sha256(&certificate)))));
        let attributes = [
            attribute("2a864886f70d010903", &kind),
            attribute("2a864886f70d010904", &der(4, &sha256(digested))),
            attribute("2a864886f70d010910022f", &named),
        ];
        let attributes = attributes.concat();
        let key = if stamp.has_other_key {
            &self.log
        } else {
            &self.stamper
        };
        let serial = [&[1], &self.stamper.id()[..8]].concat();
        let signer = [
            vec![2, 1, 1],
            der(0x30, &[name("stamper root"), der(2, &serial)].concat()),
            sha2.clone(),
            der(0xa0, &attributes),
            ECDSA_SHA256.to_vec(),
            der(4, &key.sign(&der(0x31, &attributes))),
        ];
        let message = [
            vec![2, 1, 3],
            der(0x31, &sha2),
            der(0x30, &[kind, der(0xa0, &der(4, &contents))].concat()),
            der(0xa0, &certificate),
            der(0x31, &der(0x30, &signer.concat())),
        ];
        let message = der(0xa0, &der(0x30, &message.concat()));
        let token = der(0x30, &[oid("2a864886f70d010702"), message].concat());
        der(0x30, &[der(0x30, &[2, 1, 0]), token].concat())
    }
}
