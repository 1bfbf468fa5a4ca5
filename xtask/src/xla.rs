//! Python with JAX in `target/xla`, for the platform XLA.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::venv::{Environment, Interpreter, requirements};

/// The JAX that the cases in `tests/cases/jax` were made with.
const REQUIREMENTS: &str = "tests/jax/requirements.txt";

/// Prints nothing if JAX starts. A processor may lack instructions that JAX's wheels need.
const PROBE: &str = "import jax; jax.devices()";

/// An interpreter with JAX.
///
/// # Errors
/// There is no Python for JAX, no network, or JAX does not start.
pub(crate) fn python() -> Result<PathBuf> {
    let interpreter = Interpreter::default_python()?;
    let environment = Environment::of("xla", &interpreter, &requirements(REQUIREMENTS)?, "")?;
    let mut probe = environment.python();
    probe.args(["-c", PROBE]).env("JAX_PLATFORMS", "cpu");
    let output = probe
        .output()
        .with_context(|| format!("cannot start {}", environment.path("python").display()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "the installed JAX does not start: {}",
        errors.lines().last().unwrap_or("it printed nothing")
    );
    Ok(environment.path("python"))
}
