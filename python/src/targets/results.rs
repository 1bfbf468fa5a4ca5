//! The results of a direct call: the caller's arrays, or new ones.
#![allow(
    unsafe_code,
    reason = "writes memory that Python's buffer protocol hands out"
)]

use callbox::call::CallBuffers;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::arrays::{Array, Maker};
use crate::buffers::{Place, Places};

/// The arrays that the caller gave for results: none, or one for each result that is `None` where one is to be made.
pub(super) type Outs<'py> = Vec<Option<(Bound<'py, PyAny>, Array)>>;

/// The results of a direct call.
pub(super) struct Results<'py>(Vec<(Bound<'py, PyAny>, Array)>);

impl<'py> Results<'py> {
    /// The caller's arrays, and new ones in place of what he gave none for.
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

    /// Where they lie.
    pub(super) fn places(&self) -> Vec<Place> {
        self.0.iter().map(|(_, array)| array.place()).collect()
    }

    /// Writes these bytes.
    pub(super) fn write(&self, bytes: &[Vec<u8>]) {
        let places = self.places();
        // SAFETY: the arrays keep their memory, and nothing holds a reference to it.
        let mut places = unsafe { Places::new(&[], &places) };
        for (number, bytes) in bytes.iter().enumerate() {
            places.write(number, 0, bytes);
        }
    }

    /// One array, or a tuple of them.
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
