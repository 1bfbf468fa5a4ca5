//! Targets as functions on arrays.
#![allow(
    unsafe_code,
    reason = "has calls read and write memory that Python's buffer protocol hands out"
)]

mod budget;
mod operands;
mod options;
mod results;
mod sites;

use std::sync::Arc;

use callbox::call::{DerivativeMode, DerivativeOf, Signature};
use callbox::{ArrayShape, attributes_to_mlir};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

pub(crate) use self::budget::Budget;
use self::operands::shapes;
use self::options::{Options, static_info_text};
use self::results::Results;
pub(crate) use self::sites::DirectSites;
use self::sites::Request;
use crate::arrays::Array;
use crate::attributes;
use crate::buffers::{RawArray, RawArrays};
use crate::checks;
use crate::element::dtype_name;
use crate::error::{class, or_raise};
use crate::exit::{Inside, argument};
use crate::module::{Module, ModuleCore};
use crate::site::{CallText, Shapes};
use crate::stack::on_enough;
use crate::{interrupts, registry, signature, trace};

// A target: a function on arrays, which runs in the sandbox. The class has no docstring, because it
// would hide those of the targets.
#[pyclass(frozen, weakref, module = "callbox")]
pub(crate) struct Target {
    core: Arc<ModuleCore>,
    number: usize,
}

impl Target {
    pub(crate) fn new(core: &Arc<ModuleCore>, number: usize) -> Self {
        Self {
            core: Arc::clone(core),
            number,
        }
    }

    fn signature(&self) -> &Signature {
        &self.core.signatures()[self.number]
    }

    fn derivative(&self, mode: DerivativeMode) -> Option<Self> {
        let of = Some(DerivativeOf {
            target: self.signature().name.clone(),
            mode,
        });
        let mut signatures = self.core.signatures().iter();
        let number = signatures.position(|signature| signature.derivative_of == of)?;
        Some(Self::new(&self.core, number))
    }
}

#[pymethods]
impl Target {
    /// The name.
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

    /// The signature, and the documentation that the module's author wrote.
    #[getter]
    fn __doc__(&self) -> String {
        let line = signature::line(self.signature());
        match self.signature().documentation.trim() {
            "" => line,
            text => format!("{line}\n\n{text}"),
        }
    }

    /// The value for `inspect.signature`.
    #[getter]
    fn __signature__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        signature::for_inspect(py, self.signature())
    }

    /// The module of the target.
    #[getter]
    fn module(&self, py: Python<'_>) -> PyResult<Module> {
        Module::new(py, Arc::clone(&self.core))
    }

    /// The declared operands. None: undeclared.
    #[getter]
    fn operands<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        signature::buffers(py, self.signature().operands.as_deref())
    }

    /// The declared results. None: undeclared.
    #[getter]
    fn results<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        signature::buffers(py, self.signature().results.as_deref())
    }

    /// The declared attributes. None: undeclared.
    #[getter]
    fn attributes<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        signature::attributes(py, self.signature().attributes.as_deref())
    }

    /// The traits, such as `"pure"`.
    #[getter]
    fn traits<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.signature().traits)
    }

    /// The target of the module that is declared to compute the reverse-mode derivatives. None:
    /// there is none.
    #[getter]
    fn vjp(&self) -> Option<Self> {
        self.derivative(DerivativeMode::Vjp)
    }

    /// The target of the module that is declared to compute the forward-mode derivatives. None:
    /// there is none.
    #[getter]
    fn jvp(&self) -> Option<Self> {
        self.derivative(DerivativeMode::Jvp)
    }

    /// The calling conventions, by their names in HLO text.
    #[getter]
    fn api_versions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let versions = self.signature().api_versions.iter();
        PyTuple::new(py, versions.map(|version| version.name()))
    }

    /// Whether the module has a CUDA kernel of the same name.
    #[getter]
    fn has_native(&self) -> bool {
        let native = self.core.native.as_ref();
        native.is_some_and(|native| native.has(&self.signature().name))
    }

    /// The traits of the CUDA kernel, such as `"command_buffer_compatible"`.
    #[getter]
    fn native_traits<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let native = self.core.native.as_ref();
        let traits = native.and_then(|native| native.traits(&self.signature().name));
        PyTuple::new(py, traits.unwrap_or(&[]))
    }

    /// Counts a call on CUDA that also ran as wasm.
    fn _count_shadow(&self, differs: bool) {
        let stats = self.core.native_stats(self.number);
        stats.count_shadow(differs);
    }

    fn __repr__(&self) -> String {
        format!("<callbox.Target {}>", signature::line(self.signature()))
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let rebuild = py.import("callbox._pickling")?.getattr("target")?;
        let name = &self.signature().name;
        (rebuild, (self.core.identity(py)?, name)).into_pyobject(py)
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

    /// Calls the target, without the GIL.
    ///
    /// Args:
    ///     *arrays: The operands: NumPy arrays, objects with a buffer, tensors with `__dlpack__`,
    ///         or objects that NumPy can convert. Each is copied once, into the guest. They may be
    ///         passed by name. If one is traced by JAX, the call becomes part of the program, as by
    ///         `callbox.jax.call`.
    ///     out: An array or a tensor, or a tuple of them, for the results, writable and contiguous
    ///         in row-major order. It may be an operand. For None, or None in the tuple, arrays are
    ///         allocated. It is unchanged if the call fails. Large arrays of elementwise targets
    ///         and of targets with rows go into the guest in pieces, on several threads. All
    ///         others must fit into the guest's memory as a whole, and so must arrays if an array
    ///         in `out` overlaps another one of the call in part.
    ///     result_shape_dtypes: One object or a sequence of objects with the `shape` and `dtype` of
    ///         the results. None: as the metadata says.
    ///     deadline: The time limit of the call, in seconds. None: the policy's.
    ///     threads: The most threads that share the call if it is large and the target is
    ///         elementwise or has rows. None: the policy's limit.
    ///     attributes: Attributes whose names are those of other arguments.
    ///     opaque: The opaque bytes, for a target of XLA's older conventions.
    ///     static_info: The static information, for a target of the JAX FFI proposal's convention:
    ///         bytes or a `StaticInfo`.
    ///     api_version: The convention, for a target that has several.
    ///     platform: "Host", or "CUDA" for the native kernel of the same name, to which arrays are
    ///         copied.
    ///     **attrs: The attributes. Python's numbers take the declared type.
    ///
    /// Returns:
    ///     The result, or a tuple of results.
    ///
    /// Raises:
    ///     TypeError: A wrong dtype, number of operands, attribute, or type of an attribute.
    ///     ValueError: A wrong rank or size.
    ///     BufferError: An `out` that is read-only or not contiguous.
    ///     CallError: The call failed. `out` is unchanged.
    ///     KeyboardInterrupt: Ctrl-C cancelled the call, on the main thread. `out` is unchanged.
    #[pyo3(signature = (*arrays, **options))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        arrays: &Bound<'py, PyTuple>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let outcome = self.call(py, arrays, options);
        outcome.map_err(|error| self.named(py, error))
    }

    /// Infers the dtypes and shapes of the results from those of the operands.
    ///
    /// Args:
    ///     operands: Pairs of dtype and shape, or objects with `dtype` and `shape`.
    ///     bounded: Whether results that are larger than those of a direct call may be are an
    ///         error.
    ///
    /// Returns:
    ///     A list of pairs of dtype and shape.
    ///
    /// Raises:
    ///     ValueError: The metadata does not determine them, or the operands do not match it.
    ///     CallError: RESOURCE_EXHAUSTED for results that are too large.
    #[pyo3(signature = (operands, *, bounded=false))]
    fn infer<'py>(
        &self,
        py: Python<'py>,
        operands: &Bound<'py, PyAny>,
        bounded: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let _inside = Inside::enter(py);
        let operands = shapes(operands)?;
        checks::operands(self.signature(), &operands)?;
        let inferred = or_raise(py, self.signature().infer_results(&operands))?;
        if bounded {
            let sizes = inferred.iter().map(ArrayShape::byte_size);
            or_raise(
                py,
                self.core.check_declared(self.signature(), &operands, sizes),
            )?;
        }
        let results = PyList::empty(py);
        for shape in inferred {
            let dtype = dtype_name(shape.element_type()).unwrap_or("token");
            results.append((dtype, PyTuple::new(py, shape.dimensions())?))?;
        }
        Ok(results)
    }

    /// Makes the attributes of an XLA FFI call of `FFI_TARGET`, which name the target and its call
    /// site.
    ///
    /// The whole call site is checked.
    ///
    /// Args:
    ///     operands: The operands of one call, without a batch: pairs of dtype and shape, or
    ///         objects with `dtype` and `shape`.
    ///     results: The results likewise, without the status.
    ///     attrs: The target's attributes.
    ///     declared: Whether the results are those that the module declares, with sizes that are
    ///         checked when the call runs.
    ///     on_error: "raise", or "status" for one more result, int32.
    ///     deadline: The time limit of the call in seconds, for all elements of a batch together.
    ///     threads: The most threads that share the call. None: the policy's limit.
    ///     aliases: Operand numbers to result numbers, as in jax.ffi.ffi_call.
    ///     opaque, static_info, api_version: As in a direct call.
    ///
    /// Raises:
    ///     TypeError, ValueError: As in a direct call.
    #[pyo3(signature = (operands, results, attrs, *, declared=false, on_error="raise", deadline=None, threads=None, aliases=None, opaque=None, static_info=None, api_version=None))]
    #[expect(clippy::too_many_arguments, reason = "a call site has them")]
    fn xla_attributes<'py>(
        &self,
        py: Python<'py>,
        operands: &Bound<'py, PyAny>,
        results: &Bound<'py, PyAny>,
        attrs: &Bound<'py, PyDict>,
        declared: bool,
        on_error: &str,
        #[pyo3(from_py_with = argument)] deadline: Option<f64>,
        #[pyo3(from_py_with = argument)] threads: Option<i64>,
        aliases: Option<&Bound<'py, PyDict>>,
        #[pyo3(from_py_with = argument)] opaque: Option<Vec<u8>>,
        static_info: Option<&Bound<'py, PyAny>>,
        api_version: Option<&str>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let _inside = Inside::enter(py);
        let shapes = Shapes {
            operands: shapes(operands)?,
            results: shapes(results)?,
        };
        let all = shapes.operands.iter().chain(&shapes.results);
        if let Some(one) = all
            .map(ArrayShape::element_type)
            .find(|t| t.bit_width() < 2)
        {
            return Err(PyTypeError::new_err(format!(
                "{}(): expected arrays of elements of at least two bits, found {}, which XLA does not pass",
                self.signature().name,
                dtype_name(one).unwrap_or("token")
            )));
        }
        let mut given = attributes::Given::new();
        for (name, value) in attrs.iter() {
            given.push((name.extract()?, value));
        }
        let static_info = static_info.map(static_info_text).transpose()?;
        let mut text = self.call_text(&shapes, opaque.as_deref(), static_info, api_version)?;
        text.declared = declared;
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
        text.threads = threads.map(options::thread_count).transpose()?;
        for (operand, result) in aliases.iter().flat_map(|aliases| aliases.iter()) {
            text.aliases.push((result.extract()?, operand.extract()?));
        }
        text.aliases.sort_unstable();
        // Attributes may nest.
        on_enough(|| self.strings(py, &shapes, &text, &given))
    }
}

impl Target {
    /// The attributes of a call in a JAX program.
    fn strings<'py>(
        &self,
        py: Python<'py>,
        shapes: &Shapes,
        text: &CallText,
        given: &attributes::Given<'py>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let dictionary = attributes::dictionary(py, self.signature(), given)?;
        let attributes = attributes_to_mlir(&dictionary);
        self.check(py, shapes, text, dictionary)?;
        or_raise(py, registry::keep(&self.core))?;
        let strings = PyDict::new(py);
        strings.set_item("module", &self.core.key)?;
        strings.set_item("target", &self.signature().name)?;
        strings.set_item("attributes", attributes)?;
        let call = serde_json::to_string(text);
        strings.set_item(
            "call",
            call.map_err(|error| PyValueError::new_err(error.to_string()))?,
        )?;
        Ok(strings)
    }

    fn call<'py>(
        &self,
        py: Python<'py>,
        arrays: &Bound<'py, PyTuple>,
        given: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _span = trace::span(py, || format!("callbox call {}", self.signature().name));
        let inside = Inside::enter(py);
        let mut options = Options::read(given)?;
        // Preparing the call site is a part of the call.
        let within = options.call_options(&self.signature().label());
        let mut within = or_raise(py, within)?.from_now_on();
        let named = options.take_operands(self.signature(), arrays.len())?;
        let operands = arrays.iter().chain(named);
        let operands = operands.enumerate();
        let operands = operands.map(|(i, array)| operands::operand(self.signature(), i, &array));
        let mut operands = match operands.collect::<PyResult<Vec<_>>>() {
            Ok(operands) => operands,
            Err(error) => {
                drop(inside);
                let traced = self.traced(py, arrays, given)?;
                return traced.ok_or(error);
            }
        };
        let outs = options.outs(&self.signature().label())?;
        if options.is_cuda {
            return self.call_native(py, inside, operands, &options, outs, &within);
        }
        let request = Request {
            operands: &operands,
            options: &options,
            outs: &outs,
        };
        // Attributes may nest.
        let direct = || self.direct(py, inside, &request, &mut within);
        let (inside, ready, makers) = on_enough(direct)?;
        for operand in &mut operands {
            operand.put_in_order(py)?;
        }
        let results = Results::new(py, outs, &makers)?;
        let from: Vec<RawArray> = operands.iter().map(Array::raw).collect();
        let to = results.raw_arrays();
        let running = interrupts::begin(py, &mut within)?;
        // SAFETY: `operands` and `results` keep the arrays' memory alive until the call has
        // returned, and no reference to it exists.
        let mut arrays = unsafe { RawArrays::new(&from, &to) };
        let budget = options.budget();
        let (_inside, outcome) = inside.detach(py, || match budget {
            None => ready.call(Some(&within), &mut arrays),
            Some(budget) => budget.spend(&within, |within| ready.call(Some(within), &mut arrays)),
        });
        interrupts::check(py, running.as_ref(), &outcome)?;
        drop(running);
        for operand in operands {
            operand.release(py);
        }
        or_raise(py, outcome)?;
        results.into_python(py)
    }

    /// Makes the call a part of the program that JAX traces. None if no operand is traced.
    #[cold]
    fn traced<'py>(
        &self,
        py: Python<'py>,
        arrays: &Bound<'py, PyTuple>,
        given: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let modules = py.import("sys")?.getattr("modules")?;
        let Ok(core) = modules.get_item("jax.core") else {
            return Ok(None);
        };
        let tracer = core.getattr("Tracer")?;
        let by_name = given.map(|given| given.values());
        let mut values = arrays.iter().chain(by_name.iter().flatten());
        if !values.any(|value| value.is_instance(&tracer).unwrap_or(false)) {
            return Ok(None);
        }
        let call = py.import("callbox.jax._call")?.getattr("traced")?;
        let target = Self::new(&self.core, self.number);
        call.call1((target, arrays, given)).map(Some)
    }

    /// Adds the module and the target to a `CallError` without them.
    #[cold]
    fn named(&self, py: Python<'_>, error: PyErr) -> PyErr {
        let add = || -> PyResult<()> {
            let value = error.value(py);
            let kind = class(py, "CallError")?;
            if value.is_instance(&kind)? && value.getattr("target")?.is_none() {
                value.setattr("module", self.core.label())?;
                value.setattr("target", &self.signature().name)?;
            }
            Ok(())
        };
        // The exception is more important than its attributes.
        let _ = add();
        error
    }
}
