//! Bundles of logs of version 2, whose times are of timestamp authorities (RFC 3161).

use super::sigstore::Stamp;
use super::*;

const STAMPS: &str = "/verificationMaterial/timestampVerificationData/rfc3161Timestamps";

fn stamped(stamps: Vec<Stamp>) -> Plan {
    Plan {
        is_log_2: true,
        stamps,
        ..Plan::default()
    }
}

#[test]
fn a_timestamp_stands_in_for_the_time_of_a_log() {
    let sigstore = Sigstore::new();
    let alice = identity(EMAIL, ISSUER, &sigstore.trusted_root_2());
    for kind in ["dsse", "hashedrekord"] {
        for time in ["20260102000500Z", "20260102000500.25Z", "20260102001000Z"] {
            let stamp = Stamp {
                time,
                ..Stamp::default()
            };
            let plan = Plan {
                kind,
                ..stamped(vec![stamp])
            };
            let bundle = sigstore.bundle(&plan);
            read(&bundle).unwrap().verify(&alice).unwrap();
            let elsewhere = identity(EMAIL, ISSUER, &Sigstore::new().trusted_root_2());
            let unknown = "its timestamp is of no authority of the trusted root";
            check_denied(&bundle, &elsewhere, unknown);
        }
    }
    // One that no authority of the root signed is left out.
    let unknown = Stamp {
        has_other_key: true,
        ..Stamp::default()
    };
    let bundle = sigstore.bundle(&stamped(vec![unknown, Stamp::default()]));
    read(&bundle).unwrap().verify(&alice).unwrap();
    // Beside the time that a log signed, timestamps need not be there.
    let alice = identity(EMAIL, ISSUER, &sigstore.trusted_root());
    let bundle = sigstore.bundle(&Plan::default());
    let bundle = with(&bundle, STAMPS, json!([{"signedTimestamp": "AAAA"}]));
    read(&bundle).unwrap().verify(&alice).unwrap();
}

#[test]
fn timestamps_that_prove_something_else_are_denied() {
    let sigstore = Sigstore::new();
    let root = sigstore.trusted_root_2();
    let alice = identity(EMAIL, ISSUER, &root);
    let late = "its certificate was not valid at the time of its timestamp";
    let malformed = "its timestamp (RFC 3161) is malformed, or of a kind that is not supported";
    let good = Stamp::default();
    for (stamps, message) in [
        (
            vec![Stamp {
                time: "20260102001001Z",
                ..good.clone()
            }],
            late,
        ),
        (
            vec![Stamp {
                time: "20260101235959Z",
                ..good.clone()
            }],
            late,
        ),
        // Each of several must be within the validity of the certificate.
        (
            vec![
                good.clone(),
                Stamp {
                    time: "20260102001001Z",
                    ..good.clone()
                },
            ],
            late,
        ),
        (
            vec![Stamp {
                time: "20240102000500Z",
                ..good.clone()
            }],
            "the authority of its timestamp was not valid at that time",
        ),
        (
            vec![Stamp {
                time: "20260102000500+0100",
                ..good.clone()
            }],
            malformed,
        ),
        (
            vec![Stamp {
                is_of_other: true,
                ..good.clone()
            }],
            "its timestamp is of another signature",
        ),
        (
            vec![Stamp {
                has_other_key: true,
                ..good.clone()
            }],
            "its authority did not sign its timestamp",
        ),
        (
            vec![Stamp {
                has_other_contents: true,
                ..good.clone()
            }],
            malformed,
        ),
        (
            vec![Stamp {
                has_other_certificate: true,
                ..good.clone()
            }],
            "its timestamp is of no authority of the trusted root",
        ),
    ] {
        check_denied(&sigstore.bundle(&stamped(stamps)), &alice, message);
    }
    // An authority whose certificate is for something else.
    let stamp = Stamp {
        is_for_servers: true,
        ..good.clone()
    };
    let bundle = sigstore.bundle(&stamped(vec![stamp]));
    let certificate = STANDARD.encode(sigstore.stamper_certificate(true));
    let pointer = "/timestampAuthorities/1/certChain/certificates/0/rawBytes";
    let other = identity(EMAIL, ISSUER, &with(&root, pointer, json!(certificate)));
    let status = read(&bundle).unwrap().verify(&other).unwrap_err();
    let message = "the certificate of its timestamp's authority is not valid for it: ";
    assert!(status.message().contains(message), "{status:?}");

    let bundle = sigstore.bundle(&stamped(vec![good]));
    read(&bundle).unwrap().verify(&alice).unwrap();
    // An entry without a time must be proved to be in the log, in each version of bundles.
    let media_type = with(&bundle, "/mediaType", json!(V1));
    for bundle in [&bundle, &media_type] {
        let message = "its log entry has no inclusion proof";
        check_denied(&without(bundle, ENTRY, "inclusionProof"), &alice, message);
    }
    let envelope = format!("{ENTRY}/inclusionProof/checkpoint/envelope");
    let checkpoint = bundle.pointer(&envelope).unwrap().as_str().unwrap();
    let unsigned = checkpoint.replacen("log2", "log3", 1);
    let message = "the log did not sign the checkpoint of its entry";
    check_denied(&with(&bundle, &envelope, json!(unsigned)), &alice, message);
    for (validity, pointer, message) in [
        (
            json!({"end": "2026-01-02T00:04:59Z"}),
            "/timestampAuthorities/1/validFor",
            "the authority of its timestamp was not valid at that time",
        ),
        (
            json!({"start": "2026-01-02T00:05:01Z"}),
            "/tlogs/0/publicKey/validFor",
            "its log entry is of no log of the trusted root",
        ),
        (
            json!([]),
            "/timestampAuthorities",
            "its timestamp is of no authority of the trusted root",
        ),
    ] {
        let signer = identity(EMAIL, ISSUER, &with(&root, pointer, validity));
        check_denied(&bundle, &signer, message);
    }
    let many = with(
        &bundle,
        STAMPS,
        json!(vec![json!({"signedTimestamp": ""}); 17]),
    );
    let status = read(&many).unwrap_err();
    assert_eq!(status.code(), StatusCode::ResourceExhausted);
    let message = "expected a bundle of at most 16 timestamps, found 17";
    assert!(status.message().contains(message), "{status:?}");
}

/// A log signed a time, and an authority stamped the signature when the certificate was not valid.
#[test]
fn timestamps_beside_the_time_of_a_log_count_too() {
    let sigstore = Sigstore::new();
    let mut root = sigstore.trusted_root();
    root["timestampAuthorities"] = sigstore.trusted_root_2()["timestampAuthorities"].clone();
    let alice = identity(EMAIL, ISSUER, &root);
    for (time, message) in [
        ("20260102000500Z", None),
        (
            "20260102001001Z",
            Some("its certificate was not valid at the time of its timestamp"),
        ),
    ] {
        let stamp = Stamp {
            time,
            ..Stamp::default()
        };
        let plan = Plan {
            is_log_2: false,
            ..stamped(vec![stamp])
        };
        let bundle = sigstore.bundle(&plan);
        match message {
            None => read(&bundle).unwrap().verify(&alice).unwrap(),
            Some(message) => check_denied(&bundle, &alice, message),
        }
    }
}

/// No byte of a timestamp can be another one, and none can be missing. Certificates in it, the
/// signer's name and the response's status are not signed, and do not count.
#[test]
fn each_signed_byte_of_a_timestamp_counts() {
    let sigstore = Sigstore::new();
    let alice = identity(EMAIL, ISSUER, &sigstore.trusted_root_2());
    let bundle = sigstore.bundle(&stamped(vec![Stamp::default()]));
    let pointer = format!("{STAMPS}/0/signedTimestamp");
    let response = bundle.pointer(&pointer).unwrap().as_str().unwrap();
    let response = STANDARD.decode(response).unwrap();
    let certificate = sigstore.stamper_certificate(false);
    let certificate = response
        .windows(20)
        .position(|bytes| bytes == &certificate[..20]);
    let certificate = certificate.unwrap();
    let mut accepted = 0;
    for at in 0..response.len() {
        let mut changed = response.clone();
        changed[at] ^= 1 << (at % 8);
        for (der, is_whole) in [(&changed[..], true), (&response[..at], false)] {
            let bundle = with(&bundle, &pointer, json!(STANDARD.encode(der)));
            let verified = read(&bundle).unwrap().verify(&alice);
            let Err(status) = verified else {
                assert!(is_whole, "{at}");
                accepted += usize::from(at < certificate);
                continue;
            };
            assert_eq!(status.code(), StatusCode::PermissionDenied, "{status:?}");
        }
    }
    // Before the certificates: the status, versions and the names of algorithms.
    assert!(accepted < 16, "{accepted}");
}
