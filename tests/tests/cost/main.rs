//! What hostile files cost: each case of `tests/cost` is a generated module, text or array file
//! whose loading, or the failure of a call, has a bound on time and on memory.
//!
//! Each case runs in a process of its own, whose memory is limited, so that a file that costs too
//! much fails its case and nothing else. `cargo test -p callbox-tests --test cost -- --show CASE`
//! prints what a case costs.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![allow(
    clippy::print_stdout,
    reason = "a case runs in a child, which prints what it cost"
)]

mod bodies;
mod case;
mod file;
mod generators;
mod names;
mod pieces;
mod sections;
mod wide;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs};

use libtest_mimic::{Arguments, Failed, Trial};

use self::case::{Case, Outcome};

/// The argument that makes this program run one case.
const CHILD: &str = "--run-case";

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some(CHILD), Some(file)) => {
            let outcome = Case::read(Path::new(&file)).unwrap().run();
            println!("{}", serde_json::to_string(&outcome).unwrap());
            ExitCode::SUCCESS
        }
        (Some("--show"), Some(name)) => {
            let outcome = run(&folder().join(name + ".json")).unwrap();
            println!("{outcome:#?}");
            ExitCode::SUCCESS
        }
        _ => test(),
    }
}

fn test() -> ExitCode {
    let mut files: Vec<PathBuf> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let trials = files.into_iter().map(|file| {
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        Trial::test(name, move || check(&file))
    });
    let mut arguments = Arguments::from_args();
    // Times are measured.
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cost")
}

fn check(file: &Path) -> Result<(), Failed> {
    let case = Case::read(file)?;
    Ok(case.check(&run(file)?)?)
}

/// Runs a case in a child, which is killed if it takes much too long.
fn run(file: &Path) -> Result<Outcome, String> {
    let case = Case::read(file)?;
    let mut child = Command::new(env::current_exe().unwrap())
        .arg(CHILD)
        .arg(file)
        .env_remove("RUST_BACKTRACE")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let end = Instant::now() + case.patience();
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            child.kill().unwrap();
            child.wait().unwrap();
            return Err(format!("still ran after {:?}", case.patience()));
        }
        thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() || !complaints.is_empty() {
        return Err(format!(
            "the process ended with {}: {complaints}",
            output.status
        ));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
}
