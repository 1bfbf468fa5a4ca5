//! `callbox pack --hub`: the layout that `callbox.hub` of the Python package reads.

use serde_json::Value;
#[cfg(feature = "cuda")]
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::guests::NEGATE;
use crate::packages::{self, HEADER, refuse};
use crate::support::Folder;

const VARIANT: &str = "repository/build/callbox-wasm32";

fn pack(folder: &Folder) -> Value {
    let ran = folder.run(&["pack", "k", "--hub", "repository", "--json"]);
    let object = ran.object();
    ran.done();
    object
}

fn read(folder: &Folder, name: &str) -> Vec<u8> {
    std::fs::read(folder.path(&format!("{VARIANT}/{name}"))).unwrap()
}

#[test]
fn a_variant_has_the_digest_of_each_file() {
    let folder = packages::folder();
    folder.module("k/negate.wasm", NEGATE);
    let object = pack(&folder);
    assert_eq!(folder.list("repository/build"), ["callbox-wasm32"]);
    assert_eq!(folder.list(VARIANT), ["metadata.json", "negate.wasm"]);

    // The package is the one of `callbox pack` alone.
    folder.run(&["pack", "k"]).done();
    let package = std::fs::read(folder.path("negate-1.0.0.wasm")).unwrap();
    assert_eq!(read(&folder, "negate.wasm"), package);
    let digest = hex::encode(Sha256::digest(&package));
    let metadata = read(&folder, "metadata.json");
    let expected = format!(
        r#"{{
  "format": 1,
  "name": "negate",
  "version": "1.0.0",
  "license": "MIT",
  "module": "negate.wasm",
  "files": [
    {{
      "path": "negate.wasm",
      "size": {},
      "sha256": "{digest}"
    }}
  ]
}}
"#,
        package.len()
    );
    assert_eq!(String::from_utf8(metadata).unwrap(), expected);
    let found = &object["package"];
    assert_eq!(found["sha256"], digest);
    assert_eq!(found["hub_digest"], hex::encode(Sha256::digest(expected)));
    assert_eq!(found["file"], format!("{VARIANT}/negate.wasm"));
}

#[test]
fn a_later_version_replaces_the_variant_and_nothing_else() {
    let folder = packages::folder();
    folder.write("repository/README.md", "Mine.\n");
    folder.write("repository/build/torch-cpu/__init__.py", "");
    pack(&folder);
    folder.write(&format!("{VARIANT}/old.ptx"), "");
    folder.write("k/callbox-package.json", HEADER.replace("1.0.0", "1.1.0"));
    pack(&folder);
    assert_eq!(folder.list(VARIANT), ["metadata.json", "negate.wasm"]);
    let metadata: Value = serde_json::from_slice(&read(&folder, "metadata.json")).unwrap();
    assert_eq!(metadata["version"], "1.1.0");
    assert_eq!(folder.list("repository"), ["README.md", "build"]);
    assert_eq!(
        folder.list("repository/build"),
        ["callbox-wasm32", "torch-cpu"]
    );
}

#[test]
fn folders_of_others_and_wrong_packages_leave_the_repository_alone() {
    let folder = packages::folder();
    folder.write(&format!("{VARIANT}/notes.txt"), "mine");
    let words = ["pack", "k", "--hub", "repository"];
    let message = "is not a variant that `callbox pack --hub` wrote: it has no metadata.json";
    refuse(&folder, &words, 2, "INVALID_ARGUMENT", message);
    assert_eq!(folder.list(VARIANT), ["notes.txt"]);

    folder.write(
        "k/cases/three.json",
        packages::CASE.replace("2.5, -0.0", "2, 0"),
    );
    let words = ["pack", "k", "--hub", "other"];
    refuse(
        &folder,
        &words,
        1,
        "FAILED_PRECONDITION",
        "1 of 1 cases failed",
    );
    assert!(folder.list("other").is_empty());
    let both = folder.run(&["pack", "k", "--hub", "a", "--into", "b"]);
    assert_eq!(both.code, 2, "{both:?}");
}

#[cfg(feature = "cuda")]
#[test]
fn a_twin_is_written_with_the_files_that_it_names() {
    let folder = crate::twins::softmax();
    pack(&folder);
    let names = [
        "callbox.json",
        "metadata.json",
        "softmax.cu",
        "softmax.ptx",
        "softmax.wasm",
    ];
    assert_eq!(folder.list(VARIANT), names);
    let metadata: Value = serde_json::from_slice(&read(&folder, "metadata.json")).unwrap();
    assert_eq!(metadata["manifest"], "callbox.json");
    let paths = metadata["files"].as_array().unwrap().iter();
    let paths: Vec<_> = paths.map(|file| file["path"].clone()).collect();
    assert_eq!(
        json!(paths),
        json!([names[0], names[2], names[3], names[4]])
    );
}
