//! Runs the conformance suite's cases while altering what the host reads from guests, or repeats
//! one such run.
#![allow(clippy::print_stdout, reason = "people and CI read what it prints")]

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, ensure};
use callbox::wasm::faults::Schedule;
use callbox_fault_injection::campaign::{self, mutations, seeded};
use callbox_tests::discover;
use clap::Parser;

/// Run the conformance suite's cases while altering what the host reads from guests.
#[derive(Parser)]
struct Arguments {
    /// Number of random runs per case.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// First seed of these runs.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Also alter each read of each case in each way.
    #[arg(long)]
    each_read: bool,
    /// Run only cases whose names contain this text.
    #[arg(long, default_value = "")]
    filter: String,
    /// Run only this case.
    #[arg(long)]
    case: Option<String>,
    /// Repeat the random run with this seed.
    #[arg(long, requires = "case")]
    seed: Option<u64>,
    /// Repeat the run that alters this read alone.
    #[arg(long, requires = "case", requires = "mutation")]
    read: Option<u64>,
    /// The mutation of that read, by its number.
    #[arg(long, requires = "read")]
    mutation: Option<usize>,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let all = mutations();
    let mutation = arguments.mutation.unwrap_or(0);
    ensure!(
        mutation < all.len(),
        "expected a mutation below {}, found {mutation}",
        all.len()
    );
    let mut cases = discover::all()?;
    cases.retain(|case| match &arguments.case {
        Some(name) => case.name == *name,
        None => case.name.contains(&arguments.filter),
    });
    ensure!(!cases.is_empty(), "expected cases, found none of this name");
    let seeds = arguments.from..arguments.from.saturating_add(arguments.seeds);
    let begun = Instant::now();
    let report = campaign::run(&cases, &|subject, took, runner| match (
        arguments.seed,
        arguments.read,
    ) {
        (Some(seed), _) => runner.run(subject, seeded(subject, seed), "(again)"),
        (None, Some(read)) => {
            let mutation = all[mutation];
            runner.run(subject, Schedule::Only { read, mutation }, "(again)");
        }
        (None, None) => {
            campaign::each_seed(subject, took, &seeds, runner);
            if arguments.each_read {
                campaign::each_read(subject, runner);
            }
        }
    });
    println!("{} in {:.1?}", report.tally, begun.elapsed());
    println!("{} failures", report.failures.len());
    Ok(if report.failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
