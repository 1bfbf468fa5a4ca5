//! Signatures inside a module: the custom section `signature` of the WebAssembly tool conventions,
//! as `wasmsign2` writes it.
//!
//! The section is the module's first. It has sets of hashes, and signatures of each set. A
//! signature of callbox covers one hash, that of every byte after the section: code, cases, twin,
//! documentation and licence. It occurs twice: with the public key itself as the identifier of the
//! key, and with the identifier that `wasmsign2` looks for.
//!
//! The format also has signatures of a part of a module. These count only if their last hash covers
//! the whole module, so that nothing can be cut off or added.

use callbox_core::values::{Blame, Result, Status, StatusCode};
use sha2::{Digest, Sha256};
use wasm_encoder::Encode;
use wasmparser::{BinaryReader, Encoding, Parser, Payload};

use crate::keys::{PublicKey, SecretKey};

/// The name of the section.
const SECTION: &str = "signature";

/// The bytes of a module before its sections.
const MODULE_HEADER: usize = 8;

/// The start of every signed message.
const DOMAIN: &[u8] = b"wasmsig";

/// Version 1 of the format, for a module, with hashes of SHA-256.
const KIND: [u8; 3] = [1, 1, 1];

/// The identifier of the algorithm Ed25519.
const ED25519: u8 = 1;

/// The most sets, the most hashes of a set, and the most signatures in all.
const MOST: usize = 64;

/// The longest identifier of a key, in bytes.
const MAX_KEY_ID: usize = 256;

/// The signatures that a module carries.
#[derive(Clone, Debug)]
pub struct Signatures<'a> {
    /// Everything after the section.
    content: &'a [u8],
    hash: [u8; 32],
    sets: Vec<SignedHashes>,
}

/// Hashes that are signed together.
#[derive(Clone, Debug)]
struct SignedHashes {
    hashes: Vec<[u8; 32]>,
    signatures: Vec<OneSignature>,
}

#[derive(Clone, Debug)]
struct OneSignature {
    key_id: Vec<u8>,
    algorithm: u8,
    bytes: Vec<u8>,
}

/// What a signature is worth.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signer {
    /// The key signed the whole module.
    Valid(PublicKey),
    /// The signature names this key, which did not sign this module.
    Wrong(PublicKey),
    /// The signature names its key with these bytes, which are not the key, or has another
    /// algorithm than Ed25519. A verifier that has the key can check the former.
    Unknown(Vec<u8>),
}

impl<'a> Signatures<'a> {
    /// Reads the signatures of a module, without checking any. A module without is not signed.
    ///
    /// # Errors
    /// Blamed on the guest: INVALID_ARGUMENT if the bytes are no module or the section is
    /// malformed, UNIMPLEMENTED for another version of the format or another hash, and
    /// RESOURCE_EXHAUSTED for more than 64 sets, hashes of a set, or signatures.
    pub fn read(module: &'a [u8]) -> Result<Self> {
        let malformed = |error: wasmparser::BinaryReaderError| {
            invalid(format!(
                "the signatures are malformed: {} at byte {}",
                error.message(),
                error.offset()
            ))
        };
        let mut payloads = Parser::new(0).parse_all(module);
        match payloads.next() {
            Some(Ok(Payload::Version {
                encoding: Encoding::Module,
                ..
            })) => {}
            _ => {
                return Err(invalid(
                    "expected a WebAssembly module, which starts with \\0asm".to_owned(),
                ));
            }
        }
        let (sets, start) = match payloads.next() {
            Some(Ok(payload @ Payload::CustomSection(_))) => match &payload {
                Payload::CustomSection(section) if section.name() == SECTION => {
                    let reader = BinaryReader::new(section.data(), section.data_offset());
                    let end = payload.as_section().map(|(_, range)| range.end);
                    let sets = read_sets(reader).map_err(malformed)??;
                    (sets, end.unwrap_or(MODULE_HEADER))
                }
                _ => (Vec::new(), MODULE_HEADER),
            },
            _ => (Vec::new(), MODULE_HEADER),
        };
        let content = &module[start..];
        Ok(Self {
            content,
            hash: Sha256::digest(content).into(),
            sets,
        })
    }

    /// Whether the module has any signature, valid or not.
    #[must_use]
    pub fn is_signed(&self) -> bool {
        self.sets.iter().any(|set| !set.signatures.is_empty())
    }

    /// Whether this key signed the whole module.
    #[must_use]
    pub fn is_by(&self, key: &PublicKey) -> bool {
        self.whole().any(|set| {
            let message = message(&set.hashes);
            let signatures = set.signatures.iter();
            let mut signatures = signatures.filter(|signature| signature.algorithm == ED25519);
            signatures.any(|signature| key.has_signed(&message, &signature.bytes))
        })
    }

    /// What each signature is worth, each answer once.
    #[must_use]
    pub fn signers(&self) -> Vec<Signer> {
        let signatures = self.sets.iter().flat_map(|set| &set.signatures);
        let signers = signatures.map(|signature| {
            let key = <[u8; 32]>::try_from(&signature.key_id[..]).ok();
            let key = key.and_then(|key| PublicKey::from_bytes(key).ok());
            match key.filter(|_| signature.algorithm == ED25519) {
                Some(key) if self.is_by(&key) => Signer::Valid(key),
                Some(key) => Signer::Wrong(key),
                None => Signer::Unknown(signature.key_id.clone()),
            }
        });
        let mut signers: Vec<_> = signers.collect();
        let named: Vec<_> = signers
            .iter()
            .filter_map(|signer| match signer {
                Signer::Valid(key) | Signer::Wrong(key) => Some(key.short_id().to_vec()),
                Signer::Unknown(_) => None,
            })
            .collect();
        signers.retain(|signer| !matches!(signer, Signer::Unknown(id) if named.contains(id)));
        signers.sort();
        signers.dedup();
        signers
    }

    /// The sets that cover the whole module.
    fn whole(&self) -> impl Iterator<Item = &SignedHashes> {
        let is_whole = |set: &&SignedHashes| set.hashes.last() == Some(&self.hash);
        self.sets.iter().filter(is_whole)
    }
}

/// Signs a module, which may be a package. Signatures of this content stay, signatures of other
/// content are dropped. The same key and module give the same bytes.
///
/// # Errors
/// As for [`Signatures::read`].
pub fn sign(module: &[u8], key: &SecretKey) -> Result<Vec<u8>> {
    let signatures = Signatures::read(module)?;
    let mut sets: Vec<_> = signatures.whole().cloned().collect();
    if !signatures.is_by(&key.public()) {
        let hashes = vec![signatures.hash];
        let bytes = key.sign(&message(&hashes)).to_vec();
        let ids = [
            key.public().to_bytes().to_vec(),
            key.public().short_id().to_vec(),
        ];
        let signatures = ids.map(|key_id| OneSignature {
            key_id,
            algorithm: ED25519,
            bytes: bytes.clone(),
        });
        match sets.iter_mut().find(|set| set.hashes == hashes) {
            Some(set) => set.signatures.extend(signatures),
            None => sets.push(SignedHashes {
                hashes,
                signatures: signatures.into(),
            }),
        }
    }
    let mut section = Vec::new();
    SECTION.encode(&mut section);
    section.extend(data_of(&sets));
    let mut signed = module[..MODULE_HEADER].to_vec();
    signed.push(0);
    section.encode(&mut signed);
    signed.extend_from_slice(signatures.content);
    // A signature too many is refused here, and not only by readers.
    Signatures::read(&signed)?;
    Ok(signed)
}

/// The bytes that a signature of these hashes signs.
fn message(hashes: &[[u8; 32]]) -> Vec<u8> {
    [DOMAIN, &KIND, hashes.as_flattened()].concat()
}

/// The data of the section.
fn data_of(sets: &[SignedHashes]) -> Vec<u8> {
    let mut data = KIND.to_vec();
    sets.len().encode(&mut data);
    for set in sets {
        let mut encoded = Vec::new();
        set.hashes.len().encode(&mut encoded);
        encoded.extend_from_slice(set.hashes.as_flattened());
        set.signatures.len().encode(&mut encoded);
        for signature in &set.signatures {
            let mut one = Vec::new();
            signature.key_id.encode(&mut one);
            one.push(signature.algorithm);
            signature.bytes.encode(&mut one);
            one.encode(&mut encoded);
        }
        encoded.encode(&mut data);
    }
    data
}

type Read<T> = wasmparser::Result<Result<T>>;

/// Reads the data of the section. The outer result is of the encoding.
fn read_sets(mut reader: BinaryReader<'_>) -> Read<Vec<SignedHashes>> {
    let kind = [reader.read_u8()?, reader.read_u8()?, reader.read_u8()?];
    if kind != KIND {
        return Ok(Err(guest(
            StatusCode::Unimplemented,
            format!("expected signatures of version, content and hash {KIND:?}, found {kind:?}"),
        )));
    }
    let mut sets = Vec::new();
    let mut left = MOST;
    let count = reader.read_var_u32()? as usize;
    if count > MOST {
        return Ok(Err(too_many("sets of hashes", count)));
    }
    for _ in 0..count {
        match read_set(sized(&mut reader)?, &mut left)? {
            Ok(set) => sets.push(set),
            Err(status) => return Ok(Err(status)),
        }
    }
    Ok(at_end(&reader).map(|()| sets))
}

fn read_set(mut reader: BinaryReader<'_>, left: &mut usize) -> Read<SignedHashes> {
    let count = reader.read_var_u32()? as usize;
    if count > MOST {
        return Ok(Err(too_many("hashes", count)));
    }
    let hashes = reader.read_bytes(count * 32)?.as_chunks().0.to_vec();
    let count = reader.read_var_u32()? as usize;
    let Some(rest) = left.checked_sub(count) else {
        return Ok(Err(too_many("signatures", count)));
    };
    *left = rest;
    let mut signatures = Vec::new();
    for _ in 0..count {
        let mut one = sized(&mut reader)?;
        let key_id = sized(&mut one)?;
        if key_id.bytes_remaining() > MAX_KEY_ID {
            return Ok(Err(invalid(format!(
                "expected an identifier of a key of at most {MAX_KEY_ID} bytes, found {}",
                key_id.bytes_remaining()
            ))));
        }
        let signature = OneSignature {
            key_id: rest_of(key_id)?,
            algorithm: one.read_u8()?,
            bytes: rest_of(sized(&mut one)?)?,
        };
        if let Err(status) = at_end(&one) {
            return Ok(Err(status));
        }
        signatures.push(signature);
    }
    Ok(at_end(&reader).map(|()| SignedHashes { hashes, signatures }))
}

/// A reader of as many bytes as the number before them says.
fn sized<'a>(reader: &mut BinaryReader<'a>) -> wasmparser::Result<BinaryReader<'a>> {
    let size = reader.read_var_u32()? as usize;
    let start = reader.original_position();
    Ok(BinaryReader::new(reader.read_bytes(size)?, start))
}

fn rest_of(mut reader: BinaryReader<'_>) -> wasmparser::Result<Vec<u8>> {
    let size = reader.bytes_remaining();
    Ok(reader.read_bytes(size)?.to_vec())
}

fn at_end(reader: &BinaryReader<'_>) -> Result<()> {
    if reader.eof() {
        return Ok(());
    }
    Err(invalid(format!(
        "the signatures are malformed: {} bytes too many at byte {}",
        reader.bytes_remaining(),
        reader.original_position()
    )))
}

fn too_many(of: &str, found: usize) -> Status {
    guest(
        StatusCode::ResourceExhausted,
        format!("expected at most {MOST} {of}, found {found}"),
    )
}

fn invalid(message: String) -> Status {
    guest(StatusCode::InvalidArgument, message)
}

fn guest(code: StatusCode, message: String) -> Status {
    Status::new(code, Blame::Guest, message)
}
