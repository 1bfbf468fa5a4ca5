//! Python with JAX, for the platform XLA: an environment of its own in `target/xla`, made the first time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process::{root, run, say, succeeds};

/// What is installed: the JAX that the cases in `tests/cases/jax` were made with.
const REQUIREMENTS: &str = "tests/jax/requirements.txt";

/// An interpreter that has JAX.
///
/// # Errors
/// Why there is none: no Python that JAX runs on, no network, or a JAX that does not start.
pub(crate) fn python() -> Result<PathBuf> {
    let folder = root().join("target/xla");
    let python = folder.join("bin/python");
    let requirements = fs::read_to_string(root().join(REQUIREMENTS))
        .with_context(|| format!("expected to read {REQUIREMENTS}"))?;
    // Written when all is installed, so that what was broken off is begun again.
    let installed = folder.join("installed.txt");
    if !fs::read_to_string(&installed).is_ok_and(|text| text == requirements) {
        install(&folder, &python)?;
        fs::write(&installed, requirements)
            .context("expected to write target/xla/installed.txt")?;
    }
    // A processor may lack what JAX's wheels are built for.
    let starts = "import jax; jax.devices()";
    let mut probe = Command::new(&python);
    probe.args(["-c", starts]).env("JAX_PLATFORMS", "cpu");
    let output = probe
        .output()
        .with_context(|| format!("expected to start {}", python.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "expected the installed JAX to start, found that `{starts}` failed: {}",
        said.lines().last().unwrap_or("it said nothing")
    );
    Ok(python)
}

/// Makes the environment and installs JAX.
fn install(folder: &Path, python: &Path) -> Result<()> {
    let enough = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))";
    ensure!(
        succeeds(Command::new("python3").args(["-c", enough])),
        "expected a python3 of at least 3.11 with venv"
    );
    say("Installing JAX into target/xla");
    run(Command::new("python3")
        .args(["-m", "venv", "--clear"])
        .arg(folder))?;
    let mut pip = Command::new(python);
    pip.current_dir(root());
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--retries=2",
        "--requirement",
    ]);
    run(pip.arg(REQUIREMENTS)).context("expected pip to install JAX")
}
