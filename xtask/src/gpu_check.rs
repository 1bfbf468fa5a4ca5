//! Puts the program that looks at a GPU into a folder, with all that it needs where there is no Rust.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::guests;
use crate::process::{cargo, root, run, say};

/// The folder.
const OUT: &str = "target/gpu-check";

/// The program.
const PROGRAM: &str = "gpu-check";

/// The stand-in driver, for runs of the program without a GPU.
const STAND_IN: &str = "libcallbox_cuda_stand_in.so";

/// The codes that cases end with on the stand-in.
const RECORD: &str = "stand-in.json";

/// The most bytes that all of it may have.
const MOST_BYTES: u64 = 64 << 20;

/// What is taken along: a folder, and how the names of its files end.
const TAKEN: [(&str, &[&str]); 4] = [
    ("tests/cases", &[]),
    ("tests/hostile", &[]),
    ("guests", &["callbox.json", ".ptx", ".cu"]),
    ("target/guests", &[".wasm", ".so"]),
];

/// Builds the guests and the program, copies them to `target/gpu-check`, and records there what the cases come to on the stand-in.
///
/// # Errors
/// What does not build; cases that fail on the stand-in; a folder that became too large.
pub(crate) fn gpu_check() -> Result<()> {
    guests::build()?;
    say("Building gpu-check in release mode: the first time this builds wasmtime once more");
    let mut build = cargo();
    build.env("CALLBOX_COMMIT", commit()?);
    // Only the program is stripped: the crates below it are those of other release builds.
    run(build
        .args([
            "rustc",
            "--release",
            "--package",
            "callbox-gpu-check",
            "--bin",
            PROGRAM,
        ])
        .args(["--", "-Cstrip=symbols"]))?;

    say(&format!("Copying what it needs to {OUT}"));
    let out = root().join(OUT);
    if out.exists() {
        fs::remove_dir_all(&out).with_context(|| format!("expected to remove {OUT}"))?;
    }
    fs::create_dir_all(&out).with_context(|| format!("expected to make {OUT}"))?;
    let release = root().join("target/release");
    copy(&release.join(PROGRAM), &out.join(PROGRAM))?;
    copy(&release.join("deps").join(STAND_IN), &out.join(STAND_IN))?;
    for (folder, endings) in TAKEN {
        for file in files(&root().join(folder))? {
            let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
            if endings.is_empty() || endings.iter().any(|ending| name.ends_with(ending)) {
                let below = file.strip_prefix(root())?;
                copy(&file, &out.join(below))?;
            }
        }
    }

    say("Recording what the cases come to on the stand-in");
    let mut record = Command::new(out.join(PROGRAM));
    run(record.arg("--record-stand-in").arg(out.join(RECORD)))?;

    let mut size = 0;
    for file in files(&out)? {
        size += fs::metadata(file)?.len();
    }
    ensure!(
        size < MOST_BYTES,
        "expected {OUT} to have less than {MOST_BYTES} bytes, found {size}"
    );
    println!(
        "\n{OUT} has {:.1} MiB. Copy it to a machine with a GPU and run there:\n\n    ./{PROGRAM} --json gpu-report.json\n",
        size as f64 / f64::from(1 << 20)
    );
    Ok(())
}

/// The commit that is checked out, with a plus sign if files differ from it.
fn commit() -> Result<String> {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        let output = command.current_dir(root()).args(arguments).output();
        let output = output.context("expected to start git")?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        ensure!(output.status.success(), "git ended with {}", output.status);
        Ok(text)
    };
    let commit = git(&["rev-parse", "HEAD"])?;
    let changes = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Ok(match changes.is_empty() {
        true => commit,
        false => format!("{commit}+"),
    })
}

/// All files below a folder, but those that cargo makes.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = fs::read_dir(folder);
    for entry in entries.with_context(|| format!("expected to read {}", folder.display()))? {
        let path = entry?.path();
        if path == root().join("guests/target") {
            continue;
        }
        match path.is_dir() {
            true => found.extend(files(&path)?),
            false => found.push(path),
        }
    }
    Ok(found)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)
            .with_context(|| format!("expected to make {}", folder.display()))?;
    }
    fs::copy(from, to)
        .with_context(|| format!("expected to copy {} to {}", from.display(), to.display()))?;
    Ok(())
}
