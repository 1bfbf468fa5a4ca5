//! DER, and the parts of certificates.

use super::Key;

pub(super) fn counted(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap().to_be_bytes();
    [&length, bytes].concat()
}

pub(super) fn der(tag: u8, value: &[u8]) -> Vec<u8> {
    let length = value.len();
    let start = match length {
        0..=0x7f => vec![tag, length as u8],
        0x80..=0xff => vec![tag, 0x81, length as u8],
        _ => vec![tag, 0x82, (length >> 8) as u8, length as u8],
    };
    [&start, value].concat()
}

pub(super) fn extension(kind: &[u8], is_critical: bool, value: &[u8]) -> Vec<u8> {
    let critical: &[u8] = if is_critical { &[1, 1, 0xff] } else { &[] };
    der(0x30, &[&der(6, kind), critical, &der(4, value)].concat())
}

/// The basic constraints of an authority.
pub(super) fn authority() -> Vec<u8> {
    extension(&[0x55, 0x1d, 0x13], true, &der(0x30, &[1, 1, 0xff]))
}

pub(super) fn purposes(purpose: &[u8]) -> Vec<u8> {
    extension(&[0x55, 0x1d, 0x25], false, &der(0x30, &der(6, purpose)))
}

pub(super) fn name(text: &str) -> Vec<u8> {
    let part = [der(6, &[0x55, 4, 3]), der(0x0c, text.as_bytes())].concat();
    der(0x30, &der(0x31, &der(0x30, &part)))
}

pub(super) const ECDSA_SHA256: &[u8] = &[0x30, 0x0a, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];

pub(super) const YEARS: [&str; 2] = ["250101000000Z", "350101000000Z"];
pub(super) const MINUTES: [&str; 2] = ["260102000000Z", "260102001000Z"];

pub(super) fn tbs(
    issuer: &[u8],
    valid: [&str; 2],
    subject: &[u8],
    key: &Key,
    extensions: &[Vec<u8>],
) -> Vec<u8> {
    let valid: Vec<_> = valid
        .iter()
        .flat_map(|time| der(0x17, time.as_bytes()))
        .collect();
    let serial = [&[1], &key.id()[..8]].concat();
    let version = der(0xa0, &[2, 1, 2]);
    let extensions = der(0xa3, &der(0x30, &extensions.concat()));
    let fields = [
        &version,
        &der(2, &serial),
        ECDSA_SHA256,
        issuer,
        &der(0x30, &valid),
        subject,
        &key.public(),
        &extensions,
    ];
    der(0x30, &fields.concat())
}

pub(super) fn signed(tbs: &[u8], key: &Key) -> Vec<u8> {
    let signature = [&[0], &key.sign(tbs)[..]].concat();
    der(0x30, &[tbs, ECDSA_SHA256, &der(3, &signature)].concat())
}
