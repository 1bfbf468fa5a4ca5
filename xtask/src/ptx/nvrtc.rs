//! NVRTC from PyPI: an environment of its own in `target/nvrtc`, made the first time. It needs no GPU and no driver.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::process::{root, run, say, shown, succeeds};

/// What is installed. Another version makes other PTX.
const WHEEL: &str = "nvidia-cuda-nvrtc==13.0.88";

/// What drives the library.
const SCRIPT: &str = "xtask/src/ptx/compile.py";

/// How every kernel is compiled. PTX of compute capability 7.5 is what the oldest GPU takes that this NVRTC knows, and later ones compile
/// it further. Products are not fused with the sums that follow, so that results are those of the same source on a CPU.
const OPTIONS: [&str; 3] = [
    "--gpu-architecture=compute_75",
    "--std=c++17",
    "--fmad=false",
];

/// NVRTC, installed.
pub(super) struct Nvrtc {
    python: PathBuf,
    libraries: PathBuf,
}

impl Nvrtc {
    /// Installs NVRTC, if it is not there.
    ///
    /// # Errors
    /// Why it cannot be had: no Python, no network, or no wheel for this machine.
    pub(super) fn find() -> Result<Self> {
        let folder = root().join("target/nvrtc");
        let python = folder.join("bin/python");
        // Written when all is installed, so that what was broken off is begun again.
        let installed = folder.join("installed.txt");
        if !fs::read_to_string(&installed).is_ok_and(|text| text == WHEEL) {
            install(&folder, &python)?;
            fs::write(&installed, WHEEL).context("expected to write target/nvrtc/installed.txt")?;
        }
        let libraries = libraries(&folder)?;
        Ok(Self { python, libraries })
    }

    /// Compiles sources, whose paths begin at the repository's root, to `NAME.ptx` in a folder. Returns the SHA-256 of each source, in
    /// hexadecimal digits.
    ///
    /// # Errors
    /// A source that does not compile, or that does so with a warning. The standard error has the compiler's log.
    pub(super) fn compile(&self, sources: &[PathBuf], out: &Path) -> Result<Vec<String>> {
        let mut command = Command::new(&self.python);
        command.current_dir(root()).args(["-I", SCRIPT]);
        command.arg(&self.libraries).arg(out);
        command.args(OPTIONS).arg("--").args(sources);
        println!("   {}", shown(&command));
        let output = command
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("expected to start {}", self.python.display()))?;
        ensure!(
            output.status.success(),
            "expected every kernel to compile without a warning"
        );
        let digests: Vec<String> = String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(str::to_owned)
            .collect();
        ensure!(
            digests.len() == sources.len(),
            "expected {} digests of {SCRIPT}, found {}",
            sources.len(),
            digests.len()
        );
        Ok(digests)
    }
}

/// Makes the environment and installs the wheel.
fn install(folder: &Path, python: &Path) -> Result<()> {
    ensure!(
        succeeds(Command::new("python3").args(["-I", "-c", "import venv, ensurepip"])),
        "expected a python3 with venv"
    );
    say("Installing NVRTC into target/nvrtc");
    run(Command::new("python3")
        .args(["-I", "-m", "venv", "--clear"])
        .arg(folder))?;
    let mut pip = Command::new(python);
    pip.current_dir(root());
    pip.args(["-I", "-m", "pip", "install", "--quiet", "--retries=2"]);
    pip.args(["--disable-pip-version-check", "--only-binary=:all:"]);
    run(pip.arg(WHEEL)).with_context(|| format!("expected pip to install {WHEEL}"))
}

/// The folder of the libraries, in which there is the one version of Python that made the environment.
fn libraries(folder: &Path) -> Result<PathBuf> {
    let lib = folder.join("lib");
    let entries =
        fs::read_dir(&lib).with_context(|| format!("expected to read {}", lib.display()))?;
    for entry in entries {
        let libraries = entry?.path().join("site-packages/nvidia/cu13/lib");
        if libraries.is_dir() {
            return Ok(libraries);
        }
    }
    anyhow::bail!(
        "expected {WHEEL} to have nvidia/cu13/lib, found it nowhere in {}",
        lib.display()
    )
}
