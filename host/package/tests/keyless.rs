//! Keyless bundles: the proofs that count, and a status for each that does not.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and reads files of its own"
)]

#[path = "keyless/malformed.rs"]
mod malformed;
#[path = "keyless/rules.rs"]
mod rules;
#[path = "keyless/sigstore.rs"]
mod sigstore;
#[path = "keyless/timestamps.rs"]
mod timestamps;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callbox_core::values::StatusCode;
use callbox_package::Trust;
use callbox_package::oms::{Bundle, BundleSigner, Identity, TrustedRoot};
use serde_json::{Value, json};

use self::sigstore::{EMAIL, ISSUER, MODULE, Plan, SERVERS, Sigstore, TIME, statement, tree_hash};

const V1: &str = "application/vnd.dev.sigstore.bundle+json;version=0.1";
const V2: &str = "application/vnd.dev.sigstore.bundle+json;version=0.2";
const ENTRY: &str = "/verificationMaterial/tlogEntries/0";

fn root(json: &Value) -> Arc<TrustedRoot> {
    Arc::new(TrustedRoot::from_json(json.to_string().as_bytes()).unwrap())
}

fn identity(name: &str, issuer: &str, root: &Value) -> BundleSigner {
    BundleSigner::Identity(Identity::new(name, issuer, self::root(root)).unwrap())
}

fn read(bundle: &Value) -> callbox_core::Result<Bundle> {
    Bundle::read(bundle.to_string().as_bytes())
}

#[track_caller]
fn check_denied(bundle: &Value, signer: &BundleSigner, message: &str) {
    let status = read(bundle).unwrap().verify(signer).unwrap_err();
    assert_eq!(status.code(), StatusCode::PermissionDenied, "{status:?}");
    let found = status.message();
    assert!(
        found.ends_with(message),
        "expected {message:?} in {found:?}"
    );
}

/// Replaces a value of a bundle.
fn with(bundle: &Value, pointer: &str, value: Value) -> Value {
    let mut bundle = bundle.clone();
    *bundle.pointer_mut(pointer).unwrap() = value;
    bundle
}

/// Removes a value of a bundle.
fn without(bundle: &Value, folder: &str, name: &str) -> Value {
    let mut bundle = bundle.clone();
    let removed = bundle
        .pointer_mut(folder)
        .unwrap()
        .as_object_mut()
        .unwrap()
        .shift_remove(name);
    assert!(removed.is_some(), "{folder} {name}");
    bundle
}

#[test]
fn identities_are_proved_by_each_kind_of_entry_and_version() {
    let sigstore = Sigstore::new();
    let alice = identity(EMAIL, ISSUER, &sigstore.trusted_root());
    for media_type in [Plan::default().media_type, V1, V2] {
        for kind in ["dsse", "intoto", "hashedrekord"] {
            let plan = Plan {
                media_type,
                kind,
                ..Plan::default()
            };
            let bundle = read(&sigstore.bundle(&plan)).unwrap();
            bundle.verify(&alice).unwrap();
            assert!(bundle.lists(MODULE));
            let claimed = Some((EMAIL.to_owned(), ISSUER.to_owned()));
            assert_eq!(bundle.claimed_identity(), claimed);
        }
    }
    let workflow = "https://example.com/org/repository/.ci/release.yml@refs/tags/v1";
    let plan = Plan {
        names: vec![(0x86, workflow)],
        issuers: vec![(8, ISSUER)],
        ..Plan::default()
    };
    let bundle = sigstore.bundle(&plan);
    let signer = identity(workflow, ISSUER, &sigstore.trusted_root());
    read(&bundle).unwrap().verify(&signer).unwrap();
    assert!(signer.to_string().starts_with("https://example.com/org/"));
    // Version 0.1 promises that an entry is in the log. From 0.2 on, a proof shows it.
    let plan = Plan {
        media_type: V1,
        ..Plan::default()
    };
    let promised = without(&sigstore.bundle(&plan), ENTRY, "inclusionProof");
    read(&promised).unwrap().verify(&alice).unwrap();
}

#[test]
fn proofs_of_trees_of_each_size_count() {
    let sigstore = Sigstore::new();
    let alice = identity(EMAIL, ISSUER, &sigstore.trusted_root());
    for count in 1..10 {
        for index in 0..count {
            let plan = Plan {
                leaves: (count, index),
                ..Plan::default()
            };
            let bundle = sigstore.bundle(&plan);
            read(&bundle).unwrap().verify(&alice).unwrap();
            let message = "the inclusion proof of its log entry is of another entry";
            let proof = format!("{ENTRY}/inclusionProof");
            for other in (0..=count).filter(|other| *other != index) {
                let pointer = format!("{proof}/logIndex");
                check_denied(&with(&bundle, &pointer, json!(other)), &alice, message);
            }
            let mut longer = bundle.clone();
            let hashes = longer.pointer_mut(&format!("{proof}/hashes")).unwrap();
            hashes
                .as_array_mut()
                .unwrap()
                .push(json!(STANDARD.encode([7; 32])));
            check_denied(&longer, &alice, message);
        }
    }
}

/// What an attacker plans who has the certificate and the entry that the services give to anyone.
#[test]
fn plans_that_prove_something_else_are_denied() {
    let sigstore = Sigstore::new();
    let alice = identity(EMAIL, ISSUER, &sigstore.trusted_root());
    let late = "its certificate was not valid at the time of its log entry";
    for (plan, message) in [
        (
            Plan {
                time: TIME + 600,
                ..Plan::default()
            },
            late,
        ),
        (
            Plan {
                time: TIME - 600,
                ..Plan::default()
            },
            late,
        ),
        (
            Plan {
                names: vec![(0x81, "mallory@example.com")],
                ..Plan::default()
            },
            "its certificate is of another identity, mallory@example.com",
        ),
        (
            Plan {
                names: vec![(0x81, EMAIL), (0x81, "mallory@example.com")],
                ..Plan::default()
            },
            "its certificate does not name one email address or URI",
        ),
        (
            // The name of a machine.
            Plan {
                names: vec![(0x82, EMAIL)],
                ..Plan::default()
            },
            "its certificate does not name one email address or URI",
        ),
        (
            Plan {
                issuers: vec![(8, "https://evil.example.com")],
                ..Plan::default()
            },
            "its identity is by another issuer, https://evil.example.com",
        ),
        (
            Plan {
                issuers: vec![(1, ISSUER), (8, "https://evil.example.com")],
                ..Plan::default()
            },
            "its certificate does not name one issuer",
        ),
        (
            Plan {
                issuers: vec![],
                ..Plan::default()
            },
            "its certificate does not name one issuer",
        ),
        (
            Plan {
                is_seen: false,
                ..Plan::default()
            },
            "its certificate has no timestamp of a log of certificates",
        ),
        (
            Plan {
                is_of_other_certificate: true,
                ..Plan::default()
            },
            "its log entry is of another certificate",
        ),
        (
            Plan {
                has_other_key: true,
                ..Plan::default()
            },
            "the signature is not by its key",
        ),
    ] {
        check_denied(&sigstore.bundle(&plan), &alice, message);
    }
    let bundle = sigstore.bundle(&Plan {
        purpose: SERVERS,
        ..Plan::default()
    });
    let status = read(&bundle).unwrap().verify(&alice).unwrap_err();
    let message = "no authority of the trusted root issued its certificate for signing code";
    assert!(status.message().contains(message), "{status:?}");
}

/// What an attacker changes in the file.
#[test]
fn altered_bundles_are_denied() {
    let sigstore = Sigstore::new();
    let alice = identity(EMAIL, ISSUER, &sigstore.trusted_root());
    let bundle = sigstore.bundle(&Plan::default());
    let other = sigstore.bundle(&Plan::default());
    let entry = |name: &str| format!("{ENTRY}/{name}");
    let of_other = |pointer: &str| with(&bundle, pointer, other.pointer(pointer).unwrap().clone());
    let envelope = entry("inclusionProof/checkpoint/envelope");
    let evil = Sigstore::new();
    let promise = entry("inclusionPromise/signedEntryTimestamp");
    let unsigned = bundle
        .pointer(&envelope)
        .unwrap()
        .as_str()
        .unwrap()
        .replace("- 7\n", "- 8\n");
    let tree = tree_hash(&[vec![1], vec![2]]);
    let payload = json!(STANDARD.encode(statement(b"evil")));
    for (bundle, message) in [
        (
            with(&bundle, "/verificationMaterial/tlogEntries", json!([])),
            "expected one entry of a transparency log, found 0",
        ),
        (
            without(&bundle, ENTRY, "inclusionProof"),
            "its log entry has no inclusion proof",
        ),
        (
            without(&bundle, ENTRY, "inclusionPromise"),
            "its log entry has no signed time (inclusion promise), and the bundle has no timestamp \
             of an authority (RFC 3161)",
        ),
        (
            without(&bundle, &entry("inclusionProof"), "checkpoint"),
            "its log entry has no checkpoint",
        ),
        (
            of_other("/verificationMaterial/tlogEntries"),
            "its log entry is of another signature",
        ),
        (
            of_other("/verificationMaterial/certificate"),
            "its log entry is of another certificate",
        ),
        (
            of_other("/dsseEnvelope/signatures"),
            "its log entry is of another signature",
        ),
        (
            of_other(&entry("inclusionProof")),
            "the inclusion proof of its log entry is of another entry",
        ),
        (
            of_other(&entry("canonicalizedBody")),
            "the log did not sign its entry and the time of it",
        ),
        (
            with(&bundle, &entry("integratedTime"), json!(TIME + 1)),
            "the log did not sign its entry and the time of it",
        ),
        (
            with(
                &bundle,
                &promise,
                json!(STANDARD.encode(evil.log.sign(b"x"))),
            ),
            "the log did not sign its entry and the time of it",
        ),
        (
            with(
                &bundle,
                &entry("logId/keyId"),
                json!(STANDARD.encode(evil.log.id())),
            ),
            "its log entry is of no log of the trusted root",
        ),
        (
            with(&bundle, &envelope, json!(unsigned)),
            "the log did not sign the checkpoint of its entry",
        ),
        (
            with(&bundle, &envelope, json!("")),
            "the log did not sign the checkpoint of its entry",
        ),
        (
            with(&bundle, &envelope, json!(sigstore.checkpoint(2, &tree))),
            "the checkpoint of its log entry is of another tree",
        ),
        (
            with(&bundle, "/dsseEnvelope/payload", payload),
            "its log entry is of other content",
        ),
    ] {
        check_denied(&bundle, &alice, message);
    }
    let mut twice = bundle.clone();
    let entries = twice
        .pointer_mut("/verificationMaterial/tlogEntries")
        .unwrap();
    entries
        .as_array_mut()
        .unwrap()
        .push(bundle.pointer(ENTRY).unwrap().clone());
    check_denied(
        &twice,
        &alice,
        "expected one entry of a transparency log, found 2",
    );
}

/// Services that the user does not trust, or did not trust at the time.
#[test]
fn only_services_of_the_trusted_root_count() {
    let sigstore = Sigstore::new();
    let bundle = sigstore.bundle(&Plan::default());
    let trusted = sigstore.trusted_root();
    let evil = Sigstore::new().trusted_root();
    let ended = json!({"start": "2025-01-01T00:00:00Z", "end": "2026-01-01T00:00:00Z"});
    let future = json!({"start": "2026-01-02T00:05:01Z"});
    let unseen = "no log of certificates of the trusted root has seen its certificate";
    let unknown = "its log entry is of no log of the trusted root";
    let early = "no authority of the trusted root was valid at the time of its log entry";
    for (pointer, value, message) in [
        ("/tlogs", evil["tlogs"].clone(), unknown),
        ("/tlogs/0/publicKey/validFor", ended.clone(), unknown),
        ("/tlogs/0/publicKey/validFor", future.clone(), unknown),
        ("/ctlogs", evil["ctlogs"].clone(), unseen),
        ("/ctlogs/0/publicKey/validFor", ended.clone(), unseen),
        ("/certificateAuthorities/0/validFor", ended, early),
        ("/certificateAuthorities/0/validFor", future, early),
    ] {
        let root = with(&trusted, pointer, value);
        check_denied(&bundle, &identity(EMAIL, ISSUER, &root), message);
    }
    let pointer = "/certificateAuthorities";
    let root = with(&trusted, pointer, evil["certificateAuthorities"].clone());
    let status = read(&bundle)
        .unwrap()
        .verify(&identity(EMAIL, ISSUER, &root))
        .unwrap_err();
    let message = "no authority of the trusted root issued its certificate for signing code: ";
    assert!(status.message().contains(message), "{status:?}");
    for (name, issuer, message) in [
        (
            "alice@example.co",
            ISSUER,
            "of another identity, alice@example.com",
        ),
        (
            "Alice@example.com",
            ISSUER,
            "of another identity, alice@example.com",
        ),
        (
            EMAIL,
            "https://accounts.example.com/",
            "by another issuer, https://accounts.example.com",
        ),
    ] {
        check_denied(&bundle, &identity(name, issuer, &trusted), message);
    }
    assert!(Identity::new("", ISSUER, self::root(&trusted)).is_err());
    // The certificate of an authority alone does not say which identities count.
    let pem = format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        STANDARD.encode(sigstore.root_certificate())
    );
    let authority = BundleSigner::from_file(pem.as_bytes()).unwrap();
    check_denied(
        &bundle,
        &authority,
        "the bundle is keyless: expected an identity with its issuer",
    );
    let key = BundleSigner::from_file(include_bytes!("bundles/p256.pem")).unwrap();
    check_denied(&bundle, &key, "the signature is not by its key");
}

/// No byte of a certificate can be another one, and none can be missing.
#[test]
fn each_byte_of_a_certificate_counts() {
    let sigstore = Sigstore::new();
    let alice = identity(EMAIL, ISSUER, &sigstore.trusted_root());
    let bundle = sigstore.bundle(&Plan::default());
    let pointer = "/verificationMaterial/certificate/rawBytes";
    let leaf = STANDARD
        .decode(bundle.pointer(pointer).unwrap().as_str().unwrap())
        .unwrap();
    for at in 0..leaf.len() {
        let mut changed = leaf.clone();
        changed[at] ^= 1 << (at % 8);
        for der in [&changed[..], &leaf[..at]] {
            let bundle = with(&bundle, pointer, json!(STANDARD.encode(der)));
            let verified = read(&bundle).and_then(|bundle| bundle.verify(&alice));
            let code = verified.unwrap_err().code();
            let is_expected = matches!(
                code,
                StatusCode::InvalidArgument | StatusCode::PermissionDenied
            );
            assert!(is_expected, "{at}: {code:?}");
        }
    }
}

/// `tests/bundles/keyless.sig`, which the tests of the command line, of Python and the fuzzer use.
#[test]
fn the_kept_bundle_counts() {
    let root = include_str!("bundles/trusted_root.json");
    let signer = identity(EMAIL, ISSUER, &serde_json::from_str(root).unwrap());
    let bundle = Bundle::read(include_bytes!("bundles/keyless.sig")).unwrap();
    bundle.verify(&signer).unwrap();
    assert!(bundle.lists(MODULE));
}
