//! A sigstore of its own: an authority, a transparency log and a log of certificates, which sign
//! what a plan says, also lies. It is written after the RFCs, and shares no code with the verifier.

#[path = "sigstore/certificates.rs"]
mod certificates;
#[path = "sigstore/der.rs"]
mod der;
#[path = "sigstore/key.rs"]
mod key;
#[path = "sigstore/logs.rs"]
mod logs;
#[path = "sigstore/timestamps.rs"]
mod timestamps;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use self::der::{YEARS, der, extension, name, signed, tbs};
pub(crate) use self::key::Key;
pub(crate) use self::logs::tree_hash;
use self::logs::{LOG_2, body, body_2};
pub(crate) use self::timestamps::Stamp;

pub(crate) const MODULE: &[u8] = b"\0asm\x01\0\0\0";
pub(crate) const EMAIL: &str = "alice@example.com";
pub(crate) const ISSUER: &str = "https://accounts.example.com";

/// 2026-01-02T00:05:00Z, when the certificates of a plan are valid.
pub(crate) const TIME: u64 = 1_767_312_300;

const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
const CODE_SIGNING: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 3];
pub(crate) const SERVERS: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
const TIME_STAMPING: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 8];

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

fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}
