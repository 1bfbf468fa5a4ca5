//! Hosts: a policy, and the modules that are loaded under it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock, TryLockError};
use std::time::{Duration, Instant};

use callbox::policy::{Isolation, Policy, Traps};
use callbox::wasm::{Cache, CacheOptions, Config, Engine};
use callbox::{Blame, Status, StatusCode};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use crate::error::{of_file, or_raise};
use crate::logs::Logs;
use crate::module::{Module, ModuleCore};
use crate::native::Native;
use crate::stats::Stats;

/// What all modules of a host share.
pub(crate) struct HostCore {
    pub(crate) policy: Policy,
    pub(crate) stats: Arc<Stats>,
    cache: Option<Arc<Cache>>,
    logs: Arc<Logs>,
    engine: RwLock<Engine>,
}

impl HostCore {
    fn new(policy: Policy, cache: Option<Arc<Cache>>) -> callbox::Result<Self> {
        let logs = Arc::default();
        let engine = new_engine(&policy, cache.as_ref(), &logs)?;
        Ok(Self {
            policy,
            cache,
            stats: Arc::default(),
            logs,
            engine: RwLock::new(engine),
        })
    }

    /// The engine. In a forked child, where one from before the fork stops nothing, it is made anew.
    pub(crate) fn engine(&self) -> callbox::Result<Engine> {
        let known = read(&self.engine, "the engine")?;
        if known.is_of_this_process() {
            return Ok(known);
        }
        let engine = new_engine(&self.policy, self.cache.as_ref(), &self.logs)?;
        replace(&self.engine, &engine, "the engine")?;
        Ok(engine)
    }
}

fn new_engine(
    policy: &Policy,
    cache: Option<&Arc<Cache>>,
    logs: &Arc<Logs>,
) -> callbox::Result<Engine> {
    let logs = Arc::clone(logs);
    Engine::with_config(Config {
        policy: policy.clone(),
        log: Some(Arc::new(move |record| logs.push(record))),
        cache: cache.cloned(),
    })
}

/// What is behind a lock. In a forked child a lock may be held by a thread that is not there: it is not waited for without end.
pub(crate) fn read<T: Clone>(lock: &RwLock<T>, what: &str) -> callbox::Result<T> {
    if let Ok(value) = lock.try_read() {
        return Ok(value.clone());
    }
    patiently(what, || match lock.try_read() {
        Ok(value) => Some(value.clone()),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner().clone()),
        Err(TryLockError::WouldBlock) => None,
    })
}

/// Puts something else behind a lock.
pub(crate) fn replace<T: Clone>(lock: &RwLock<T>, value: &T, what: &str) -> callbox::Result<()> {
    patiently(what, || {
        let mut place = match lock.try_write() {
            Ok(place) => place,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        *place = value.clone();
        Some(())
    })
}

fn patiently<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> callbox::Result<T> {
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        if let Some(value) = attempt() {
            return Ok(value);
        }
        if Instant::now() >= until {
            return Err(Status::new(
                StatusCode::FailedPrecondition,
                Blame::Host,
                format!(
                    "expected {what} to be free, found it in use by a thread that a fork left behind"
                ),
            ));
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Loads modules, and says what their guests may take, do and reach. A process wants one.
///
/// Args:
///     policy: What guests may take, do and reach, with the fields of callbox's policy in JSON: a mapping, or JSON text. What is
///         left out has its default, which suits untrusted kernels and grants nothing: 1 GiB of memory, 10 seconds for a call.
///     traps: How guests that reach past their memory are caught: "explicit" (the default), by checks that the compiler puts into the guest; or
///         "signals", which is faster for kernels that jump about in memory, and which `faulthandler.enable()`, called after the
///         first call, turns into the end of the process.
///     isolation: Whom an instance serves: "executable" (the default), the calls of one target with the same shapes and attributes; or "fresh", one
///         call alone.
///     cache_dir: A directory for compiled modules, of mode 0700 and the user's own. It is made if it is not there.
///
/// Raises:
///     ValueError: The policy has a field that is not known, or a value that does not fit.
///     CallError: The machine does not give what the limits ask for.
#[pyclass(frozen, module = "callbox")]
pub(crate) struct Host(Arc<HostCore>);

#[pymethods]
impl Host {
    #[new]
    #[pyo3(signature = (*, policy=None, traps=None, isolation=None, cache_dir=None))]
    fn new(
        py: Python<'_>,
        policy: Option<&Bound<'_, PyAny>>,
        traps: Option<&str>,
        isolation: Option<&str>,
        cache_dir: Option<PathBuf>,
    ) -> PyResult<Self> {
        let policy = read_policy(py, policy, traps, isolation)?;
        let cache = cache_dir.map(|path| {
            let cache = py.detach(|| Cache::open_ambient(&path, CacheOptions::default()));
            or_raise(py, cache).map(Arc::new)
        });
        let cache = cache.transpose()?;
        let core = py.detach(|| HostCore::new(policy, cache));
        Ok(Self(Arc::new(or_raise(py, core)?)))
    }

    /// What guests may take, do and reach: a dict with all fields of callbox's policy in JSON.
    #[getter]
    fn policy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let text = or_raise(py, self.0.policy.to_json())?;
        py.import("json")?.call_method1("loads", (text,))
    }

    /// Loads a module: checks it against the limits and the ABI, reads what it declares of its targets, and compiles it. Nothing of it runs.
    ///
    /// Args:
    ///     source: The path of a .wasm file, or its bytes.
    ///     native: The manifest `callbox.json` of CUDA kernels for targets of the same names, for programs that run on a GPU. They are native
    ///         code, without a sandbox.
    ///     allow_native: The SHA-256 digests, in hexadecimal, of the manifests that are trusted: `callbox inspect callbox.json` prints it, and so
    ///         does the error without it.
    ///
    /// Returns:
    ///     The module, with its targets as attributes.
    ///
    /// Raises:
    ///     FileNotFoundError: There is no such file.
    ///     ValueError: The module has no targets.
    ///     CallError: What is wrong with the module. PERMISSION_DENIED if it imports what is not granted, or native code is not.
    #[pyo3(signature = (source, *, native=None, allow_native=None))]
    fn load(
        &self,
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        native: Option<PathBuf>,
        allow_native: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Module> {
        let (name, bytes) = read_module(source, self.0.policy.limits.module_bytes)?;
        let digests = digests(allow_native)?;
        let native = native.map(|path| {
            let native = py.detach(|| Native::load(&path, &digests));
            or_raise(py, native)
        });
        let native = native.transpose()?;
        let core = py.detach(|| ModuleCore::new(&self.0, bytes, native));
        let core = core.map_err(|status| match &name {
            Some(path) => status.context(path.display()),
            None => status,
        });
        let core = or_raise(py, core)?;
        if core.targets.is_empty() {
            let from = name.map_or_else(String::new, |path| format!("{}: ", path.display()));
            return Err(PyValueError::new_err(format!(
                "{from}expected a module with targets, found one that exports no function of a target's type"
            )));
        }
        Module::new(py, Arc::new(core))
    }

    /// How many calls there were, and how they went: `calls`, `bytes_in`, `bytes_out`, and `failures` by the code's name. Programs call modules by key: where
    /// several hosts have the same policy and load the same file, their programs' calls are counted by the first that a program was traced with.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = PyDict::new(py);
        for (name, count) in self.0.stats.totals() {
            stats.set_item(name, count)?;
        }
        let failures = PyDict::new(py);
        for (code, count) in self.0.stats.failures() {
            failures.set_item(code, count)?;
        }
        stats.set_item("failures", failures)?;
        Ok(stats)
    }

    /// The guests' log messages that the policy grants, since the last time: dicts of `level` and `message`, oldest first. The newest 1,024 are
    /// kept.
    fn take_logs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let logs = PyList::empty(py);
        for (level, message) in self.0.logs.take() {
            let record = PyDict::new(py);
            record.set_item("level", level.name())?;
            record.set_item("message", message)?;
            logs.append(record)?;
        }
        Ok(logs)
    }

    fn __repr__(&self) -> String {
        let Policy {
            limits,
            isolation,
            traps,
            ..
        } = &self.0.policy;
        let traps = match traps {
            Traps::Explicit => "explicit",
            Traps::Signals => "signals",
        };
        let isolation = match isolation {
            Isolation::Executable => "executable",
            Isolation::Fresh => "fresh",
        };
        let deadline = match limits.deadline {
            Some(deadline) => format!("{deadline:?}"),
            None => "none".to_owned(),
        };
        format!(
            "<callbox.Host traps={traps:?} isolation={isolation:?} memory={} bytes, deadline={deadline}>",
            limits.memory_bytes
        )
    }
}

/// The policy that was given, with what the other arguments say. Traps are explicit unless somebody says otherwise.
fn read_policy(
    py: Python<'_>,
    policy: Option<&Bound<'_, PyAny>>,
    traps: Option<&str>,
    isolation: Option<&str>,
) -> PyResult<Policy> {
    let json = py.import("json")?;
    let fields = match policy {
        None => PyDict::new(py),
        Some(policy) => {
            let read =
                match policy.is_instance_of::<PyString>() || policy.is_instance_of::<PyBytes>() {
                    true => json.call_method1("loads", (policy,))?,
                    false => policy.clone(),
                };
            let dict = py.get_type::<PyDict>();
            let is_mapping =
                read.is_instance(&py.import("collections.abc")?.getattr("Mapping")?)?;
            if !is_mapping {
                return Err(PyTypeError::new_err(format!(
                    "expected a policy as a mapping or as JSON text of an object, found {}",
                    read.get_type().name()?
                )));
            }
            dict.call1((read,))?.cast_into::<PyDict>()?
        }
    };
    for (field, value) in [("traps", traps), ("isolation", isolation)] {
        let Some(value) = value else { continue };
        match fields.get_item(field)? {
            Some(said) if !said.eq(value)? => {
                return Err(PyValueError::new_err(format!(
                    "expected one {field}, found {value:?} and {} in the policy",
                    said.repr()?
                )));
            }
            _ => fields.set_item(field, value)?,
        }
    }
    if !fields.contains("traps")? {
        fields.set_item("traps", "explicit")?;
    }
    let text: String = json.call_method1("dumps", (fields,))?.extract()?;
    or_raise(py, Policy::from_json(text.as_bytes()))
}

/// The bytes of a module, and its path if it has one. A file is not read further than a module may be long.
fn read_module(source: &Bound<'_, PyAny>, most: usize) -> PyResult<(Option<PathBuf>, Vec<u8>)> {
    if let Ok(bytes) = source.extract::<&[u8]>() {
        return Ok((None, bytes.to_vec()));
    }
    let path: PathBuf = source.extract().map_err(|_| {
        let found = source.get_type().name();
        PyTypeError::new_err(format!(
            "expected the path of a .wasm file or its bytes, found {}",
            found.map_or_else(|_| "something else".to_owned(), |name| name.to_string())
        ))
    })?;
    let read = source.py().detach(|| read_file(&path, most));
    let bytes = read.map_err(|error| of_file(&path, &error))?;
    Ok((Some(path), bytes))
}

fn read_file(path: &Path, most: usize) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    // One byte more, so that a file that is too long is refused as that.
    let file = std::fs::File::open(path)?;
    file.take((most as u64).saturating_add(1))
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn digests(allow_native: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<String>> {
    match allow_native {
        None => Ok(Vec::new()),
        Some(one) if one.is_instance_of::<PyString>() => Ok(vec![one.extract()?]),
        Some(several) => several.extract(),
    }
}
