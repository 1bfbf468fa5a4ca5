//! Fuzzes for a given time; `tests/README.md` describes it. Each round of a target runs in a
//! process of its own, so that a crash counts as a find.
#![allow(
    clippy::print_stdout,
    reason = "a command-line program prints its results"
)]

use std::fs;
use std::io::Write;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use callbox_fuzz::drive::{Find, MALLOC, Run};
use callbox_fuzz::{TARGETS, Target, seeds, target};
use clap::{Parser, Subcommand};

/// The timeout of a round.
const ROUND: Duration = Duration::from_secs(600);

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run targets in turn, round after round.
    Run {
        /// Total time for all targets, in minutes.
        #[arg(long, default_value_t = 1.0)]
        minutes: f64,
        /// The target. Default: all.
        #[arg(long)]
        target: Option<String>,
        /// Seed of the first round. Later rounds count up from it.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Inputs per round, as a multiple of the number that `cargo test` runs.
        #[arg(long, default_value_t = 10)]
        round: u64,
        /// Folder for finds.
        #[arg(long, default_value = "target/fuzz/finds")]
        finds: PathBuf,
    },
    /// Run one round in this process.
    Round {
        target: String,
        seed: u64,
        executions: u64,
        finds: PathBuf,
        /// Write each input to this file before running it.
        #[arg(long)]
        trace: Option<PathBuf>,
    },
    /// Run these inputs.
    Replay { target: String, files: Vec<PathBuf> },
    /// Regenerate the committed seeds.
    Seeds,
}

fn main() -> Result<ExitCode> {
    match Arguments::parse().task {
        Task::Run {
            minutes,
            target,
            seed,
            round,
            finds,
        } => {
            let targets = match target {
                Some(name) => vec![known(&name)?],
                None => TARGETS.iter().collect(),
            };
            run(
                &targets,
                Duration::from_secs_f64(minutes * 60.0),
                (seed, round),
                &finds,
            )
        }
        Task::Round {
            target,
            seed,
            executions,
            finds,
            trace,
        } => in_thread(move || round(known(&target)?, seed, executions, &finds, trace)),
        Task::Replay { target, files } => in_thread(move || {
            let target = known(&target)?;
            for file in files {
                let input = fs::read(&file).with_context(|| file.display().to_string())?;
                println!("{}: {:?}", file.display(), (target.run)(&input));
            }
            Ok(ExitCode::SUCCESS)
        }),
        Task::Seeds => in_thread(|| seeds::write().map(|()| ExitCode::SUCCESS)),
    }
}

fn known(name: &str) -> Result<&'static Target> {
    let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
    target(name)
        .with_context(|| format!("expected a target ({}), found {name:?}", names.join(", ")))
}

/// Runs a task in a thread with the default stack size of an embedder's threads.
fn in_thread(task: impl FnOnce() -> Result<ExitCode> + Send + 'static) -> Result<ExitCode> {
    match std::thread::spawn(task).join() {
        Ok(outcome) => outcome,
        Err(panic) => panic::resume_unwind(panic),
    }
}

/// The totals of a target's rounds.
#[derive(Default)]
struct Sum {
    executions: u64,
    outcomes: usize,
    finds: u64,
    time: Duration,
}

fn run(
    targets: &[&'static Target],
    time: Duration,
    (seed, round): (u64, u64),
    finds: &Path,
) -> Result<ExitCode> {
    let began = Instant::now();
    let mut sums: Vec<Sum> = targets.iter().map(|_| Sum::default()).collect();
    let mut number = seed;
    while began.elapsed() < time {
        for (target, sum) in std::iter::zip(targets, &mut sums) {
            let left = time.saturating_sub(began.elapsed());
            if left.is_zero() {
                break;
            }
            one_round(target, number, target.executions * round, finds, sum)?;
        }
        number += 1;
    }
    println!(
        "\n{:12} {:>12} {:>9} {:>9} {:>6}",
        "target", "executions", "seconds", "outcomes", "finds"
    );
    for (target, sum) in std::iter::zip(targets, &sums) {
        let seconds = sum.time.as_secs_f64();
        println!(
            "{:12} {:>12} {seconds:>9.1} {:>9} {:>6}",
            target.name, sum.executions, sum.outcomes, sum.finds
        );
    }
    let total: u64 = sums.iter().map(|sum| sum.executions).sum();
    println!(
        "{:12} {total:>12} {:>9.1}",
        "all",
        began.elapsed().as_secs_f64()
    );
    Ok(ExitCode::from(u8::from(
        sums.iter().any(|sum| sum.finds > 0),
    )))
}

/// Runs a round in a child process and adds its counts to the totals.
fn one_round(
    target: &Target,
    seed: u64,
    executions: u64,
    finds: &Path,
    sum: &mut Sum,
) -> Result<()> {
    let began = Instant::now();
    let output = tempfile(finds, target.name)?;
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("round")
        .arg(target.name)
        .args([seed.to_string(), executions.to_string()])
        .arg(finds)
        .envs(MALLOC);
    let shown = format!("{command:?}");
    let child = command
        .stdout(fs::File::create(&output)?)
        .spawn()
        .context("cannot start a round")?;
    let is_well = wait(child)?;
    sum.time += began.elapsed();
    let said = fs::read_to_string(&output)?;
    let numbers: Vec<u64> = said
        .split_whitespace()
        .filter_map(|n| n.parse().ok())
        .collect();
    match numbers[..] {
        [executions, outcomes, finds] if is_well => {
            sum.executions += executions;
            sum.outcomes = sum.outcomes.max(usize::try_from(outcomes)?);
            sum.finds += finds;
            println!(
                "{}: round {seed}: {executions} executions, {outcomes} outcomes, {finds} finds, {:.1} s",
                target.name,
                began.elapsed().as_secs_f64()
            );
        }
        _ => {
            sum.finds += 1;
            println!(
                "{}: round {seed} died or hung. The input that it died of: {shown} --trace FILE",
                target.name
            );
        }
    }
    Ok(())
}

fn tempfile(finds: &Path, name: &str) -> Result<PathBuf> {
    fs::create_dir_all(finds).with_context(|| finds.display().to_string())?;
    Ok(finds.join(format!("{name}.round")))
}

/// Returns whether the child ended in time and successfully.
fn wait(mut child: Child) -> Result<bool> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if began.elapsed() > ROUND {
            child.kill()?;
            child.wait()?;
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a round and prints the number of executions, outcomes and finds.
fn round(
    target: &'static Target,
    seed: u64,
    executions: u64,
    finds: &Path,
    trace: Option<PathBuf>,
) -> Result<ExitCode> {
    // Finds are reported below, once per message.
    panic::set_hook(Box::new(|_| {}));
    let mut run = Run::new(target, seed);
    if let Some(trace) = trace {
        run = run.with_trace(trace);
    }
    run.replay()?;
    let mut messages = Vec::new();
    let mut found = 0_u64;
    while run.executions() < executions {
        if let Err(find) = run.step() {
            found += 1;
            let kind: String = find
                .message
                .chars()
                .filter(|c| c.is_ascii_alphabetic())
                .take(40)
                .collect();
            if messages.len() < 20 && !messages.contains(&kind) {
                messages.push(kind);
                save(target, &find, finds)?;
            }
        }
    }
    println!("{} {} {found}", run.executions(), run.outcomes());
    Ok(ExitCode::SUCCESS)
}

/// Writes a find's input to a file and prints its path.
fn save(target: &Target, find: &Find, finds: &Path) -> Result<()> {
    let folder = finds.join(target.name);
    fs::create_dir_all(&folder)?;
    for number in 0..10_000 {
        let file = folder.join(format!("{number:04}"));
        if !file.exists() {
            fs::write(&file, &find.input)?;
            writeln!(std::io::stderr(), "{}: {}", file.display(), find.message)?;
            return Ok(());
        }
    }
    bail!("expected fewer than 10,000 finds in {}", folder.display())
}
