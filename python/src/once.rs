//! Values that are made once, and for which no thread waits.

use std::sync::OnceLock;

use pyo3::{Py, PyResult, Python};

/// An object of Python's that is made when it is first asked for.
///
/// Threads that ask at one time each make it, and the first one stays. PyO3's `PyOnceLock` lets
/// others wait for the thread that makes it, which waits for the GIL meanwhile: a child that is
/// forked then would wait for ever.
pub(crate) struct Once<T>(OnceLock<Py<T>>);

impl<T> Once<T> {
    pub(crate) const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// The object.
    ///
    /// # Errors
    /// Those of `make`.
    pub(crate) fn get_or_make(
        &self,
        _py: Python<'_>,
        make: impl FnOnce() -> PyResult<Py<T>>,
    ) -> PyResult<&Py<T>> {
        if let Some(made) = self.0.get() {
            return Ok(made);
        }
        let made = make()?;
        // The GIL is held, so that no thread of Python's forks meanwhile.
        Ok(self.0.get_or_init(|| made))
    }
}
