//! A sigstore of its own: an authority, a transparency log and a log of certificates, which sign
//! what a plan says, also lies. It is written after the RFCs, and shares no code with the verifier.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub(crate) const MODULE: &[u8] = b"\0asm\x01\0\0\0";
pub(crate) const EMAIL: &str = "alice@example.com";
pub(crate) const ISSUER: &str = "https://accounts.example.com";

/// 2026-01-02T00:05:00Z, when the certificates of a plan are valid.
pub(crate) const TIME: u64 = 1_767_312_300;

const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
const CODE_SIGNING: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 3];
pub(crate) const SERVERS: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
const TIME_STAMPING: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 8];

/// The name of the log of version 2, which signs no time.
const LOG_2: &str = "log2.example.com";

pub(crate) struct Key(EcdsaKeyPair);

impl Key {
    pub(crate) fn new() -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
        let secret = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self(EcdsaKeyPair::from_pkcs8(algorithm, secret.as_ref(), &random).unwrap())
    }

    /// The SubjectPublicKeyInfo.
    pub(crate) fn public(&self) -> Vec<u8> {
        let curve = hex::decode("301306072a8648ce3d020106082a8648ce3d030107").unwrap();
        let point = [&[0][..], self.0.public_key().as_ref()].concat();
        der(0x30, &[curve, der(3, &point)].concat())
    }

    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        let signature = self.0.sign(&SystemRandom::new(), message).unwrap();
        signature.as_ref().to_vec()
    }

    pub(crate) fn id(&self) -> [u8; 32] {
        sha256(&self.public())
    }
}

/// The services, with their keys.
pub(crate) struct Sigstore {
    root: Key,
    between: Key,
    pub(crate) log: Key,
    pub(crate) certificate_log: Key,
    log_2: Ed25519KeyPair,
    stamper_root: Key,
    stamper: Key,
    /// The certificates of the key that signs timestamps, for that and for servers.
    stamper_certificates: [Vec<u8>; 2],
}

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

/// What a signer does, and what the services make of it.
pub(crate) struct Plan {
    pub(crate) media_type: &'static str,
    pub(crate) module: Vec<u8>,
    /// The tags and texts of the names of the certificate.
    pub(crate) names: Vec<(u8, &'static str)>,
    pub(crate) issuers: Vec<(u8, &'static str)>,
    pub(crate) purpose: &'static [u8],
    pub(crate) time: u64,
    pub(crate) kind: &'static str,
    /// The number and the index of the leaves of the tree.
    pub(crate) leaves: (usize, usize),
    pub(crate) is_seen: bool,
    /// Whether the certificate has another key than the signature.
    pub(crate) has_other_key: bool,
    /// Whether the entry is of another certificate.
    pub(crate) is_of_other_certificate: bool,
    /// Whether the entry is of the log of version 2, which signs no time.
    pub(crate) is_log_2: bool,
    pub(crate) stamps: Vec<Stamp>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            media_type: "application/vnd.dev.sigstore.bundle.v0.3+json",
            module: MODULE.to_vec(),
            names: vec![(0x81, EMAIL)],
            issuers: vec![(1, ISSUER), (8, ISSUER)],
            purpose: CODE_SIGNING,
            time: TIME,
            kind: "dsse",
            leaves: (7, 3),
            is_seen: true,
            has_other_key: false,
            is_of_other_certificate: false,
            is_log_2: false,
            stamps: Vec::new(),
        }
    }
}

impl Sigstore {
    pub(crate) fn new() -> Self {
        let (stamper_root, stamper) = (Key::new(), Key::new());
        let stamper_certificates = [TIME_STAMPING, SERVERS].map(|purpose| {
            let issuer = name("stamper root");
            let purpose = extension(&[0x55, 0x1d, 0x25], true, &der(0x30, &der(6, purpose)));
            let tbs = tbs(&issuer, YEARS, &name("stamper"), &stamper, &[purpose]);
            signed(&tbs, &stamper_root)
        });
        Self {
            root: Key::new(),
            between: Key::new(),
            log: Key::new(),
            certificate_log: Key::new(),
            log_2: {
                let secret = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
                Ed25519KeyPair::from_pkcs8(secret.as_ref()).unwrap()
            },
            stamper_root,
            stamper,
            stamper_certificates,
        }
    }

    /// The same with the log of version 2, and a timestamp authority.
    pub(crate) fn trusted_root_2(&self) -> Value {
        let curve = hex::decode("300506032b6570").unwrap();
        let point = [&[0], self.log_2.public_key().as_ref()].concat();
        let public = der(0x30, &[curve, der(3, &point)].concat());
        let chain = [
            self.stamper_certificates[0].clone(),
            self.stamper_root_certificate(),
        ];
        let chain = chain.map(|der| json!({"rawBytes": STANDARD.encode(der)}));
        let mut root = self.trusted_root();
        root["tlogs"] = json!([{
            "baseUrl": format!("https://{LOG_2}"),
            "hashAlgorithm": "SHA2_256",
            "publicKey": {
                "rawBytes": STANDARD.encode(public),
                "keyDetails": "PKIX_ED25519",
                "validFor": {"start": "2025-01-01T00:00:00Z"},
            },
            "logId": {"keyId": STANDARD.encode(self.log_2_id())},
        }]);
        // Some authorities have no certificate, as that of a public root.
        root["timestampAuthorities"] = json!([
            {"certChain": {"certificates": []}, "validFor": {"start": "2025-01-01T00:00:00Z"}},
            {"certChain": {"certificates": chain}, "validFor": {"start": "2025-01-01T00:00:00Z"}},
        ]);
        root
    }

    /// The identifier of a log with a key of Ed25519 (C2SP's signed notes).
    fn log_2_id(&self) -> [u8; 32] {
        let key = self.log_2.public_key().as_ref();
        sha256(&[LOG_2.as_bytes(), b"\n\x01", key].concat())
    }

    fn stamper_root_certificate(&self) -> Vec<u8> {
        let name = name("stamper root");
        let tbs = tbs(&name, YEARS, &name, &self.stamper_root, &[authority()]);
        signed(&tbs, &self.stamper_root)
    }

    /// The certificate of the key that signs timestamps, for that or for servers.
    pub(crate) fn stamper_certificate(&self, is_for_servers: bool) -> &[u8] {
        &self.stamper_certificates[usize::from(is_for_servers)]
    }

    /// The response of the timestamp authority (RFC 3161 and RFC 5652).
    fn timestamp(&self, stamp: &Stamp, signature: &[u8]) -> Vec<u8> {
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

    /// The file `trusted_root.json`.
    pub(crate) fn trusted_root(&self) -> Value {
        let log = |key: &Key| {
            json!({
                "baseUrl": "https://log.example.com",
                "hashAlgorithm": "SHA2_256",
                "publicKey": {
                    "rawBytes": STANDARD.encode(key.public()),
                    "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                    "validFor": {"start": "2025-01-01T00:00:00Z"},
                },
                "logId": {"keyId": STANDARD.encode(key.id())},
            })
        };
        let chain = [self.between_certificate(), self.root_certificate()];
        let chain = chain.map(|der| json!({"rawBytes": STANDARD.encode(der)}));
        json!({
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [log(&self.log)],
            "certificateAuthorities": [{
                "uri": "https://authority.example.com",
                "certChain": {"certificates": chain},
                "validFor": {"start": "2025-01-01T00:00:00.000Z"},
            }],
            "ctlogs": [log(&self.certificate_log)],
            "timestampAuthorities": [],
        })
    }

    pub(crate) fn root_certificate(&self) -> Vec<u8> {
        let name = name("root");
        let tbs = tbs(&name, YEARS, &name, &self.root, &[authority()]);
        signed(&tbs, &self.root)
    }

    fn between_certificate(&self) -> Vec<u8> {
        let extensions = [authority(), purposes(CODE_SIGNING)];
        let tbs = tbs(
            &name("root"),
            YEARS,
            &name("between"),
            &self.between,
            &extensions,
        );
        signed(&tbs, &self.root)
    }

    fn leaf_certificate(&self, plan: &Plan, key: &Key) -> Vec<u8> {
        let usage = extension(&[0x55, 0x1d, 0x0f], true, &[3, 2, 7, 0x80]);
        let names: Vec<_> = plan
            .names
            .iter()
            .flat_map(|(tag, name)| der(*tag, name.as_bytes()))
            .collect();
        let names = extension(&[0x55, 0x1d, 0x11], true, &der(0x30, &names));
        let mut extensions = vec![usage, purposes(plan.purpose), names];
        for (number, issuer) in &plan.issuers {
            let kind = [0x2b, 6, 1, 4, 1, 0x83, 0xbf, 0x30, 1, *number];
            let issuer = issuer.as_bytes().to_vec();
            let issuer = if *number == 1 {
                issuer
            } else {
                der(0x0c, &issuer)
            };
            extensions.push(extension(&kind, false, &issuer));
        }
        let (between, subject) = (name("between"), der(0x30, &[]));
        if plan.is_seen {
            let unstamped = tbs(&between, MINUTES, &subject, key, &extensions);
            let stamp = self.stamp(&unstamped);
            // Not the last one, so that extensions after it count.
            extensions.insert(2, stamp);
        }
        signed(
            &tbs(&between, MINUTES, &subject, key, &extensions),
            &self.between,
        )
    }

    /// The extension with the signature of the log of certificates.
    fn stamp(&self, unstamped: &[u8]) -> Vec<u8> {
        let time = (TIME * 1000).to_be_bytes();
        let issuer = sha256(&self.between.public());
        let length = u32::try_from(unstamped.len()).unwrap().to_be_bytes();
        let message = [
            &[0, 0],
            &time[..],
            &[0, 1],
            &issuer,
            &length[1..],
            unstamped,
            &[0, 0],
        ];
        let signature = self.certificate_log.sign(&message.concat());
        let id = self.certificate_log.id();
        let one = [&[0], &id[..], &time, &[0, 0, 4, 3], &counted(&signature)].concat();
        let list = counted(&counted(&one));
        let kind = [0x2b, 6, 1, 4, 1, 0xd6, 0x79, 2, 4, 2];
        extension(&kind, false, &der(4, &list))
    }

    /// The bundle.
    pub(crate) fn bundle(&self, plan: &Plan) -> Value {
        let key = Key::new();
        let certificate = match plan.has_other_key {
            true => self.leaf_certificate(plan, &Key::new()),
            false => self.leaf_certificate(plan, &key),
        };
        let payload = statement(&plan.module);
        let message = message(&payload);
        let signature = key.sign(&message);
        let recorded = match plan.is_of_other_certificate {
            true => self.leaf_certificate(plan, &key),
            false => certificate.clone(),
        };
        let entry = if plan.is_log_2 {
            let body = body_2(plan.kind, &signature, &recorded, &payload, &message);
            self.entry_2(plan, &body.to_string())
        } else {
            let body = body(plan.kind, &signature, &recorded, &payload, &message);
            self.entry(plan, &body.to_string())
        };
        let stamps = plan.stamps.iter();
        let stamps = Vec::from_iter(stamps.map(|stamp| {
            let response = self.timestamp(stamp, &signature);
            json!({"signedTimestamp": STANDARD.encode(response)})
        }));
        let material = json!({"rawBytes": STANDARD.encode(&certificate)});
        let mut bundle = json!({
            "mediaType": plan.media_type,
            "verificationMaterial": {
                "tlogEntries": [entry],
                "timestampVerificationData": {"rfc3161Timestamps": stamps},
            },
            "dsseEnvelope": {
                "payload": STANDARD.encode(payload),
                "payloadType": PAYLOAD_TYPE,
                "signatures": [{"sig": STANDARD.encode(signature)}],
            },
        });
        let (name, value) = match plan.media_type.contains("0.3") {
            true => ("certificate", material),
            false => ("x509CertificateChain", json!({"certificates": [material]})),
        };
        bundle["verificationMaterial"][name] = value;
        bundle
    }

    fn entry(&self, plan: &Plan, body: &str) -> Value {
        let encoded = STANDARD.encode(body);
        let id = self.log.id();
        let promised = format!(
            r#"{{"body":"{encoded}","integratedTime":{},"logID":"{}","logIndex":1234}}"#,
            plan.time,
            hex::encode(id)
        );
        let (count, index) = plan.leaves;
        let leaves: Vec<_> = (0..count)
            .map(|at| {
                if at == index {
                    body.as_bytes().to_vec()
                } else {
                    vec![at as u8]
                }
            })
            .collect();
        let root = tree_hash(&leaves);
        let hashes: Vec<_> = path(index, &leaves)
            .iter()
            .map(|hash| STANDARD.encode(hash))
            .collect();
        let (kind, version) = plan.kind_and_version();
        json!({
            "logIndex": "1234",
            "logId": {"keyId": STANDARD.encode(id)},
            "kindVersion": {"kind": kind, "version": version},
            "integratedTime": plan.time.to_string(),
            "inclusionPromise": {
                "signedEntryTimestamp": STANDARD.encode(self.log.sign(promised.as_bytes())),
            },
            "inclusionProof": {
                "logIndex": index.to_string(),
                "treeSize": count.to_string(),
                "rootHash": STANDARD.encode(root),
                "hashes": hashes,
                "checkpoint": {"envelope": self.checkpoint(count, &root)},
            },
            "canonicalizedBody": encoded,
        })
    }

    /// The entry of the log of version 2.
    fn entry_2(&self, plan: &Plan, body: &str) -> Value {
        let mut entry = self.entry(plan, body);
        let object = entry.as_object_mut().unwrap();
        object.shift_remove("inclusionPromise");
        object.shift_remove("integratedTime");
        let (count, proof) = (plan.leaves.0, &entry["inclusionProof"]);
        let root = proof["rootHash"].as_str().unwrap();
        let text = format!("{LOG_2}\n{count}\n{root}\n");
        let id = self.log_2_id();
        let signature = self.log_2.sign(text.as_bytes());
        let signature = STANDARD.encode([&id[..4], signature.as_ref()].concat());
        // A witness signs first.
        let checkpoint =
            format!("{text}\n\u{2014} witness AAAAAAAA\n\u{2014} {LOG_2} {signature}\n");
        entry["inclusionProof"]["checkpoint"] = json!({"envelope": checkpoint});
        entry["logId"] = json!({"keyId": STANDARD.encode(id)});
        entry["kindVersion"] = json!({"kind": plan.kind, "version": "0.0.2"});
        entry
    }

    /// The signed head of a tree.
    pub(crate) fn checkpoint(&self, size: usize, root: &[u8; 32]) -> String {
        let text = format!("log.example.com - 7\n{size}\n{}\n", STANDARD.encode(root));
        let signature = [&self.log.id()[..4], &self.log.sign(text.as_bytes())].concat();
        format!(
            "{text}\n\u{2014} log.example.com {}\n",
            STANDARD.encode(signature)
        )
    }
}

impl Plan {
    fn kind_and_version(&self) -> (&'static str, &'static str) {
        match self.kind {
            "intoto" => ("intoto", "0.0.2"),
            kind => (kind, "0.0.1"),
        }
    }
}

pub(crate) fn statement(module: &[u8]) -> Vec<u8> {
    let digest = sha256(module);
    let statement = json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "k.wasm", "digest": {"sha256": hex::encode(sha256(&digest))}}],
        "predicateType": "https://model_signing/signature/v1.0",
        "predicate": {
            "serialization": {"method": "files", "hash_type": "sha256"},
            "resources": [
                {"name": ".", "algorithm": "sha256", "digest": hex::encode(digest)}
            ],
        },
    });
    statement.to_string().into_bytes()
}

/// What a signature of an envelope signs.
fn message(payload: &[u8]) -> Vec<u8> {
    let start = format!(
        "DSSEv1 {} {PAYLOAD_TYPE} {} ",
        PAYLOAD_TYPE.len(),
        payload.len()
    );
    [start.as_bytes(), payload].concat()
}

/// The body of a log entry.
fn body(kind: &str, signature: &[u8], certificate: &[u8], payload: &[u8], message: &[u8]) -> Value {
    let certificate = STANDARD.encode(pem(certificate));
    let signature = STANDARD.encode(signature);
    let digest = |bytes| json!({"algorithm": "sha256", "value": hex::encode(sha256(bytes))});
    match kind {
        "hashedrekord" => json!({"apiVersion": "0.0.1", "kind": kind, "spec": {
            "data": {"hash": digest(message)},
            "signature": {"content": signature, "publicKey": {"content": certificate}},
        }}),
        "intoto" => json!({"apiVersion": "0.0.2", "kind": kind, "spec": {"content": {
            "envelope": {
                "payloadType": PAYLOAD_TYPE,
                "signatures": [{"publicKey": certificate, "sig": STANDARD.encode(signature)}],
            },
            "payloadHash": digest(payload),
        }}}),
        _ => json!({"apiVersion": "0.0.1", "kind": kind, "spec": {
            "payloadHash": digest(payload),
            "signatures": [{"signature": signature, "verifier": certificate}],
        }}),
    }
}

/// The same of a log of version 2.
fn body_2(
    kind: &str,
    signature: &[u8],
    certificate: &[u8],
    payload: &[u8],
    message: &[u8],
) -> Value {
    let digest = |bytes| json!({"algorithm": "SHA2_256", "digest": STANDARD.encode(sha256(bytes))});
    let signature = json!({"content": STANDARD.encode(signature), "verifier": {
        "keyDetails": "PKIX_ECDSA_P256_SHA_256",
        "x509Certificate": {"rawBytes": STANDARD.encode(certificate)},
    }});
    let spec = match kind {
        "hashedrekord" => json!({"hashedRekordV002": {
            "data": digest(message), "signature": signature,
        }}),
        _ => json!({"dsseV002": {"payloadHash": digest(payload), "signatures": [signature]}}),
    };
    json!({"apiVersion": "0.0.2", "kind": kind, "spec": spec})
}

/// The hash of a tree (RFC 6962, section 2.1).
pub(crate) fn tree_hash(leaves: &[Vec<u8>]) -> [u8; 32] {
    match leaves {
        [] => sha256(&[]),
        [leaf] => sha256(&[&[0], &leaf[..]].concat()),
        _ => {
            let (left, right) = leaves.split_at(split(leaves.len()));
            sha256(&[&[1], &tree_hash(left)[..], &tree_hash(right)].concat())
        }
    }
}

/// The proof for a leaf (RFC 6962, section 2.1.1).
fn path(index: usize, leaves: &[Vec<u8>]) -> Vec<[u8; 32]> {
    if leaves.len() < 2 {
        return Vec::new();
    }
    let (left, right) = leaves.split_at(split(leaves.len()));
    let (mut proof, other) = match index < left.len() {
        true => (path(index, left), right),
        false => (path(index - left.len(), right), left),
    };
    proof.push(tree_hash(other));
    proof
}

/// The largest power of two below a number.
fn split(count: usize) -> usize {
    count.next_power_of_two() / 2
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<_> = text
        .as_bytes()
        .chunks(64)
        .map(|line| str::from_utf8(line).unwrap())
        .collect();
    format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        lines.join("\n")
    )
}

fn counted(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap().to_be_bytes();
    [&length, bytes].concat()
}

fn der(tag: u8, value: &[u8]) -> Vec<u8> {
    let length = value.len();
    let start = match length {
        0..=0x7f => vec![tag, length as u8],
        0x80..=0xff => vec![tag, 0x81, length as u8],
        _ => vec![tag, 0x82, (length >> 8) as u8, length as u8],
    };
    [&start, value].concat()
}

fn extension(kind: &[u8], is_critical: bool, value: &[u8]) -> Vec<u8> {
    let critical: &[u8] = if is_critical { &[1, 1, 0xff] } else { &[] };
    der(0x30, &[&der(6, kind), critical, &der(4, value)].concat())
}

/// The basic constraints of an authority.
fn authority() -> Vec<u8> {
    extension(&[0x55, 0x1d, 0x13], true, &der(0x30, &[1, 1, 0xff]))
}

fn purposes(purpose: &[u8]) -> Vec<u8> {
    extension(&[0x55, 0x1d, 0x25], false, &der(0x30, &der(6, purpose)))
}

fn name(text: &str) -> Vec<u8> {
    let part = [der(6, &[0x55, 4, 3]), der(0x0c, text.as_bytes())].concat();
    der(0x30, &der(0x31, &der(0x30, &part)))
}

const ECDSA_SHA256: &[u8] = &[0x30, 0x0a, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];

const YEARS: [&str; 2] = ["250101000000Z", "350101000000Z"];
const MINUTES: [&str; 2] = ["260102000000Z", "260102001000Z"];

fn tbs(
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

fn signed(tbs: &[u8], key: &Key) -> Vec<u8> {
    let signature = [&[0], &key.sign(tbs)[..]].concat();
    der(0x30, &[tbs, ECDSA_SHA256, &der(3, &signature)].concat())
}
