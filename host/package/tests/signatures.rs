//! Signatures of modules and packages, and attacks on them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use callbox_core::values::{Blame, StatusCode};
use callbox_package::{
    Header, Limits, PublicKey, SecretKey, Signatures, Signer, Trust, pack, read, sign,
};
use proptest::prelude::*;

const MODULE: &[u8] = b"\0asm\x01\0\0\0";

/// Made by `openssl genpkey -algorithm ed25519` and `openssl pkey -pubout`.
const SECRET_PEM: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIEJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJC
-----END PRIVATE KEY-----
";
const PUBLIC_PEM: &str = "-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAIVL40Zt5HSRFMkLhXy6rbLfP+ntqXtMAl5YOBpiB2xI=
-----END PUBLIC KEY-----
";
const PUBLIC: &str = "ed25519:2152f8d19b791d24453242e15f2eab6cb7cffa7b6a5ed30097960e069881db12";

fn key(seed: u8) -> SecretKey {
    SecretKey::from_bytes(&[seed; 32]).unwrap()
}

fn package(readme: &str) -> Vec<u8> {
    let header = Header::new("k", "1.0.0", "MIT");
    let files = BTreeMap::from([
        ("README.md".to_owned(), readme.as_bytes().to_vec()),
        ("callbox.json".to_owned(), b"{}".to_vec()),
        ("cases/a.json".to_owned(), b"{}".to_vec()),
    ]);
    pack(MODULE, &header, &files, &Limits::default()).unwrap()
}

/// The signature section of a signed module, and what comes after it.
fn parts(signed: &[u8]) -> (&[u8], &[u8]) {
    let payloads = wasmparser::Parser::new(0).parse_all(signed);
    let section = payloads.map(Result::unwrap).nth(1).unwrap();
    signed[8..].split_at(section.as_section().unwrap().1.end - 8)
}

fn joined(section: &[u8], content: &[u8]) -> Vec<u8> {
    [MODULE, section, content].concat()
}

#[test]
fn a_signature_covers_the_whole_package() {
    let plain = package("Text.");
    assert!(!Signatures::read(&plain).unwrap().is_signed());
    let signed = sign(&plain, &key(1)).unwrap();
    assert_eq!(signed, sign(&signed, &key(1)).unwrap());
    let signatures = Signatures::read(&signed).unwrap();
    assert!(signatures.is_by(&key(1).public()));
    assert!(!signatures.is_by(&key(2).public()));
    assert_eq!(signatures.signers(), [Signer::Valid(key(1).public())]);
    // The package reads as before.
    let package = read(&signed, &Limits::default()).unwrap();
    assert_eq!(package.file("README.md"), Some(&b"Text."[..]));
    // A change of any byte after the section, a byte less and a section more.
    let (section, content) = parts(&signed);
    for at in 0..content.len() {
        let mut other = content.to_vec();
        other[at] ^= 1;
        let other = joined(section, &other);
        let wrong = [Signer::Wrong(key(1).public())];
        assert_eq!(Signatures::read(&other).unwrap().signers(), wrong, "{at}");
    }
    let longer = [&signed[..], b"\0\x02\x01x"].concat();
    assert!(!Signatures::read(&longer).unwrap().is_by(&key(1).public()));
    let shorter = &signed[..signed.len() - 1];
    assert!(!Signatures::read(shorter).unwrap().is_by(&key(1).public()));
}

#[test]
fn several_keys_sign_the_same_content() {
    let signed = sign(&sign(&package(""), &key(1)).unwrap(), &key(2)).unwrap();
    let signatures = Signatures::read(&signed).unwrap();
    assert!(signatures.is_by(&key(1).public()) && signatures.is_by(&key(2).public()));
    // A signature of other content is dropped when the file is signed again.
    let moved = joined(parts(&signed).0, &package("Other.")[8..]);
    let again = sign(&moved, &key(3)).unwrap();
    let signers = Signatures::read(&again).unwrap().signers();
    assert_eq!(signers, [Signer::Valid(key(3).public())]);
    let error = pack(
        &sign(MODULE, &key(1)).unwrap(),
        &Header::new("k", "1.0.0", "MIT"),
        &BTreeMap::new(),
        &Limits::default(),
    );
    let message = error.unwrap_err().message().to_owned();
    assert!(message.starts_with("the module is signed"), "{message}");
}

/// `wasmsign2 sign`, version 0.2.8, signed the empty module with the key of these tests.
#[test]
fn other_tools_write_the_same_format() {
    let signed = hex::decode(WASMSIGN2).unwrap();
    let signatures = Signatures::read(&signed).unwrap();
    assert!(signatures.is_by(&PUBLIC.parse().unwrap()));
    // Its identifier of the key is a hash.
    assert!(matches!(&signatures.signers()[..], [Signer::Unknown(id)] if id.len() == 12));
    let own = SecretKey::from_file(SECRET_PEM.as_bytes()).unwrap();
    let own = sign(MODULE, &own).unwrap();
    let record = &signed[signed.len() - 80..];
    assert!(
        own.ends_with(record),
        "the record of wasmsign2 is in {own:02x?}"
    );
    let trust = format!(r#"{{"signatures":{{"*":{{"signed_by":"{PUBLIC}"}}}}}}"#);
    let trust = Trust::from_json(trust.as_bytes()).unwrap();
    trust.check("k", &signed).unwrap();
}

const WASMSIGN2: &str = "\
    0061736d01000000008101097369676e6174757265010101017201e3b0c44298fc1c149afbf4c899\
    6fb92427ae41e4649b934ca495991b7852b855014f0cbdc498530b81c326b1ca514401402c68dd44\
    c86f75d217410d224819dfa5c95dd47c2afff126d0e6889b6f9cfa7f32e9782816416143f30f514e\
    7ff11110280719ebb705ed0f492d08509cfbfe0b";

/// A signature over parts of a module counts only if it covers the end of this one.
#[test]
fn a_module_that_was_cut_at_a_delimiter_is_not_signed() {
    use sha2::{Digest, Sha256};
    let delimiter = [&b"\0\x24\x13signature_delimiter"[..], &[7; 16]].concat();
    let (first, second) = (
        delimiter.clone(),
        [&b"\0\x02\x01x"[..], &delimiter].concat(),
    );
    let whole = [&first[..], &second].concat();
    let hashes = [Sha256::digest(&first), Sha256::digest(&whole)].concat();
    let message = [b"wasmsig\x01\x01\x01", &hashes[..]].concat();
    let signer = ed25519_compact::KeyPair::from_seed(ed25519_compact::Seed::new([1; 32]));
    let signature = *signer.sk.sign(&message, None);
    let one = [&b"\0\x01\x40"[..], &signature].concat();
    let set = [&[2][..], &hashes, &[1, one.len() as u8], &one].concat();
    let data = [&b"\x01\x01\x01\x01"[..], &leb(set.len()), &set].concat();
    let body = [&b"\x09signature"[..], &data].concat();
    let section = [&[0][..], &leb(body.len()), &body].concat();
    let is_signed = |content: &[u8]| {
        let module = joined(&section, content);
        Signatures::read(&module).unwrap().is_by(&key(1).public())
    };
    assert!(is_signed(&whole));
    assert!(!is_signed(&first));
    assert!(!is_signed(&[&whole[..], &second].concat()));
}

fn leb(number: usize) -> Vec<u8> {
    vec![(number & 0x7f) as u8 | 0x80, (number >> 7) as u8]
}

#[test]
fn malformed_signatures_are_refused() {
    let refused = |data: &[u8]| {
        let body = [b"\x09signature", data].concat();
        let module = [MODULE, &[0], &leb(body.len()), &body].concat();
        let status = Signatures::read(&module).unwrap_err();
        assert_eq!(status.blame(), Blame::Guest);
        (status.code(), status.message().to_owned())
    };
    let invalid = |data: &[u8], message: &str| {
        let (code, found) = refused(data);
        assert_eq!(code, StatusCode::InvalidArgument);
        assert!(found.contains(message), "expected {message:?} in {found:?}");
    };
    invalid(b"", "the signatures are malformed: ");
    invalid(b"\x01\x01\x01\x01", "the signatures are malformed: ");
    invalid(b"\x01\x01\x01\0\0", "1 bytes too many");
    invalid(b"\x01\x01\x01\x01\x03\0\0\0", "1 bytes too many");
    // A set of 100 hashes, of which none is there.
    let exhausted = refused(b"\x01\x01\x01\x01\x01\x64");
    assert_eq!(exhausted.0, StatusCode::ResourceExhausted);
    assert_eq!(exhausted.1, "expected at most 64 hashes, found 100");
    let many = refused(b"\x01\x01\x01\xff\xff\xff\xff\x0f");
    assert_eq!(many.0, StatusCode::ResourceExhausted);
    // 65 signatures.
    let many = refused(b"\x01\x01\x01\x01\x02\0\x41");
    assert_eq!(many.1, "expected at most 64 signatures, found 65");
    // Another version, content and hash.
    for kind in [b"\x02\x01\x01\0", b"\x01\x02\x01\0", b"\x01\x01\x02\0"] {
        assert_eq!(refused(kind).0, StatusCode::Unimplemented);
    }
    assert!(Signatures::read(b"\x7fELF").is_err());
    assert!(Signatures::read(b"").is_err());
}

/// The same bytes under another algorithm's number are not a signature of the key.
#[test]
fn another_algorithm_is_not_a_signature() {
    let mut signed = sign(MODULE, &key(1)).unwrap();
    let starts = signed.windows(2).enumerate();
    let starts: Vec<_> = starts.filter(|(_, two)| *two == [1, 64]).collect();
    let starts: Vec<_> = starts.into_iter().map(|(at, _)| at).collect();
    assert_eq!(starts.len(), 2);
    for at in starts {
        signed[at] = 2;
    }
    let signatures = Signatures::read(&signed).unwrap();
    assert!(!signatures.is_by(&key(1).public()));
    let signers = signatures.signers();
    assert!(matches!(
        &signers[..],
        [Signer::Unknown(_), Signer::Unknown(_)]
    ));
}

#[test]
fn rules_ask_for_keys_by_name() {
    let rules = format!(
        r#"{{
          "keys": {{"alice": "{}", "bob": "{}", "old": "{}"}},
          "signatures": {{
            "hf:org/*": {{"signed_by": ["alice", "old"]}},
            "*/both@v1": {{"signed_by": "bob"}}
          }},
          "revoked": ["old"]
        }}"#,
        key(1).public(),
        key(2).public(),
        key(3).public()
    );
    let trust = Trust::from_json(rules.as_bytes()).unwrap();
    let plain = package("");
    let by = |seed| sign(&plain, &key(seed)).unwrap();
    let refused = |name: &str, module: &[u8]| {
        let status = trust.check(name, module).unwrap_err();
        assert_eq!(status.code(), StatusCode::PermissionDenied);
        assert_eq!(status.blame(), Blame::Caller);
        status.message().to_owned()
    };
    trust.check("hf:other/k@v1", &plain).unwrap();
    trust.check("hf:org/k@v1", &by(1)).unwrap();
    trust
        .check("hf:org/both@v1", &sign(&by(1), &key(2)).unwrap())
        .unwrap();
    let rule = "the rule for \"hf:org/*\" asks for a signature by alice or old, found ";
    for (module, found) in [
        (plain.clone(), "no signature"),
        (by(2), "a signature by bob"),
        (by(3), "a signature by old, which is revoked"),
        (
            joined(parts(&by(1)).0, &package("Other.")[8..]),
            "a signature by alice of other content",
        ),
    ] {
        assert_eq!(refused("hf:org/k@v1", &module), format!("{rule}{found}"));
    }
    let one_of_two = refused("hf:org/both@v1", &by(1));
    assert!(
        one_of_two.contains("by bob, found a signature by alice"),
        "{one_of_two}"
    );
    assert!(trust.check_unsigned("hf:org/k@v1").is_err());
    trust.check_unsigned("libk.so").unwrap();
}

#[test]
fn rules_may_have_backslashes() {
    let rules = format!(
        r#"{{"signatures": {{"C:\\k\\*": {{"signed_by": "{}"}}}}}}"#,
        key(1).public()
    );
    let trust = Trust::from_json(rules.as_bytes()).unwrap();
    for name in ["C:/k/a.wasm", r"C:\k\a.wasm"] {
        assert!(trust.asks_for(name), "{name}");
    }
    assert!(!trust.asks_for("C:/l/a.wasm"));
}

#[test]
fn rules_that_are_wrong_are_refused() {
    for (text, message) in [
        ("", "the rules are wrong: EOF"),
        ("{}", "missing field `signatures`"),
        (
            r#"{"signatures":{}}"#,
            "expected a rule in `signatures`, found none",
        ),
        (
            r#"{"signatures":{"*":{"signed_by":[]}}}"#,
            "`signatures` for \"*\": expected a key",
        ),
        (
            r#"{"signatures":{"*":{"signed_by":"alice"}}}"#,
            "`keys` has no key \"alice\"",
        ),
        (
            r#"{"signatures":{"*":{"signed_by":"ed25519:00"}}}"#,
            "expected a public key such as",
        ),
        (
            r#"{"signatures":{"*":{"signed_by":"rsa:00"}}}"#,
            "expected a public key such as",
        ),
        (
            r#"{"signatures":{"*":{"signed_by":7}}}"#,
            "expected the name of a key",
        ),
        (r#"{"signatures":{"*":{}}}"#, "missing field `signed_by`"),
        (r#"{"signature":{}}"#, "unknown field `signature`"),
        (
            r#"{"keys":{"a":"KEY"},"signatures":{"*":{"signed_by":"a"},"*":{"signed_by":"a"}}}"#,
            "`*` occurs twice",
        ),
        (
            r#"{"keys":{"a":"KEY","a":"KEY"},"signatures":{}}"#,
            "`a` occurs twice",
        ),
        (
            r#"{"signatures":{"*":{"signed_by":"KEY"}},"revoked":["b"]}"#,
            "no key \"b\"",
        ),
    ] {
        let status = Trust::from_json(text.replace("KEY", PUBLIC).as_bytes()).unwrap_err();
        assert_eq!(status.code(), StatusCode::InvalidArgument);
        let found = status.message();
        assert!(found.contains(message), "expected {message:?} in {found:?}");
    }
}

#[test]
fn keys_are_read_as_other_tools_write_them() {
    let public: PublicKey = PUBLIC.parse().unwrap();
    let secret = SecretKey::from_file(SECRET_PEM.as_bytes()).unwrap();
    assert_eq!(secret.public(), public);
    let raw = [&[0x81][..], &[0x42; 32], &public.to_bytes()].concat();
    assert_eq!(SecretKey::from_file(&raw).unwrap().public(), public);
    let raw_public = [&[1][..], &public.to_bytes()].concat();
    for file in [PUBLIC_PEM.as_bytes(), PUBLIC.as_bytes(), &raw_public] {
        assert_eq!(PublicKey::from_file(file).unwrap(), public);
    }
    // One for the other, and keys that do not belong together.
    assert!(SecretKey::from_file(PUBLIC_PEM.as_bytes()).is_err());
    assert!(PublicKey::from_file(SECRET_PEM.as_bytes()).is_err());
    assert!(SecretKey::from_file(&[&raw[..33], &[7; 32]].concat()).is_err());
    // A key of small order, for which a signature of everything exists.
    assert!(PublicKey::from_bytes([&[1][..], &[0; 31]].concat().try_into().unwrap()).is_err());
    assert!(SecretKey::from_bytes(&[0; 32]).is_err());
    assert!(!format!("{secret:?}").contains("4242"));
}

proptest! {
    #[test]
    fn bytes_never_panic(data in prop::collection::vec(any::<u8>(), 0..96)) {
        let body = [b"\x09signature", &data[..]].concat();
        let module = [MODULE, &[0], &leb(body.len()), &body].concat();
        if let Ok(signatures) = Signatures::read(&module) {
            prop_assert!(!signatures.is_by(&key(1).public()));
        }
        let _ = Trust::from_json(&data);
        let _ = SecretKey::from_file(&data);
        let _ = PublicKey::from_file(&data);
    }
}
