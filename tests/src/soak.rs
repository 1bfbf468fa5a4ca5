//! The soak: a random mix of healthy, failing, trapping, stopped and hostile calls from many threads, for as long as one likes, while what
//! the process has of the machine is watched. Nothing may grow.
//!
//! [`run`] makes the mix, [`cycles`] a million traps on one call site. Either gives a [`Report`], as data, as a table and as a plot. What a
//! thread does is chosen by a seeded generator; how threads meet is not.

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

/// How a soak is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// What threads do follows from this.
    pub seed: u64,
    /// Threads that call.
    pub threads: usize,
    /// How long the mix goes on.
    pub time: Duration,
    /// From one sample to the next.
    pub interval: Duration,
    /// The cases that are among the mix: those with this text in their names.
    pub cases: String,
}

impl Options {
    /// Samples each second, or often enough for 40 in all if there is less time.
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
