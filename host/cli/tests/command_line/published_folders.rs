//! `callbox publish` to folders.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::fetched_bundles::{TRUST, bundle_of, write_rules};
use crate::published::{check_refused, folder};
use crate::support::Ran;

#[test]
fn folders_get_files_by_version() {
    let folder = folder();
    let done = folder
        .run(&["publish", "1.0.0.wasm", "site/kernels"])
        .done();
    assert!(
        done.starts_with("negate 1.0.0\n  to        site/kernels/negate-1.0.0.wasm\n"),
        "{done}"
    );
    assert_eq!(
        folder.read("site/kernels/negate-1.0.0.wasm"),
        folder.read("1.0.0.wasm")
    );
    let again = folder
        .run(&["publish", "1.0.0.wasm", "site/kernels", "--json"])
        .object();
    assert_eq!(again["published"]["changed"], false);
    let ran = folder.run(&["publish", "other.wasm", "site/kernels", "--json"]);
    check_refused(
        &ran,
        1,
        "FAILED_PRECONDITION",
        "another package of this version is there",
    );
    folder
        .run(&["publish", "other.wasm", "site/kernels", "--replace"])
        .done();
    assert_eq!(
        folder.read("site/kernels/negate-1.0.0.wasm"),
        folder.read("other.wasm")
    );
    folder
        .run(&["publish", "1.1.0.wasm", "site/kernels"])
        .done();
    assert_eq!(
        folder.list("site/kernels"),
        ["negate-1.0.0.wasm", "negate-1.1.0.wasm"]
    );
    for (file, destination, code, message) in [
        ("k/negate.wasm", "site", 1, "k/negate.wasm: "),
        (
            "1.0.0.wasm",
            "https://example.com/k",
            2,
            "publish into a folder",
        ),
        (
            "1.0.0.wasm",
            "hf:org/negate@0123456789abcdef0123456789abcdef01234567",
            2,
            "found a commit",
        ),
        ("1.0.0.wasm", "ftp://host/k", 2, "expected an https address"),
        (
            "1.0.0.wasm",
            "other.wasm",
            2,
            "other.wasm: expected a folder, hf:",
        ),
    ] {
        let ran = folder.run(&["publish", file, destination, "--json"]);
        check_refused(&ran, code, "INVALID_ARGUMENT", message);
    }
}

/// The bundle beside a package goes with it, where `fetch` with rules finds it.
#[test]
fn folders_get_bundles_beside_packages() {
    let folder = folder();
    let site = |file: &str, more: &[&str]| {
        let publish = ["publish", file, "site", "--json"];
        folder.run(&[&publish[..], more].concat())
    };
    site("1.0.0.wasm", &[]).done();
    let bundle = bundle_of(&folder.read("1.0.0.wasm"));
    folder.write("1.0.0.wasm.sig", &bundle);
    for changed in [true, false] {
        let published = site("1.0.0.wasm", &[]).object()["published"].clone();
        assert_eq!(published["changed"], changed, "{published}");
        assert_eq!(published["bundle"], "site/negate-1.0.0.wasm.sig");
    }
    assert_eq!(folder.read("site/negate-1.0.0.wasm.sig"), bundle);
    write_rules(&folder, &[]);
    let fetch = ["fetch", "site/negate-1.0.0.wasm", "-o", "back.wasm"];
    folder.run(&[&fetch[..], &TRUST].concat()).done();
    assert_eq!(folder.read("back.wasm.sig"), bundle);

    // Another signature of the same package.
    let other = bundle_of(&folder.read("1.0.0.wasm"));
    folder.write("1.0.0.wasm.sig", &other);
    let ran = site("1.0.0.wasm", &[]);
    let message = "negate-1.0.0.wasm.sig: another bundle of signatures is there: --replace";
    check_refused(&ran, 1, "FAILED_PRECONDITION", message);
    assert_eq!(folder.read("site/negate-1.0.0.wasm.sig"), bundle);
    site("1.0.0.wasm", &["--replace"]).done();
    assert_eq!(folder.read("site/negate-1.0.0.wasm.sig"), other);

    // Without a bundle here, the one that is there stays as long as it is of the package.
    std::fs::remove_file(folder.path("1.0.0.wasm.sig")).unwrap();
    let published = site("1.0.0.wasm", &["--replace"]).object()["published"].clone();
    assert_eq!(
        (&published["changed"], &published["bundle"]),
        (&json!(false), &Value::Null)
    );
    assert!(folder.path("site/negate-1.0.0.wasm.sig").exists());
    site("other.wasm", &["--replace"]).done();
    assert!(!folder.path("site/negate-1.0.0.wasm.sig").exists());

    // A file that is no bundle is not the command's to remove.
    folder.write("site/negate-1.0.0.wasm.sig", "mine");
    site("1.0.0.wasm", &["--replace"]).done();
    assert_eq!(folder.read("site/negate-1.0.0.wasm.sig"), b"mine");
}

/// Of two packages of one version at once, one is refused.
#[test]
fn a_folder_takes_one_at_a_time() {
    let folder = folder();
    for round in 0..8 {
        let site = format!("site-{round}");
        let start = |file: &str| {
            let mut command = folder.command(&["publish", file, &site, "--json"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        let children = ["1.0.0.wasm", "other.wasm"].map(start);
        let ran = children.map(|child| Ran::new(&child.wait_with_output().unwrap()));
        let [first, second] = ran.each_ref().map(|ran| ran.code);
        assert_eq!((first.min(second), first.max(second)), (0, 1), "{ran:?}");
        let (winner, loser) = if first == 0 { (0, 1) } else { (1, 0) };
        let message = "another package of this version is there";
        check_refused(&ran[loser], 1, "FAILED_PRECONDITION", message);
        let file = ["1.0.0.wasm", "other.wasm"][winner];
        let path = format!("{site}/negate-1.0.0.wasm");
        assert_eq!(folder.read(&path), folder.read(file));
    }
}

#[test]
fn a_folder_that_is_held_is_not_waited_for_without_end() {
    let folder = folder();
    std::fs::create_dir(folder.path("site")).unwrap();
    let held = std::fs::File::open(folder.path("site")).unwrap();
    held.lock_shared().unwrap();
    let ran = folder.run(&["publish", "1.0.0.wasm", "site", "--json"]);
    let message = "another command holds a lock on the folder";
    check_refused(&ran, 1, "FAILED_PRECONDITION", message);
}
