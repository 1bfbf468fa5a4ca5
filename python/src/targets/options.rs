//! The keyword arguments of a direct call: options and attributes.

use std::collections::HashSet;
use std::time::Duration;

use callbox::call::Signature;
use callbox::{CallOptions, Deadline, Platform};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use super::budget::Budget;
use super::results::Outs;
use crate::arrays::{Array, declared_shape};
use crate::attributes::Given;
use crate::site::{InfoText, StaticInfo, to_hex};

/// The keyword arguments of a direct call.
#[derive(Default)]
pub(super) struct Options<'py> {
    out: Option<Bound<'py, PyAny>>,
    pub(super) result_shape_dtypes: Option<Bound<'py, PyAny>>,
    deadline: Option<Limit>,
    threads: Option<usize>,
    pub(super) opaque: Option<Vec<u8>>,
    pub(super) static_info: Option<InfoText>,
    api_version: Option<String>,
    pub(super) is_cuda: bool,
    /// The attributes.
    pub(super) given: Given<'py>,
}

/// The time of a call.
enum Limit {
    Of(Duration),
    Shared(Py<Budget>),
}

impl Limit {
    fn read(value: &Bound<'_, PyAny>) -> PyResult<Self> {
        match value.cast::<Budget>() {
            Ok(budget) => Ok(Self::Shared(budget.clone().unbind())),
            Err(_) => duration(value.extract()?).map(Self::Of),
        }
    }
}

impl<'py> Options<'py> {
    pub(super) fn read(options: Option<&Bound<'py, PyDict>>) -> PyResult<Self> {
        let mut read = Self::default();
        let Some(options) = options else {
            return Ok(read);
        };
        let mut attributes = None;
        for (name, value) in options.iter() {
            let name = name.cast_into::<PyString>()?;
            let is_none = value.is_none();
            match name.to_str()? {
                "out" if is_none => {}
                "out" => read.out = Some(value),
                "result_shape_dtypes" if is_none => {}
                "result_shape_dtypes" => read.result_shape_dtypes = Some(value),
                "deadline" if is_none => {}
                "deadline" => read.deadline = Some(Limit::read(&value)?),
                "threads" if is_none => {}
                "threads" => read.threads = Some(thread_count(value.extract()?)?),
                "opaque" if is_none => {}
                "opaque" => read.opaque = Some(value.extract()?),
                "static_info" if is_none => {}
                "static_info" => read.static_info = Some(static_info_text(&value)?),
                "api_version" if is_none => {}
                "api_version" => read.api_version = Some(value.extract()?),
                "platform" => read.is_cuda = is_cuda(&value)?,
                "attributes" if is_none => {}
                "attributes" => attributes = Some(value.cast_into::<PyDict>()?),
                attribute => read.given.push((attribute.to_owned(), value)),
            }
        }
        if let Some(attributes) = attributes {
            read.give(&attributes)?;
        }
        Ok(read)
    }

    /// Adds the attributes of the argument `attributes` to those that have arguments of their own.
    fn give(&mut self, attributes: &Bound<'py, PyDict>) -> PyResult<()> {
        let mut known: HashSet<String> = self.given.iter().map(|(name, _)| name.clone()).collect();
        for (name, value) in attributes.iter() {
            let name: String = name.extract()?;
            if !known.insert(name.clone()) {
                return Err(PyTypeError::new_err(format!(
                    "expected the attribute {name:?} once, found it twice"
                )));
            }
            self.given.push((name, value));
        }
        Ok(())
    }

    /// Takes the operands that follow the first `count` out of the attributes, by their names.
    ///
    /// # Errors
    /// TypeError if an operand before the last one is missing.
    pub(super) fn take_operands(
        &mut self,
        signature: &Signature,
        count: usize,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let declared = signature.operands.as_deref().unwrap_or_default();
        let rest = declared.get(count..).unwrap_or_default();
        if rest.is_empty() || self.given.is_empty() {
            return Ok(Vec::new());
        }
        let attributes = signature.attributes.as_deref().unwrap_or_default();
        let is_attribute = |name: &str| attributes.iter().any(|known| known.name == name);
        let mut named: Vec<_> = Vec::new();
        let mut missing = None;
        for operand in rest {
            let name = &operand.name;
            let position = self.given.iter().position(|(given, _)| given == name);
            match position.filter(|_| !is_attribute(name)) {
                None => missing = missing.or(Some(name)),
                Some(position) => {
                    if let Some(missing) = missing {
                        return Err(PyTypeError::new_err(format!(
                            "{}(): expected the operand {missing:?} before {name:?}, found none",
                            signature.label()
                        )));
                    }
                    named.push(self.given.swap_remove(position).1);
                }
            }
        }
        Ok(named)
    }

    pub(super) fn api_version(&self) -> Option<&str> {
        self.api_version.as_deref()
    }

    /// The options of this call of a target, if they differ from the policy.
    ///
    /// # Errors
    /// DEADLINE_EXCEEDED if nothing is left of the budget.
    pub(super) fn call_options(&self, target: &str) -> callbox::Result<CallOptions> {
        let deadline = match &self.deadline {
            None => None,
            Some(Limit::Of(time)) => Some(*time),
            Some(Limit::Shared(budget)) => Some(budget.get().rest(target)?),
        };
        Ok(CallOptions {
            deadline: deadline.map(Deadline::After),
            threads: self.threads,
            ..CallOptions::default()
        })
    }

    /// The budget that the call shares with others.
    pub(super) fn budget(&self) -> Option<&Budget> {
        match &self.deadline {
            Some(Limit::Shared(budget)) => Some(budget.get()),
            _ => None,
        }
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
        if let (Ok(list), Some(first)) = (out.cast::<PyList>(), outs.first())
            && first.extract::<f64>().is_ok()
            && !first.hasattr("shape")?
        {
            return Err(PyTypeError::new_err(format!(
                "{target}(): expected out to be an array that can be written, or a tuple of them, \
                 found a list of {} numbers",
                list.len()
            )));
        }
        let array = |(number, out): (usize, Bound<'py, PyAny>)| {
            if out.is_none() {
                Ok(None)
            } else {
                let array = Array::result(&out, &|| format!("{target}(): out {number}"))?;
                Ok(Some((out, array)))
            }
        };
        outs.into_iter().enumerate().map(array).collect()
    }

    /// Writes the parts of the call site's key that are neither arrays nor attributes.
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
            // An error is reported when the call site is made.
            shapes.unwrap_or_default()
        });
        part(results.as_deref().map(str::as_bytes));
    }

    /// Writes the names and values of attributes, and returns whether that was possible.
    ///
    /// Only Python's own numbers and strings are written. Other values must be converted first.
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
                // The caller appends the converted attributes.
                key.push(b'm');
                return false;
            }
        }
        true
    }
}

/// Reads the shapes of one or several results.
pub(super) fn result_shapes(given: &Bound<'_, PyAny>) -> PyResult<Vec<callbox::ArrayShape>> {
    let is_pair = given.cast::<PyTuple>().is_ok_and(|pair| {
        pair.len() == 2
            && pair
                .get_item(1)
                .is_ok_and(|shape| shape.is_instance_of::<PyTuple>())
    });
    let is_sequence = given.is_instance_of::<PyTuple>() || given.is_instance_of::<PyList>();
    if is_sequence && !is_pair {
        given
            .try_iter()?
            .map(|shape| declared_shape(&shape?))
            .collect()
    } else {
        Ok(vec![declared_shape(given)?])
    }
}

/// Reads static information: bytes, or a reference.
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

/// Converts seconds, which must not be negative.
pub(super) fn duration(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        PyValueError::new_err(format!(
            "expected a deadline in seconds, not negative, found {seconds}"
        ))
    })
}

/// Checks a number of threads.
pub(super) fn thread_count(threads: i64) -> PyResult<usize> {
    let count = usize::try_from(threads).ok().filter(|count| *count > 0);
    count.ok_or_else(|| {
        PyValueError::new_err(format!("expected threads to be 1 or more, found {threads}"))
    })
}

/// Converts seconds to milliseconds, rounded up.
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
