//! Measures the cost of a launch: raw, through cudarc's builder, through callbox, and in graphs.
//!
//! All variants launch `add_n` with one block on 256 floats, so that the launch dominates. They are
//! measured in turns in one run (see `timing`). callbox's program path is measured from inside: a
//! target receives functions of the program and calls them, so that only the measurement itself
//! uploads, downloads or waits.

mod program;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use callbox::cuda::{CudaDevice, CudaModule, CudaTarget, GraphLaunch};
use callbox::program::{Executable, ExecuteOptions, Program};
use callbox::{Literal, Registry, Status};
use serde_json::{Value, json};

use crate::guests;
use crate::options::Amount;
use crate::raw::Raw;
use crate::report::Goal;
use crate::timing::{Series, Times, Way};

/// The number of floats per launch.
const ELEMENTS: usize = 256;

/// The added number.
const N: f32 = 1.0;

/// The baseline of all variants.
const RAW: &str = "cuLaunchKernel";

/// callbox's launch of one prepared call.
const PREPARED: &str = "callbox, prepared call";

/// The prefix of the variants that launch a graph through callbox with arrays at unchanged
/// addresses. The number of launches follows.
const UNCHANGED: &str = "callbox.graph.launch, arrays in one place: ";

/// Measures all variants and checks the results.
///
/// # Errors
/// Failures of the device, and wrong results.
pub(crate) fn measure(device: &Arc<CudaDevice>, root: &Path, amount: Amount) -> Result<Value> {
    let lengths = match amount {
        Amount::Tiny => vec![1, 8],
        Amount::Quick | Amount::Full => vec![1, 8, 64, 512],
    };
    let rounds = match amount {
        Amount::Tiny => 1,
        Amount::Quick => 30,
        Amount::Full => 200,
    };
    let found: Arc<Mutex<Option<Value>>> = Arc::default();
    let graphs = GraphLaunch::default();
    let mut registry = Registry::new();
    registry.register_module(guests::kernels(root, "add_n")?)?;
    registry.register_module(graphs.module()?)?;
    let target = {
        let (found, root, raw) = (Arc::clone(&found), root.to_owned(), Raw::open(device)?);
        let lengths = lengths.clone();
        CudaTarget::new(program::TARGET, move |call| {
            let measured = program::measure(call, &raw, &root, &graphs, &lengths, rounds);
            let measured = measured.map_err(|error| Status::internal(format!("{error:#}")))?;
            *found.lock().unwrap_or_else(PoisonError::into_inner) = Some(measured);
            Ok(())
        })
    };
    registry.register_module(CudaModule::from_targets([target])?)?;
    let program = Program::from_hlo_text(&program::text(&lengths))?;
    let executable = Executable::compile_on(&program, &registry, device.clone())?;
    let numbers: Vec<f32> = (0..ELEMENTS as u16).map(f32::from).collect();
    let argument = Literal::array(&[ELEMENTS], &numbers)?;
    executable.execute(0, &[argument], &ExecuteOptions::default())?;
    let found = found.lock().unwrap_or_else(PoisonError::into_inner).take();
    found.context("expected the target to be called")
}

/// Renders the measurements: the time of one launch, and its ratio to the baseline.
fn rows(ways: &[Way<'_>], times: &[Times]) -> Vec<Value> {
    let of = |name: &str| ways.iter().position(|way| way.name == name);
    let rows = std::iter::zip(ways, times).map(|(way, own)| {
        let baseline = of(&way.baseline).map(|place| &times[place]);
        let ratio = |series: fn(&Times) -> &Series| {
            baseline.map(|baseline| rounded(series(own).median() / series(baseline).median()))
        };
        json!({
            "way": way.name,
            "enqueue_ns": rounded(own.enqueue.median()),
            "enqueue_p10_p90_ns": [rounded(own.enqueue.quantile(0.1)), rounded(own.enqueue.quantile(0.9))],
            "whole_ns": rounded(own.whole.median()),
            "whole_p10_p90_ns": [rounded(own.whole.quantile(0.1)), rounded(own.whole.quantile(0.9))],
            "baseline": way.baseline,
            "enqueue_ratio": ratio(|times| &times.enqueue),
            "whole_ratio": ratio(|times| &times.whole),
        })
    });
    rows.collect()
}

/// Compares the measurements with the goals.
fn goals(ways: &[Way<'_>], times: &[Times]) -> Vec<Goal> {
    let of = |name: &str| {
        let place = ways.iter().position(|way| way.name == name);
        place.map(|place| &times[place])
    };
    let prepared = Option::zip(of(PREPARED), of(RAW)).map(|(prepared, raw)| {
        Goal::at_most(
            "a prepared call is enqueued in at most 1.1 times what cuLaunchKernel takes and 1 µs, in ns",
            rounded(1.1 * raw.enqueue.median() + 1000.0),
            rounded(prepared.enqueue.median()),
        )
    });
    let graphs = std::iter::zip(ways, times).filter(|(way, _)| way.name.starts_with(UNCHANGED));
    let graphs = graphs.filter_map(|(way, own)| {
        let raw = of(&way.baseline)?;
        Some(Goal::at_most(
            format!("{}: each launch takes at most 1.05 times what a raw graph's does, until the device is done", way.name),
            1.05,
            rounded(own.whole.median() / raw.whole.median()),
        ))
    });
    prepared.into_iter().chain(graphs).collect()
}

/// Rounds to three decimal places.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(name: &str, baseline: &str) -> Way<'static> {
        Way {
            name: name.to_owned(),
            baseline: baseline.to_owned(),
            launches: 1,
            batch: 1,
            act: Box::new(|| Ok(())),
        }
    }

    fn times(enqueue: f64, whole: f64) -> Times {
        let mut times = Times::default();
        times.enqueue.push(enqueue);
        times.whole.push(whole);
        times
    }

    #[test]
    fn ratios_are_to_the_way_that_each_names() {
        let ways = [way(RAW, RAW), way(PREPARED, RAW)];
        let rows = rows(&ways, &[times(2000.0, 4000.0), times(3000.0, 5000.0)]);
        assert_eq!(rows[0]["whole_ratio"], 1.0);
        assert_eq!(rows[1]["enqueue_ratio"], 1.5);
        assert_eq!(rows[1]["whole_ratio"], 1.25);
    }

    #[test]
    fn goals_are_the_issue_s() {
        let unchanged = format!("{UNCHANGED}8");
        let ways = [
            way(RAW, RAW),
            way(PREPARED, RAW),
            way("raw 8", "raw 8"),
            way(&unchanged, "raw 8"),
        ];
        let judged = |prepared: f64, graph: f64| {
            let times = [
                times(2000.0, 0.0),
                times(prepared, 0.0),
                times(0.0, 1000.0),
                times(0.0, graph),
            ];
            let goals = goals(&ways, &times);
            let reached =
                |goal: &Goal| serde_json::to_value(goal).map(|goal| goal["reached"].clone());
            goals
                .iter()
                .filter_map(|goal| reached(goal).ok())
                .collect::<Vec<_>>()
        };
        assert_eq!(judged(3200.0, 1050.0), [true, true]);
        assert_eq!(judged(3201.0, 1051.0), [false, false]);
    }
}
