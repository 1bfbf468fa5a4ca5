//! Prints the time between a call's deadline or cancellation and its return.
//!
//! Run it on an idle machine. Under load, the figures show how the system schedules threads.

#![allow(
    clippy::print_stdout,
    reason = "a command-line program prints its results"
)]

use std::time::Duration;

use anyhow::{Context, Result};
use callbox::policy::{Limits, Policy, Traps};
use callbox::wasm::{Config, Engine};
use callbox_benches::kills::{By, GUESTS, TICK};

/// Kills of each guest in each way, unless the command line gives a number.
const KILLS: usize = 2000;

/// Upper bound for the 99th percentile.
const GOAL: Duration = TICK.saturating_mul(2);

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let kills = match arguments.next() {
        Some(number) => number
            .parse()
            .with_context(|| format!("expected a number of kills, found {number:?}"))?,
        None => KILLS,
    };
    let filter = arguments.next().unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("{processors} processors; load before: {}", load.trim());
    println!("\n| guest | stopped by | traps | kills | p50 | p99 | max | past 2 ticks | reached |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for traps in [Traps::Signals, Traps::Explicit] {
        let engine = engine(traps)?;
        for guest in GUESTS {
            // Both trap modes stop guests with the same code, so one guest is enough for the
            // second.
            let is_shown = traps == Traps::Signals || guest.name == GUESTS[0].name;
            if !is_shown || !guest.name.contains(&filter) {
                continue;
            }
            for by in [By::Deadline, By::Cancel] {
                let latencies = guest.measure(&engine, by, kills);
                println!("| {} | {by} | {traps:?} | {}", guest.name, row(&latencies));
            }
        }
    }
    Ok(())
}

fn engine(traps: Traps) -> Result<Engine> {
    let policy = Policy {
        limits: Limits {
            deadline: Some(Duration::from_secs(60)),
            ..Limits::default()
        },
        traps,
        ..Policy::default()
    };
    let config = Config {
        policy,
        ..Config::default()
    };
    Ok(Engine::with_config(config)?)
}

fn row(sorted: &[Duration]) -> String {
    let at = |part: f64| {
        let index = (sorted.len() as f64 * part).ceil() as usize;
        sorted
            .get(index.saturating_sub(1))
            .copied()
            .unwrap_or_default()
    };
    let late = sorted.iter().filter(|&&latency| latency > GOAL).count();
    let reached = if at(0.99) <= GOAL { "yes" } else { "no" };
    format!(
        "{} | {} | {} | {} | {late} | {reached} |",
        sorted.len(),
        shown(at(0.5)),
        shown(at(0.99)),
        shown(at(1.0))
    )
}

fn shown(latency: Duration) -> String {
    format!("{:.2} ms", latency.as_secs_f64() * 1e3)
}
