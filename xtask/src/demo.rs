//! The main job on real input: the seeds' `A[i] = B[i % 128] + C[i]`, its custom call an untrusted module, and then a faulty one.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use npyz::WriterBuilder;

use crate::guests;
use crate::process::{root, run, say, shown, tests};

pub(crate) fn demo() -> Result<()> {
    guests::build_rust()?;
    // The command line alone would be built with other features of some dependencies, and then wasmtime twice.
    say(
        "Building callbox and its tests: minutes the first time, and `cargo xtask test` needs no more",
    );
    run(tests().args(["--no-run", "--quiet"]))?;

    let folder = root().join("target/demo");
    fs::create_dir_all(&folder)
        .with_context(|| format!("expected to make {}", folder.display()))?;
    let b: Vec<f32> = (0..128_u16).map(|i| f32::from(i) * 0.5).collect();
    let c: Vec<f32> = (0..2048_u16).map(|i| f32::from(i) - 1024.0).collect();
    say("Writing real input: target/demo/b.npy, f32[128], and target/demo/c.npy, f32[2048]");
    write_npy(&folder.join("b.npy"), &b)?;
    write_npy(&folder.join("c.npy"), &c)?;

    say("Running the seeds' program: A[i] = B[i % 128] + C[i]");
    print_file(&root().join("guests/broadcast_add/do_it.hlo"))?;
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

    say("Calling kernels that misbehave: each failure is a status, and the host goes on");
    for target in ["panic", "read_out_of_bounds", "infinite_loop"] {
        show_failure(target)?;
    }
    say("Done");
    Ok(())
}

/// The command line as it was built.
fn callbox(arguments: &[&str]) -> Command {
    let mut command = Command::new(root().join("target/debug/callbox"));
    command.current_dir(root()).args(arguments);
    command
}

fn write_npy(path: &Path, values: &[f32]) -> Result<()> {
    let file =
        File::create(path).with_context(|| format!("expected to write {}", path.display()))?;
    let options = npyz::WriteOptions::new().default_dtype();
    let mut writer = options
        .shape(&[values.len() as u64])
        .writer(BufWriter::new(file))
        .begin_nd()?;
    writer.extend(values.iter().copied())?;
    Ok(writer.finish()?)
}

fn print_file(path: &Path) -> Result<()> {
    let text =
        fs::read_to_string(path).with_context(|| format!("expected to read {}", path.display()))?;
    let mut out = std::io::stdout().lock();
    for line in text.lines() {
        writeln!(out, "   | {line}")?;
    }
    Ok(())
}

/// Holds the result against the same sum, made here.
fn compare(result: &Path, b: &[f32], c: &[f32]) -> Result<()> {
    let bytes =
        fs::read(result).with_context(|| format!("expected to read {}", result.display()))?;
    let found: Vec<f32> = npyz::NpyFile::new(&bytes[..])?.into_vec()?;
    let expected: Vec<f32> = c
        .iter()
        .enumerate()
        .map(|(i, c)| b[i % b.len()] + c)
        .collect();
    println!("   i     result   expected");
    for i in [0, 1, 127, 128, 129, 2047] {
        println!("   {i:<5} {:<8} {}", found[i], expected[i]);
    }
    if found != expected {
        bail!("the result is not what was expected");
    }
    println!("   all {} elements are as expected", found.len());
    Ok(())
}

/// Calls a target that fails, which the command line says by its exit code 1.
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
    println!("   {}", shown(&command));
    let output = command.output().context("expected to start callbox")?;
    for line in String::from_utf8_lossy(&output.stderr).lines() {
        println!("   | {line}");
    }
    match output.status.code() {
        Some(1) => println!("   exit code 1\n"),
        _ => bail!("expected exit code 1, found {}", output.status),
    }
    Ok(())
}
