//! `callbox inspect` on manifests of native targets and on libraries.

use serde_json::json;

use crate::support::Folder;

/// A manifest with one target. The manifest says that its PTX was compiled from [`SOURCE`].
pub(crate) const MANIFEST: &str = r#"{
  "format": 1,
  "images": [{"name": "k", "file": "k.ptx", "source": "k.cu", "source_sha256": "1acb028a91e7e823b7ed9ebf6e7b43ee9bf6ec425f1fbe3f5eb6d12f64ff4d7d"}],
  "targets": [
    {
      "name": "negate",
      "doc": "Negates \u001b[2J.",
      "traits": ["pure"],
      "operands": [{"name": "x", "element_types": ["f32"]}],
      "results": [{"name": "y", "element_types": ["f32"]}],
      "attributes": [],
      "launches": [{
        "image": "k", "entry": "negate_f32",
        "parameters": [{"operand": 0}, {"result": 0}],
        "grid": ["1"], "block": ["3"]
      }]
    }
  ]
}
"#;

/// A stand-in for PTX, which these tests never compile.
pub(crate) const PTX: &str = "// negate_f32\n";

/// The manifest has the output of `sha256sum` for it.
const SOURCE: &str = "__global__ void negate();\n";

/// The digest over the manifest and its image, as guests/MANIFEST.md defines it, computed with
/// Python's hashlib and struct.
pub(crate) const DIGEST: &str = "5ea8b5b7d5b935d8141ab70bf3e091ac0476658e8cd08ae52b4beb6ede47d9a5";

/// `printf '// negate_f32\n' | sha256sum`.
const PTX_SHA256: &str = "fd462217c5bd6073fd9e99ffef832092b3690a6acb46d21e2537e8688486a011";

/// `printf 'not ELF' | sha256sum`.
pub(crate) const LIBRARY_SHA256: &str =
    "17c8fb51ee7274077df6cfd7c7d6aa44fe4a85d3343d84ad0b6fc0f2a782010a";

/// A folder with the manifest and its files in the subfolder `k`.
pub(crate) fn folder() -> Folder {
    let folder = Folder::new();
    folder
        .write("k/callbox.json", MANIFEST)
        .write("k/k.ptx", PTX)
        .write("k/k.cu", SOURCE)
        .write("libk.so", "not ELF");
    folder
}

#[test]
fn a_person_sees_targets_images_and_what_to_grant() {
    let folder = folder();
    let expected = format!(
        "k/callbox.json
  size      {} bytes
  grant     --allow-native {DIGEST}
  grade     granted: needs the grant
  images    k: k.ptx (ptx), 14 bytes; its source k.cu is the one that it was compiled from
  kernels   refused: line 2, column 1: `.version` was expected, and the end of the text found

targets, as the manifest declares them
  negate (pure)
    | Negates \u{fffd}[2J.
    convention  API_VERSION_TYPED_FFI
    stages      execute
    operands    x: f32[...]
    results     y: f32[...]
    attributes  none
    launches    negate_f32 of k
",
        MANIFEST.len()
    );
    for path in ["k/callbox.json", "k"] {
        assert_eq!(folder.run(&["inspect", path]).done(), expected);
    }
    folder.write("k/k.cu", "another");
    let shown = folder.run(&["inspect", "k"]).done();
    let changed = "14 bytes; its source k.cu has changed since it was compiled\n";
    assert!(shown.contains(changed), "{shown}");
    // The source is not among the loaded files.
    assert!(shown.contains(DIGEST), "{shown}");
    std::fs::remove_file(folder.path("k/k.cu")).unwrap();
    let shown = folder.run(&["inspect", "k"]).done();
    let gone = "; its source k.cu cannot be read: expected to read k/k.cu: ";
    assert!(shown.contains(gone), "{shown}");
    std::fs::remove_file(folder.path("k/k.ptx")).unwrap();
    let shown = folder.run(&["inspect", "k"]).done();
    let gone = "\n  grant     none: an image cannot be read\n  grade     unknown: an image cannot be read\n  images    k: k.ptx (ptx), cannot be read: expected to read k/k.ptx: ";
    assert!(shown.contains(gone), "{shown}");
}

#[test]
fn the_variants_of_an_enum_are_shown() {
    let folder = folder();
    let attributes = r#""attributes": [{"name": "mode", "kind": "scalar", "element_type": "s32",
        "variants": {"Down": -1, "Up": 1}}]"#;
    let manifest = MANIFEST.replace("\"attributes\": []", attributes);
    folder.write("k/callbox.json", manifest);
    let shown = folder.run(&["inspect", "k"]).done();
    let line = "    attributes  mode: s32 scalar of -1 (Down), 1 (Up)\n";
    assert!(shown.contains(line), "{shown}");
    let object = folder.run(&["inspect", "k", "--json"]).object();
    let attribute = &object["manifest"]["targets"][0]["attributes"][0];
    assert_eq!(attribute["variants"], json!({"Down": -1, "Up": 1}));
}

#[test]
fn a_program_sees_one_object() {
    let folder = folder();
    let ran = folder.run(&["inspect", "k", "--json"]);
    let object = ran.object();
    ran.done();
    let keys: Vec<_> = object.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["status", "manifest"]);
    assert_eq!(object["status"]["code"], "OK");
    let source_sha256 = "1acb028a91e7e823b7ed9ebf6e7b43ee9bf6ec425f1fbe3f5eb6d12f64ff4d7d";
    let expected = json!({
        "size": MANIFEST.len(),
        "digest": DIGEST,
        "grade": "granted",
        "format": 1,
        "images": [{
            "name": "k",
            "kind": "ptx",
            "file": "k.ptx",
            "size": 14,
            "sha256": PTX_SHA256,
            "problem": null,
            "source": {
                "file": "k.cu",
                "sha256": source_sha256,
                "found_sha256": source_sha256,
                "agrees": true,
            },
            "ptx": {
                "size": 14,
                "sha256": PTX_SHA256,
                "architecture": null,
                "problem": {
                    "line": 2,
                    "column": 1,
                    "message": "`.version` was expected, and the end of the text found",
                },
                "grade": "refused",
                "kernels": [],
            },
        }],
        "targets": [{
            "name": "negate",
            "api_versions": ["API_VERSION_TYPED_FFI"],
            "stages": ["execute"],
            "operands": [{"name": "x", "element_types": ["f32"], "rank": null, "dimensions": null, "optional": false}],
            "remaining_operands": false,
            "results": [{"name": "y", "element_types": ["f32"], "rank": null, "dimensions": null, "optional": false}],
            "remaining_results": false,
            "attributes": [],
            "traits": ["pure"],
            "derivative_of": null,
            "derivative_mode": null,
            "documentation": "Negates \u{fffd}[2J.",
            "launches": [{"image": "k", "entry": "negate_f32"}],
        }],
    });
    assert_eq!(object["manifest"], expected);

    folder.write("k/k.cu", "another");
    std::fs::remove_file(folder.path("k/k.ptx")).unwrap();
    let object = folder.run(&["inspect", "k", "--json"]).object();
    let manifest = &object["manifest"];
    assert_eq!(object["status"]["code"], "OK");
    assert_eq!(manifest["digest"], json!(null));
    assert_eq!(manifest["grade"], json!(null));
    assert_eq!(manifest["images"][0]["ptx"], json!(null));
    assert_eq!(manifest["images"][0]["sha256"], json!(null));
    let problem = manifest["images"][0]["problem"].as_str().unwrap();
    assert!(
        problem.starts_with("expected to read k/k.ptx: "),
        "{problem}"
    );
    assert_eq!(manifest["images"][0]["source"]["agrees"], false);
    std::fs::remove_file(folder.path("k/k.cu")).unwrap();
    let object = folder.run(&["inspect", "k", "--json"]).object();
    let source = &object["manifest"]["images"][0]["source"];
    assert_eq!(
        (&source["found_sha256"], &source["agrees"]),
        (&json!(null), &json!(null))
    );
}

#[test]
fn what_is_no_manifest_is_refused() {
    let folder = folder();
    folder.write("wrong.json", MANIFEST.replace("\"entry\"", "\"entri\""));
    folder.write("bytes.json", b"{\"format\": \xff}");
    folder.write("empty/x", "");
    for (path, code, status, message) in [
        (
            "wrong.json",
            1,
            "INVALID_ARGUMENT",
            "wrong.json: line 13: targets[0].launches[0]",
        ),
        (
            "bytes.json",
            1,
            "INVALID_ARGUMENT",
            "found other bytes at byte 11",
        ),
        ("none.json", 2, "NOT_FOUND", "expected to read none.json: "),
        ("none.so", 2, "NOT_FOUND", "expected to read none.so: "),
    ] {
        let ran = folder.run(&["inspect", path, "--json"]);
        let object = ran.object();
        let key = if path.ends_with(".so") {
            "library"
        } else {
            "manifest"
        };
        let keys: Vec<_> = object.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["status", key]);
        assert_eq!((ran.code, &object[key]), (code, &json!(null)), "{ran:?}");
        assert_eq!(object["status"]["code"], status);
        let found = object["status"]["message"].as_str().unwrap();
        assert!(found.contains(message), "expected {message:?} in {found:?}");
    }
    let ran = folder.run(&["inspect", "empty"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    let start = "error: NOT_FOUND: expected to read empty/callbox.json: ";
    assert!(ran.stderr.starts_with(start), "{ran:?}");
}

/// `inspect` does not load a library: this one cannot be loaded.
#[test]
fn a_library_is_known_by_its_digest_alone() {
    let folder = folder();
    let shown = folder.run(&["inspect", "libk.so"]).done();
    let start = format!(
        "libk.so\n  size      7 bytes\n  grant     --allow-native {LIBRARY_SHA256}\n\ntargets: unknown. "
    );
    assert!(shown.starts_with(&start), "{shown}");
    let object = folder.run(&["inspect", "libk.so", "--json"]).object();
    assert_eq!(
        object["library"],
        json!({"size": 7, "sha256": LIBRARY_SHA256})
    );
}

/// A hundred kernels in a file that 300 images name, and a target for each image.
#[cfg(target_os = "linux")]
#[test]
fn images_of_the_same_contents_are_verified_once() {
    const KERNELS: usize = 100;
    const IMAGES: usize = 300;
    let read = |name: &str| {
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../guests/triton/attention/"
        );
        std::fs::read_to_string(folder.to_owned() + name).unwrap()
    };
    let ptx = read("attention.ptx");
    let (head, entry) = ptx.split_at(ptx.find(".visible").unwrap());
    let mut text = head.to_owned();
    for number in 0..KERNELS {
        text.push_str(&entry.replace("attention", &format!("attention_{number}")));
    }
    let known: serde_json::Value = serde_json::from_str(&read("callbox.json")).unwrap();
    let target = |image: usize| {
        let mut target = known["targets"][0].clone();
        target["name"] = json!(format!("t{image}"));
        target["launches"][0]["image"] = json!(format!("i{image}"));
        target["launches"][0]["entry"] = json!("attention_7");
        target
    };
    let image = |image| json!({"name": format!("i{image}"), "file": "k.ptx"});
    let manifest = json!({
        "format": 1,
        "images": (0..IMAGES).map(image).collect::<Vec<_>>(),
        "targets": (0..IMAGES).map(target).collect::<Vec<_>>(),
    });
    let folder = Folder::new();
    folder.write("k/k.ptx", text);
    folder.write("k/callbox.json", manifest.to_string());
    // Each verification takes some tenths of a second.
    let ran = crate::cost::limited(&folder, 512, &["inspect", "k", "--json"]);
    let manifest = &ran.object()["manifest"];
    assert_eq!(manifest["grade"], "fenced");
    for (number, image) in manifest["images"].as_array().unwrap().iter().enumerate() {
        let kernels = image["ptx"]["kernels"].as_array().unwrap();
        assert_eq!(kernels.len(), 1, "{kernels:?}");
        assert_eq!(kernels[0]["name"], "attention_7");
        assert_eq!(kernels[0]["target"], format!("t{number}"));
    }
}
