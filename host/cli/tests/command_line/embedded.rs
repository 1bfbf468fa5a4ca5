//! `callbox pack --into`: packages beside the weights of a `.safetensors` file.

use std::process::Stdio;

use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::packages::{self, HEADER, refuse};
use crate::support::Folder;

/// A file with two tensors and metadata, as the official library writes it.
fn model() -> Vec<u8> {
    let (weights, bias) = (vec![1; 24], vec![2; 3]);
    let weights = TensorView::new(Dtype::F32, vec![2, 3], &weights).unwrap();
    let bias = TensorView::new(Dtype::I8, vec![3], &bias).unwrap();
    let metadata = [("format".to_owned(), "pt \"quoted\"".to_owned())];
    let tensors = [("layer.weight", weights), ("layer.\u{e9}", bias)];
    serialize(tensors, Some(metadata.into())).unwrap()
}

fn folder() -> Folder {
    let folder = packages::folder();
    folder.write("m.safetensors", model());
    folder.run(&["pack", "k", "-o", "alone.wasm"]).done();
    folder
}

const PACK: [&str; 4] = ["pack", "k", "--into", "m.safetensors"];

fn read(folder: &Folder, name: &str) -> Vec<u8> {
    std::fs::read(folder.path(name)).unwrap()
}

#[test]
fn other_tensors_and_metadata_stay_as_they_are() {
    let folder = folder();
    let packed = folder.run(&PACK).done();
    let start = "negate 1.0.0\n  file      m.safetensors\n  tensor    callbox.negate\n  sha256    ";
    assert!(packed.starts_with(start), "{packed}");
    let bytes = read(&folder, "m.safetensors");
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let earlier = model();
    let earlier = SafeTensors::deserialize(&earlier).unwrap();
    assert_eq!(file.len(), 3);
    for (name, tensor) in earlier.tensors() {
        assert_eq!(file.tensor(&name).unwrap(), tensor);
    }
    let package = file.tensor("callbox.negate").unwrap();
    assert_eq!(package.data(), read(&folder, "alone.wasm"));
    assert_eq!(package.dtype(), Dtype::U8);
    let (length, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    assert_eq!(length % 8, 0);
    let metadata = metadata.metadata().as_ref().unwrap();
    assert_eq!(metadata.len(), 1);
    assert_eq!(metadata["format"], "pt \"quoted\"");
    assert_eq!(folder.list("."), ["alone.wasm", "k", "m.safetensors"]);
}

#[test]
fn a_later_version_replaces_the_earlier_one() {
    let folder = folder();
    folder.run(&PACK).done();
    let once = read(&folder, "m.safetensors");
    folder.run(&PACK).done();
    assert_eq!(read(&folder, "m.safetensors"), once);
    folder.write("k/callbox-package.json", HEADER.replace("negate", "other"));
    folder.run(&PACK).done();
    folder.write(
        "k/callbox-package.json",
        HEADER.replace("1.0.0", "1.0.0-rc.10"),
    );
    folder.run(&PACK).done();
    folder.run(&["pack", "k", "-o", "alone.wasm"]).done();
    let bytes = read(&folder, "m.safetensors");
    let file = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(file.len(), 4);
    let package = file.tensor("callbox.negate").unwrap();
    assert_eq!(package.data(), read(&folder, "alone.wasm"));
    assert_eq!(file.tensor("layer.weight").unwrap().data(), vec![1; 24]);
}

#[test]
fn a_package_beside_weights_is_inspected_tested_and_compared() {
    let folder = folder();
    folder.run(&PACK).done();
    let package = "m.safetensors#callbox.negate";
    let inspected = folder.run(&["inspect", package]).done();
    assert!(
        inspected.contains("\n\npackage negate 1.0.0\n"),
        "{inspected}"
    );
    let tested = folder.run(&["test", package]).done();
    assert!(
        tested.ends_with("\n1 passed, 0 failed, 0 not run\n"),
        "{tested}"
    );
    let same = folder.run(&["diff", "alone.wasm", package]).done();
    assert!(same.ends_with("\nnothing changed\n"), "{same}");
    for (name, code, message) in [
        (
            "callbox.other",
            "NOT_FOUND",
            "expected a tensor \"callbox.other\", found",
        ),
        (
            "layer.weight",
            "INVALID_ARGUMENT",
            "expected a tensor of U8, found \"F32\"",
        ),
    ] {
        let package = format!("m.safetensors#{name}");
        refuse(&folder, &["test", &package], 1, code, message);
    }
}

/// A lock has each package of a file, and neither the weights nor other tensors.
#[test]
fn packages_beside_weights_are_locked() {
    let folder = folder();
    folder.npy("x.npy", &[3], &[1.0_f32, 2.0, 3.0]);
    folder.run(&PACK).done();
    let locked = folder.run(&["lock", "m.safetensors", "--json"]);
    let alone = read(&folder, "alone.wasm");
    let entry = json!({"file": "m.safetensors#callbox.negate", "digest": hex::encode(Sha256::digest(&alone)),
        "size": alone.len(), "name": "negate", "version": "1.0.0"});
    assert_eq!(locked.object()["lock"]["files"], json!([entry]));
    // The same by its name, and through a link.
    let package = "m.safetensors#callbox.negate";
    let again = folder.run(&["lock", package, "--json"]);
    assert_eq!(again.object()["lock"], locked.object()["lock"]);
    let call = |file: &str| {
        let words = [
            "call",
            file,
            "negate",
            "--operand",
            "x.npy",
            "--result",
            "f32[3]",
        ];
        folder.run(&[&words[..], &["--lock", "callbox.lock", "--json"]].concat())
    };
    let test = |file: &str| folder.run(&["test", file, "--lock", "callbox.lock", "--json"]);
    for ran in [call(package), test(package)] {
        assert_eq!(ran.code, 0, "{ran:?}");
    }
    // Other weights beside the same package.
    let other = TensorView::new(Dtype::U8, vec![1], &[9]).unwrap();
    let bytes = TensorView::new(Dtype::U8, vec![alone.len()], &alone).unwrap();
    let tensors = [("w", other), ("callbox.negate", bytes)];
    folder.write("m.safetensors", serialize(tensors, None).unwrap());
    assert_eq!(test(package).code, 0);
    // Another version of the package, and another package.
    folder.write("k/callbox-package.json", HEADER.replace("1.0.0", "0.9.0"));
    folder.run(&PACK).done();
    folder.write("k/callbox-package.json", HEADER.replace("negate", "json"));
    folder.run(&PACK).done();
    for (file, message) in [
        (
            package,
            format!("callbox.lock has {package} with {} bytes", alone.len()),
        ),
        (
            "m.safetensors#callbox.json",
            "#callbox.json is not in callbox.lock".to_owned(),
        ),
        ("alone.wasm", "alone.wasm is not in callbox.lock".to_owned()),
    ] {
        for ran in [call(file), test(file)] {
            let status = &ran.object()["status"];
            assert_eq!(status["code"], "PERMISSION_DENIED", "{ran:?}");
            let found = status["message"].as_str().unwrap();
            assert!(
                found.contains(&message),
                "expected {message:?} in {found:?}"
            );
        }
    }
    let locked = folder.run(&["lock", "m.safetensors"]).done();
    assert!(
        locked.contains("\n  is       m.safetensors#callbox.negate 0.9.0, "),
        "{locked}"
    );
    assert!(
        locked.contains("\n  new      m.safetensors#callbox.json 1.0.0, "),
        "{locked}"
    );
    assert_eq!(test("m.safetensors#callbox.json").code, 0);
    folder.write("plain.safetensors", model());
    for (file, exit, code, message) in [
        (
            "plain.safetensors",
            1,
            "NOT_FOUND",
            "the file has no package: a U8 tensor",
        ),
        (
            "m.safetensors#callbox.other",
            1,
            "NOT_FOUND",
            "expected a tensor \"callbox.other\"",
        ),
        (
            "none.safetensors",
            2,
            "NOT_FOUND",
            "expected to read none.safetensors",
        ),
    ] {
        let before = read(&folder, "callbox.lock");
        refuse(&folder, &["lock", file], exit, code, message);
        assert_eq!(read(&folder, "callbox.lock"), before);
    }
}

#[test]
fn a_file_that_cannot_take_it_stays_as_it_is() {
    let folder = folder();
    let floats = vec![0; 4];
    let tensor = TensorView::new(Dtype::F32, vec![1], &floats).unwrap();
    let taken = serialize([("callbox.negate", tensor)], None).unwrap();
    let mut truncated = model();
    truncated.pop();
    let mut long = model();
    long[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    for (bytes, message) in [
        (
            taken,
            "the tensor `callbox.negate` has elements of another type than U8",
        ),
        (
            truncated,
            "expected 27 bytes of elements, as the header says, found 26",
        ),
        (long, "whose header of 18446744073709551615 bytes is in it"),
        (b"short".to_vec(), "which has at least 8 bytes, found 5"),
        (
            b"\x02\0\0\0\0\0\0\0[]".to_vec(),
            "header of the .safetensors file: ",
        ),
    ] {
        folder.write("m.safetensors", &bytes);
        refuse(&folder, &PACK, 1, "INVALID_ARGUMENT", message);
        assert_eq!(read(&folder, "m.safetensors"), bytes);
    }
    std::fs::remove_file(folder.path("m.safetensors")).unwrap();
    refuse(
        &folder,
        &PACK,
        2,
        "NOT_FOUND",
        "expected to read m.safetensors",
    );
    assert_eq!(folder.list("."), ["alone.wasm", "k"]);
}

#[cfg(unix)]
#[test]
fn the_file_keeps_its_mode() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = folder();
    let path = folder.path("m.safetensors");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    folder.run(&PACK).done();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

/// Each process replaces the file by one with another tensor.
#[test]
fn packages_that_are_added_at_one_time_are_all_in_the_file() {
    const COUNT: usize = 6;
    let folder = folder();
    let mut children = Vec::new();
    for i in 0..COUNT {
        let names = ["callbox-package.json", "negate.wasm", "cases/three.json"];
        for name in names {
            let bytes = read(&folder, &format!("k/{name}"));
            folder.write(&format!("k{i}/{name}"), bytes);
        }
        let header = HEADER.replace("negate", &format!("k{i}"));
        folder.write(&format!("k{i}/callbox-package.json"), header);
        let pack = ["pack", &format!("k{i}"), "--into", "m.safetensors"];
        children.push(folder.command(&pack).stdout(Stdio::null()).spawn().unwrap());
    }
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let bytes = read(&folder, "m.safetensors");
    let file = SafeTensors::deserialize(&bytes).unwrap();
    for i in 0..COUNT {
        file.tensor(&format!("callbox.k{i}")).unwrap();
    }
    assert_eq!(file.len(), 2 + COUNT);
}

#[test]
fn packages_beside_weights_are_limited() {
    let folder = Folder::new();
    let module = b"\0asm\x01\0\0\0";
    let view = || TensorView::new(Dtype::U8, vec![module.len()], module).unwrap();
    for (count, outcome) in [
        (256, None),
        (257, Some("expected at most 256 packages, found 257")),
    ] {
        let tensors = (0..count).map(|number| (format!("callbox.k{number}"), view()));
        folder.write("m.safetensors", serialize(tensors, None).unwrap());
        let lock = ["lock", "m.safetensors", "-o", "m.lock"];
        match outcome {
            None => {
                folder.run(&lock).done();
                let lock: serde_json::Value =
                    serde_json::from_slice(&folder.read("m.lock")).unwrap();
                assert!(lock.to_string().contains("m.safetensors#callbox.k255"));
            }
            Some(message) => {
                refuse(&folder, &lock, 1, "RESOURCE_EXHAUSTED", message);
            }
        }
    }
}
