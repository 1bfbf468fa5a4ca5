//! Builds the guests.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::clang;
use crate::process::{root, run, say};
use crate::ptx;
use crate::toolchain::{TARGET, Toolchain};

/// Builds every guest to `target/guests/NAME.wasm`, and the twins of the C ABI to `target/guests/NAME.so`.
pub(crate) fn build() -> Result<()> {
    let rust = build_rust()?;
    clang::build(&rust)?;
    ptx::libraries::build()?;
    let folder = root().join("target/guests");
    println!("   target/guests has {}", names(&folder)?.join(", "));
    Ok(())
}

/// Builds the guests in Rust, which takes no more than rustup, and copies each to `target/guests/NAME.wasm`. Returns their files' names.
pub(crate) fn build_rust() -> Result<Vec<String>> {
    let toolchain = Toolchain::find()?;
    say("Building the guests for wasm32");
    run(&mut toolchain.build())?;

    let built = root().join("guests/target").join(TARGET).join("release");
    let folder = root().join("target/guests");
    fs::create_dir_all(&folder)
        .with_context(|| format!("expected to make {}", folder.display()))?;
    let mut copied = Vec::new();
    let files =
        fs::read_dir(&built).with_context(|| format!("expected to read {}", built.display()))?;
    for file in files {
        let path = file?.path();
        if let (Some(name), Some("wasm")) =
            (path.file_name(), path.extension().and_then(|e| e.to_str()))
        {
            let copy = folder.join(name);
            fs::copy(&path, &copy)
                .with_context(|| format!("expected to copy to {}", copy.display()))?;
            copied.push(name.to_string_lossy().into_owned());
        }
    }
    Ok(copied)
}

fn names(folder: &PathBuf) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for file in fs::read_dir(folder)? {
        names.push(file?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}
