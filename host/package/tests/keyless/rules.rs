//! Identities in rules.

use super::*;

#[test]
fn rules_take_identities() {
    let sigstore = Sigstore::new();
    let trusted = sigstore.trusted_root();
    let bundle = sigstore.bundle(&Plan::default());
    let text = bundle.to_string();
    let alice = json!({"identity": EMAIL, "issuer": ISSUER});
    let bob = json!({"identity": "bob@example.com", "issuer": ISSUER});
    let rules = |signed_by: &Value, revoked: &Value| {
        json!({"trusted_root": trusted, "keys": {"alice": alice},
            "signatures": {"hf:org/*": {"signed_by": signed_by}}, "revoked": revoked})
    };
    let trust = |signed_by: &Value, revoked: &Value| {
        Trust::from_json(rules(signed_by, revoked).to_string().as_bytes()).unwrap()
    };
    let none = json!([]);
    for signed_by in [
        alice.clone(),
        json!("alice"),
        json!([bob, alice]),
        json!([alice]),
    ] {
        let trust = trust(&signed_by, &none);
        assert!(trust.takes_bundles("hf:org/k@v1"));
        trust
            .check_with("hf:org/k@v1", MODULE, Some(text.as_bytes()))
            .unwrap();
    }
    let pem = |der: &str| format!("-----BEGIN CERTIFICATE-----\n{der}\n-----END CERTIFICATE-----");
    let leaf = pem(bundle["verificationMaterial"]["certificate"]["rawBytes"]
        .as_str()
        .unwrap());
    let chain = &trusted["certificateAuthorities"][0]["certChain"]["certificates"];
    let authority = pem(chain[1]["rawBytes"].as_str().unwrap());
    let unrelated = STANDARD.encode(Sigstore::new().root_certificate());
    let all = |text: &str, keys: &[(&str, String)]| {
        let mut rules = rules(&alice, &json!([text]));
        for (name, key) in keys {
            rules["keys"][*name] = json!(key);
        }
        Trust::from_json(rules.to_string().as_bytes()).unwrap()
    };
    let keys = [
        ("leaf", leaf),
        ("authority", authority),
        ("unrelated", pem(&unrelated)),
    ];
    for (trust, module, bundle, message) in [
        (trust(&alice, &none), MODULE, None, "found no signature"),
        (
            trust(&alice, &none),
            &b"\0asm\x01\0\0\0\0\x01\0"[..],
            Some(&text),
            "found a bundle of other content",
        ),
        (
            trust(&bob, &none),
            MODULE,
            Some(&text),
            "asks for a signature by bob@example.com of https://accounts.example.com, found a \
             bundle that does not prove it: its certificate is of another identity, \
             alice@example.com",
        ),
        (
            trust(&alice, &json!(["alice"])),
            MODULE,
            Some(&text),
            "found a signature by alice, which is revoked",
        ),
        (
            trust(&alice, &json!([alice])),
            MODULE,
            Some(&text),
            "found a signature by alice, which is revoked",
        ),
        (
            all("leaf", &keys),
            MODULE,
            Some(&text),
            "found a certificate by alice, which is revoked",
        ),
        (
            all("authority", &keys),
            MODULE,
            Some(&text),
            "found a certificate by alice, which is revoked",
        ),
    ] {
        let bundle = bundle.map(String::as_bytes);
        let status = trust.check_with("hf:org/k@v1", module, bundle).unwrap_err();
        assert_eq!(status.code(), StatusCode::PermissionDenied);
        assert!(status.message().ends_with(message), "{status:?}");
    }
    all("unrelated", &keys)
        .check_with("hf:org/k", MODULE, Some(text.as_bytes()))
        .unwrap();
    let path = rules(&alice, &none)
        .to_string()
        .replace(&trusted.to_string(), "\"root.json\"");
    let read = Trust::from_json_with(path.as_bytes(), |path| {
        assert_eq!(path.to_str(), Some("root.json"));
        Ok(trusted.to_string().into_bytes())
    });
    read.unwrap()
        .check_with("hf:org/k", MODULE, Some(text.as_bytes()))
        .unwrap();
    for (rules, message) in [
        (
            path,
            "expected the contents of a trusted root in `trusted_root`, found a path",
        ),
        (
            json!({"signatures": {"*": {"signed_by": alice}}}).to_string(),
            "expected a `trusted_root` for the identity, found none",
        ),
        (
            json!({"signatures": {"*": {"signed_by": {"identity": EMAIL}}}}).to_string(),
            "expected the name of a key",
        ),
        (
            json!({"trusted_root": {}, "signatures": {"*": {"signed_by": alice}}}).to_string(),
            "`trusted_root`: the trusted root is wrong: missing field `mediaType`",
        ),
    ] {
        let status = Trust::from_json(rules.as_bytes()).unwrap_err();
        assert_eq!(status.code(), StatusCode::InvalidArgument);
        assert!(
            status.message().contains(message),
            "expected {message:?} in {status:?}"
        );
    }
}
