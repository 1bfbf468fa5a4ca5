//! Runs the cases while what the host reads from guests is altered, for as long as one likes, or one such run again.
#![allow(clippy::print_stdout, reason = "people and CI read what it prints")]

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, ensure};
use callbox::wasm::faults::Schedule;
use callbox_fault_injection::campaign::{self, mutations, seeded};
use callbox_tests::discover;
use clap::Parser;

/// Runs the conformance suite's cases while what the host reads from guests is altered.
#[derive(Parser)]
struct Arguments {
    /// How many random runs each case gets.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first of their seeds.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Alter each read of each case in each way besides.
    #[arg(long)]
    each_read: bool,
    /// Only cases with this in their names.
    #[arg(long, default_value = "")]
    filter: String,
    /// Only this case.
    #[arg(long)]
    case: Option<String>,
    /// One random run of it.
    #[arg(long, requires = "case")]
    seed: Option<u64>,
    /// One run in which the read of this number is altered.
    #[arg(long, requires = "case", requires = "mutation")]
    read: Option<u64>,
    /// How: the number of a mutation.
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
    Ok(match report.failures.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
