//! Manifests that launch kernels over and over.

use serde_json::{Value, json};

use super::{MEMORY, limited, shown};
use crate::support::Folder;

const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

/// A manifest whose target launches the kernel `k` of `k.ptx` so often, each time with another
/// grid.
fn manifest(launches: usize) -> String {
    let launch = |number: usize| {
        json!({"image": "k", "entry": "k", "parameters": [{"result": 0}],
               "grid": [(number + 1).to_string()], "block": ["1"]})
    };
    let manifest = json!({
        "format": 1,
        "images": [{"name": "k", "file": "k.ptx"}],
        "targets": [{
            "name": "t",
            "operands": [],
            "results": [{"name": "y", "element_types": ["f32"], "dimensions": ["n"]}],
            "attributes": [],
            "launches": (0..launches).map(launch).collect::<Vec<_>>(),
        }],
    });
    manifest.to_string()
}

const PTX: [&str; 7] = [
    "ptx",
    "k.ptx",
    "--manifest",
    "callbox.json",
    "--shapes",
    "() -> f32[4]",
    "--json",
];

#[track_caller]
fn kernels(folder: &Folder, grade: &str) -> Vec<Value> {
    let ran = limited(folder, MEMORY, &PTX);
    let object = ran.object();
    assert_eq!(object["ptx"]["grade"], grade, "{}", shown(&ran));
    object["ptx"]["kernels"].as_array().unwrap().clone()
}

/// The fenced text of each launch has all variables of its file: 500 of them would be 600 MiB. It
/// is kept for `--emit` alone.
#[test]
fn launches_of_a_kernel_in_a_large_file() {
    let folder = Folder::new();
    let variables: String = (0..60_000).map(|n| format!(".global .u8 g{n};")).collect();
    let kernel = ".visible .entry k(.param .u64 y) { ret; }";
    folder
        .write("k.ptx", format!("{HEAD}{variables}\n{kernel}"))
        .write("callbox.json", manifest(500));
    // 60,000 variables for each of 500 launches are more than the verifier's steps.
    let kernels = kernels(&folder, "refused");
    assert_eq!(kernels.len(), 500);
    assert_eq!(kernels[40]["grade"], "fenced");
    let reason = kernels[499]["refusals"][0]["reason"].as_str().unwrap();
    let expected = "verifying it and what was verified before it takes more than 400000000 steps";
    assert!(reason.starts_with(expected), "{reason}");
    // A manifest's launches are verified for all of its files together.
    let ran = limited(&folder, MEMORY, &["inspect", ".", "--json"]);
    let inspected = &ran.object()["manifest"]["images"][0]["ptx"]["kernels"];
    assert_eq!(
        inspected.as_array().map(Vec::len),
        Some(500),
        "{}",
        shown(&ran)
    );
}

/// Each launch of a large kernel is read, which counts as steps, too: 4,000 times 100,000
/// instructions would take minutes.
#[test]
fn launches_of_a_large_kernel() {
    let folder = Folder::new();
    let body = format!(".reg .b32 %r; {}ret;", "mov.u32 %r, 1;".repeat(99_999));
    folder
        .write(
            "k.ptx",
            format!("{HEAD}.visible .entry k(.param .u64 y) {{ {body} }}"),
        )
        .write("callbox.json", manifest(4_000));
    let kernels = kernels(&folder, "refused");
    assert_eq!(kernels[0]["grade"], "fenced");
    assert_eq!(kernels[3_999]["instructions"], 100_000);
    assert_eq!(kernels[3_999]["refusals"][0]["rule"], "size");
}

/// A kernel whose values meet in many places takes a large part of a second, for each launch.
#[test]
fn launches_of_a_kernel_that_takes_long() {
    let folder = Folder::new();
    let loops: String = (0..100)
        .map(|n| {
            format!(
                "H{n}: setp.lt.u32 %p, %i, %v; @!%p bra E{n}; add.u32 %i, %i, 1;\n\
                 add.u32 %v, %v, %i; bra H{n};\nE{n}:\n"
            )
        })
        .collect();
    folder
        .write(
            "k.ptx",
            format!(
                "{HEAD}.visible .entry k(.param .u64 y) {{ .reg .b32 %i, %v; .reg .pred %p;\n\
                 mov.u32 %i, 0; mov.u32 %v, %tid.x;\n{loops}ret; }}"
            ),
        )
        .write("callbox.json", manifest(4_000));
    let kernels = kernels(&folder, "refused");
    assert_eq!(kernels[0]["grade"], "fenced");
    assert_eq!(kernels[3_999]["refusals"][0]["rule"], "size");
}
