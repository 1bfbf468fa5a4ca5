//! The soak: a random mix of healthy, failing, trapping, stopped and hostile calls from many
//! threads, while the resources of the process are sampled. Nothing may grow.
//!
//! [`run`] runs the mix, [`cycles`] a million traps on one call site. Both return a [`Report`],
//! which renders as JSON, as a table and as a plot. A seeded generator chooses what each thread
//! does; the interleaving of threads is not reproducible.

mod cancel;
mod corpus;
mod cycles;
mod flat;
mod mix;
mod plot;
mod report;
mod subject;
mod usage;
mod watch;
mod world;

use std::time::Duration;

pub use self::cycles::cycles;
pub use self::flat::{Allowance, Flatness, flatness};
pub use self::mix::run;
pub use self::plot::plot;
pub use self::report::{Kind, Measure, Report, Verdict};
pub use self::usage::Usage;
pub use self::watch::{OUTCOMES, Outcome, Sample};

/// The options of a soak.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed of the threads' random choices.
    pub seed: u64,
    /// The number of calling threads.
    pub threads: usize,
    /// The duration of the mix.
    pub time: Duration,
    /// The interval between samples.
    pub interval: Duration,
    /// Restricts the cases in the mix to those whose names contain this text.
    pub cases: String,
}

impl Options {
    /// Makes options that sample once per second, or more often in short runs, for at least 40
    /// samples.
    #[must_use]
    pub fn new(seed: u64, threads: usize, time: Duration) -> Self {
        Self {
            seed,
            threads,
            time,
            interval: (time / 40).min(Duration::from_secs(1)),
            cases: String::new(),
        }
    }
}
