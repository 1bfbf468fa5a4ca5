//! Files that are no bundles, and no trusted roots.

use super::*;

#[test]
fn malformed_bundles_have_a_status() {
    let sigstore = Sigstore::new();
    let bundle = sigstore.bundle(&Plan::default());
    let entry = |name: &str| format!("{ENTRY}/{name}");
    let body = |alter: fn(&mut Value)| {
        let pointer = entry("canonicalizedBody");
        let text = STANDARD
            .decode(bundle.pointer(&pointer).unwrap().as_str().unwrap())
            .unwrap();
        let mut body = serde_json::from_slice(&text).unwrap();
        alter(&mut body);
        without(
            &with(&bundle, &pointer, json!(STANDARD.encode(body.to_string()))),
            ENTRY,
            "kindVersion",
        )
    };
    let leaf = "/verificationMaterial/certificate/rawBytes";
    let hashes = vec![STANDARD.encode([0; 32]); 65];
    for (bundle, code, message) in [
        (
            with(
                &bundle,
                "/mediaType",
                json!("application/vnd.dev.sigstore.bundle.v0.4+json"),
            ),
            StatusCode::Unimplemented,
            "bundle.v0.4+json",
        ),
        (
            body(|body| body["apiVersion"] = json!("0.0.3")),
            StatusCode::Unimplemented,
            "found \"dsse 0.0.3\"",
        ),
        (
            body(|body| body["apiVersion"] = json!("0.0.2")),
            StatusCode::InvalidArgument,
            "expected one signature in the log entry of the bundle, found 0",
        ),
        (
            with(&bundle, &entry("logIndex"), json!([[[0]]])),
            StatusCode::InvalidArgument,
            "expected a number of at most 64 bits",
        ),
        (
            body(|body| body["more"] = json!(vec![json!([[]]); 100_000])),
            StatusCode::InvalidArgument,
            "whose values take at most 8388608 bytes of memory, found more",
        ),
        (
            body(|body| body["kind"] = json!("rfc3161")),
            StatusCode::Unimplemented,
            "found \"rfc3161 0.0.1\"",
        ),
        (
            body(|body| body["spec"]["payloadHash"]["algorithm"] = json!("md5")),
            StatusCode::Unimplemented,
            "found \"md5\"",
        ),
        (
            body(|body| body["spec"]["signatures"] = json!([])),
            StatusCode::InvalidArgument,
            "expected one signature in the log entry of the bundle, found 0",
        ),
        (
            body(|body| *body = json!([])),
            StatusCode::InvalidArgument,
            "its log entry has no",
        ),
        (
            with(&bundle, &entry("kindVersion/kind"), json!("intoto")),
            StatusCode::InvalidArgument,
            "the kind of its log entry is not that of the body",
        ),
        (
            with(&bundle, &entry("canonicalizedBody"), json!("%")),
            StatusCode::InvalidArgument,
            "expected the log entry of the bundle as base64",
        ),
        (
            with(
                &bundle,
                &entry("canonicalizedBody"),
                json!(STANDARD.encode("[".repeat(1000))),
            ),
            StatusCode::InvalidArgument,
            "recursion limit",
        ),
        (
            with(&bundle, &entry("integratedTime"), json!("-1")),
            StatusCode::InvalidArgument,
            "the bundle is malformed",
        ),
        (
            with(&bundle, &entry("inclusionProof/rootHash"), json!("AAAA")),
            StatusCode::InvalidArgument,
            "expected hashes of 32 bytes",
        ),
        (
            with(&bundle, &entry("inclusionProof/hashes"), json!(hashes)),
            StatusCode::ResourceExhausted,
            "expected a proof of at most 64 hashes, found 65",
        ),
        (
            with(
                &bundle,
                "/verificationMaterial/tlogEntries",
                json!(vec![bundle.pointer(ENTRY).unwrap(); 17]),
            ),
            StatusCode::ResourceExhausted,
            "expected a bundle of at most 16 log entries, found 17",
        ),
        (
            with(
                &bundle,
                leaf,
                json!(STANDARD.encode(b"\x30\x84\xff\xff\xff\xff")),
            ),
            StatusCode::InvalidArgument,
            "the bundle has a malformed certificate",
        ),
    ] {
        let status = read(&bundle).unwrap_err();
        assert_eq!(status.code(), code, "{status:?}");
        assert!(
            status.message().contains(message),
            "expected {message:?} in {status:?}"
        );
    }
    let both = {
        let mut bundle = bundle.clone();
        let chain = json!({"certificates": [bundle["verificationMaterial"]["certificate"]]});
        bundle["verificationMaterial"]["x509CertificateChain"] = chain;
        read(&bundle).unwrap_err()
    };
    assert!(both.message().contains("found both"), "{both:?}");
    for (text, code) in [
        (
            format!("{{\"mediaType\":{}", "[".repeat(100_000)),
            StatusCode::InvalidArgument,
        ),
        (
            format!("{bundle}{}", " ".repeat(16 << 20)),
            StatusCode::ResourceExhausted,
        ),
        (
            bundle.to_string()[..1000].to_owned(),
            StatusCode::InvalidArgument,
        ),
    ] {
        assert_eq!(Bundle::read(text.as_bytes()).unwrap_err().code(), code);
    }
}

#[test]
fn wrong_trusted_roots_are_refused() {
    let trusted = Sigstore::new().trusted_root();
    // Of Ed448 (RFC 8410).
    let ed448 = "MEMwBQYDK2VxAzoAX9dEm1m0Yf0s5fsYrWrhsNhkzTQ9gHBaKcYwP8k7sYbBbZBBZ4QJVPOZ1wB5bLwV2fZyqo3r8icA";
    for (pointer, value, code, message) in [
        (
            "/mediaType",
            json!("x"),
            StatusCode::Unimplemented,
            "of version 0.1 or 0.2, found \"x\"",
        ),
        (
            "/tlogs",
            json!([]),
            StatusCode::InvalidArgument,
            "has no transparency log",
        ),
        (
            "/ctlogs",
            json!([]),
            StatusCode::InvalidArgument,
            "has no log of certificates",
        ),
        (
            "/certificateAuthorities",
            json!([]),
            StatusCode::InvalidArgument,
            "has no certificate authority",
        ),
        (
            "/certificateAuthorities/0/certChain/certificates",
            json!([]),
            StatusCode::InvalidArgument,
            "an authority has no certificate",
        ),
        (
            "/certificateAuthorities/0/certChain/certificates/0/rawBytes",
            json!("MAA="),
            StatusCode::InvalidArgument,
            "an authority has a malformed certificate",
        ),
        (
            "/tlogs/0/logId/keyId",
            json!("AAAA"),
            StatusCode::InvalidArgument,
            "the identifier of a log is not that of its key",
        ),
        (
            "/tlogs/0/publicKey/validFor/start",
            json!("yesterday"),
            StatusCode::InvalidArgument,
            "expected a time in UTC, found \"yesterday\"",
        ),
        (
            "/tlogs/0/publicKey/validFor",
            json!({"end": "2035-01-01T00:00:00Z"}),
            StatusCode::InvalidArgument,
            "expected `validFor` with a `start` for the key of a log, found none",
        ),
        (
            "/ctlogs/0/publicKey/validFor",
            json!({}),
            StatusCode::InvalidArgument,
            "expected `validFor` with a `start` for the key of a log, found none",
        ),
        // Keys of other algorithms are left out.
        (
            "/tlogs/0/publicKey/rawBytes",
            json!(ed448),
            StatusCode::InvalidArgument,
            "has no transparency log",
        ),
    ] {
        let root = with(&trusted, pointer, value);
        let status = TrustedRoot::from_json(root.to_string().as_bytes()).unwrap_err();
        assert_eq!(status.code(), code, "{status:?}");
        assert!(
            status.message().contains(message),
            "expected {message:?} in {status:?}"
        );
    }
    let mut without = trusted.clone();
    let key = without.pointer_mut("/tlogs/0/publicKey").unwrap();
    key.as_object_mut().unwrap().remove("validFor");
    let status = TrustedRoot::from_json(without.to_string().as_bytes()).unwrap_err();
    assert!(status.message().contains("with a `start`"), "{status:?}");
    // The certificates of an authority have times of their own.
    let open = with(&trusted, "/certificateAuthorities/0/validFor", json!({}));
    TrustedRoot::from_json(open.to_string().as_bytes()).unwrap();
    let large = format!("{trusted}{}", " ".repeat(1 << 20));
    let status = TrustedRoot::from_json(large.as_bytes()).unwrap_err();
    assert_eq!(status.code(), StatusCode::ResourceExhausted);
    assert!(TrustedRoot::from_json(b"{").is_err());
}
