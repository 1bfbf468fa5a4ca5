//! Spans in the traces of JAX's profiler.
//!
//! The package hands the profiler's class over when JAX is imported. Without JAX, and while no
//! trace is recorded, there are no spans.

use std::sync::OnceLock;

use pyo3::prelude::*;

/// `jax.profiler.TraceAnnotation`, and its function that tells whether a trace is recorded.
struct Annotation {
    class: Py<PyAny>,
    is_enabled: Py<PyAny>,
}

static ANNOTATION: OnceLock<Annotation> = OnceLock::new();

/// Has loads, compilations and direct calls appear in the traces of this class from now on.
#[pyfunction]
#[pyo3(signature = (class_, /))]
pub(crate) fn set_trace_annotation(class_: &Bound<'_, PyAny>) -> PyResult<()> {
    let annotation = Annotation {
        class: class_.clone().unbind(),
        is_enabled: class_.getattr("is_enabled")?.unbind(),
    };
    // A second import of the package brings the same class.
    let _ = ANNOTATION.set(annotation);
    Ok(())
}

/// A span of the trace that is recorded. It ends when it is dropped.
pub(crate) struct Span<'py>(Bound<'py, PyAny>);

impl Drop for Span<'_> {
    fn drop(&mut self) {
        let none = self.0.py().None();
        // A trace is no reason for a call to fail.
        let _ = self.0.call_method1("__exit__", (&none, &none, &none));
    }
}

/// Begins a span, if a trace is recorded.
#[inline]
pub(crate) fn span<'py>(py: Python<'py>, label: impl FnOnce() -> String) -> Option<Span<'py>> {
    let annotation = ANNOTATION.get()?;
    let is_enabled = annotation.is_enabled.bind(py).call0().ok()?;
    is_enabled.is_truthy().ok().filter(|on| *on)?;
    let span = annotation.class.bind(py).call1((label(),)).ok()?;
    span.call_method0("__enter__").ok()?;
    Some(Span(span))
}
