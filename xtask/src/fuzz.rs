//! Runs fuzz targets for a while.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::process::{cargo, root, run, say, shown, tests};

/// What `cargo xtask fuzz` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many minutes, for all targets together.
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// The target. Without it, all of them in turn.
    #[arg(long)]
    target: Option<String>,
    /// The first seed: the same makes the same inputs.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs the target under libFuzzer, which is led by coverage. It takes `cargo-fuzz`, and builds everything anew, instrumented.
    #[arg(long, requires = "target")]
    libfuzzer: bool,
}

/// Builds the fuzz targets and runs them. The exit code is 0 if nothing was found, and 1 if something was: its input is in `target/fuzz`.
pub(crate) fn fuzz(arguments: &Arguments) -> Result<ExitCode> {
    if !(arguments.minutes.is_finite() && arguments.minutes > 0.0) {
        bail!("expected minutes above 0, found {}", arguments.minutes);
    }
    match (&arguments.target, arguments.libfuzzer) {
        (Some(target), true) => libfuzzer(target, arguments.minutes),
        _ => in_process(arguments),
    }
}

fn in_process(arguments: &Arguments) -> Result<ExitCode> {
    say("Building the fuzz targets");
    // With all tests, as the runner of the cases is: alone they would have other features.
    run(tests().args(["--no-run", "--quiet"]))?;
    let mut command = Command::new(root().join("target/debug/callbox-fuzz"));
    command.current_dir(root()).arg("run");
    command.args(["--minutes", &arguments.minutes.to_string()]);
    command.args(["--seed", &arguments.seed.to_string()]);
    if let Some(target) = &arguments.target {
        command.args(["--target", target]);
    }
    say("Fuzzing");
    println!("   {}", shown(&command));
    let status = command
        .status()
        .context("expected to start the fuzz targets")?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}

/// libFuzzer's instrumentation is a compiler's option that only a nightly one takes, unless it is told that it is one.
fn libfuzzer(target: &str, minutes: f64) -> Result<ExitCode> {
    let seeds = root().join("tests/fuzz/seeds").join(target);
    if !seeds.is_dir() {
        bail!("expected a target with a folder {}", seeds.display());
    }
    let corpus = folder(&format!("target/fuzz/corpus/{target}"))?;
    let artifacts = folder(&format!("target/fuzz/finds/{target}"))?;
    say("Fuzzing under libFuzzer");
    let mut command = cargo();
    command.env("RUSTC_BOOTSTRAP", "1");
    command.args(["fuzz", "run", "--dev", "--sanitizer", "none"]);
    command.args(["--fuzz-dir", "tests/fuzz/libfuzzer"]);
    command.args(["--target-dir", "target/fuzz/libfuzzer", target]);
    command.args([&corpus, &seeds]).arg("--");
    command.arg(format!("-max_total_time={}", (minutes * 60.0).ceil()));
    command.arg(format!("-artifact_prefix={}/", artifacts.display()));
    println!("   {}", shown(&command));
    let status = command.status().context("expected to start cargo fuzz")?;
    Ok(ExitCode::from(u8::from(!status.success())))
}

fn folder(path: &str) -> Result<PathBuf> {
    let folder: &Path = &root().join(path);
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    Ok(folder.to_owned())
}
