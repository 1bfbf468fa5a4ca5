//! Keeps locks from being held by a thread that a forked child does not have.
//!
//! Python forks on a thread with the GIL. Threads that run a guest have none, and may hold a lock
//! at that moment. Those that log, record or note a failure say so first, and a fork waits for
//! them.
//!
//! A thread with the GIL must not say so: it would wait for a fork that waits for the GIL. What is
//! done until the word is dropped must need neither the GIL nor another such word.

use std::cell::RefCell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

static STATE: Mutex<State> = Mutex::new(State {
    holders: 0,
    is_forking: false,
});

/// There are no more holders, or the fork is over.
static CHANGED: Condvar = Condvar::new();

struct State {
    /// The threads that hold such locks.
    holders: usize,
    /// Whether a thread forks or is about to. Others wait with what they would hold.
    is_forking: bool,
}

thread_local! {
    /// Held by a thread that forks, also in the child.
    static FORKING: RefCell<Option<MutexGuard<'static, State>>> = const { RefCell::new(None) };
}

/// The word of a thread that holds such locks. Python forks once it is dropped.
pub(crate) struct ForksLater(());

/// Waits while the process forks, and keeps it from forking until the value is dropped.
#[must_use]
pub(crate) fn not_now() -> ForksLater {
    let forks = |state: &mut State| state.is_forking;
    let mut state = CHANGED
        .wait_while(locked(), forks)
        .unwrap_or_else(PoisonError::into_inner);
    state.holders += 1;
    ForksLater(())
}

impl Drop for ForksLater {
    fn drop(&mut self) {
        let mut state = locked();
        state.holders -= 1;
        if state.is_forking && state.holders == 0 {
            CHANGED.notify_all();
        }
    }
}

fn locked() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[pyfunction]
fn before(py: Python<'_>) {
    loop {
        let mut state = locked();
        state.is_forking = true;
        if state.holders == 0 {
            return FORKING.set(Some(state));
        }
        drop(state);
        py.detach(|| drop(CHANGED.wait_while(locked(), |state| state.holders > 0)));
    }
}

#[pyfunction]
fn after() {
    if let Some(mut state) = FORKING.take() {
        state.is_forking = false;
        drop(state);
        CHANGED.notify_all();
    }
}

/// Has Python's forks wait.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let os = module.py().import("os")?;
    if !os.hasattr("register_at_fork")? {
        return Ok(());
    }
    let [before, after] = [
        pyo3::wrap_pyfunction!(before, module)?,
        pyo3::wrap_pyfunction!(after, module)?,
    ];
    let hooks = pyo3::types::PyDict::new(module.py());
    hooks.set_item("before", before)?;
    hooks.set_item("after_in_parent", &after)?;
    hooks.set_item("after_in_child", &after)?;
    os.call_method("register_at_fork", (), Some(&hooks))?;
    Ok(())
}
