//! Platforms that cases run on. Each is one small adapter: it makes what a case runs ready, and runs steps of it from any
//! thread. What the steps must give is judged elsewhere, and the same everywhere.

pub mod cuda;
mod ffi_call;
pub mod host;
mod layout;
mod results;
mod step;
pub mod xla;

use std::fmt;
use std::str::FromStr;

use anyhow::{Result, bail};
use callbox::{ArrayShape, Status};

use crate::case::{Case, ExpectedLog, Phase, Step};

/// A platform's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PlatformName {
    /// callbox on the CPU: WebAssembly modules.
    Host,
    /// callbox on NVIDIA GPUs: native kernels.
    Cuda,
    /// XLA itself, through JAX on the CPU: an oracle for programs without custom calls.
    Xla,
}

/// An adapter.
pub trait Platform: Send + Sync {
    /// Its name.
    fn name(&self) -> PlatformName;

    /// What reports call it. What stands in for a device is never called by that device's name alone.
    fn label(&self) -> String {
        self.name().to_string()
    }

    /// Whether anything can run here.
    ///
    /// # Errors
    /// Why not, for a person to read.
    fn availability(&self) -> Result<(), String>;

    /// Why a case that is for this platform is not run on it all the same, if it is not.
    fn reason_against(&self, _: &Case) -> Option<&'static str> {
        None
    }

    /// Whether cases are also run many times at once: what runs them is callbox.
    fn is_stressed(&self) -> bool {
        true
    }

    /// What a case needs before its subject is prepared, for as long as it runs.
    ///
    /// # Errors
    /// A case that cannot be run at all, whatever it expects.
    fn open<'c>(&'c self, case: &'c Case) -> Result<Box<dyn Bench + 'c>>;
}

/// A case's place to run.
pub trait Bench: Sync {
    /// Makes the case's subject ready: loads, parses, registers and binds what it runs. The inner error is an outcome, which the case
    /// may expect.
    ///
    /// # Errors
    /// A case that cannot be run at all, say for want of a guest.
    fn prepare(&self) -> Result<Result<Box<dyn Prepared + '_>, Failure>>;

    /// Loads and calls something healthy in the place where the case ran.
    ///
    /// # Errors
    /// What it came to instead of its result: the case did harm.
    fn run_healthy(&self) -> Result<()>;
}

/// What a case runs, made ready. Many threads may run steps at once.
pub trait Prepared: Sync {
    /// Runs one step.
    ///
    /// # Errors
    /// The outer one if the platform itself gave up; the inner one is an outcome, which the case may expect.
    fn run(&self, step: &Step) -> Result<Outcome>;
}

/// What came of one step.
pub type Outcome = Result<Found, Failure>;

/// What a step gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Results, as leaves in preorder, each row-major, and what the guest logged meanwhile.
    Results(Vec<(ArrayShape, Vec<u8>)>, Vec<ExpectedLog>),
    /// A loaded module's targets.
    Targets(Vec<String>),
}

/// How a step failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What was being done.
    pub phase: Phase,
    /// The status.
    pub status: Status,
    /// Whether the caller's result buffers were written to all the same.
    pub wrote_results: bool,
}

impl PlatformName {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 3] = [Self::Host, Self::Cuda, Self::Xla];

    /// The name as cases and the command line have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "Host",
            Self::Cuda => "CUDA",
            Self::Xla => "XLA",
        }
    }
}

impl fmt::Display for PlatformName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for PlatformName {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|known| known.name() == name);
        match known {
            Some(known) => Ok(known),
            None => bail!("expected a platform (Host, CUDA, XLA), found {name:?}"),
        }
    }
}

impl Failure {
    /// A failure that left the caller's buffers alone.
    #[must_use]
    pub fn new(phase: Phase, status: Status) -> Self {
        Self {
            phase,
            status,
            wrote_results: false,
        }
    }

    /// Whether it is the very same failure. Where a guest that is stopped happens to be is its own affair: no backtrace.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        let facts = |failure: &Self| {
            let status = &failure.status;
            (
                failure.phase,
                status.code(),
                status.message().to_owned(),
                status.recoverable(),
                status.blame(),
                failure.wrote_results,
            )
        };
        facts(self) == facts(other)
    }
}

/// Whether two outcomes are the same, bit by bit.
#[must_use]
pub fn is_same(a: &Outcome, b: &Outcome) -> bool {
    match (a, b) {
        (Ok(a), Ok(b)) => a == b,
        (Err(a), Err(b)) => a.is_like(b),
        _ => false,
    }
}

/// What came of a step, for people.
#[must_use]
pub fn describe(outcome: &Outcome) -> String {
    match outcome {
        Ok(found) => format!("{found:?}"),
        Err(failure) => {
            let Failure {
                phase,
                status,
                wrote_results,
            } = failure;
            let wrote = if *wrote_results {
                ", results written to"
            } else {
                ""
            };
            format!("{status} ({phase:?}, blame {}{wrote})", status.blame())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for platform in PlatformName::ALL {
            assert_eq!(platform.name().parse::<PlatformName>().unwrap(), platform);
        }
        let error = "cuda".parse::<PlatformName>().unwrap_err().to_string();
        assert_eq!(
            error,
            "expected a platform (Host, CUDA, XLA), found \"cuda\""
        );
    }
}
