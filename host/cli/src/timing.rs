//! `callbox call --time`: how long a call takes.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use callbox::call::TargetModule;
use callbox::values::zeroed;
use callbox::{CallOptions, CallSite, Literal, Result};

/// Whether and how often a call is measured.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct TimingArguments {
    /// Measure the call before it is made for its results, and print the times to standard error.
    /// A call includes copying the operands and results
    #[arg(long, conflicts_with = "record")]
    time: bool,

    /// How many calls are measured, under one deadline
    #[arg(long, value_name = "N", requires = "time", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    repeat: u32,
}

impl TimingArguments {
    /// Measures the calls, if the command line asks for it.
    pub(super) fn measure(
        &self,
        module: &Arc<dyn TargetModule>,
        site: &CallSite,
        operands: &[Literal],
        options: &CallOptions,
    ) -> Result<()> {
        if !self.time {
            return Ok(());
        }
        let (prepared, times) = sample(module, site, operands, options, |times| {
            times.len() < self.repeat as usize
        })?;
        // Without standard error there is nowhere to report to.
        let _ = writeln!(std::io::stderr(), "{}", describe(prepared, times));
        Ok(())
    }
}

/// Prepares a call, and measures it once and again while `wants_more` of the times says so. Returns
/// the time of the preparation and those of the calls.
pub(super) fn sample(
    module: &Arc<dyn TargetModule>,
    site: &CallSite,
    operands: &[Literal],
    options: &CallOptions,
    wants_more: impl Fn(&[Duration]) -> bool,
) -> Result<(Duration, Vec<Duration>)> {
    let begin = Instant::now();
    let calls = Arc::clone(module).prepare(vec![site.clone()], options)?;
    let mut execution = calls.begin(options, None, &[0])?;
    execution.initialize()?;
    let prepared = begin.elapsed();

    let operands: Vec<_> = operands.iter().filter_map(Literal::bytes).collect();
    let leaves = site.result.leaves();
    let results = leaves.iter().map(|leaf| zeroed(leaf.byte_size()));
    let mut results = results.collect::<Result<Vec<_>>>()?;
    let mut times = Vec::new();
    while times.is_empty() || wants_more(&times) {
        let mut buffers: Vec<_> = results.iter_mut().map(Vec::as_mut_slice).collect();
        let begin = Instant::now();
        execution.call(0, &operands, &mut buffers)?;
        times.push(begin.elapsed());
    }
    Ok((prepared, times))
}

fn describe(prepared: Duration, mut times: Vec<Duration>) -> String {
    let first = times.first().copied().unwrap_or_default();
    times.sort_unstable();
    let at = |index: usize| times.get(index).copied().unwrap_or_default();
    format!(
        "time: prepared in {prepared:.1?}, first call {first:.1?}; {} calls: least {:.1?}, median \
         {:.1?}, greatest {:.1?}",
        times.len(),
        at(0),
        at(times.len() / 2),
        at(times.len().saturating_sub(1))
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    #[test]
    fn times_are_told_in_order() {
        let times = [5, 1, 9, 2].map(Duration::from_micros).to_vec();
        assert_eq!(
            super::describe(Duration::from_millis(3), times),
            "time: prepared in 3.0ms, first call 5.0µs; 4 calls: least 1.0µs, median 5.0µs, \
             greatest 9.0µs"
        );
    }
}
