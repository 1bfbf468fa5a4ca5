//! Builds a folder with a program that checks a GPU, and everything that it needs on a machine
//! without Rust.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::guests;
use crate::process::{cargo, root, run, say};

const OUT: &str = "target/gpu-check";

const PROGRAM: &str = "gpu-check";

/// The stand-in for CUDA's driver, for runs of the program without a GPU.
const STAND_IN: &str = "libcallbox_cuda_stand_in.so";

/// The status codes that cases end with on the stand-in.
const RECORD: &str = "stand-in.json";

/// The largest size of the folder, in bytes.
const MAX_BYTES: u64 = 64 << 20;

/// The files to copy: a folder, and the endings of their names. No ending means all files.
const COPIED: [(&str, &[&str]); 5] = [
    ("tests/cases", &[]),
    ("tests/hostile", &[]),
    ("tests/ptx", &[".ptx", ".json"]),
    ("guests", &["callbox.json", ".ptx", ".cu"]),
    ("target/guests", &[".wasm", ".so"]),
];

/// Builds guests and program, copies them to `target/gpu-check`, and records there how the cases
/// end on the stand-in.
///
/// # Errors
/// Something does not build, a case fails on the stand-in, or the folder is too large.
pub(crate) fn gpu_check() -> Result<()> {
    guests::build()?;
    say("Building gpu-check in release mode: the first time this builds wasmtime again");
    let mut build = cargo();
    build.env("CALLBOX_COMMIT", commit()?);
    // Only the program is stripped, so that its dependencies are those of other release builds.
    run(build
        .args(["rustc", "--release", "--package", "callbox-gpu-check"])
        .args(["--bin", PROGRAM, "--", "-Cstrip=symbols"]))?;

    say(&format!("Copying to {OUT}"));
    let out = root().join(OUT);
    if out.exists() {
        fs::remove_dir_all(&out).with_context(|| format!("cannot remove {OUT}"))?;
    }
    let release = root().join("target/release");
    copy(&release.join(PROGRAM), &out.join(PROGRAM))?;
    copy(&release.join("deps").join(STAND_IN), &out.join(STAND_IN))?;
    for (folder, endings) in COPIED {
        for file in files(&root().join(folder))? {
            let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
            if endings.is_empty() || endings.iter().any(|ending| name.ends_with(ending)) {
                copy(&file, &out.join(file.strip_prefix(root())?))?;
            }
        }
    }

    say("Recording how the cases end on the stand-in");
    let mut record = Command::new(out.join(PROGRAM));
    run(record.arg("--record-stand-in").arg(out.join(RECORD)))?;

    let mut size = 0;
    for file in files(&out)? {
        size += fs::metadata(file)?.len();
    }
    ensure!(
        size < MAX_BYTES,
        "{OUT} must be smaller than {MAX_BYTES} bytes, found {size}"
    );
    println!(
        "\n{OUT} has {:.1} MiB. Copy it to a machine with a GPU and run there:\n\n    \
         ./{PROGRAM} --json gpu-report.json\n",
        size as f64 / f64::from(1 << 20)
    );
    Ok(())
}

/// The commit that is checked out, with a plus sign if tracked files differ from it.
fn commit() -> Result<String> {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        let output = command.current_dir(root()).args(arguments).output();
        let output = output.context("git is missing, which names the commit: install git")?;
        ensure!(output.status.success(), "git ended with {}", output.status);
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "HEAD"])?;
    let changes = git(&["status", "--porcelain", "--untracked-files=no"])?;
    let mark = if changes.is_empty() { "" } else { "+" };
    Ok(commit + mark)
}

/// All files below a folder, except those that cargo builds.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = fs::read_dir(folder);
    for entry in entries.with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if !path.is_dir() {
            found.push(path);
        } else if path != root().join("guests/target") {
            found.extend(files(&path)?);
        }
    }
    Ok(found)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    to.parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::copy(from, to))
        .map(|_| ())
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
}
