//! Targets as functions on arrays.
#![allow(
    unsafe_code,
    reason = "has calls read and write memory that Python's buffer protocol hands out"
)]

mod options;
mod results;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use callbox::call::{ApiVersion, Signature};
use callbox::program::attributes_to_mlir;
use callbox::{ArrayShape, CallOptions, CallSite, Dictionary};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use self::options::{Options, static_info_text};
use self::results::{Outs, Results};
use crate::arrays::{Array, Maker, declared_shape};
use crate::attributes;
use crate::buffers::{Place, Places};
use crate::checks;
use crate::element::dtype_name;
use crate::error::{or_raise, raised};
use crate::exit::Inside;
use crate::module::{Loaded, Module, ModuleCore, SiteKey, short};
use crate::native;
use crate::registry;
use crate::signature;
use crate::site::{CallText, InfoText, Passage, Ready, Shapes};
use crate::xla::is_packed;

/// How many call sites of direct calls a target keeps. Past it all make way.
const MOST_SITES: usize = 256;

// A target: a function on arrays, which runs in the sandbox. It has no text of its class, which would hide the targets' own.
#[pyclass(frozen, module = "callbox")]
pub(crate) struct Target {
    core: Arc<ModuleCore>,
    number: usize,
    /// By what tells calls apart, as bytes.
    direct: Mutex<HashMap<Vec<u8>, Direct>>,
}

/// A call site of direct calls.
struct Direct {
    /// In which process it is ready.
    loaded: Arc<Loaded>,
    /// The module may let it make way.
    ready: Weak<Ready>,
    makers: Arc<[Maker]>,
}

impl Target {
    pub(crate) fn new(core: &Arc<ModuleCore>, number: usize) -> Self {
        Self {
            core: Arc::clone(core),
            number,
            direct: Mutex::default(),
        }
    }

    fn signature(&self) -> &Signature {
        &self.core.targets[self.number].signature
    }
}

#[pymethods]
impl Target {
    /// The target's name.
    #[getter]
    fn name(&self) -> &str {
        &self.signature().name
    }

    #[getter]
    fn __name__(&self) -> &str {
        &self.signature().name
    }

    #[getter]
    fn __qualname__(&self) -> &str {
        &self.signature().name
    }

    /// What it is and does: its signature, and the documentation that the module has for it, which is its author's text.
    #[getter]
    fn __doc__(&self) -> String {
        let line = signature::line(self.signature());
        match self.signature().documentation.trim() {
            "" => line,
            text => format!("{line}\n\n{text}"),
        }
    }

    /// What `inspect.signature` gives.
    #[getter]
    fn __signature__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        signature::for_inspect(py, self.signature())
    }

    /// The module that it is a target of.
    #[getter]
    fn module(&self, py: Python<'_>) -> PyResult<Module> {
        Module::new(py, Arc::clone(&self.core))
    }

    /// The operands that it declares. None: it does not say.
    #[getter]
    fn operands<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        signature::buffers(py, self.signature().operands.as_deref())
    }

    /// The results that it declares. None: it does not say.
    #[getter]
    fn results<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        signature::buffers(py, self.signature().results.as_deref())
    }

    /// The attributes that it declares. None: it does not say.
    #[getter]
    fn attributes<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        signature::attributes(py, self.signature().attributes.as_deref())
    }

    /// Its traits, such as `"pure"`.
    #[getter]
    fn traits<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.signature().traits)
    }

    /// The conventions by which it can be called, as HLO text names them.
    #[getter]
    fn api_versions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let versions = self.signature().api_versions.iter();
        PyTuple::new(py, versions.map(|version| version.name()))
    }

    /// Whether a CUDA kernel of its name was loaded with the module.
    #[getter]
    fn has_native(&self) -> bool {
        let native = self.core.native.as_ref();
        native.is_some_and(|native| native.has(&self.signature().name))
    }

    /// The traits of that kernel, such as `"command_buffer_compatible"`.
    #[getter]
    fn native_traits<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let native = self.core.native.as_ref();
        let traits = native.and_then(|native| native.traits(&self.signature().name));
        PyTuple::new(py, traits.unwrap_or(&[]))
    }

    fn __repr__(&self) -> String {
        format!("<callbox.Target {}>", signature::line(self.signature()))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| {
            let other = other.get();
            other.core.key == self.core.key && other.signature().name == self.signature().name
        })
    }

    fn __hash__(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        (&self.core.key, &self.signature().name).hash(&mut hasher);
        hasher.finish()
    }

    /// Calls the target. The GIL is not held while it runs.
    ///
    /// Args:
    ///     *arrays: The operands: NumPy arrays, or whatever has a buffer or can be made an array of. One copy is made, into the guest.
    ///     out: An array, or a tuple of arrays, for the results: contiguous in row-major order, and not read-only. It may be an operand. None, or
    ///         None in the tuple: arrays are made. With an array of the caller's all arrays go into the guest as a whole, and have to fit into its memory, so
    ///         that it stays as it was if the call fails; without, those of elementwise targets go in pieces.
    ///     result_shape_dtypes: What has the results' `shape` and `dtype`: one, or a sequence. None: what the metadata says.
    ///     deadline: How long the call may take, in seconds. None: what the policy says.
    ///     attributes: Attributes whose names are those of the other arguments.
    ///     opaque: The opaque bytes, for a target of XLA's older conventions.
    ///     static_info: The static information, for a target of the JAX FFI proposal's convention: bytes, or `StaticInfo`.
    ///     api_version: The convention, for a target that has several.
    ///     platform: "Host", or "CUDA" for the native kernel of the same name, to which arrays are copied.
    ///     **attrs: The attributes. Numbers of Python's take the declared type.
    ///
    /// Returns:
    ///     The result, or a tuple of results.
    ///
    /// Raises:
    ///     TypeError: A wrong dtype, number of operands, attribute, or type of an attribute.
    ///     ValueError: A wrong rank or size.
    ///     BufferError: An `out` that is read-only or not contiguous.
    ///     CallError: How the call failed. `out` is then as it was.
    #[pyo3(signature = (*arrays, **options))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        arrays: &Bound<'py, PyTuple>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let inside = Inside::enter(py);
        let options = Options::read(options)?;
        let operands = arrays
            .iter()
            .map(|array| Array::operand(&array))
            .collect::<PyResult<Vec<_>>>()?;
        let outs = options.outs(&self.signature().name)?;
        if options.is_cuda {
            return self.call_native(py, inside, &operands, &options, outs);
        }
        let (ready, makers) = self.direct(py, &operands, &options, &outs)?;
        let results = Results::new(py, outs, &makers)?;
        let from: Vec<Place> = operands.iter().map(Array::place).collect();
        let to = results.places();
        let own = options.call_options();
        // SAFETY: `operands` and `results` keep the arrays' memory until after the call, and nothing holds a reference to it.
        let mut places = unsafe { Places::new(&from, &to) };
        let (_inside, outcome) = inside.detach(py, || ready.call(own.as_ref(), &mut places));
        for operand in operands {
            operand.release(py);
        }
        or_raise(py, outcome)?;
        results.into_python(py)
    }

    /// The results' dtypes and shapes, by what the metadata says, for operands of these dtypes and shapes.
    ///
    /// Args:
    ///     operands: Pairs of dtype and shape, or what has `dtype` and `shape`.
    ///
    /// Returns:
    ///     A list of pairs of dtype and shape.
    ///
    /// Raises:
    ///     ValueError: The metadata does not say, or the operands do not fit it.
    fn infer<'py>(
        &self,
        py: Python<'py>,
        operands: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let operands = shapes(operands)?;
        checks::operands(self.signature(), &operands)?;
        let results = PyList::empty(py);
        for shape in or_raise(py, self.signature().infer_results(&operands))? {
            let dtype = dtype_name(shape.element_type()).unwrap_or("token");
            results.append((dtype, PyTuple::new(py, shape.dimensions())?))?;
        }
        Ok(results)
    }

    /// The attributes of an XLA FFI call of the target `FFI_TARGET`: by these callbox knows what to call. The whole call site is checked.
    ///
    /// Args:
    ///     operands: The operands of one call, without a batch: pairs of dtype and shape, or what has `dtype` and `shape`.
    ///     results: Its results, likewise, without the status.
    ///     attrs: The target's attributes.
    ///     on_error: "raise", or "status" for one more result, int32.
    ///     deadline: How long the call may take, in seconds: all elements of a batch together.
    ///     aliases: Operand's number to result's number, as jax.ffi.ffi_call has it.
    ///     opaque, static_info, api_version: As in a direct call.
    ///
    /// Raises:
    ///     TypeError, ValueError: As in a direct call.
    #[pyo3(signature = (operands, results, attrs, *, on_error="raise", deadline=None, aliases=None, opaque=None, static_info=None, api_version=None))]
    #[expect(clippy::too_many_arguments, reason = "they are a call site's")]
    fn xla_attributes<'py>(
        &self,
        py: Python<'py>,
        operands: &Bound<'py, PyAny>,
        results: &Bound<'py, PyAny>,
        attrs: &Bound<'py, PyDict>,
        on_error: &str,
        deadline: Option<f64>,
        aliases: Option<&Bound<'py, PyDict>>,
        opaque: Option<Vec<u8>>,
        static_info: Option<&Bound<'py, PyAny>>,
        api_version: Option<&str>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let shapes = Shapes {
            operands: shapes(operands)?,
            results: shapes(results)?,
        };
        let all = shapes.operands.iter().chain(&shapes.results);
        if let Some(packed) = all.map(ArrayShape::element_type).find(|t| is_packed(*t)) {
            return Err(PyTypeError::new_err(format!(
                "{}(): expected arrays of elements of whole bytes, found {}, which XLA packs",
                self.signature().name,
                dtype_name(packed).unwrap_or("token")
            )));
        }
        let mut given = attributes::Given::new();
        for (name, value) in attrs.iter() {
            given.push((name.extract()?, value));
        }
        let static_info = static_info.map(static_info_text).transpose()?;
        let mut text = self.call_text(&shapes, opaque.as_deref(), static_info, api_version)?;
        text.status = match on_error {
            "raise" => false,
            "status" => true,
            other => {
                return Err(PyValueError::new_err(format!(
                    "expected on_error to be \"raise\" or \"status\", found {other:?}"
                )));
            }
        };
        text.deadline_ms = deadline.map(options::milliseconds).transpose()?;
        for (operand, result) in aliases.iter().flat_map(|aliases| aliases.iter()) {
            text.aliases.push((result.extract()?, operand.extract()?));
        }
        text.aliases.sort_unstable();
        let dictionary = attributes::dictionary(py, self.signature(), &given)?;
        self.check(py, &shapes, &text, dictionary.clone())?;
        registry::keep(&self.core);
        let strings = PyDict::new(py);
        strings.set_item("module", &self.core.key)?;
        strings.set_item("target", &self.signature().name)?;
        strings.set_item("attributes", attributes_to_mlir(&dictionary))?;
        let call = serde_json::to_string(&text);
        strings.set_item(
            "call",
            call.map_err(|error| PyValueError::new_err(error.to_string()))?,
        )?;
        Ok(strings)
    }
}

impl Target {
    fn call_text(
        &self,
        shapes: &Shapes,
        opaque: Option<&[u8]>,
        static_info: Option<InfoText>,
        api_version: Option<&str>,
    ) -> PyResult<CallText> {
        let comes = (opaque.is_some(), static_info.is_some());
        let version = checks::api_version(self.signature(), api_version, comes)?;
        if comes.0 && version == ApiVersion::TypedFfi {
            return Err(PyTypeError::new_err(format!(
                "{}(): expected no opaque, which {version} has no place for, found some",
                self.signature().name
            )));
        }
        let mut text = CallText::new(version, shapes);
        text.opaque = crate::site::to_hex(opaque.unwrap_or_default());
        text.static_info = static_info;
        Ok(text)
    }

    /// Checks a call site as far as nothing of the guest runs.
    fn check(
        &self,
        py: Python<'_>,
        shapes: &Shapes,
        text: &CallText,
        attributes: Dictionary,
    ) -> PyResult<CallSite> {
        checks::operands(self.signature(), &shapes.operands)?;
        checks::results(self.signature(), &shapes.results)?;
        for &(result, operand) in &text.aliases {
            let pair = (shapes.results.get(result), shapes.operands.get(operand));
            let (Some(to), Some(from)) = pair else {
                return Err(PyValueError::new_err(format!(
                    "expected aliases of {} operands and {} results, found operand {operand} and result {result}",
                    shapes.operands.len(),
                    shapes.results.len()
                )));
            };
            if !to.is_compatible(from) {
                return Err(PyValueError::new_err(format!(
                    "expected operand {operand} and result {result}, which share memory, to have one shape, found {from} and {to}"
                )));
            }
        }
        let site = or_raise(py, text.site(&self.signature().name, attributes, shapes))?;
        or_raise(py, self.signature().check(&site))?;
        Ok(site)
    }

    /// The call site of a direct call.
    fn direct(
        &self,
        py: Python<'_>,
        operands: &[Array],
        options: &Options<'_>,
        outs: &Outs<'_>,
    ) -> PyResult<(Arc<Ready>, Arc<[Maker]>)> {
        let loaded = or_raise(py, self.core.loaded())?;
        let mut key = Vec::with_capacity(256);
        options.write_key(&mut key);
        key.push(u8::from(outs.iter().any(Option::is_some)));
        write_arrays(&mut key, operands.iter().map(Some));
        write_arrays(
            &mut key,
            outs.iter().map(|out| out.as_ref().map(|(_, array)| array)),
        );
        let is_complete = options.write_attributes(&mut key);
        let known = |key: &[u8]| {
            let direct = self.direct.lock().unwrap_or_else(PoisonError::into_inner);
            let known = direct
                .get(key)
                .filter(|known| Arc::ptr_eq(&known.loaded, &loaded))?;
            Some((known.ready.upgrade()?, Arc::clone(&known.makers)))
        };
        if is_complete && let Some(direct) = known(&key) {
            return Ok(direct);
        }
        let attributes = attributes::dictionary(py, self.signature(), &options.given)?;
        let text = attributes_to_mlir(&attributes);
        if !is_complete {
            key.extend_from_slice(short(&text).as_bytes());
            if let Some(direct) = known(&key) {
                return Ok(direct);
            }
        }
        let site = (options, outs, attributes, text);
        let (ready, makers) = self.new_direct(py, &loaded, operands, site)?;
        let direct = Direct {
            ready: Arc::downgrade(&ready),
            makers: Arc::clone(&makers),
            loaded,
        };
        let mut kept = self.direct.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MOST_SITES {
            kept.clear();
        }
        kept.insert(key, direct);
        Ok((ready, makers))
    }

    fn new_direct(
        &self,
        py: Python<'_>,
        loaded: &Arc<Loaded>,
        operands: &[Array],
        (options, outs, attributes, text_of_attributes): (
            &Options<'_>,
            &Outs<'_>,
            Dictionary,
            String,
        ),
    ) -> PyResult<(Arc<Ready>, Arc<[Maker]>)> {
        let shapes = self.shapes(py, operands, options, outs)?;
        let info = options.static_info.clone();
        let text = self.call_text(
            &shapes,
            options.opaque.as_deref(),
            info,
            options.api_version(),
        )?;
        self.check(py, &shapes, &text, attributes)?;
        let key = SiteKey {
            target: self.number,
            call: serde_json::to_string(&text)
                .map_err(|error| PyValueError::new_err(error.to_string()))?,
            attributes: short(&text_of_attributes),
            arrays: SiteKey::arrays(&shapes),
            // A caller's own array stays as it was when the call fails.
            passage: match outs.iter().any(Option::is_some) {
                true => Passage::Whole,
                false => Passage::Pieces,
            },
        };
        let said = (&text, text_of_attributes.as_str());
        let ready = py.detach(|| self.core.ready(loaded, key, said, &shapes));
        let makers = shapes.results.iter().map(|shape| Maker::new(py, shape));
        let makers = makers.collect::<PyResult<Vec<_>>>()?;
        Ok((or_raise(py, ready)?, makers.into()))
    }

    /// The shapes of a direct call: results as they were given, or as the metadata says, or else as `out` has them.
    fn shapes(
        &self,
        py: Python<'_>,
        operands: &[Array],
        options: &Options<'_>,
        outs: &Outs<'_>,
    ) -> PyResult<Shapes> {
        let operands = operands.iter().map(|array| array.shape(py));
        let operands = operands.collect::<PyResult<Vec<_>>>()?;
        checks::operands(self.signature(), &operands)?;
        let arrays = || outs.iter().map(|out| out.as_ref().map(|(_, array)| array));
        let results = match &options.result_shape_dtypes {
            Some(given) => options::result_shapes(given)?,
            None => match self.signature().infer_results(&operands) {
                Ok(results) => results,
                Err(_) if !outs.is_empty() && arrays().all(|array| array.is_some()) => {
                    let shapes = arrays().flatten().map(|array| array.shape(py));
                    shapes.collect::<PyResult<_>>()?
                }
                Err(status) => {
                    let signature = self.signature();
                    let declared = signature.results.iter().flatten();
                    let says = signature.has_trait("elementwise")
                        || declared.clone().count() > 0
                            && declared.clone().all(|result| result.dimensions.is_some());
                    let status = match says {
                        true => status,
                        false => status.context("pass out= or result_shape_dtypes="),
                    };
                    let name = &signature.name;
                    return Err(raised(py, &status.context(format_args!("{name}()"))));
                }
            },
        };
        if !outs.is_empty() && outs.len() != results.len() {
            return Err(PyTypeError::new_err(format!(
                "{}(): expected {} arrays as out, found {}",
                self.signature().name,
                results.len(),
                outs.len()
            )));
        }
        for (number, (out, expected)) in arrays().zip(&results).enumerate() {
            if let Some(out) = out {
                out.expect(expected, &|| {
                    format!("{}(): out {number}", self.signature().name)
                })?;
            }
        }
        Ok(Shapes { operands, results })
    }

    /// A direct call of the native kernel. Arrays go to the device and back.
    fn call_native<'py>(
        &self,
        py: Python<'py>,
        inside: Inside,
        operands: &[Array],
        options: &Options<'py>,
        outs: Outs<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let name = &self.signature().name;
        let native = self.core.native.as_ref().filter(|native| native.has(name));
        let native = native.ok_or_else(|| raised(py, &native::missing(name)))?;
        let shapes = self.shapes(py, operands, options, &outs)?;
        let info = options.static_info.clone();
        let text = self.call_text(
            &shapes,
            options.opaque.as_deref(),
            info,
            options.api_version(),
        )?;
        let attributes = attributes::dictionary(py, self.signature(), &options.given)?;
        let site = self.check(py, &shapes, &text, attributes)?;
        let from: Vec<Vec<u8>> = operands.iter().map(Array::to_bytes).collect();
        let mut to: Vec<Vec<u8>> = shapes
            .results
            .iter()
            .map(|shape| vec![0; shape.byte_size()])
            .collect();
        let own: CallOptions = options.call_options().unwrap_or_default();
        let (_inside, outcome) = inside.detach(py, || {
            let from: Vec<&[u8]> = from.iter().map(Vec::as_slice).collect();
            let mut to: Vec<&mut [u8]> = to.iter_mut().map(Vec::as_mut_slice).collect();
            native.call(site, &own, &from, &mut to)
        });
        or_raise(py, outcome)?;
        let makers = shapes.results.iter().map(|shape| Maker::new(py, shape));
        let results = Results::new(py, outs, &makers.collect::<PyResult<Vec<_>>>()?)?;
        results.write(&to);
        results.into_python(py)
    }
}

/// Element types and dimensions, so that no two lists of arrays have the same bytes.
fn write_arrays<'a>(key: &mut Vec<u8>, arrays: impl ExactSizeIterator<Item = Option<&'a Array>>) {
    key.extend_from_slice(&arrays.len().to_le_bytes());
    for array in arrays {
        let Some(array) = array else {
            key.push(0);
            continue;
        };
        key.push(array.element_type().number());
        let dimensions = array.dimensions();
        key.extend_from_slice(&dimensions.len().to_le_bytes());
        for dimension in dimensions {
            key.extend_from_slice(&dimension.to_le_bytes());
        }
    }
}

/// Shapes of a sequence.
fn shapes(objects: &Bound<'_, PyAny>) -> PyResult<Vec<ArrayShape>> {
    objects
        .try_iter()?
        .map(|object| declared_shape(&object?))
        .collect()
}
