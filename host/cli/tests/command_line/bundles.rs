//! `callbox sign --oms` and `verify --oms`, and bundles beside modules.

use serde_json::{Value, json};

use crate::packages::{self, refuse};
use crate::support::Folder;

/// Made by `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256`.
const SECRET: &str = include_str!("../../../package/tests/bundles/secret.pem");

/// The chain of its certificate, and the authority's certificate.
pub(crate) const LEAF: &str = include_str!("../../../package/tests/bundles/leaf.pem");
const BETWEEN: &str = include_str!("../../../package/tests/bundles/inter.pem");
pub(crate) const ROOT: &str = include_str!("../../../package/tests/bundles/root.pem");

/// The public key of another signer.
const OTHER_KEY: &str = include_str!("../../../package/tests/bundles/p256.pem");

/// A folder with the package `n.wasm` and keys.
pub(crate) fn folder() -> Folder {
    let folder = packages::folder();
    folder
        .write("secret.pem", SECRET)
        .write("chain.pem", format!("{LEAF}{BETWEEN}"))
        .write("root.pem", ROOT)
        .write("other.pem", OTHER_KEY);
    folder.run(&["pack", "k", "-o", "n.wasm"]).done();
    folder
}

fn signed_by(object: &Value) -> String {
    let signers = object["signature"]["signers"].as_array().unwrap();
    assert_eq!(signers[0]["state"], "valid", "{object}");
    signers[0]["key"].as_str().unwrap().to_owned()
}

/// Signs, and returns the public key.
pub(crate) fn sign(folder: &Folder, arguments: &[&str]) -> String {
    let sign = [
        &["sign", "--oms", "--key", "secret.pem", "--json"],
        arguments,
    ]
    .concat();
    let ran = folder.run(&sign);
    let object = ran.object();
    ran.done();
    signed_by(&object)
}

#[test]
fn a_file_and_a_folder_are_signed_and_verified() {
    let folder = folder();
    let bytes = folder.read("n.wasm");
    let key = sign(&folder, &["n.wasm"]);
    assert!(key.starts_with("ecdsa-p256:04"), "{key}");
    let verify = ["verify", "n.wasm", "--oms", "n.wasm.sig", "--key"];
    folder.run(&[&verify[..], &[&key]].concat()).done();
    assert_eq!(folder.read("n.wasm"), bytes);
    let message = "n.wasm.sig: expected a bundle that ecdsa-p256:04";
    let other = [&verify[..], &["other.pem"]].concat();
    refuse(&folder, &other, 1, "PERMISSION_DENIED", message);
    let root = [&verify[..], &["root.pem"]].concat();
    let message = "the bundle has no certificate";
    refuse(&folder, &root, 1, "PERMISSION_DENIED", message);

    sign(&folder, &["k", "--certificate", "chain.pem"]);
    let verify = ["verify", "k", "--oms", "k/model.sig", "--key", "root.pem"];
    let shown = folder.run(&verify).done();
    let line = "\n  signed by the certificate sha256:";
    assert!(
        shown.starts_with("k/model.sig\n") && shown.contains(line),
        "{shown}"
    );
    // The files of git do not count, other files do.
    folder.write("k/.gitignore", "x");
    folder.run(&verify).done();
    folder.write("k/more.txt", "x");
    let message = "k: the bundle does not list \"more.txt\"";
    refuse(&folder, &verify, 1, "PERMISSION_DENIED", message);
    std::fs::remove_file(folder.path("k/more.txt")).unwrap();
    folder.write("k/README.md", "Other.\n");
    let message = "k: the bundle lists \"README.md\" with SHA-256 ";
    refuse(&folder, &verify, 1, "PERMISSION_DENIED", message);
    std::fs::remove_file(folder.path("k/README.md")).unwrap();
    let message = "k: the bundle lists \"README.md\", which is missing";
    refuse(&folder, &verify, 1, "PERMISSION_DENIED", message);
}

#[test]
fn keyless_bundles_prove_an_identity() {
    const BUNDLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../package/tests/bundles");
    const NAME: &str = "alice@example.com";
    const ISSUER: &str = "https://accounts.example.com";
    let kept = |name: &str| std::fs::read(format!("{BUNDLES}/{name}")).unwrap();
    let folder = Folder::new();
    folder
        .write("k.wasm", b"\0asm\x01\0\0\0")
        .write("k.wasm.sig", kept("keyless.sig"))
        .write("root.json", kept("trusted_root.json"))
        .write("root.pem", ROOT);
    let verify = |name, issuer| {
        let bundle = ["verify", "k.wasm", "--oms", "k.wasm.sig"];
        let identity = ["--identity", name, "--issuer", issuer];
        [&bundle[..], &identity, &["--trusted-root", "root.json"]].concat()
    };
    let shown = folder.run(&verify(NAME, ISSUER)).done();
    let line = format!("\n  signed by {NAME} of {ISSUER}");
    assert!(shown.contains(&line), "{shown}");
    let shown = folder.run(&["inspect", "k.wasm"]).done();
    let line = format!("{NAME} of {ISSUER}, says the bundle beside it");
    assert!(shown.contains(&line), "{shown}");
    let with =
        |more: &[&'static str]| [&["verify", "k.wasm", "--oms", "k.wasm.sig"], more].concat();
    for (arguments, code, status, message) in [
        (
            verify("bob@example.com", ISSUER),
            1,
            "PERMISSION_DENIED",
            "its certificate is of another identity, alice@example.com",
        ),
        (
            verify(NAME, "https://example.com"),
            1,
            "PERMISSION_DENIED",
            "its identity is by another issuer, https://accounts.example.com",
        ),
        (
            with(&["--key", "root.pem"]),
            1,
            "PERMISSION_DENIED",
            "the bundle is keyless: expected an identity with its issuer",
        ),
        (
            with(&["--identity", NAME]),
            2,
            "INVALID_ARGUMENT",
            "--issuer",
        ),
        (with(&[]), 2, "INVALID_ARGUMENT", "--key"),
        (
            with(&[
                "--identity",
                NAME,
                "--issuer",
                ISSUER,
                "--trusted-root",
                "k.wasm.sig",
            ]),
            1,
            "INVALID_ARGUMENT",
            "k.wasm.sig: the trusted root is wrong",
        ),
    ] {
        refuse(&folder, &arguments, code, status, message);
    }

    let rules = |name: &str, more: Value| {
        let mut rules = json!({
            "keys": {"alice": {"identity": name, "issuer": ISSUER}},
            "signatures": {"*/k.wasm": {"signed_by": "alice"}},
            "trusted_root": "root.json",
        });
        rules
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        rules.to_string()
    };
    let trust = ["verify", "k.wasm", "--trust", "trust.json"];
    folder.write("trust.json", rules(NAME, json!({})));
    folder.run(&trust).done();
    folder.write("trust.json", rules("bob@example.com", json!({})));
    let message = "its certificate is of another identity";
    refuse(&folder, &trust, 1, "PERMISSION_DENIED", message);
    folder.write("trust.json", rules(NAME, json!({"revoked": ["alice"]})));
    refuse(&folder, &trust, 1, "PERMISSION_DENIED", "which is revoked");
    folder.write("trust.json", rules(NAME, json!({"trusted_root": null})));
    let message = "expected a `trusted_root` for the identity, found none";
    refuse(&folder, &trust, 1, "INVALID_ARGUMENT", message);
    folder.write(
        "trust.json",
        rules(NAME, json!({"trusted_root": "none.json"})),
    );
    refuse(&folder, &trust, 1, "NOT_FOUND", "none.json");
}

#[test]
fn mistakes_with_bundles_are_told() {
    let folder = folder();
    let sign = |more: &[&'static str]| [&["sign", "--oms", "--key"], more].concat();
    for (arguments, code, status, message) in [
        (
            sign(&["other.pem", "n.wasm"]),
            1,
            "INVALID_ARGUMENT",
            "other.pem: expected a secret key of ECDSA on P-256 or P-384",
        ),
        (
            sign(&["secret.pem", "none"]),
            2,
            "NOT_FOUND",
            "expected to read none",
        ),
        (
            sign(&["secret.pem", "n.wasm", "-o", "secret.pem"]),
            2,
            "INVALID_ARGUMENT",
            "expected another file to write than the secret key",
        ),
        (
            sign(&["secret.pem", "n.wasm", "--certificate", "root.pem"]),
            1,
            "INVALID_ARGUMENT",
            "found one of another key",
        ),
        (
            vec!["sign", "n.wasm", "--key", "k", "--certificate", "root.pem"],
            2,
            "INVALID_ARGUMENT",
            "--oms",
        ),
        (
            vec!["verify", "n.wasm", "--oms", "root.pem", "--key", "root.pem"],
            1,
            "INVALID_ARGUMENT",
            "root.pem: the bundle is malformed",
        ),
    ] {
        refuse(&folder, &arguments, code, status, message);
    }
    assert_eq!(folder.read("secret.pem"), SECRET.as_bytes());
    std::fs::create_dir(folder.path("empty")).unwrap();
    let empty = sign(&["secret.pem", "empty"]);
    let message = "expected a folder with files, found none";
    refuse(&folder, &empty, 1, "INVALID_ARGUMENT", message);
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("../root.pem", folder.path("k/link")).unwrap();
        let link = sign(&["secret.pem", "k"]);
        let message = "k/link: expected files and folders, found a symbolic link";
        refuse(&folder, &link, 1, "INVALID_ARGUMENT", message);
    }
}

/// A rule takes a bundle beside the module. One of another file does not count.
#[test]
fn rules_take_bundles_beside_modules() {
    let folder = folder();
    let key = sign(&folder, &["n.wasm", "--certificate", "chain.pem"]);
    let rules = |signer: &str, revoked: &[&str]| {
        let rules = json!({"keys": {"ec": key, "root": ROOT, "leaf": LEAF},
            "signatures": {"*.wasm": {"signed_by": signer}}, "revoked": revoked});
        folder.write("trust.json", rules.to_string());
    };
    let test = ["test", "n.wasm", "--trust", "trust.json"];
    for signer in ["ec", "root"] {
        rules(signer, &[]);
        folder.run(&test).done();
        rules(signer, &["leaf"]);
        refuse(&folder, &test, 1, "PERMISSION_DENIED", "which is revoked");
    }
    rules("root", &[]);
    let plain = folder.read("n.wasm");
    folder.write("k/README.md", "Other.\n");
    folder.run(&["pack", "k", "-o", "n.wasm"]).done();
    let message = "found a bundle of other content";
    refuse(
        &folder,
        &["verify", "n.wasm", "--trust", "trust.json"],
        1,
        "PERMISSION_DENIED",
        message,
    );
    folder.write("n.wasm", plain);
    folder.write("n.wasm.sig", "{}");
    refuse(
        &folder,
        &test,
        1,
        "INVALID_ARGUMENT",
        "the bundle is malformed",
    );
    std::fs::remove_file(folder.path("n.wasm.sig")).unwrap();
    refuse(&folder, &test, 1, "PERMISSION_DENIED", "found no signature");
}

/// A rule with `native` grants the twin of a signed package, and of no other.
#[cfg(feature = "cuda")]
#[test]
fn a_rule_grants_native_code_by_signature() {
    let folder = crate::twins::softmax();
    // Without fences, each twin takes a grant.
    folder
        .write("policy.json", r#"{"gpu": {"fenced": false}}"#)
        .write("secret.pem", SECRET);
    folder.run(&["pack", "k", "-o", "n.wasm"]).done();
    let key = sign(&folder, &["n.wasm"]);
    let rules = |native: bool, revoked: &[&str]| {
        let rules = json!({"signatures": {"*.wasm": {"signed_by": key, "native": native}},
            "revoked": revoked});
        folder.write("trust.json", rules.to_string());
    };
    folder.npy("x.npy", &[1, 2], &[3.0_f32, 3.0]);
    let test = "test n.wasm --platform CUDA --policy policy.json --trust trust.json --json";
    let call = "call --platform CUDA n.wasm softmax --operand x.npy --result f32[1,2] \
                --policy policy.json --trust trust.json --json";
    let check = |code: &str, message: &str| {
        for command in [test, call] {
            let arguments: Vec<_> = command.split_ascii_whitespace().collect();
            let ran = crate::twins::with_driver(&folder, &arguments);
            let status = ran.object()["status"].clone();
            assert_eq!(status["code"], code, "{ran:?}");
            let found = status["message"].as_str().unwrap();
            assert!(found.contains(message), "{ran:?}");
        }
    };
    rules(false, &[]);
    check("PERMISSION_DENIED", "--allow-native");
    rules(true, &[]);
    check("OK", "");
    rules(true, &[&key]);
    check("PERMISSION_DENIED", "which is revoked");
    // A swapped twin is other content.
    rules(true, &[]);
    let text = String::from_utf8(folder.read("k/softmax.ptx")).unwrap();
    folder.write("k/softmax.ptx", format!("{text}\n"));
    folder.run(&["pack", "k", "-o", "n.wasm"]).done();
    check("PERMISSION_DENIED", "found a bundle of other content");
    // Without a signature there is no grant.
    std::fs::remove_file(folder.path("n.wasm.sig")).unwrap();
    check("PERMISSION_DENIED", "found no signature");
}

/// An older version of the same signer is granted as well. The lock knows which one it must be.
#[cfg(feature = "cuda")]
#[test]
fn a_lock_refuses_native_code_of_an_older_version() {
    use crate::signing::ALICE;

    let folder = crate::twins::softmax();
    folder
        .write("policy.json", r#"{"gpu": {"fenced": false}}"#)
        .write("alice.pem", ALICE);
    let pack = ["pack", "k", "--sign", "alice.pem", "-o", "n.wasm"];
    folder.run(&pack).done();
    let old = folder.read("n.wasm");
    let inspected = folder.run(&["inspect", "n.wasm", "--json"]).object();
    let key = &inspected["module"]["signers"][0]["key"];
    let rules = json!({"signatures": {"*.wasm": {"signed_by": key, "native": true}}});
    folder.write("trust.json", rules.to_string());
    let newer = packages::HEADER.replace("negate", "softmax");
    let newer = newer.replace("1.0.0", "1.1.0");
    folder.write("k/callbox-package.json", newer);
    folder.run(&pack).done();
    folder.run(&["lock", "n.wasm"]).done();
    folder.npy("x.npy", &[1, 2], &[3.0_f32, 3.0]);
    let call = "call --platform CUDA n.wasm softmax --operand x.npy --result f32[1,2] \
                --policy policy.json --trust trust.json --json";
    let call: Vec<_> = call.split_ascii_whitespace().collect();
    let locked = [&call[..], &["--lock", "callbox.lock"]].concat();
    let code = |arguments: &[&str]| {
        let ran = crate::twins::with_driver(&folder, arguments);
        ran.object()["status"]["code"].as_str().unwrap().to_owned()
    };
    assert_eq!(code(&locked), "OK");
    folder.write("n.wasm", old);
    assert_eq!(code(&call), "OK");
    assert_eq!(code(&locked), "PERMISSION_DENIED");
}
