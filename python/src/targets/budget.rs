//! The time that several calls may take together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use callbox::{Blame, CallOptions, Deadline, Status, StatusCode};
use pyo3::prelude::*;

use super::options::duration;
use crate::exit::argument;

/// Less than this is left of a budget that is used up: the calls of a guest are stopped at ticks.
const LEAST: Duration = Duration::from_millis(1);

/// The time that several calls may take together, as the `deadline` of each of them.
///
/// The time of Python and the wait for the GIL between the calls do not count.
///
/// Args:
///     seconds: The time.
///     within: A budget of which this one is a part.
#[pyclass(frozen, module = "callbox")]
pub(crate) struct Budget {
    whole: Duration,
    nanoseconds_spent: AtomicU64,
    within: Option<Py<Budget>>,
}

#[pymethods]
impl Budget {
    #[new]
    #[pyo3(signature = (seconds, within=None))]
    fn new(
        #[pyo3(from_py_with = argument)] seconds: f64,
        within: Option<Py<Self>>,
    ) -> PyResult<Self> {
        Ok(Self {
            whole: duration(seconds)?,
            nanoseconds_spent: AtomicU64::new(0),
            within,
        })
    }
}

impl Budget {
    /// This budget and those around it.
    fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |budget| budget.within.as_ref().map(Py::get))
    }

    fn left(&self) -> Duration {
        let spent = Duration::from_nanos(self.nanoseconds_spent.load(Ordering::Relaxed));
        self.whole.saturating_sub(spent)
    }

    /// What is left for a call.
    ///
    /// # Errors
    /// DEADLINE_EXCEEDED if the calls before it took all of it.
    pub(super) fn rest(&self, target: &str) -> callbox::Result<Duration> {
        let mut rest = Duration::MAX;
        for budget in self.all() {
            let left = budget.left();
            if left < LEAST.min(budget.whole) {
                let message = format!(
                    "target {target:?}: the elements of a batch ran past their deadline of {:?}",
                    budget.whole
                );
                let code = StatusCode::DeadlineExceeded;
                return Err(Status::new(code, Blame::Guest, message));
            }
            rest = rest.min(left);
        }
        Ok(rest)
    }

    /// Makes a call with what is left, and takes off what the call took.
    pub(super) fn spend<T>(
        &self,
        options: &CallOptions,
        call: impl FnOnce(&CallOptions) -> T,
    ) -> T {
        let begun = Instant::now();
        let scarcest = self.all().min_by_key(|budget| budget.left());
        let scarcest = scarcest.unwrap_or(self);
        let options = CallOptions {
            deadline: Some(Deadline::Begun {
                end: Deadline::After(scarcest.left()).instant(),
                whole: scarcest.whole,
            }),
            ..options.clone()
        };
        let outcome = call(&options);
        let took = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        for budget in self.all() {
            budget.nanoseconds_spent.fetch_add(took, Ordering::Relaxed);
        }
        outcome
    }
}
