//! NVRTC from PyPI: an environment of its own in `target/nvrtc`, made the first time. It needs no GPU and no driver.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::process::{root, shown};
use crate::venv::{Environment, Interpreter};

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
        let interpreter = Interpreter::at_hand()?;
        let environment = Environment::of("nvrtc", &interpreter, &[WHEEL.to_owned()], "")?;
        let libraries = environment.packages().join("nvidia/cu13/lib");
        ensure!(
            libraries.is_dir(),
            "expected {WHEEL} to have {}",
            libraries.display()
        );
        Ok(Self {
            python: environment.path("python"),
            libraries,
        })
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
