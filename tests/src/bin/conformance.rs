//! `callbox-conformance`: runs the cases, shows progress, and writes reports. `cargo xtask
//! conformance` builds what it needs and runs it.
#![allow(
    clippy::print_stdout,
    reason = "a command-line program prints its results"
)]

use std::fs;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use callbox::policy::Traps;
use callbox_tests::discover::{self, Found};
use callbox_tests::platform::cuda::Cuda;
use callbox_tests::platform::host::{Host, Wall};
use callbox_tests::platform::xla::Xla;
use callbox_tests::platform::{Platform, PlatformName};
use callbox_tests::report::{self, CaseReport, Ending, Report, html};
use callbox_tests::suite::Suite;
use callbox_tests::worker;
use clap::{Parser, ValueEnum};

/// Lines of progress that a run prints where it cannot overwrite the last line.
const LINES: usize = 10;

/// Runs the conformance suite.
///
/// The exit code is 0 if no case failed, 1 if a case failed, and 2 if no case ran: no case name
/// contains the filter, or the platform is unavailable.
#[derive(Parser)]
struct Arguments {
    /// The platform to run on. `all` skips unavailable platforms and says why.
    #[arg(long, value_enum, ignore_case = true, default_value = "Host")]
    platform: Chosen,
    /// Use the stand-in for CUDA's driver, a CPU program for machines without a GPU. Its results
    /// are labelled "CUDA (stand-in)".
    #[arg(long)]
    stand_in: bool,
    /// How out-of-bounds accesses of guests are caught, on Host.
    #[arg(long, value_enum, default_value = "signals")]
    traps: ChosenTraps,
    /// What isolates guests from the host, on Host: WebAssembly alone, or worker processes as well.
    /// Worker processes skip the concurrent runs of each case.
    #[arg(long, value_enum, default_value = "wasm")]
    isolate: ChosenWall,
    /// Runs the cases whose names contain this text.
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Write a report: JSON if the file name ends in .json, an HTML page if it ends in .html.
    #[arg(long, value_name = "FILE", value_parser = report_file)]
    report: Vec<PathBuf>,
    /// A Python interpreter with JAX, for the platform XLA.
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Why no such interpreter is available.
    #[arg(
        long,
        value_name = "REASON",
        default_value = "no Python with JAX was named by --python"
    )]
    no_python: String,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Chosen {
    #[value(name = "Host")]
    Host,
    #[value(name = "CUDA")]
    Cuda,
    #[value(name = "XLA")]
    Xla,
    #[value(name = "all")]
    All,
}

#[derive(Clone, Copy, ValueEnum)]
enum ChosenWall {
    Wasm,
    Process,
}

#[derive(Clone, Copy, ValueEnum)]
enum ChosenTraps {
    Signals,
    Explicit,
}

fn main() -> ExitCode {
    if let Some(code) = worker::as_told() {
        return code;
    }
    match run(&Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut cases = discover::all()?;
    cases.retain(|case| case.name.contains(&arguments.filter));
    let xla = Xla::new(arguments.python.clone().ok_or(arguments.no_python.clone()));
    let host = Host {
        traps: match arguments.traps {
            ChosenTraps::Signals => Traps::Signals,
            ChosenTraps::Explicit => Traps::Explicit,
        },
        wall: match arguments.isolate {
            ChosenWall::Wasm => Wall::Wasm,
            ChosenWall::Process => Wall::Process,
        },
    };
    let cuda = match (
        arguments.platform.includes(PlatformName::Cuda),
        arguments.stand_in,
    ) {
        (false, _) => Cuda::absent("not asked for"),
        (true, false) => Cuda::open(),
        (true, true) => Cuda::on_stand_in(),
    };
    let every: [&dyn Platform; 3] = [&host, &cuda, &xla];
    let platforms: Vec<&dyn Platform> = every
        .into_iter()
        .filter(|platform| arguments.platform.includes(platform.name()))
        .collect();
    let suite = Suite {
        cases: &cases,
        platforms: &platforms,
        filter: &arguments.filter,
    };
    let progress = Progress::new(&cases);
    let report = suite.run(&|case| progress.ended(case));
    progress.end();
    println!("{}", report::summary(&report));
    for file in &arguments.report {
        write(file, &report)?;
        println!("wrote {}", file.display());
    }
    Ok(exit_code(&report))
}

impl Chosen {
    fn includes(self, platform: PlatformName) -> bool {
        match self {
            Self::All => true,
            Self::Host => platform == PlatformName::Host,
            Self::Cuda => platform == PlatformName::Cuda,
            Self::Xla => platform == PlatformName::Xla,
        }
    }
}

/// Returns the exit code of a report. A run in which no case ran is not a success.
fn exit_code(report: &Report) -> ExitCode {
    let ran = report
        .platforms
        .iter()
        .any(|platform| platform.counts.run() > 0);
    match (report.has_failures(), ran) {
        (true, _) => ExitCode::from(1),
        (false, true) => ExitCode::SUCCESS,
        (false, false) => {
            if report.cases.is_empty() {
                eprintln!(
                    "error: expected cases with {:?} in their names, found none",
                    report.filter
                )
            } else {
                eprintln!("error: no case was run")
            }
            ExitCode::from(2)
        }
    }
}

fn report_file(name: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(name);
    match extension(&path) {
        "json" | "html" => Ok(path),
        _ => Err("expected a name that ends with .json or .html".to_owned()),
    }
}

fn extension(path: &Path) -> &str {
    path.extension()
        .and_then(|e| e.to_str())
        .unwrap_or_default()
}

fn write(file: &Path, report: &Report) -> Result<()> {
    let text = match extension(file) {
        "html" => html::page(report),
        _ => serde_json::to_string_pretty(report)? + "\n",
    };
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Shows how many cases have ended: on one line of a terminal, otherwise on a few lines in all.
/// Failures are printed at once.
struct Progress {
    all: usize,
    ended: AtomicUsize,
    failed: AtomicUsize,
    is_terminal: bool,
}

impl Progress {
    fn new(cases: &[Found]) -> Self {
        Self {
            all: cases.len(),
            ended: AtomicUsize::new(0),
            failed: AtomicUsize::new(0),
            is_terminal: std::io::stderr().is_terminal(),
        }
    }

    fn ended(&self, case: &CaseReport) {
        let ended = self.ended.fetch_add(1, Ordering::Relaxed) + 1;
        let failed = |ending: Ending| ending == Ending::Failed;
        let mut err = std::io::stderr().lock();
        let clear = if self.is_terminal { "\r\x1b[2K" } else { "" };
        // Failing to write progress does not fail the run.
        for result in case.results.iter().filter(|result| failed(result.ending)) {
            self.failed.fetch_add(1, Ordering::Relaxed);
            drop(writeln!(
                err,
                "{clear}FAILED {} on {}",
                case.name, result.platform
            ));
        }
        let count = self.failed.load(Ordering::Relaxed);
        let line = format!("{ended} of {} cases, {count} failed", self.all);
        if self.is_terminal {
            drop(write!(err, "{clear}{line}: {}", case.name).and_then(|()| err.flush()));
        } else if ended * LINES / self.all != (ended - 1) * LINES / self.all {
            drop(writeln!(err, "{line}"));
        }
    }

    fn end(&self) {
        if self.is_terminal {
            eprint!("\r\x1b[2K");
        }
    }
}
