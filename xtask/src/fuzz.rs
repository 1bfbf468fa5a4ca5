//! Runs fuzz targets for a limited time.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use lexopt::Arg::Long;
use lexopt::{Parser, ValueExt};

use crate::process::{built, cargo, root, run_for_code, say};

/// Runs `cargo xtask fuzz`. The exit code is 1 after a find, whose input is in `target/fuzz`.
pub(crate) fn fuzz(parser: &mut Parser) -> Result<ExitCode> {
    let mut minutes = 10.0_f64;
    let mut target = None;
    let mut seed: u64 = 1;
    let mut under_libfuzzer = false;
    while let Some(argument) = parser.next()? {
        match argument {
            Long("minutes") => minutes = parser.value()?.parse()?,
            Long("target") => target = Some(parser.value()?.string()?),
            Long("seed") => seed = parser.value()?.parse()?,
            Long("libfuzzer") => under_libfuzzer = true,
            other => return Err(other.unexpected().into()),
        }
    }
    ensure!(
        minutes.is_finite() && minutes > 0.0,
        "--minutes must be above 0, found {minutes}"
    );
    match target {
        Some(target) if under_libfuzzer => libfuzzer(&target, minutes),
        None if under_libfuzzer => bail!("--libfuzzer needs --target"),
        target => in_process(target, minutes, seed),
    }
}

fn in_process(target: Option<String>, minutes: f64, seed: u64) -> Result<ExitCode> {
    let mut command = built("callbox-fuzz")?;
    command.args(["run", "--minutes", &minutes.to_string()]);
    command.args(["--seed", &seed.to_string()]);
    if let Some(target) = target {
        command.args(["--target", &target]);
    }
    say("Fuzzing");
    run_for_code(&mut command, 1)
}

/// RUSTC_BOOTSTRAP lets a stable compiler instrument programs for libFuzzer.
fn libfuzzer(target: &str, minutes: f64) -> Result<ExitCode> {
    let seeds = root().join("tests/fuzz/seeds").join(target);
    ensure!(seeds.is_dir(), "there is no fuzz target `{target}`");
    let corpus = make_folder(&format!("target/fuzz/corpus/{target}"))?;
    let artifacts = make_folder(&format!("target/fuzz/finds/{target}"))?;
    say("Fuzzing under libFuzzer");
    let mut command = cargo();
    command.env("RUSTC_BOOTSTRAP", "1");
    command.args(["fuzz", "run", "--dev", "--sanitizer", "none"]);
    command.args(["--fuzz-dir", "tests/fuzz/libfuzzer"]);
    command.args(["--target-dir", "target/fuzz/libfuzzer", target]);
    command.args([&corpus, &seeds]).arg("--");
    command.arg(format!("-max_total_time={}", (minutes * 60.0).ceil()));
    command.arg(format!("-artifact_prefix={}/", artifacts.display()));
    run_for_code(&mut command, 1)
}

fn make_folder(path: &str) -> Result<PathBuf> {
    let folder = root().join(path);
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}
