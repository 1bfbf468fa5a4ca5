//! Bundles of signatures: of what a stranger changed, nothing is taken for what was signed.

use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callbox::{Blame, StatusCode};
use callbox_package::oms::{Bundle, BundleSigner, Identity, SignedFiles, TrustedRoot};
use serde_json::{Value, json};

use crate::Target;
use crate::outcome::Outcome;

/// The target. The first byte says what the rest is: a bundle, the statement of one, the
/// certificate of its signer, and of a keyless bundle the log entry or the certificate.
pub const TARGET: Target = Target {
    name: "bundle",
    run,
    max_len: 4096,
    executions: 20_000,
    words: WORDS,
};

const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "null",
    "\"mediaType\"",
    "\"application/vnd.dev.sigstore.bundle.v0.3+json\"",
    "\"verificationMaterial\"",
    "\"publicKey\"",
    "\"certificate\"",
    "\"x509CertificateChain\"",
    "\"certificates\"",
    "\"rawBytes\"",
    "\"dsseEnvelope\"",
    "\"payload\"",
    "\"payloadType\"",
    "\"signatures\"",
    "\"sig\"",
    "\"tlogEntries\"",
    "\"logIndex\"",
    "\"logId\"",
    "\"keyId\"",
    "\"integratedTime\"",
    "\"inclusionPromise\"",
    "\"inclusionProof\"",
    "\"hashes\"",
    "\"checkpoint\"",
    "\"canonicalizedBody\"",
    "\"kind\"",
    "\"apiVersion\"",
    "\"dsse\"",
    "\"hashedrekord\"",
    "\"intoto\"",
    "\"spec\"",
    "\"_type\"",
    "\"subject\"",
    "\"digest\"",
    "\"sha256\"",
    "\"predicate\"",
    "\"serialization\"",
    "\"method\"",
    "\"shards\"",
    "\"resources\"",
    "\"algorithm\"",
    "\"name\"",
    "\"..\"",
    "\"/\"",
];

/// A bundle by a key, and one by a certificate, both made by `model-signing`, and a keyless one.
const BY_KEY: &[u8] = include_bytes!("../../../../host/package/tests/bundles/file.sig");
const BY_CERTIFICATE: &[u8] =
    include_bytes!("../../../../host/package/tests/bundles/certificate.sig");
const KEYLESS: &[u8] = include_bytes!("../../../../host/package/tests/bundles/keyless.sig");

static SIGNED: LazyLock<[Signed; 3]> = LazyLock::new(|| {
    let key = include_bytes!("../../../../host/package/tests/bundles/p256.pem");
    let authority = include_bytes!("../../../../host/package/tests/bundles/root.pem");
    let root = include_bytes!("../../../../host/package/tests/bundles/trusted_root.json");
    let root = Arc::new(TrustedRoot::from_json(root).unwrap());
    let identity = Identity::new("alice@example.com", "https://accounts.example.com", root);
    [
        Signed::new(BY_KEY, BundleSigner::from_file(key).unwrap()),
        Signed::new(BY_CERTIFICATE, BundleSigner::from_file(authority).unwrap()),
        Signed::new(KEYLESS, BundleSigner::Identity(identity.unwrap())),
    ]
});

/// The log entry and the certificate of the keyless bundle.
const ENTRY: &str = "/verificationMaterial/tlogEntries/0/canonicalizedBody";
const LEAF: &str = "/verificationMaterial/certificate/rawBytes";

/// A bundle with its signer.
struct Signed {
    text: Value,
    signer: BundleSigner,
    files: SignedFiles,
}

impl Signed {
    fn new(text: &[u8], signer: BundleSigner) -> Self {
        let bundle = Bundle::read(text).unwrap();
        bundle.verify(&signer).unwrap();
        Self {
            text: serde_json::from_slice(text).unwrap(),
            signer,
            files: bundle.files().clone(),
        }
    }
}

fn run(input: &[u8]) -> Outcome {
    let (kind, rest) = input.split_first().unwrap_or((&0, &[]));
    // The bundle that has the rest in place of a value of its own.
    let (bundle, pointer) = match kind % 5 {
        0 => return checked(rest),
        1 => (&SIGNED[0], "/dsseEnvelope/payload"),
        2 => (
            &SIGNED[1],
            "/verificationMaterial/x509CertificateChain/certificates/0/rawBytes",
        ),
        3 => (&SIGNED[2], ENTRY),
        _ => (&SIGNED[2], LEAF),
    };
    let mut bundle = bundle.text.clone();
    *bundle.pointer_mut(pointer).unwrap() = json!(STANDARD.encode(rest));
    checked(bundle.to_string().as_bytes())
}

fn checked(text: &[u8]) -> Outcome {
    match Bundle::read(text) {
        Ok(bundle) => {
            let verified = SIGNED.each_ref().map(|signed| {
                let verified = bundle.verify(&signed.signer);
                if verified.is_ok() {
                    assert_eq!(bundle.files(), &signed.files);
                }
                verified.map_err(|status| {
                    assert_eq!(status.code(), StatusCode::PermissionDenied, "{status}");
                    Outcome::failure(&status)
                })
            });
            Outcome::of((bundle.files().len().min(3), verified))
        }
        Err(status) => {
            let is_expected = matches!(
                status.code(),
                StatusCode::InvalidArgument
                    | StatusCode::Unimplemented
                    | StatusCode::ResourceExhausted
            );
            assert!(is_expected && status.blame() == Blame::Guest, "{status}");
            Outcome::failure(&status)
        }
    }
}

/// Candidates for seeds.
pub(crate) fn candidates() -> Vec<Vec<u8>> {
    let decoded = |value: &Value| STANDARD.decode(value.as_str().unwrap()).unwrap();
    let [key, certificate, keyless] = &*SIGNED;
    let statement = decoded(&key.text["dsseEnvelope"]["payload"]);
    let chain = &certificate.text["verificationMaterial"]["x509CertificateChain"];
    let leaf = decoded(&chain["certificates"][0]["rawBytes"]);
    let other = decoded(&chain["certificates"][1]["rawBytes"]);
    let statement = String::from_utf8(statement).unwrap();
    let entry = decoded(keyless.text.pointer(ENTRY).unwrap());
    let entry = String::from_utf8(entry).unwrap();
    let named = decoded(keyless.text.pointer(LEAF).unwrap());
    let texts = [
        (0, key.text.to_string()),
        (0, "{}".to_owned()),
        (0, key.text.to_string().replace("v0.3", "v0.2")),
        (
            0,
            key.text
                .to_string()
                .replace("\"publicKey\"", "\"certificate\""),
        ),
        (1, statement.replace("\"files\"", "\"shards\"")),
        (1, statement.replace("sha256", "blake3")),
        (
            1,
            statement.replace("\"resources\":[", "\"resources\":[{},"),
        ),
        (1, "{}".to_owned()),
        (1, statement),
        (0, keyless.text.to_string()),
        (0, keyless.text.to_string().replace("v0.3", "v0.1")),
        (3, entry.replace("dsse", "hashedrekord")),
        (3, entry.replace("0.0.1", "0.0.2")),
        (3, entry),
    ];
    let texts = texts.map(|(kind, text)| (kind, text.into_bytes()));
    let certificates = [
        (2, leaf),
        (2, other),
        (2, b"\x30\x80".to_vec()),
        (4, named),
        (4, b"\x30\x80".to_vec()),
    ];
    let all = texts.into_iter().chain(certificates);
    all.map(|(kind, rest)| [&[kind], &rest[..]].concat())
        .collect()
}
