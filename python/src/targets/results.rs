//! The results of a direct call: the caller's arrays, or new ones.
#![allow(
    unsafe_code,
    reason = "writes memory that Python's buffer protocol hands out"
)]

use callbox::call::CallBuffers;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::arrays::{Array, Maker};
use crate::buffers::{RawArray, RawArrays};
use crate::exit::Inside;

/// The caller's arrays for results. Empty if there are none; `None` where an array is to be
/// allocated.
pub(super) type Outs<'py> = Vec<Option<(Bound<'py, PyAny>, Array)>>;

/// Runs `work` without the GIL, with the memory of the operands of a direct call.
pub(super) fn with_operands<T: Send>(
    py: Python<'_>,
    inside: Inside,
    operands: &[Array],
    work: impl FnOnce(&RawArrays<'_>) -> T + Send,
) -> (Inside, T) {
    let raw: Vec<RawArray> = operands.iter().map(Array::raw).collect();
    // SAFETY: the arrays keep their memory alive, and no reference to it exists.
    let arrays = unsafe { RawArrays::new(&raw, &[]) };
    inside.detach(py, || work(&arrays))
}

/// The results of a direct call.
pub(super) struct Results<'py>(Vec<(Bound<'py, PyAny>, Array)>);

impl<'py> Results<'py> {
    /// Takes the caller's arrays, and allocates those that are missing.
    pub(super) fn new(py: Python<'py>, outs: Outs<'py>, makers: &[Maker]) -> PyResult<Self> {
        let mut outs = outs.into_iter();
        let results = makers.iter().map(|maker| match outs.next().flatten() {
            Some(own) => Ok(own),
            None => {
                let made = maker.make(py)?;
                let array = Array::result(&made, &|| "a new array".to_owned())?;
                Ok((made, array))
            }
        });
        results.collect::<PyResult<Vec<_>>>().map(Self)
    }

    /// The memory of the arrays.
    pub(super) fn raw_arrays(&self) -> Vec<RawArray> {
        self.0.iter().map(|(_, array)| array.raw()).collect()
    }

    /// Writes the contents of all arrays, without the GIL.
    pub(super) fn write(&self, py: Python<'py>, inside: Inside, bytes: Vec<Vec<u8>>) -> Inside {
        let raw = self.raw_arrays();
        // SAFETY: the arrays keep their memory alive, and no reference to it exists.
        let mut arrays = unsafe { RawArrays::new(&[], &raw) };
        let (inside, ()) = inside.detach(py, move || {
            for (number, bytes) in bytes.into_iter().enumerate() {
                arrays.write(number, 0, &bytes);
            }
        });
        inside
    }

    /// Converts to one array, or a tuple of arrays.
    pub(super) fn into_python(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut arrays: Vec<_> = Vec::with_capacity(self.0.len());
        for (object, array) in self.0 {
            array.release(py);
            arrays.push(object);
        }
        match arrays.len() {
            1 => Ok(arrays.swap_remove(0)),
            _ => PyTuple::new(py, arrays).map(Bound::into_any),
        }
    }
}
