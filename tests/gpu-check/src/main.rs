//! `gpu-check`: tests and measures callbox on a machine with a GPU. It needs no Rust toolchain
//! there; `cargo xtask gpu-check` builds it together with the files it needs.
//!
//! It runs the conformance suite on CUDA, faulting kernels, and measurements, and writes a report.
//! Each section runs in a process of its own.
#![allow(
    clippy::print_stdout,
    reason = "a command-line program prints its results"
)]

mod bandwidth;
mod check;
mod children;
mod conformance;
mod environment;
mod faults;
mod fence;
mod guests;
mod launch;
mod loading;
mod markdown;
mod options;
mod raw;
mod report;
mod sections;
mod timing;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

use self::options::Options;
use self::report::Report;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> Result<ExitCode> {
    let root = std::path::absolute(options.root()).context("expected a folder")?;
    if let Some(name) = &options.section {
        println!("{}", children::line(&sections::run(name, options, &root))?);
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(file) = &options.record_stand_in {
        check::record(options, &root, file)?;
        println!("wrote {}", file.display());
        return Ok(ExitCode::SUCCESS);
    }
    let report = check::run(options, &root);
    write(
        &options.json,
        &(serde_json::to_string_pretty(&report)? + "\n"),
    )?;
    write(&options.json.with_extension("md"), &markdown::page(&report))?;
    Ok(exit_code(&report, options.stand_in))
}

/// Returns the exit code. A missing GPU is not a failure, unless the stand-in was requested.
fn exit_code(report: &Report, stand_in: bool) -> ExitCode {
    let is_checked = report.device.is_some() || stand_in;
    let is_missing = report.device.is_none() && stand_in;
    if is_missing || (is_checked && report.has_failures()) {
        ExitCode::from(1)
    } else {
        ExitCode::SUCCESS
    }
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    println!("wrote {}", file.display());
    Ok(())
}
