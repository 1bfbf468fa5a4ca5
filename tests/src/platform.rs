//! Platforms that cases run on.
//!
//! Each platform is a small adapter that prepares a case's subject and runs its steps from any
//! thread. Results are judged elsewhere, in the same way for all platforms.

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
    /// callbox on the CPU, with WebAssembly modules.
    Host,
    /// callbox on NVIDIA GPUs, with native kernels.
    Cuda,
    /// XLA itself, through JAX on the CPU: the reference for programs without custom calls.
    Xla,
}

/// An adapter for a platform.
pub trait Platform: Send + Sync {
    /// Returns its name.
    fn name(&self) -> PlatformName;

    /// Returns its label in reports. A stand-in for a device is never labelled with the device's
    /// name alone.
    fn label(&self) -> String {
        self.name().to_string()
    }

    /// Checks that this machine can run cases on the platform.
    ///
    /// # Errors
    /// Why not, as text for a person.
    fn availability(&self) -> Result<(), String>;

    /// Returns why a case that names this platform cannot run on it, if it cannot.
    fn reason_against(&self, _: &Case) -> Option<&'static str> {
        None
    }

    /// Returns whether cases are also run concurrently. Only callbox's own platforms are.
    fn is_stressed(&self) -> bool {
        true
    }

    /// Sets up a case's environment, which lives as long as the case runs.
    ///
    /// # Errors
    /// A case that cannot run at all, whatever it expects.
    fn open<'c>(&'c self, case: &'c Case) -> Result<Box<dyn Bench + 'c>>;
}

/// The environment in which a case runs.
pub trait Bench: Sync {
    /// Prepares the case's subject: loads, parses, registers and binds it. The inner error is an
    /// outcome, which the case may expect.
    ///
    /// # Errors
    /// A case that cannot run at all, for example because a guest was not built.
    fn prepare(&self) -> Result<Result<Box<dyn Prepared + '_>, Failure>>;

    /// Loads and calls a healthy guest in the same environment.
    ///
    /// # Errors
    /// A wrong outcome of the healthy guest: the case did harm.
    fn run_healthy(&self) -> Result<()>;
}

/// A prepared subject. Threads may run steps concurrently.
pub trait Prepared: Sync {
    /// Runs one step.
    ///
    /// # Errors
    /// The outer error is the platform's own failure; the inner one is an outcome, which the case
    /// may expect.
    fn run(&self, step: &Step) -> Result<Outcome>;
}

/// The outcome of one step.
pub type Outcome = Result<Found, Failure>;

/// The output of a successful step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The result's leaves in preorder, each row-major, and the guest's log messages.
    Results(Vec<(ArrayShape, Vec<u8>)>, Vec<ExpectedLog>),
    /// The targets of a loaded module.
    Targets(Vec<String>),
}

/// A failed step.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The phase in which it failed.
    pub phase: Phase,
    /// The status.
    pub status: Status,
    /// What the guest itself said, on a platform that marks it; empty if it said nothing.
    pub said: Option<String>,
    /// Whether the caller's result buffers were written to in spite of the failure.
    pub wrote_results: bool,
}

impl PlatformName {
    /// All platforms, in the order of reports.
    pub const ALL: [Self; 3] = [Self::Host, Self::Cuda, Self::Xla];

    /// Returns the name in cases and on the command line.
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
    /// A failure that left the caller's buffers unchanged.
    #[must_use]
    pub fn new(phase: Phase, status: Status) -> Self {
        Self {
            phase,
            status,
            said: None,
            wrote_results: false,
        }
    }

    /// Returns whether both failures are the same. Backtraces are ignored: where a stopped guest
    /// was running is arbitrary.
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

/// Returns whether both outcomes are the same, bit for bit.
#[must_use]
pub fn is_same(a: &Outcome, b: &Outcome) -> bool {
    match (a, b) {
        (Ok(a), Ok(b)) => a == b,
        (Err(a), Err(b)) => a.is_like(b),
        _ => false,
    }
}

/// Describes an outcome for a report.
#[must_use]
pub fn describe(outcome: &Outcome) -> String {
    match outcome {
        Ok(found) => format!("{found:?}"),
        Err(failure) => {
            let Failure {
                phase,
                status,
                wrote_results,
                ..
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
