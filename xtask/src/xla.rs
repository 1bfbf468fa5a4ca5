//! Python with JAX, for the platform XLA: an environment of its own in `target/xla`.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::venv::{Environment, Interpreter, requirements};

/// What is installed: the JAX that the cases in `tests/cases/jax` were made with.
const REQUIREMENTS: &str = "tests/jax/requirements.txt";

/// An interpreter that has JAX.
///
/// # Errors
/// Why there is none: no Python that JAX runs on, no network, or a JAX that does not start.
pub(crate) fn python() -> Result<PathBuf> {
    let interpreter = Interpreter::at_hand()?;
    let environment = Environment::of("xla", &interpreter, &requirements(REQUIREMENTS)?, "")?;
    // A processor may lack what JAX's wheels are built for.
    let starts = "import jax; jax.devices()";
    let mut probe = environment.python();
    probe.args(["-c", starts]).env("JAX_PLATFORMS", "cpu");
    let output = probe
        .output()
        .with_context(|| format!("expected to start {}", environment.path("python").display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "expected the installed JAX to start, found that `{starts}` failed: {}",
        said.lines().last().unwrap_or("it said nothing")
    );
    Ok(environment.path("python"))
}
