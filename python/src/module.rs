//! Modules, with their targets as attributes.
//!
//! In a forked child a module is loaded again by the first direct call. Programs of JAX do not run
//! there, whatever they call.

mod core;
mod loaded;
mod sites;

use std::sync::Arc;

use pyo3::exceptions::{PyAttributeError, PyKeyError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyIterator, PyList, PyMappingProxy, PyString, PyTuple};

pub(crate) use self::core::ModuleCore;
pub(crate) use self::loaded::Loaded;
pub(crate) use self::sites::{FamilyKey, SiteKey, key_part};
use crate::error::or_raise;
use crate::exit::Inside;
use crate::listing::listed;
use crate::targets::Target;

/// The module with this key, if this process has loaded it.
#[pyfunction]
pub(crate) fn loaded_module(py: Python<'_>, key: &str) -> PyResult<Option<Module>> {
    let core = crate::registry::loaded(key);
    core.map(|core| Module::new(py, core)).transpose()
}

/// A loaded module. Its targets are items, `module["add_n"]`, and attributes, `module.add_n`,
/// unless their names begin with an underscore.
///
/// Items also work for names that are not Python identifiers.
#[pyclass(frozen, mapping, weakref, module = "callbox")]
pub(crate) struct Module {
    core: Arc<ModuleCore>,
    targets: Py<PyDict>,
}

impl Module {
    pub(crate) fn new(py: Python<'_>, core: Arc<ModuleCore>) -> PyResult<Self> {
        let targets = PyDict::new(py);
        for (number, signature) in core.signatures().iter().enumerate() {
            targets.set_item(&signature.name, Target::new(&core, number))?;
        }
        Ok(Self {
            core,
            targets: targets.unbind(),
        })
    }
}

#[pymethods]
impl Module {
    /// The SHA-256 digest of the file, in hexadecimal.
    #[getter]
    fn digest(&self) -> &str {
        &self.core.sha256
    }

    /// The key of the module in programs: a digest of file, policy and native code, in hexadecimal.
    #[getter]
    fn key(&self) -> &str {
        &self.core.key
    }

    /// Where the module was compiled: "process" for a process of its own, "this_process", or
    /// "cache" for nowhere.
    #[getter]
    fn compiled_in(&self, py: Python<'_>) -> PyResult<&'static str> {
        let place = py.detach(|| self.core.compiled_in());
        or_raise(py, place)
    }

    /// The digest of the manifest of the CUDA kernels, if there is one.
    #[getter]
    fn native(&self) -> Option<&str> {
        self.core
            .native
            .as_ref()
            .map(|native| native.digest.as_str())
    }

    /// The targets by name.
    #[getter]
    fn targets<'py>(&self, py: Python<'py>) -> Bound<'py, PyMappingProxy> {
        PyMappingProxy::new(py, self.targets.bind(py).as_mapping())
    }

    /// Makes the module available to programs that were exported or cached by another process.
    ///
    /// They find it by its key. The module stays until the process ends. Programs that this process
    /// traces register their modules themselves. A closed module fails with FAILED_PRECONDITION.
    fn register(&self, py: Python<'_>) -> PyResult<()> {
        or_raise(py, crate::registry::keep(&self.core))
    }

    /// Whether `close` was called.
    #[getter]
    fn closed(&self) -> bool {
        !self.core.is_open()
    }

    /// Frees the module's code, its call sites and their memory, and has programs forget it.
    ///
    /// Later calls fail with FAILED_PRECONDITION, also those of programs that were traced with it,
    /// until the same file is loaded again under the same policy. Calls that run now end as usual.
    /// Closing a module twice does nothing. `with host.load(...) as module` closes it at the end.
    fn close(&self, py: Python<'_>) {
        if let Some(loaded) = self.core.loaded_here() {
            loaded.forget_all(py);
        }
        py.detach(|| self.core.close());
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    /// The bytes of the file.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.core.file.bytes())
    }

    /// The policy of the module's host, as `Host.policy`.
    #[getter]
    fn policy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let _inside = Inside::enter(py);
        let text = or_raise(py, self.core.host().policy.to_json())?;
        py.import("json")?.call_method1("loads", (text,))
    }

    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let target = self.targets.bind(py).get_item(name)?;
        // Python and its tools ask any object for such names, and call what they find.
        if target.is_some() && name.starts_with('_') {
            return Err(PyAttributeError::new_err(format!(
                "expected module[\"{name}\"]: targets whose names begin with an underscore are no attributes"
            )));
        }
        target.ok_or_else(|| PyAttributeError::new_err(self.unknown(name)))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let target = self.targets.bind(py).get_item(name)?;
        target.ok_or_else(|| PyKeyError::new_err(self.unknown(name)))
    }

    fn __contains__(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.targets.bind(py).contains(name)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.targets.bind(py).try_iter()
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.targets.bind(py).len()
    }

    fn __dir__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyList>> {
        let py = slf.py();
        let _inside = Inside::enter(py);
        let names = py
            .get_type::<PyAny>()
            .call_method1("__dir__", (slf,))?
            .cast_into::<PyList>()?;
        for name in slf.get().targets.bind(py).keys() {
            if !name.cast::<PyString>()?.to_str()?.starts_with('_') {
                names.append(name)?;
            }
        }
        Ok(names)
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let rebuild = py.import("callbox._pickling")?.getattr("module")?;
        (rebuild, self.core.identity(py)?).into_pyobject(py)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        let other = other.cast::<Self>();
        other.is_ok_and(|other| other.get().core.key == self.core.key)
    }

    fn __hash__(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        self.core.key.hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        let digest = &self.core.sha256[..12];
        format!("<callbox.Module {digest} with {}>", listed(self.names()))
    }
}

impl Module {
    fn names(&self) -> impl Iterator<Item = &str> {
        let signatures = self.core.signatures().iter();
        signatures.map(|signature| signature.name.as_str())
    }

    fn unknown(&self, name: &str) -> String {
        format!(
            "expected a target of the module ({}), found {name:?}",
            listed(self.names())
        )
    }
}
