//! Images of manifests, arrays, and files that are not regular.

use std::fs::File;
use std::process::Command;

use super::{MEMORY, limited, list, module, shown};
use crate::manifests::{self, MANIFEST};
use crate::support::Folder;

#[test]
fn images_that_share_a_large_file() {
    let folder = manifests::folder();
    let large = File::create(folder.path("k/k.ptx")).unwrap();
    large.set_len(1 << 30).unwrap();
    let mut manifest: serde_json::Value = serde_json::from_str(MANIFEST).unwrap();
    let images = manifest["images"].as_array_mut().unwrap();
    for i in 1..30 {
        images.push(serde_json::json!({"name": format!("k{i}"), "file": "k.ptx"}));
    }
    folder.write("k/callbox.json", manifest.to_string());
    let ran = limited(&folder, MEMORY, &["inspect", "k", "--json"]);
    let manifest = &ran.object()["manifest"];
    let images = &manifest["images"];
    assert_eq!(images[0]["size"], 1 << 30, "{}", shown(&ran));
    let problem = images[29]["problem"].as_str().unwrap();
    assert!(
        problem.contains("at most 1073741824 bytes in all"),
        "{problem}"
    );
    assert_eq!(manifest["digest"], serde_json::Value::Null);
    std::fs::rename(folder.path("k/k.ptx"), folder.path("large.so")).unwrap();
    assert_eq!(limited(&folder, MEMORY, &["inspect", "large.so"]).code, 0);
}

/// Opening a FIFO would wait for a writer.
#[test]
fn files_that_are_not_regular() {
    let folder = manifests::folder();
    std::fs::remove_file(folder.path("k/k.ptx")).unwrap();
    folder.write("p.hlo", module("", "ROOT p = f32[] parameter(0)"));
    for fifo in [
        "k/k.ptx",
        "fifo.wasm",
        "fifo.so",
        "fifo.json",
        "fifo.npy",
        "fifo.hlo",
    ] {
        let made = Command::new("mkfifo")
            .arg(folder.path(fifo))
            .status()
            .unwrap();
        assert!(made.success());
    }
    let run = ["run", "p.hlo", "--input"];
    for arguments in [
        &["inspect", "fifo.wasm"][..],
        &["inspect", "fifo.so"],
        &["inspect", "fifo.json"],
        &["run", "fifo.hlo"],
        &["run", "/dev/zero"],
        &["policy", "fifo.json"],
        &["call", "fifo.wasm", "f"],
        &[&run[..], &["0=fifo.npy"]].concat(),
        &[&run[..], &["0=/dev/zero"]].concat(),
    ] {
        let ran = limited(&folder, MEMORY, arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {ran:?}");
        assert!(
            ran.stderr.contains("name a regular file"),
            "{arguments:?}: {ran:?}"
        );
    }
    let ran = limited(&folder, MEMORY, &["inspect", "k"]);
    assert!(ran.stdout.contains("cannot be read"), "{ran:?}");
}

/// A .safetensors file with this header and no tensors' bytes.
fn with_header(header: &str) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat()
}

#[test]
fn headers_of_arrays() {
    let folder = Folder::new();
    folder.write("p.hlo", module("", "ROOT p = f32[] parameter(0)"));
    let long = "n".repeat(8 << 20);
    let tensor = |name: &str, dtype: &str, shape: &str| {
        format!(r#"{{"{name}":{{"dtype":"{dtype}","shape":[{shape}],"data_offsets":[0,0]}}}}"#)
    };
    let ones = list("1", 4 << 20);
    for header in [
        tensor(&long, "U8", "0"),
        tensor("t", &long, "0"),
        tensor("t", "U8", &format!("{ones},0")),
        format!("{{\"{long}"),
        "[".repeat(8 << 20),
        " ".repeat(17 << 20),
    ] {
        folder.write("x.safetensors", with_header(&header));
        let ran = limited(
            &folder,
            1024,
            &["run", "p.hlo", "--input", "0=x.safetensors#t"],
        );
        assert_eq!(ran.code, 1, "{}", shown(&ran));
        assert!(ran.stderr.len() < 10_000, "{} bytes", ran.stderr.len());
    }
    let short = "n".repeat(60_000);
    for header in [
        format!("{{'{short}': 1}}"),
        format!("{{'descr': '{short}', 'fortran_order': False, 'shape': (), }}"),
        format!(
            "{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}",
            list("1", 30_000)
        ),
    ] {
        let length = (header.len() as u32).to_le_bytes();
        let file = [b"\x93NUMPY\x02\x00", &length[..], header.as_bytes()].concat();
        folder.write("x.npy", file);
        let ran = limited(&folder, MEMORY, &["run", "p.hlo", "--input", "0=x.npy"]);
        assert_eq!(ran.code, 1, "{}", shown(&ran));
        assert!(ran.stderr.len() < 10_000, "{} bytes", ran.stderr.len());
    }
}
