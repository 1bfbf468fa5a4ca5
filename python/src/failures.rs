//! The last failures of calls in programs.
//!
//! XLA passes on only the code and the message of a failure, and JAX raises them as one of several
//! exceptions. Python finds the rest here, by the text of the exception.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use callbox::Status;
use pyo3::prelude::*;

use crate::error::raised;
use crate::registry;

/// The maximum number of failures. The oldest are dropped.
const MOST: usize = 64;

static LAST: Mutex<VecDeque<Failure>> = Mutex::new(VecDeque::new());

#[derive(Clone, Debug)]
pub(crate) struct Failure {
    status: Status,
    /// The key of the module, and the name of the target.
    of: Option<(String, String)>,
}

/// Keeps a failure of a target, given by the key of its module and its name.
pub(crate) fn note(status: &Status, of: Option<(String, String)>) {
    let mut last = last();
    if last.len() == MOST {
        last.pop_front();
    }
    let status = status.clone();
    last.push_back(Failure { status, of });
}

pub(crate) fn last() -> MutexGuard<'static, VecDeque<Failure>> {
    LAST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Finds the failed call of a program whose code and message stand in `text`: the last one with the
/// longest message. A guest's message can quote that of another failure: it is longer, and the
/// other one does not count.
#[pyfunction]
pub(crate) fn find_failure<'py>(
    py: Python<'py>,
    text: &str,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let found = {
        let last = last();
        let is_in = |failure: &&Failure| {
            let message = failure.status.message().replace('\0', "");
            let at = text.find(&message);
            // Quotation marks are around what modules chose.
            text.contains(failure.status.code().name())
                && at.is_some_and(|at| !text[..at].contains('"'))
        };
        let found = last.iter().filter(is_in);
        found
            .max_by_key(|failure| failure.status.message().len())
            .cloned()
    };
    let Some(Failure { status, of }) = found else {
        return Ok(None);
    };
    let error = raised(py, &status).into_value(py).into_bound(py).into_any();
    if let Some((module, target)) = of {
        let module = registry::loaded(&module).map(|module| module.label());
        error.setattr("module", module)?;
        error.setattr("target", target)?;
    }
    Ok(Some(error))
}
