//! Bundles of the OpenSSF model-signing format that the Python package `model-signing` made, and
//! what was done to them.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and reads files of its own"
)]

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callbox_core::values::StatusCode;
use callbox_package::Trust;
use callbox_package::oms::{
    Bundle, BundleSigner, Certificate, EcdsaKey, EcdsaSecretKey, SignedFiles, sign_files,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Made by `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256`.
const SECRET: &str = include_str!("bundles/secret.pem");

const MODULE: &[u8] = b"\0asm\x01\0\0\0";

fn file(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bundles/");
    fs::read(format!("{folder}{name}")).unwrap()
}

fn signer(name: &str) -> BundleSigner {
    BundleSigner::from_file(&file(name)).unwrap()
}

fn bundle(name: &str) -> Value {
    serde_json::from_slice(&file(name)).unwrap()
}

/// The statement of a bundle, altered.
fn altered(name: &str, alter: impl FnOnce(&mut Value)) -> Value {
    let mut bundle = bundle(name);
    let payload = &mut bundle["dsseEnvelope"]["payload"];
    let bytes = STANDARD.decode(payload.as_str().unwrap()).unwrap();
    let mut statement = serde_json::from_slice(&bytes).unwrap();
    alter(&mut statement);
    *payload = json!(STANDARD.encode(statement.to_string()));
    bundle
}

fn read(bundle: &Value) -> callbox_core::Result<Bundle> {
    Bundle::read(bundle.to_string().as_bytes())
}

#[track_caller]
fn check_denied(bundle: &Bundle, signer: &str, message: &str) {
    let status = bundle.verify(&self::signer(signer)).unwrap_err();
    assert_eq!(status.code(), StatusCode::PermissionDenied, "{status:?}");
    let found = status.message();
    assert!(found.contains(message), "expected {message:?} in {found:?}");
}

#[test]
fn bundles_of_model_signing_are_verified() {
    let mut expected = SignedFiles::new();
    for name in ["README.md", "cases/one.json", "kernel.wasm"] {
        let digest = Sha256::digest(file(&format!("model/{name}")));
        expected.insert(name.to_owned(), digest.into());
    }
    for (name, key, other) in [
        ("key-p256.sig", "p256.pem", "p384.pem"),
        ("key-p384.sig", "p384.pem", "p256.pem"),
        ("certificate.sig", "root.pem", "p256.pem"),
    ] {
        let bundle = Bundle::read(&file(name)).unwrap();
        bundle.verify(&signer(key)).unwrap();
        assert_eq!(bundle.files(), &expected, "{name}");
        check_denied(&bundle, other, "the signature is not by its key");
    }
    let bundle = Bundle::read(&file("file.sig")).unwrap();
    bundle.verify(&signer("p256.pem")).unwrap();
    assert!(bundle.lists(MODULE) && bundle.files().contains_key("."));
    check_denied(&bundle, "root.pem", "the bundle has no certificate");
    // `ring` has no P-521: no signer verifies it.
    let bundle = Bundle::read(&file("key-p521.sig")).unwrap();
    check_denied(&bundle, "p256.pem", "the signature is not by its key");
}

#[test]
fn certificates_need_a_chain_and_a_purpose() {
    let bundle = Bundle::read(&file("server.sig")).unwrap();
    check_denied(&bundle, "root.pem", "its certificate is not valid for it: ");
    let mut alone = self::bundle("certificate.sig");
    let chain = &mut alone["verificationMaterial"]["x509CertificateChain"]["certificates"];
    chain.as_array_mut().unwrap().pop();
    let alone = read(&alone).unwrap();
    check_denied(&alone, "root.pem", "UnknownIssuer");
    alone.verify(&signer("inter.pem")).unwrap();
    // The signature by the key of another certificate.
    let mut swapped = self::bundle("certificate.sig");
    swapped["verificationMaterial"] = self::bundle("server.sig")["verificationMaterial"].clone();
    let chain = &mut swapped["verificationMaterial"]["x509CertificateChain"]["certificates"];
    chain[0] = json!({"rawBytes": STANDARD.encode(file("model/kernel.wasm"))});
    let status = read(&swapped).unwrap_err();
    assert_eq!(status.code(), StatusCode::InvalidArgument);
    assert!(status.message().contains("malformed certificate"));
}

#[test]
fn what_is_altered_is_refused() {
    let other = hex::encode(Sha256::digest(b"other"));
    // A file's digest alone contradicts the root.
    let bundle = altered("key-p256.sig", |statement| {
        statement["predicate"]["resources"][0]["digest"] = json!(other);
    });
    let status = read(&bundle).unwrap_err();
    assert!(
        status.message().contains("contradicts itself"),
        "{status:?}"
    );
    // With the root, it contradicts the signature.
    let root = hex::encode(Sha256::digest(Sha256::digest(b"other")));
    let bundle = altered("file.sig", |statement| {
        statement["predicate"]["resources"][0]["digest"] = json!(other);
        statement["subject"][0]["digest"]["sha256"] = json!(root);
    });
    check_denied(&read(&bundle).unwrap(), "p256.pem", "not by its key");
    for (pointer, value, code) in [
        (
            "/predicate/resources/0/algorithm",
            "md5",
            StatusCode::Unimplemented,
        ),
        (
            "/predicate/serialization/method",
            "shards",
            StatusCode::Unimplemented,
        ),
        (
            "/predicate/serialization/hash_type",
            "blake3",
            StatusCode::Unimplemented,
        ),
        (
            "/predicateType",
            "https://slsa.dev/provenance/v1",
            StatusCode::Unimplemented,
        ),
        (
            "/_type",
            "https://in-toto.io/Statement/v0.1",
            StatusCode::Unimplemented,
        ),
        (
            "/predicate/resources/1/name",
            "README.md",
            StatusCode::InvalidArgument,
        ),
        (
            "/predicate/resources/0/digest",
            "00",
            StatusCode::InvalidArgument,
        ),
    ] {
        let bundle = altered("key-p256.sig", |statement| {
            *statement.pointer_mut(pointer).unwrap() = json!(value);
        });
        let status = read(&bundle).unwrap_err();
        assert_eq!(status.code(), code, "{pointer}: {status:?}");
    }
    for (pointer, value, code) in [
        (
            "/mediaType",
            json!("application/json"),
            StatusCode::Unimplemented,
        ),
        (
            "/dsseEnvelope/payloadType",
            json!("text/plain"),
            StatusCode::Unimplemented,
        ),
        (
            "/dsseEnvelope/signatures",
            json!([]),
            StatusCode::InvalidArgument,
        ),
        (
            "/dsseEnvelope/payload",
            json!("%"),
            StatusCode::InvalidArgument,
        ),
        ("/dsseEnvelope", json!(1), StatusCode::InvalidArgument),
        (
            "/verificationMaterial",
            json!({"certificate": {}}),
            StatusCode::InvalidArgument,
        ),
    ] {
        let mut bundle = self::bundle("key-p256.sig");
        *bundle.pointer_mut(pointer).unwrap() = value;
        let status = read(&bundle).unwrap_err();
        assert_eq!(status.code(), code, "{pointer}: {status:?}");
    }
}

#[test]
fn what_is_signed_here_is_verified() {
    let key = EcdsaSecretKey::from_file(SECRET.as_bytes()).unwrap();
    let files = SignedFiles::from([("a/b".to_owned(), [7; 32])]);
    let text = sign_files("name", &files, &key, &[]).unwrap();
    let bundle = Bundle::read(text.as_bytes()).unwrap();
    let public = key.public().to_string();
    bundle
        .verify(&BundleSigner::Key(public.parse().unwrap()))
        .unwrap();
    check_denied(&bundle, "p256.pem", "not by its key");
    assert_eq!(bundle.files(), &files);
    let chain = [file("leaf.pem"), file("inter.pem")].concat();
    let chain = Certificate::from_file(&chain).unwrap();
    let text = sign_files("name", &files, &key, &chain).unwrap();
    let bundle = Bundle::read(text.as_bytes()).unwrap();
    bundle.verify(&signer("root.pem")).unwrap();
    let other = Certificate::from_file(&file("root.pem")).unwrap();
    let status = sign_files("name", &files, &key, &other).unwrap_err();
    assert!(status.message().contains("found one of another key"));
    assert!(!format!("{key:?}").contains("MIG"));
}

#[test]
fn files_without_keys_are_refused() {
    for contents in [
        &b"ecdsa-p256:04"[..],
        b"\xff",
        &file("key-p256.sig"),
        SECRET.as_bytes(),
        &[file("inter.pem"), file("root.pem")].concat(),
    ] {
        let status = BundleSigner::from_file(contents).unwrap_err();
        assert_eq!(status.code(), StatusCode::InvalidArgument, "{status:?}");
        assert!(!status.message().contains("MIG"), "{status:?}");
    }
    for contents in [&b""[..], b"\xff", &file("p256.pem")] {
        assert!(EcdsaSecretKey::from_file(contents).is_err());
        assert!(Certificate::from_file(contents).is_err());
    }
    assert!(EcdsaKey::from_file(&file("root.pem")).is_err());
}

/// Keys that OpenSSL made.
#[test]
fn keys_of_other_algorithms_are_named() {
    for (key, found) in [
        (
            "MIGbMBAGByqGSM49AgEGBSuBBAAjA4GGAAQBZd9gwMU9u5Z5CJK2xK7b2uafguUf\n9q/TXW3K77dr8ChSQO0p6wxuL5cV2QaXl2UF0NOyP1KDgSllI3Fsz3wA9W4AT7Ar\nIFkvmRbEXNKgqb2CpkqckENTMsdp5VBkC6Q1CRZzmfh/HD2ACtmedfg1viIiyMGA\nAEYAftO4lRHX79l6io0=",
            "found a key of ECDSA on P-521",
        ),
        (
            "MFYwEAYHKoZIzj0CAQYFK4EEAAoDQgAEmfF0wq49W93G38Qs5dM5bAu+LNVFyYNv\n732yq7Uiq8YhTOoOZ1BMGId5qxYPtxNM9AtNs0bFosgJ1LifJY0rYw==",
            "found a key of ECDSA on secp256k1",
        ),
        (
            "MCowBQYDK2VwAyEAn3AkO3H2/kpoKjbMchmV8LXHmCKjaxtwpciFlLdrEB0=",
            "found a key of Ed25519",
        ),
        (
            "MEMwBQYDK2VxAzoAzysboEnkSIaQhWkSX6LNlqowXELdBn9oLNk3/HAlBXR1jKlX\n6cFU6V4qwoAqO9fn95yIgq2Ks6eA",
            "found a key of Ed448",
        ),
        // The beginning of a key of 2048 bits.
        (
            "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAoSxc12Kk5jSVVV9/BtBM",
            "found a key of RSA",
        ),
        ("AAAA", "found other contents"),
    ] {
        let file = format!("-----BEGIN PUBLIC KEY-----\n{key}\n-----END PUBLIC KEY-----\n");
        let status = BundleSigner::from_file(file.as_bytes()).unwrap_err();
        assert_eq!(status.code(), StatusCode::InvalidArgument, "{status:?}");
        assert!(status.message().ends_with(found), "{status:?}");
    }
}

fn trust(keys: &Value, signed_by: &[&str], revoked: &[&str]) -> Trust {
    let rules = json!({"keys": keys, "signatures": {"*": {"signed_by": signed_by}},
        "revoked": revoked});
    Trust::from_json(rules.to_string().as_bytes()).unwrap()
}

/// Revoking a key, a certificate, or one between it and the authority revokes the bundle.
#[test]
fn rules_take_the_signers_of_bundles() {
    let text = |name: &str| String::from_utf8(file(name)).unwrap();
    let key = signer("p256.pem").to_string();
    let keys = json!({"key": key, "pem": text("p384.pem"), "root": text("root.pem"),
        "inter": text("inter.pem"), "leaf": text("leaf.pem")});
    for (name, signer) in [
        ("file.sig", "key"),
        ("key-p384.sig", "pem"),
        ("certificate.sig", "root"),
        ("certificate.sig", "inter"),
    ] {
        let trust = trust(&keys, &[signer], &[]);
        let bundle = file(name);
        trust.check_with("x", MODULE, Some(&bundle)).unwrap();
        let other = [MODULE, b"\0\x01\0"].concat();
        for (module, bundle, message) in [
            (MODULE, None, "found no signature"),
            (&other, Some(&bundle[..]), "found a bundle of other content"),
        ] {
            let status = trust.check_with("x", module, bundle).unwrap_err();
            assert_eq!(status.code(), StatusCode::PermissionDenied);
            assert!(status.message().contains(message), "{status:?}");
        }
    }
    let status = trust(&keys, &["pem"], &[]).check_with("x", MODULE, Some(&file("file.sig")));
    assert!(
        status
            .unwrap_err()
            .message()
            .ends_with("found a bundle by another key")
    );
    for (name, signer, revoked, message) in [
        (
            "file.sig",
            "key",
            "key",
            "a signature by key, which is revoked",
        ),
        (
            "certificate.sig",
            "root",
            "root",
            "a signature by root, which is revoked",
        ),
        (
            "certificate.sig",
            "root",
            "inter",
            "a certificate by root, which is revoked",
        ),
        (
            "certificate.sig",
            "root",
            "leaf",
            "a certificate by root, which is revoked",
        ),
    ] {
        let trust = trust(&keys, &[signer], &[revoked]);
        let status = trust
            .check_with("x", MODULE, Some(&file(name)))
            .unwrap_err();
        assert!(status.message().contains(message), "{revoked}: {status:?}");
    }
    trust(&keys, &["key"], &["root", "pem"])
        .check_with("x", MODULE, Some(&file("file.sig")))
        .unwrap();
}
