//! Lists the files of the guest SDK, which `callbox new` writes into the folder of a new kernel.

#![allow(
    clippy::disallowed_methods,
    reason = "a build script reads what cargo tells it, and writes to cargo's folder"
)]

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The parts of the repository that a kernel needs.
const PARTS: [&str; 11] = [
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "guest-sdk/Cargo.toml",
    "guest-sdk/include",
    "guest-sdk/macros",
    "guest-sdk/src",
    "guest-sdk/wasm32-wasi.cfg",
    "guest-sdk/wasm32.cfg",
    "host/abi",
    "host/maths/Cargo.toml",
    "host/maths/src",
];

/// The members of the workspace that the parts are.
const MEMBERS: &str = r#"members = ["guest-sdk", "guest-sdk/macros", "host/abi", "host/maths"]"#;

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../..");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let mut files = Vec::new();
    for part in PARTS {
        println!("cargo:rerun-if-changed={}", root.join(part).display());
        add(&root, part, &mut files)?;
    }
    files.sort();

    let manifest = root.join("Cargo.toml");
    println!("cargo:rerun-if-changed={}", manifest.display());
    let manifest = workspace(&fs::read_to_string(manifest)?);
    fs::write(out.join("workspace.toml"), manifest)?;

    let mut list = String::from("&[\n");
    for file in files {
        let path = fs::canonicalize(root.join(&file))?;
        writeln!(list, "({file:?}, include_str!({path:?})),")?;
    }
    let path = out.join("workspace.toml");
    writeln!(list, "(\"Cargo.toml\", include_str!({path:?})),\n]")?;
    fs::write(out.join("sdk_files.rs"), list)?;
    Ok(())
}

/// Adds the files of a part, with paths from the repository's root.
fn add(root: &Path, path: &str, files: &mut Vec<String>) -> Result<(), Box<dyn Error>> {
    let name = path.rsplit('/').next().unwrap_or(path);
    if name == "target" || name.starts_with('.') {
        return Ok(());
    }
    if root.join(path).is_file() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(root.join(path))? {
        let name = entry?.file_name();
        let name = name.to_str().ok_or("expected names in UTF-8")?;
        add(root, &format!("{path}/{name}"), files)?;
    }
    Ok(())
}

/// The repository's manifest with the parts as its only members.
fn workspace(manifest: &str) -> String {
    let lines = manifest
        .lines()
        .filter(|line| !line.starts_with("exclude = ") && !line.starts_with('#'));
    let lines = lines.map(|line| {
        if line.starts_with("members = ") {
            MEMBERS
        } else {
            line
        }
    });
    lines.map(|line| format!("{line}\n")).collect()
}
