//! What a direct call is asked for by name: options and attributes.

use std::time::Duration;

use callbox::{CallOptions, Deadline, Platform};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use super::Outs;
use crate::arrays::{Array, declared_shape};
use crate::attributes::Given;
use crate::site::{InfoText, StaticInfo, to_hex};

/// The keyword arguments of a direct call.
#[derive(Default)]
pub(super) struct Options<'py> {
    out: Option<Bound<'py, PyAny>>,
    pub(super) result_shape_dtypes: Option<Bound<'py, PyAny>>,
    deadline: Option<Duration>,
    pub(super) opaque: Option<Vec<u8>>,
    pub(super) static_info: Option<InfoText>,
    api_version: Option<String>,
    pub(super) is_cuda: bool,
    /// The attributes.
    pub(super) given: Given<'py>,
}

impl<'py> Options<'py> {
    pub(super) fn read(options: Option<&Bound<'py, PyDict>>) -> PyResult<Self> {
        let mut read = Self::default();
        let Some(options) = options else {
            return Ok(read);
        };
        for (name, value) in options.iter() {
            let name = name.cast_into::<PyString>()?;
            let is_none = value.is_none();
            match name.to_str()? {
                "out" if is_none => {}
                "out" => read.out = Some(value),
                "result_shape_dtypes" if is_none => {}
                "result_shape_dtypes" => read.result_shape_dtypes = Some(value),
                "deadline" if is_none => {}
                "deadline" => read.deadline = Some(duration(value.extract()?)?),
                "opaque" if is_none => {}
                "opaque" => read.opaque = Some(value.extract()?),
                "static_info" if is_none => {}
                "static_info" => read.static_info = Some(static_info_text(&value)?),
                "api_version" if is_none => {}
                "api_version" => read.api_version = Some(value.extract()?),
                "platform" => read.is_cuda = is_cuda(&value)?,
                "attributes" if is_none => {}
                "attributes" => {
                    for (name, value) in value.cast_into::<PyDict>()?.iter() {
                        read.give(name.extract()?, value)?;
                    }
                }
                attribute => read.give(attribute.to_owned(), value)?,
            }
        }
        Ok(read)
    }

    fn give(&mut self, name: String, value: Bound<'py, PyAny>) -> PyResult<()> {
        if self.given.iter().any(|(known, _)| *known == name) {
            return Err(PyTypeError::new_err(format!(
                "expected the attribute {name:?} once, found it twice"
            )));
        }
        self.given.push((name, value));
        Ok(())
    }

    pub(super) fn api_version(&self) -> Option<&str> {
        self.api_version.as_deref()
    }

    /// How the call is run, if not as the policy says.
    pub(super) fn call_options(&self) -> Option<CallOptions> {
        self.deadline.map(|deadline| CallOptions {
            deadline: Some(Deadline::After(deadline)),
            ..CallOptions::default()
        })
    }

    /// The caller's arrays for results.
    pub(super) fn outs(&self, target: &str) -> PyResult<Outs<'py>> {
        let Some(out) = &self.out else {
            return Ok(Vec::new());
        };
        let outs: Vec<_> = match (out.cast::<PyTuple>(), out.cast::<PyList>()) {
            (Ok(tuple), _) => tuple.iter().collect(),
            (_, Ok(list)) => list.iter().collect(),
            _ => vec![out.clone()],
        };
        let array = |(number, out): (usize, Bound<'py, PyAny>)| match out.is_none() {
            true => Ok(None),
            false => {
                let array = Array::result(&out, &|| format!("{target}(): out {number}"))?;
                Ok(Some((out, array)))
            }
        };
        outs.into_iter().enumerate().map(array).collect()
    }

    /// What tells calls apart, but for arrays and attributes.
    pub(super) fn write_key(&self, key: &mut Vec<u8>) {
        let mut part = |bytes: Option<&[u8]>| match bytes {
            None => key.push(0),
            Some(bytes) => {
                key.push(1);
                key.extend_from_slice(&bytes.len().to_le_bytes());
                key.extend_from_slice(bytes);
            }
        };
        part(self.opaque.as_deref());
        part(self.api_version.as_deref().map(str::as_bytes));
        let info = self.static_info.as_ref().map(|info| format!("{info:?}"));
        part(info.as_deref().map(str::as_bytes));
        let results = self.result_shape_dtypes.as_ref().map(|given| {
            let shapes = result_shapes(given).map(|shapes| format!("{shapes:?}"));
            // What is wrong with it is said when the call site is made.
            shapes.unwrap_or_default()
        });
        part(results.as_deref().map(str::as_bytes));
    }

    /// The attributes' names and values. Says whether these are all: only Python's own numbers and strings are written, for the others are first
    /// to be looked at.
    pub(super) fn write_attributes(&self, key: &mut Vec<u8>) -> bool {
        for (name, value) in &self.given {
            key.extend_from_slice(&name.len().to_le_bytes());
            key.extend_from_slice(name.as_bytes());
            if value.is_exact_instance_of::<PyFloat>() {
                let Ok(float) = value.extract::<f64>() else {
                    return false;
                };
                key.push(b'd');
                key.extend_from_slice(&float.to_bits().to_le_bytes());
            } else if value.is_exact_instance_of::<PyBool>() {
                key.extend_from_slice(&[b'?', u8::from(value.is_truthy().unwrap_or(false))]);
            } else if value.is_exact_instance_of::<PyInt>() {
                let Ok(integer) = value.extract::<i64>() else {
                    return false;
                };
                key.push(b'q');
                key.extend_from_slice(&integer.to_le_bytes());
            } else if let Ok(text) = value.cast_exact::<PyString>() {
                let Ok(text) = text.to_str() else {
                    return false;
                };
                key.push(b's');
                key.extend_from_slice(&text.len().to_le_bytes());
                key.extend_from_slice(text.as_bytes());
            } else {
                // The text of all attributes follows.
                key.push(b'm');
                return false;
            }
        }
        true
    }
}

/// The shapes of one or several results.
pub(super) fn result_shapes(given: &Bound<'_, PyAny>) -> PyResult<Vec<callbox::ArrayShape>> {
    let is_pair = given.cast::<PyTuple>().is_ok_and(|pair| {
        pair.len() == 2
            && pair
                .get_item(1)
                .is_ok_and(|shape| shape.is_instance_of::<PyTuple>())
    });
    let is_sequence = given.is_instance_of::<PyTuple>() || given.is_instance_of::<PyList>();
    match is_sequence && !is_pair {
        true => given
            .try_iter()?
            .map(|shape| declared_shape(&shape?))
            .collect(),
        false => Ok(vec![declared_shape(given)?]),
    }
}

/// Static information: bytes by value, or a reference.
pub(super) fn static_info_text(value: &Bound<'_, PyAny>) -> PyResult<InfoText> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(InfoText::Value(to_hex(bytes.as_bytes())));
    }
    match value.cast::<StaticInfo>() {
        Ok(info) => Ok(info.get().0.clone()),
        Err(_) => Err(PyTypeError::new_err(format!(
            "expected static_info to be bytes or a callbox.StaticInfo, found {}",
            value.get_type().name()?
        ))),
    }
}

/// Seconds, as a time of at least nothing.
fn duration(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        PyValueError::new_err(format!(
            "expected a deadline in seconds, not negative, found {seconds}"
        ))
    })
}

/// Seconds as milliseconds, rounded up.
pub(super) fn milliseconds(seconds: f64) -> PyResult<u64> {
    let time = duration(seconds)?;
    let milliseconds = time.as_nanos().div_ceil(1_000_000);
    Ok(u64::try_from(milliseconds).unwrap_or(u64::MAX))
}

fn is_cuda(platform: &Bound<'_, PyAny>) -> PyResult<bool> {
    let name: String = platform.extract()?;
    match name.parse::<Platform>() {
        Ok(platform) => Ok(platform == Platform::Cuda),
        Err(status) => Err(PyValueError::new_err(status.message().to_owned())),
    }
}
