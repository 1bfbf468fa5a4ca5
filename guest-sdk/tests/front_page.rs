//! The `Cargo.toml` on the crate's front page resolves, and makes a WebAssembly module.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "tests fail by panicking, and a test crate needs no documentation"
)]

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

#[test]
fn the_dependency_on_the_front_page_can_be_had() {
    let sdk = env!("CARGO_MANIFEST_DIR");
    let page = fs::read_to_string(Path::new(sdk).join("src/lib.rs")).unwrap();
    let manifest: String = page
        .lines()
        .map(|line| line.trim_start_matches("//!").trim_start())
        .skip_while(|line| *line != "```toml")
        .skip(1)
        .take_while(|line| *line != "```")
        .flat_map(|line| [line, "\n"])
        .collect();
    let path = "../callbox/guest-sdk";
    assert!(manifest.contains(path), "{manifest}");

    // The folder lies within the checkout, and so needs a workspace of its own.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("front_page");
    fs::create_dir_all(folder.join("src")).unwrap();
    fs::write(folder.join("src/lib.rs"), "").unwrap();
    let manifest = manifest.replace(path, sdk) + "\n[workspace]\n";
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    fs::copy(
        Path::new(sdk).join("../Cargo.lock"),
        folder.join("Cargo.lock"),
    )
    .unwrap();

    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--format-version=1"])
        .current_dir(&folder)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let kernel = packages.iter().find(|p| p["name"] == "add_n").unwrap();
    assert_eq!(kernel["targets"][0]["crate_types"][0], "cdylib");
    assert!(packages.iter().any(|p| p["name"] == "callbox-guest"));
}
