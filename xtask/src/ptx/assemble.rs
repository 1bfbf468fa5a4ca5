//! Checks that what callbox-ptx prints of the committed PTX is the same program, and assembles.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use callbox_ptx::{Limits, print, read};

use crate::process::{root, say};

/// Reads, prints and reads again each committed PTX text, and assembles what was printed.
///
/// # Errors
/// A text is not read, is printed as another program, or is not assembled.
pub(crate) fn check(ptxas: &Path) -> Result<()> {
    say("Assembling the printed PTX");
    let texts = texts()?;
    ensure!(!texts.is_empty(), "guests has no PTX");
    let folder = root().join("target/ptx");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for path in &texts {
        let file = path.display().to_string();
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {file}"))?;
        let module = read(&text, &file, &Limits::default())?;
        let printed = print(&module);
        let mut again = read(&printed, "the printed text", &Limits::default())
            .with_context(|| format!("{file} is printed as what cannot be read"))?;
        again.version = module.version;
        ensure!(again == module, "{file} is printed as another program");
        let architecture = format!("sm_{}", module.target.architecture);
        let name = path.file_name().unwrap_or(path.as_os_str());
        assemble(ptxas, &architecture, &folder.join(name), &printed)
            .with_context(|| format!("the text printed of {file}"))?;
    }
    println!(
        "   {} texts print the same program, and assemble",
        texts.len()
    );
    Ok(())
}

fn assemble(ptxas: &Path, architecture: &str, path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    let mut command = Command::new(ptxas);
    command.args(["--gpu-name", architecture, "--output-file"]);
    command.arg(path.with_extension("cubin")).arg(path);
    let output = command
        .output()
        .with_context(|| format!("cannot start {}", ptxas.display()))?;
    if !output.status.success() {
        bail!(
            "ptxas refuses it: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

/// The PTX of all guests.
fn texts() -> Result<Vec<PathBuf>> {
    let mut folders = vec![root().join("guests")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "ptx") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
