//! Runs a program whose custom call is an untrusted module, `A[i] = B[i % 128] + C[i]`, and then
//! calls kernels that fail.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::process::{cargo, command_line, root, run, say};
use crate::{guests, npy};

/// The profile without optimisation: wasmtime compiles in a fraction of the time.
const PROFILE: &str = "quick";

pub(crate) fn demo() -> Result<()> {
    guests::build_rust(&["broadcast_add", "faults"])?;
    say("Building the command line: minutes the first time. `cargo xtask test` builds more");
    run(cargo().args([
        "build",
        "--profile",
        PROFILE,
        "--package",
        "callbox-cli",
        "--no-default-features",
    ]))?;

    let folder = root().join("target/demo");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let b: Vec<f32> = (0..128_u16).map(|i| f32::from(i) * 0.5).collect();
    let c: Vec<f32> = (0..2048_u16).map(|i| f32::from(i) - 1024.0).collect();
    say("Writing the input: target/demo/b.npy, f32[128], and target/demo/c.npy, f32[2048]");
    npy::write(&folder.join("b.npy"), &b)?;
    npy::write(&folder.join("c.npy"), &c)?;

    say("Running a program: A[i] = B[i % 128] + C[i]");
    print_file("guests/broadcast_add/do_it.hlo")?;
    run(&mut callbox(&[
        "run",
        "guests/broadcast_add/do_it.hlo",
        "--target",
        "do_custom_call=target/guests/broadcast_add.wasm#broadcast_add",
        "--input",
        "0=target/demo/b.npy",
        "--input",
        "1=target/demo/c.npy",
        "--output-dir",
        "target/demo",
    ]))?;
    compare(&folder.join("0.npy"), &b, &c)?;

    say("Calling kernels that fail: each failure is a status, and the host continues");
    for target in ["panic", "read_out_of_bounds", "infinite_loop"] {
        show_failure(target)?;
    }
    say("Done. `cargo xtask test` runs the tests; the first time it builds for minutes again");
    Ok(())
}

/// The built command line.
fn callbox(arguments: &[&str]) -> Command {
    let mut command = Command::new(root().join("target").join(PROFILE).join("callbox"));
    command.current_dir(root()).args(arguments);
    command
}

fn print_file(path: &str) -> Result<()> {
    let text =
        fs::read_to_string(root().join(path)).with_context(|| format!("cannot read {path}"))?;
    for line in text.lines() {
        println!("   | {line}");
    }
    Ok(())
}

/// Compares the result with the same sum, computed here.
fn compare(result: &Path, b: &[f32], c: &[f32]) -> Result<()> {
    let found = npy::read(result)?;
    let expected: Vec<f32> = c.iter().zip(b.iter().cycle()).map(|(c, b)| b + c).collect();
    ensure!(
        found.len() == expected.len(),
        "expected {} elements, found {}",
        expected.len(),
        found.len()
    );
    println!("   i     result   expected");
    for i in [0, 1, 127, 128, 129, 2047] {
        println!("   {i:<5} {:<8} {}", found[i], expected[i]);
    }
    ensure!(
        found == expected,
        "the result differs from the expected sum"
    );
    println!("   all {} elements are as expected", found.len());
    Ok(())
}

/// Calls a target that fails, for which the command line exits with 1.
fn show_failure(target: &str) -> Result<()> {
    let mut command = callbox(&[
        "call",
        "target/guests/faults.wasm",
        target,
        "--operand",
        "target/demo/b.npy",
        "--result",
        "f32[128]",
        "--deadline",
        "100ms",
    ]);
    println!("   {}", command_line(&command));
    let output = command.output().context("cannot start callbox")?;
    for line in String::from_utf8_lossy(&output.stderr).lines() {
        println!("   | {line}");
    }
    match output.status.code() {
        Some(1) => println!("   exit code 1\n"),
        _ => bail!("expected exit code 1, found {}", output.status),
    }
    Ok(())
}
