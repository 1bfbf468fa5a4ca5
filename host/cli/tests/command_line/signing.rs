//! `callbox sign`, `verify`, and `--trust` of the commands that load code.

use callbox_package::SecretKey;
use serde_json::{Value, json};

use crate::guests::{CALL, NEGATE};
use crate::packages::{self, refuse};
use crate::support::{Folder, Ran};

/// Made by `openssl genpkey -algorithm ed25519`.
pub(crate) const ALICE: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIEJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJC
-----END PRIVATE KEY-----
";

fn public(seed: u8) -> String {
    SecretKey::from_bytes(&[seed; 32])
        .unwrap()
        .public()
        .to_string()
}

/// A secret key in the form of the WebAssembly conventions.
pub(crate) fn raw(seed: u8) -> Vec<u8> {
    let public = SecretKey::from_bytes(&[seed; 32]).unwrap().public();
    [&[0x81][..], &[seed; 32], &public.to_bytes()].concat()
}

/// A folder with the package `k.wasm`, which alice signed, and rules that ask for it.
pub(crate) fn folder() -> Folder {
    let folder = packages::folder();
    folder
        .write("alice.pem", ALICE)
        .write("bob.key", raw(7))
        .write("p.hlo", CALL.replace("do_custom_call", "negate"))
        .npy("x.npy", &[3], &[1.0_f32, 2.0, 3.0]);
    rules(&folder, &[]);
    folder.run(&["pack", "k", "-o", "plain.wasm"]).done();
    let sign = ["sign", "plain.wasm", "--key", "alice.pem", "-o", "k.wasm"];
    let shown = folder.run(&sign).done();
    let line = format!("\n  signed by {}\n", public(0x42));
    assert!(shown.starts_with("k.wasm\n  sha256    "), "{shown}");
    assert!(shown.ends_with(&line), "{shown}");
    folder
}

fn rules(folder: &Folder, revoked: &[&str]) {
    let rules = json!({
        "keys": {"alice": public(0x42), "bob": public(7)},
        "signatures": {"*.wasm": {"signed_by": "alice"}, "*.so": {"signed_by": "alice"},
            "*.json": {"signed_by": "alice"}, "*.capsule": {"signed_by": "alice"},
            "*.safetensors#*": {"signed_by": "alice"}},
        "revoked": revoked,
    });
    folder.write("trust.json", rules.to_string());
}

fn test(folder: &Folder, file: &str) -> Ran {
    folder.run(&["test", file, "--trust", "trust.json", "--json"])
}

#[track_caller]
fn check_denied(ran: &Ran, message: &str) {
    let status = &ran.object()["status"];
    assert_eq!(ran.code, 1, "{ran:?}");
    assert_eq!(status["code"], "PERMISSION_DENIED", "{ran:?}");
    assert_eq!(status["blame"], "caller", "{ran:?}");
    let found = status["message"].as_str().unwrap();
    assert!(found.contains(message), "expected {message:?} in {found:?}");
}

#[test]
fn a_signature_is_made_shown_and_verified() {
    let folder = folder();
    let key = public(0x42);
    folder.run(&["verify", "k.wasm", "--key", &key]).done();
    let verified = folder.run(&["verify", "k.wasm", "--trust", "trust.json", "--json"]);
    let object = verified.object();
    verified.done();
    let signers = json!([{"key": key, "state": "valid"}]);
    assert_eq!(object["signature"]["signers"], signers);
    let inspected = folder.run(&["inspect", "k.wasm"]).done();
    assert!(
        inspected.contains(&format!("\n  signed by {key}\n")),
        "{inspected}"
    );
    let object = folder.run(&["inspect", "k.wasm", "--json"]).object();
    assert_eq!(object["module"]["signers"], signers);
    let object = folder.run(&["inspect", "plain.wasm", "--json"]).object();
    assert_eq!(object["module"]["signers"], json!([]));
    let changed = folder.run(&["diff", "plain.wasm", "k.wasm"]).done();
    assert!(
        changed.contains(&format!("\n  + signature {key}\n")),
        "{changed}"
    );
    // Signed once more by alice, the file is the same; bob's signature is beside hers.
    let bytes = std::fs::read(folder.path("k.wasm")).unwrap();
    folder.run(&["sign", "k.wasm", "--key", "alice.pem"]).done();
    assert_eq!(std::fs::read(folder.path("k.wasm")).unwrap(), bytes);
    folder.run(&["sign", "k.wasm", "--key", "bob.key"]).done();
    let both = ["verify", "k.wasm", "--key", &key, "--key", &public(7)];
    folder.run(&both).done();
    // `pack` signs, too, for the Hub and beside weights.
    let pack = ["pack", "k", "--sign", "alice.pem"];
    folder.run(&[&pack[..], &["-o", "p.wasm"]].concat()).done();
    assert_eq!(std::fs::read(folder.path("p.wasm")).unwrap(), bytes);
    folder.run(&[&pack[..], &["--hub", "h"]].concat()).done();
    let in_hub = folder.path("h/build/callbox-wasm32/negate.wasm");
    assert_eq!(std::fs::read(in_hub).unwrap(), bytes);
}

#[test]
fn mistakes_are_told() {
    let folder = folder();
    let key = public(0x42);
    let none = "plain.wasm: expected a signature by ed25519:";
    refuse(
        &folder,
        &["verify", "plain.wasm", "--key", &key],
        1,
        "PERMISSION_DENIED",
        none,
    );
    let other = format!(", found {key}");
    let bob = public(7);
    refuse(
        &folder,
        &["verify", "k.wasm", "--key", &bob],
        1,
        "PERMISSION_DENIED",
        &other,
    );
    let text = "expected a public key such as ed25519: and 64 hexadecimal digits";
    refuse(
        &folder,
        &["verify", "k.wasm", "--key", "ed25519:7"],
        2,
        "INVALID_ARGUMENT",
        text,
    );
    refuse(
        &folder,
        &["verify", "k.wasm", "--key", "none.pem"],
        2,
        "NOT_FOUND",
        "none.pem",
    );
    // A secret key's contents are not quoted.
    let message = "alice.pem: expected a public key of Ed25519 in a PEM file";
    let object = refuse(
        &folder,
        &["verify", "k.wasm", "--key", "alice.pem"],
        1,
        "INVALID_ARGUMENT",
        message,
    );
    assert!(!object.to_string().contains("MC4C"), "{object}");
    assert_eq!(object["signature"], Value::Null);
    refuse(
        &folder,
        &["verify", "k.wasm"],
        2,
        "INVALID_ARGUMENT",
        "--key",
    );
    let secret = ["sign", "k.wasm", "--key", "x.npy"];
    let message = "x.npy: expected a secret key of Ed25519";
    refuse(&folder, &secret, 1, "INVALID_ARGUMENT", message);
    // Keys of ECDSA sign bundles.
    folder.write(
        "ec.pem",
        include_bytes!("../../../package/tests/bundles/secret.pem"),
    );
    let hint = "ec.pem: expected a secret key of Ed25519, found one of ECDSA, with which `callbox \
                sign --oms` signs";
    refuse(
        &folder,
        &["sign", "k.wasm", "--key", "ec.pem"],
        1,
        "INVALID_ARGUMENT",
        hint,
    );
    for file in ["p256.pem", "root.pem"] {
        let bundles = concat!(env!("CARGO_MANIFEST_DIR"), "/../package/tests/bundles");
        let verify = ["verify", "k.wasm", "--key", &format!("{bundles}/{file}")];
        let hint = "found a key or certificate of ECDSA, which is for bundles: name one with --oms";
        refuse(&folder, &verify, 1, "INVALID_ARGUMENT", hint);
    }
    let sign = ["sign", "x.npy", "--key", "alice.pem"];
    refuse(
        &folder,
        &sign,
        1,
        "INVALID_ARGUMENT",
        "expected a WebAssembly module",
    );
    folder.write(
        "elsewhere.json",
        json!({"signatures": {"hf:*": {"signed_by": key}}}).to_string(),
    );
    let message = "so that none asks for a signature";
    let verify = ["verify", "k.wasm", "--trust", "elsewhere.json"];
    refuse(&folder, &verify, 1, "NOT_FOUND", message);
    for pattern in ["kernels/*.wasm", "./kernels/*.wasm"] {
        let rules = json!({"signatures": {pattern: {"signed_by": key}}});
        folder.write("relative.json", rules.to_string());
        let message = format!(
            "relative.json: the rule for {pattern:?} matches no module, whose names are absolute \
             paths and references: write \"*/kernels/*.wasm\""
        );
        let verify = ["verify", "k.wasm", "--trust", "relative.json"];
        refuse(&folder, &verify, 1, "INVALID_ARGUMENT", &message);
    }
    // A section of this name with another meaning.
    folder.module(
        "own.wasm",
        r#"(module (@custom "signature" (before first) "mine"))"#,
    );
    let inspected = folder.run(&["inspect", "own.wasm"]).done();
    assert!(inspected.contains("\n  signed by unknown: "), "{inspected}");
}

/// Twins, cases and documentation of a signed package that were exchanged, a signature of other
/// content, a section more, and an unsigned module.
#[test]
fn what_was_changed_after_signing_does_not_load() {
    let folder = folder();
    test(&folder, "k.wasm").done();
    check_denied(&test(&folder, "plain.wasm"), "by alice, found no signature");
    let signed = std::fs::read(folder.path("k.wasm")).unwrap();
    let plain = std::fs::read(folder.path("plain.wasm")).unwrap();
    let section = &signed[8..signed.len() - (plain.len() - 8)];
    for (file, text) in [
        (
            "cases/three.json",
            packages::CASE.replace("IEEE 754", "IEEE 1788"),
        ),
        ("README.md", "Negates all.\n".to_owned()),
        (
            "callbox-package.json",
            packages::HEADER.replace("1.0.0", "0.9.0"),
        ),
    ] {
        let other = packages::folder();
        other.write(&format!("k/{file}"), text);
        other.run(&["pack", "k", "-o", "k.wasm"]).done();
        let content = std::fs::read(other.path("k.wasm")).unwrap();
        folder.write("k.wasm", [&content[..8], section, &content[8..]].concat());
        let message = "by alice, found a signature by alice of other content";
        check_denied(&test(&folder, "k.wasm"), message);
    }
    let longer = [&signed[..], b"\0\x05\x04more"].concat();
    folder.write("k.wasm", longer);
    let call = [
        "call",
        "k.wasm",
        "negate",
        "--operand",
        "x.npy",
        "--result",
        "f32[3]",
    ];
    let call = [&call[..], &["--trust", "trust.json", "--json"]].concat();
    check_denied(&folder.run(&call), "a signature by alice of other content");
    let run = ["run", "p.hlo", "--targets", ".", "--input", "0=x.npy"];
    let run = [&run[..], &["--trust", "trust.json", "--json"]].concat();
    check_denied(&folder.run(&run), "a signature by alice of other content");
    if cfg!(target_os = "linux") {
        let walled = [&call[..], &["--isolate", "process"]].concat();
        check_denied(
            &folder.run(&walled),
            "a signature by alice of other content",
        );
    }
    // Without rules it is a module like any other.
    folder.run(&[&run[..4], &["--input", "0=x.npy"]].concat());
    folder.run(&call[..7]).done();
}

/// The file that the link leads to has a name without a rule.
#[cfg(unix)]
#[test]
fn a_link_under_a_name_with_a_rule_needs_a_signature() {
    let folder = folder();
    std::fs::rename(folder.path("plain.wasm"), folder.path("other.bin")).unwrap();
    std::fs::remove_file(folder.path("k.wasm")).unwrap();
    std::os::unix::fs::symlink("other.bin", folder.path("k.wasm")).unwrap();
    test(&folder, "other.bin").done();
    check_denied(&test(&folder, "k.wasm"), "by alice, found no signature");
}

/// A file that was read under another name before, too.
#[cfg(unix)]
#[test]
fn each_name_of_a_file_needs_its_signature() {
    let folder = folder();
    let target = r#"(func (export "NAME") (param i32) (result i32) i32.const 0)"#;
    let [a, b] = ["a", "b"].map(|name| target.replace("NAME", name));
    let module = format!(r#"(module (memory (export "memory") 1) {a} {b})"#);
    folder.write("other.bin", wat::parse_str(module).unwrap());
    std::os::unix::fs::symlink("other.bin", folder.path("linked.wasm")).unwrap();
    let program = r#"HloModule m
ENTRY main {
  a = f32[] custom-call(), custom_call_target="a", api_version=API_VERSION_TYPED_FFI
  ROOT b = f32[] custom-call(), custom_call_target="b", api_version=API_VERSION_TYPED_FFI
}
"#;
    folder.write("two.hlo", program);
    let run = |a: &str, b: &str| {
        let [a, b] = [format!("a={a}"), format!("b={b}")];
        let targets = ["run", "two.hlo", "--target", &a, "--target", &b];
        folder.run(&[&targets[..], &["--trust", "trust.json", "--json"]].concat())
    };
    run("other.bin", "other.bin").done();
    for (a, b) in [("other.bin", "linked.wasm"), ("linked.wasm", "other.bin")] {
        check_denied(&run(a, b), "by alice, found no signature");
    }
}

/// Building a folder runs its code, which no rule covers.
#[test]
fn folders_take_no_rules() {
    let folder = folder();
    for (flag, file) in [("--trust", "trust.json"), ("--lock", "callbox.lock")] {
        let message = format!("{flag} is for files");
        let test = ["test", "k", flag, file];
        refuse(&folder, &test, 2, "INVALID_ARGUMENT", &message);
        let bench = folder.run(&["bench", "k", flag, file]);
        assert_eq!(bench.code, 2, "{bench:?}");
        assert!(bench.stderr.contains(&message), "{bench:?}");
    }
    std::fs::rename(folder.path("k"), folder.path("dir.wasm")).unwrap();
    let message = "found a folder with the name of one";
    refuse(
        &folder,
        &["test", "dir.wasm"],
        1,
        "INVALID_ARGUMENT",
        message,
    );
}

#[test]
fn other_and_revoked_keys_do_not_count() {
    let folder = folder();
    folder
        .run(&["sign", "plain.wasm", "--key", "bob.key"])
        .done();
    check_denied(
        &test(&folder, "plain.wasm"),
        "by alice, found a signature by bob",
    );
    test(&folder, "k.wasm").done();
    rules(&folder, &["alice"]);
    check_denied(
        &test(&folder, "k.wasm"),
        "found a signature by alice, which is revoked",
    );
    rules(&folder, &[&public(0x42)]);
    check_denied(
        &test(&folder, "k.wasm"),
        "found a signature by alice, which is revoked",
    );
}

/// An older version is signed as well as a newer one. The lock knows which one it must be.
#[test]
fn a_lock_refuses_an_older_version_of_the_same_signer() {
    let folder = folder();
    let old = std::fs::read(folder.path("k.wasm")).unwrap();
    folder.write(
        "k/callbox-package.json",
        packages::HEADER.replace("1.0.0", "1.1.0"),
    );
    folder
        .run(&["pack", "k", "--sign", "alice.pem", "-o", "k.wasm"])
        .done();
    let shown = folder.run(&["lock", "k.wasm"]).done();
    assert!(shown.contains("k.wasm 1.1.0"), "{shown}");
    test(&folder, "k.wasm").done();
    folder.write("k.wasm", old);
    test(&folder, "k.wasm").done();
    let locked = [
        "test",
        "k.wasm",
        "--trust",
        "trust.json",
        "--lock",
        "callbox.lock",
        "--json",
    ];
    check_denied(&folder.run(&locked), "callbox.lock has k.wasm with ");
}

#[test]
fn rules_hold_for_modules_beside_weights_and_in_capsules() {
    let folder = folder();
    let empty = safetensors::serialize(
        Vec::<(String, safetensors::tensor::TensorView<'_>)>::new(),
        None,
    );
    folder.write("m.safetensors", empty.unwrap());
    folder.run(&["pack", "k", "--into", "m.safetensors"]).done();
    let tensor = "m.safetensors#callbox.negate";
    check_denied(&test(&folder, tensor), "found no signature");
    folder
        .run(&[
            "pack",
            "k",
            "--sign",
            "alice.pem",
            "--into",
            "m.safetensors",
        ])
        .done();
    test(&folder, tensor).done();
    let call = [
        "call",
        "plain.wasm",
        "negate",
        "--operand",
        "x.npy",
        "--result",
        "f32[3]",
    ];
    folder.run(&[&call[..], &["--record", "c"]].concat());
    let capsule = format!("c/{}", folder.list("c")[0]);
    folder.run(&["replay", &capsule]).done();
    let replay = ["replay", &capsule, "--trust", "trust.json", "--json"];
    check_denied(&folder.run(&replay), "found no signature");
}

/// Only a package carries a signature of native code.
#[cfg(feature = "cuda")]
#[test]
fn native_code_in_files_of_its_own_is_refused_by_a_rule() {
    use crate::manifests::{self, DIGEST};

    let folder = manifests::folder();
    folder.npy("x.npy", &[3], &[1.0_f32, 2.0, 3.0]);
    rules(&folder, &[]);
    for (file, grant) in [("k", DIGEST), ("libk.so", manifests::LIBRARY_SHA256)] {
        let ran = folder.run(&[
            "call",
            "--platform",
            "CUDA",
            file,
            "negate",
            "--operand",
            "x.npy",
            "--result",
            "f32[3]",
            "--allow-native",
            grant,
            "--trust",
            "trust.json",
            "--json",
        ]);
        check_denied(&ran, "found native code that is not part of a package");
    }
    // An image under a rule that the manifest is not under.
    let manifest = include_str!("../../../../guests/add_n/callbox.json");
    let elsewhere = manifest.replace("\"add_n.ptx\"", "\"vendor/add_n.ptx\"");
    assert_ne!(elsewhere, manifest);
    folder.write("other/callbox.json", elsewhere);
    let ptx = include_str!("../../../../guests/add_n/add_n.ptx");
    folder.write("other/vendor/add_n.ptx", ptx);
    let rules = json!({"signatures": {"*/vendor/*": {"signed_by": public(7)}}});
    folder.write("vendor.json", rules.to_string());
    let call = [
        "call",
        "--platform",
        "CUDA",
        "other",
        "add_n",
        "--attr",
        "n=1.0",
    ];
    let ran = folder.run(
        &[
            &call[..],
            &["--operand", "x.npy", "--trust", "vendor.json", "--json"],
        ]
        .concat(),
    );
    check_denied(&ran, "found native code that is not part of a package");
    let plain = packages::folder();
    plain.run(&["pack", "k", "-o", "k.wasm"]).done();
    folder.module("plain.wasm", NEGATE);
    folder.write("k.wasm", std::fs::read(plain.path("k.wasm")).unwrap());
    let call = [
        "call",
        "--platform",
        "CUDA",
        "k.wasm",
        "negate",
        "--operand",
        "x.npy",
    ];
    let call = [
        &call[..],
        &["--result", "f32[3]", "--trust", "trust.json", "--json"],
    ]
    .concat();
    check_denied(&folder.run(&call), "found no signature");
}
