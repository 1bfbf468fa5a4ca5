//! Trap and reuse: on one call site a trap followed by healthy calls, a million times.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use callbox::policy::{Limits, Policy};
use callbox::wasm::{Config, Engine, PreparedCall};
use callbox::{CallOptions, Status, StatusCode};
use fastrand::Rng;

use super::subject::{self, Deed};
use super::watch::{Outcome, Watch};
use super::{Kind, Options, Report};

/// Runs `count` cycles in one thread. `options` gives the seed and the sampling interval.
///
/// After each trap, a counting call must find a fresh instance and a multiplying call must be
/// right.
///
/// # Errors
/// An engine that cannot be created.
pub fn cycles(count: u64, options: &Options) -> Result<Report> {
    // The site outlives the watch, because dropping its engine ends a thread, which is counted.
    let site = Arc::new(call_site().context("expected an engine and a call site")?);
    let watch = Arc::<Watch>::default();
    let worker = {
        let (site, watch, seed) = (Arc::clone(&site), Arc::clone(&watch), options.seed);
        thread::spawn(move || {
            let mut random = Rng::with_seed(seed);
            for number in 0..count {
                if watch.has_ended() {
                    break;
                }
                if let Err(problem) = cycle(&site, random.i32(..), &watch) {
                    watch.problem(format!("cycle {number}: {problem}"));
                }
            }
        })
    };
    let options = Options {
        threads: 1,
        interval: options.interval.min(Duration::from_millis(250)),
        ..options.clone()
    };
    let samples = watch.watch(vec![worker], (options.interval, None));
    drop(site);
    let mut problems = watch.problems();
    let report = Report::new(Kind::TrapCycles, &options, samples, Vec::new(), Vec::new());
    let traps = report.count(Outcome::Trapped);
    if problems.is_empty() && traps != count {
        problems.push(format!("expected {count} cycles, found {traps}"));
    }
    Ok(Report { problems, ..report })
}

fn call_site() -> Result<PreparedCall, Status> {
    // With a single instance slot, an instance leaked by a trap makes the next call fail.
    let limits = Limits {
        instances: 1,
        memory_bytes: 8 << 20,
        ..Limits::default()
    };
    let policy = Policy {
        limits,
        ..Policy::default()
    };
    let engine = Engine::with_config(Config {
        policy,
        ..Config::default()
    })?;
    subject::prepare(&engine.load(&subject::module())?)
}

/// Runs one trap and the healthy calls after it.
fn cycle(site: &PreparedCall, number: i32, watch: &Watch) -> Result<(), String> {
    let call = |deed: Deed| subject::call(site, (deed, number), &CallOptions::default());
    match call(Deed::Trap)? {
        Err(status) if status.code() == StatusCode::Aborted => watch.count(Outcome::Trapped),
        other => return Err(format!("expected ABORTED of a trap, found {other:?}")),
    }
    match call(Deed::Count)? {
        Ok(1) => {}
        other => {
            return Err(format!(
                "expected 1 in an instance that is new, found {other:?}"
            ));
        }
    }
    match call(Deed::Add)? {
        Ok(found) if found == number.wrapping_mul(1000) => watch.count(Outcome::Healthy),
        other => return Err(format!("expected {number} times 1000, found {other:?}")),
    }
    Ok(())
}
