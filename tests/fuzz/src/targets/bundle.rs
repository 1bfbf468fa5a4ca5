//! Bundles of signatures: of what a stranger changed, nothing is taken for what was signed.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callbox::{Blame, StatusCode};
use callbox_package::oms::{Bundle, BundleSigner, SignedFiles};
use serde_json::{Value, json};

use crate::Target;
use crate::outcome::Outcome;

/// The target. The first byte says what the rest is: a bundle, the statement of one, or the
/// certificate of its signer.
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

/// A bundle by a key, and one by a certificate, both made by `model-signing`.
const BY_KEY: &[u8] = include_bytes!("../../../../host/package/tests/bundles/file.sig");
const BY_CERTIFICATE: &[u8] =
    include_bytes!("../../../../host/package/tests/bundles/certificate.sig");

static SIGNED: LazyLock<[Signed; 2]> = LazyLock::new(|| {
    [
        Signed::new(
            BY_KEY,
            include_bytes!("../../../../host/package/tests/bundles/p256.pem"),
        ),
        Signed::new(
            BY_CERTIFICATE,
            include_bytes!("../../../../host/package/tests/bundles/root.pem"),
        ),
    ]
});

/// A bundle with its signer.
struct Signed {
    text: Value,
    signer: BundleSigner,
    files: SignedFiles,
}

impl Signed {
    fn new(text: &[u8], signer: &[u8]) -> Self {
        let signer = BundleSigner::from_file(signer).unwrap();
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
    let text = match kind % 3 {
        0 => rest.to_vec(),
        1 => {
            let mut bundle = SIGNED[0].text.clone();
            bundle["dsseEnvelope"]["payload"] = json!(STANDARD.encode(rest));
            bundle.to_string().into_bytes()
        }
        _ => {
            let mut bundle = SIGNED[1].text.clone();
            let chain = &mut bundle["verificationMaterial"]["x509CertificateChain"];
            chain["certificates"][0]["rawBytes"] = json!(STANDARD.encode(rest));
            bundle.to_string().into_bytes()
        }
    };
    match Bundle::read(&text) {
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
    let [key, certificate] = &*SIGNED;
    let statement = decoded(&key.text["dsseEnvelope"]["payload"]);
    let chain = &certificate.text["verificationMaterial"]["x509CertificateChain"];
    let leaf = decoded(&chain["certificates"][0]["rawBytes"]);
    let other = decoded(&chain["certificates"][1]["rawBytes"]);
    let statement = String::from_utf8(statement).unwrap();
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
    ];
    let texts = texts.map(|(kind, text)| (kind, text.into_bytes()));
    let certificates = [(2, leaf), (2, other), (2, b"\x30\x80".to_vec())];
    let all = texts.into_iter().chain(certificates);
    all.map(|(kind, rest)| [&[kind], &rest[..]].concat())
        .collect()
}
