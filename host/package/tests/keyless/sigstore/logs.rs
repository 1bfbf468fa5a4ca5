//! The entries of transparency logs, with their proofs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::KeyPair as _;
use serde_json::{Value, json};

use super::{PAYLOAD_TYPE, Plan, Sigstore, sha256};

/// The name of the log of version 2, which signs no time.
pub(super) const LOG_2: &str = "log2.example.com";

impl Sigstore {
    /// The identifier of a log with a key of Ed25519 (C2SP's signed notes).
    pub(super) fn log_2_id(&self) -> [u8; 32] {
        let key = self.log_2.public_key().as_ref();
        sha256(&[LOG_2.as_bytes(), b"\n\x01", key].concat())
    }

    pub(super) fn entry(&self, plan: &Plan, body: &str) -> Value {
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
    pub(super) fn entry_2(&self, plan: &Plan, body: &str) -> Value {
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

/// The body of a log entry.
pub(super) fn body(
    kind: &str,
    signature: &[u8],
    certificate: &[u8],
    payload: &[u8],
    message: &[u8],
) -> Value {
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
pub(super) fn body_2(
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
