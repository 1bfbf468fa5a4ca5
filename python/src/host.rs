//! Hosts, each with a policy and the modules loaded under it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callbox::Status;
use callbox::policy::{Isolation, Policy, Traps};
use callbox::process::Worker;
use callbox::untrusted_text::shown_path;
use callbox::wasm::{Cache, CacheOptions, Config, Engine, PerProcess, room_for_load};
use callbox_cli::packages::Wanted;
use callbox_package::Trust;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use crate::compiler::{self, compiler};
use crate::error::or_raise;
use crate::exit::{Inside, argument};
use crate::files::{Contents, read_module};
use crate::idle::{self, Idle};
use crate::interrupts;
use crate::logs::Logs;
use crate::module::{Module, ModuleCore};
use crate::native::{Kernels, NativeFrom};
use crate::reference;
use crate::registry;
use crate::stack::on_enough;
use crate::stats::HostStats;
use crate::trace;
use crate::trusted;
use crate::waiting::on_a_thread;

/// The state that all modules of a host share.
pub(crate) struct HostCore {
    pub(crate) policy: Policy,
    /// The rules about signatures.
    pub(crate) trust: Option<Trust>,
    pub(crate) stats: Arc<HostStats>,
    cache: Option<Arc<Cache>>,
    logs: Arc<Logs>,
    /// The program of processes that compile.
    worker: Option<Worker>,
    engine: PerProcess<Engine>,
    pub(crate) idle: Idle,
}

impl HostCore {
    fn new(
        policy: Policy,
        trust: Option<Trust>,
        cache: Option<Arc<Cache>>,
        worker: Option<Worker>,
        idle: Idle,
    ) -> callbox::Result<Self> {
        let logs = Arc::default();
        let engine = new_engine(&policy, cache.as_ref(), &logs, worker.as_ref())?;
        Ok(Self {
            policy,
            trust,
            cache,
            stats: Arc::default(),
            logs,
            worker,
            engine: PerProcess::new(engine),
            idle,
        })
    }

    /// Returns the engine. A forked child gets a new one, because a ticker does not survive the
    /// fork.
    pub(crate) fn engine(&self) -> callbox::Result<Engine> {
        let worker = self.worker.as_ref();
        let engine = self
            .engine
            .get_or_make(|| new_engine(&self.policy, self.cache.as_ref(), &self.logs, worker));
        engine.cloned()
    }
}

fn new_engine(
    policy: &Policy,
    cache: Option<&Arc<Cache>>,
    logs: &Arc<Logs>,
    worker: Option<&Worker>,
) -> callbox::Result<Engine> {
    let logs = Arc::clone(logs);
    Engine::with_config(Config {
        policy: policy.clone(),
        log: Some(Arc::new(move |record| logs.push(record))),
        threads: None,
        cache: cache.cloned(),
        compiler: compiler(worker),
        compile_report: None,
    })
}

/// Loads WebAssembly modules under a policy. A process usually needs one host.
///
/// Args:
///     policy: The limits and grants of guests, in the fields of callbox's JSON policy: a mapping
///         or JSON text. The defaults suit untrusted kernels: no grants, 1 GiB of memory, 10
///         seconds for a call.
///     traps: How memory accesses out of bounds are caught. "explicit" (the default): by compiled
///         checks. "signals": by signal handlers, which is faster for kernels with random memory
///         accesses. Calling `faulthandler.enable()` after the first call replaces these handlers,
///         so that the next access out of bounds ends the process.
///     isolation: Which calls share an instance. "executable" (the default): the calls of one
///         target with the same shapes and options, and with the same attributes if the target has
///         stages or static information. "fresh": none.
///     cache_dir: A directory for compiled modules, with mode 0700 and owned by the user. It is
///         created if missing.
///     trust: The rules about signatures, as a mapping or JSON text: see `callbox sign`. A module
///         that is not signed as a rule for its name asks is not loaded.
///     idle_seconds: How long a call site keeps the memory of its arrays after its last call. The
///         next call takes new memory. None: as long as the module is loaded.
///     idle_bytes: The memory that idle call sites may keep for longer, those with the latest calls
///         first.
///
/// Raises:
///     ValueError: The policy has an unknown field or an invalid value.
///     CallError: The machine cannot provide what the limits ask for.
#[pyclass(frozen, module = "callbox")]
pub(crate) struct Host(Arc<HostCore>);

#[pymethods]
impl Host {
    #[new]
    #[pyo3(signature = (
        *, policy=None, traps=None, isolation=None, cache_dir=None, trust=None,
        idle_seconds=Some(10.0), idle_bytes=16 << 20
    ))]
    #[expect(clippy::too_many_arguments, reason = "Python's keyword arguments")]
    fn new(
        py: Python<'_>,
        policy: Option<&Bound<'_, PyAny>>,
        traps: Option<&str>,
        isolation: Option<&str>,
        #[pyo3(from_py_with = argument)] cache_dir: Option<PathBuf>,
        trust: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = argument)] idle_seconds: Option<f64>,
        #[pyo3(from_py_with = argument)] idle_bytes: usize,
    ) -> PyResult<Self> {
        let _inside = Inside::enter(py);
        interrupts::install(py)?;
        let idle = Idle::new(idle_seconds, idle_bytes)?;
        let policy = read_policy(py, policy, traps, isolation)?;
        let trust = trust.map(|rules| {
            // JSON text as it is: reading it into a dict would hide a rule that is given twice.
            let text = match (rules.extract::<String>(), rules.extract::<&[u8]>()) {
                (Ok(text), _) => text.into_bytes(),
                (_, Ok(bytes)) => bytes.to_vec(),
                _ => json_text(&mapping(rules, "rules")?)?.into_bytes(),
            };
            or_raise(py, on_enough(|| trusted::rules(&text)))
        });
        let trust = trust.transpose()?;
        let cache = cache_dir.map(|path| {
            let cache = py.detach(|| Cache::open_ambient(&path, CacheOptions::default()));
            or_raise(py, cache).map(Arc::new)
        });
        let cache = cache.transpose()?;
        let worker = compiler::worker(py)?;
        let core = py.detach(|| HostCore::new(policy, trust, cache, worker, idle));
        Ok(Self(Arc::new(or_raise(py, core)?)))
    }

    /// The policy of the guests: a dict with all fields of callbox's JSON policy.
    #[getter]
    fn policy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let _inside = Inside::enter(py);
        let text = or_raise(py, self.0.policy.to_json())?;
        py.import("json")?.call_method1("loads", (text,))
    }

    /// Loads a module: checks it against the limits and the ABI, reads its metadata and compiles
    /// it.
    ///
    /// No guest code runs.
    ///
    /// Args:
    ///     source: The path of a .wasm file, or its bytes.
    ///     native: The manifest `callbox.json` of CUDA kernels for targets of the same names, for
    ///         programs that run on a GPU. PTX is verified for each call and runs with a fence,
    ///         within the limits of the policy's `gpu`. True: the native twin that the package
    ///         itself carries, which a rule of `trust` with `"native": true` grants.
    ///     allow_native: The SHA-256 digests, in hexadecimal, of the manifests that you vouch for.
    ///         Their kernels run without a fence and can read and write all memory of the process:
    ///         one that is wrong is undefined behaviour, as in any native extension. Cubins,
    ///         fatbins and CUDA sources need it. `callbox inspect callbox.json` prints the digest,
    ///         and the error for a missing digest names it.
    ///     name: The name that the rules of `trust` are for, or several. None: the path of the
    ///         file, as given and with links resolved, or nothing for bytes.
    ///     bundle: The bundle of signatures of the OpenSSF model-signing format, for the rules of
    ///         `trust`. None: the file beside the module, with `.sig` at the end of its name.
    ///
    /// Returns:
    ///     The module, with its targets as attributes.
    ///
    /// Raises:
    ///     FileNotFoundError: The file does not exist.
    ///     OSError: The path is not a regular file, or cannot be read.
    ///     MemoryError: The process lacks memory, or address space under a limit, for the file.
    ///     ValueError: The module has no targets.
    ///     CallError: The module is invalid. PERMISSION_DENIED if it imports functions that are not
    ///         granted, if native code is not allowed, or if PTX cannot be fenced.
    #[pyo3(signature = (source, *, native=None, allow_native=None, name=None, bundle=None))]
    fn load(
        &self,
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        native: Option<NativeFrom>,
        allow_native: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = argument)] name: Option<trusted::Names>,
        bundle: Option<&[u8]>,
    ) -> PyResult<Module> {
        let _span = trace::span(py, || format!("callbox load {}", label(source)));
        let (path, bytes) = read_module(source, self.0.policy.limits.module_bytes)?;
        let native = Kernels::asked(native, allow_native)?;
        let names = name.map_or_else(|| trusted::names_of(path.as_deref()), Into::into);
        let beside = match (&self.0.trust, bundle) {
            (Some(trust), None) => trusted::bundle_beside(py, trust, &names, path.as_deref())?,
            _ => None,
        };
        let loading = Loading {
            path,
            names,
            bytes,
            bundle: bundle.or(beside.as_deref()),
            native,
        };
        self.finish(py, loading)
    }

    /// The same for contents, which it takes.
    #[pyo3(signature = (contents, *, name, bundle, native, allow_native))]
    fn _load_contents(
        &self,
        py: Python<'_>,
        contents: &Bound<'_, Contents>,
        #[pyo3(from_py_with = argument)] name: trusted::Names,
        bundle: Option<&[u8]>,
        native: Option<NativeFrom>,
        allow_native: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Module> {
        let names: Vec<String> = name.into();
        let _span = trace::span(py, || {
            let shown = names.first().map(Path::new);
            format!(
                "callbox load {}",
                file_label(shown.and_then(Path::file_name))
            )
        });
        let loading = Loading {
            path: None,
            native: Kernels::asked(native, allow_native)?,
            bytes: contents.get().take(),
            names,
            bundle,
        };
        self.finish(py, loading)
    }

    /// Loads the package of a reference: of a registry, of the Hub or at an address.
    #[pyo3(signature = (reference, digest, lock, offline, native, allow_native))]
    #[expect(clippy::too_many_arguments, reason = "the arguments of callbox.load")]
    fn _load_reference(
        &self,
        py: Python<'_>,
        reference: &str,
        digest: Option<String>,
        #[pyo3(from_py_with = argument)] lock: Option<PathBuf>,
        offline: bool,
        native: Option<NativeFrom>,
        allow_native: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Module> {
        let _span = trace::span(py, || "callbox load a reference".to_owned());
        let wanted = Wanted {
            digest,
            lock,
            offline,
        };
        let fetched = reference::fetch(py, &self.0, reference, wanted)?;
        let loading = Loading {
            path: Some(PathBuf::from(fetched.file_name)),
            names: fetched.names,
            bytes: fetched.bytes,
            bundle: fetched.bundle.as_deref(),
            native: Kernels::asked(native, allow_native)?,
        };
        self.finish(py, loading)
    }

    /// Whether a bundle of signatures can satisfy a rule of `trust` for one of these names.
    fn _takes_bundles(&self, #[pyo3(from_py_with = argument)] name: trusted::Names) -> bool {
        let names: Vec<String> = name.into();
        let trust = self.0.trust.as_ref();
        trust.is_some_and(|trust| names.iter().any(|name| trust.takes_bundles(name)))
    }

    /// Counts calls: `calls`, `bytes_in`, `bytes_out`, and `failures` by status code.
    ///
    /// If several hosts have the same policy and load the same file, calls of compiled programs
    /// count for the host that the program was traced with first.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.0.stats.total().to_dict(py, false)
    }

    /// Takes the log messages of guests since the last time: dicts of `level` and `message`.
    ///
    /// Oldest first. The host keeps the newest 1,024 messages that the policy grants.
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

/// A module that was read.
struct Loading<'a> {
    /// The path of its file, for messages.
    path: Option<PathBuf>,
    /// The names for rules about signatures.
    names: Vec<String>,
    bytes: Vec<u8>,
    bundle: Option<&'a [u8]>,
    native: Kernels,
}

impl Host {
    /// Checks a module against the rules, and compiles it.
    fn finish(&self, py: Python<'_>, loading: Loading<'_>) -> PyResult<Module> {
        let Loading {
            path,
            names,
            bytes,
            bundle,
            native,
        } = loading;
        let in_file = |status: Status| match &path {
            Some(path) => status.context(shown_path(path)),
            None => status,
        };
        let checked = py.detach(|| {
            let Some(trust) = &self.0.trust else {
                return Ok(None);
            };
            let _room = room_for_load(bytes.len())?;
            on_enough(|| {
                trusted::check(trust, &names, &bytes, bundle)?;
                trusted::signed_twin(trust, &names, &bytes)
            })
        });
        let signed = or_raise(py, checked.map_err(in_file))?;
        let gpu = &self.0.policy.gpu;
        let loaded = py.detach(|| {
            let manifest = native.manifest();
            let _room = match manifest {
                Some(_) => Some(room_for_load(bytes.len()).map_err(in_file)?),
                None => None,
            };
            let loaded = on_enough(|| native.load(&bytes, signed, gpu));
            // A manifest's errors have its own path.
            let loaded = loaded.map_err(|status| {
                if manifest.is_some() {
                    status
                } else {
                    in_file(status)
                }
            })?;
            if let (Some(trust), Some(native), Some(manifest)) = (&self.0.trust, &loaded, manifest)
            {
                let own = trusted::names_of_native(manifest, &native.module);
                let checked = on_enough(|| {
                    trusted::check(trust, &own, &bytes, bundle)?;
                    trusted::check_native(trust, &[&names[..], &own].concat(), &bytes, native, gpu)
                });
                checked.map_err(in_file)?;
            }
            Ok(loaded)
        });
        let native = or_raise(py, loaded)?;
        let file = path.as_deref().and_then(Path::file_name);
        let compiling = trace::span(py, || format!("callbox compile {}", file_label(file)));
        let (host, name) = (Arc::clone(&self.0), path.clone());
        let core = on_a_thread(py, move || {
            on_enough(|| ModuleCore::new(&host, bytes, name.as_deref(), native))
        })?;
        drop(compiling);
        let core = or_raise(py, core.map_err(in_file))?;
        if core.targets.is_empty() {
            let from = path.map_or_else(String::new, |path| format!("{}: ", shown_path(&path)));
            return Err(PyValueError::new_err(format!(
                "{from}the module has no targets: it exports no function with the type of a target"
            )));
        }
        let core = Arc::new(core);
        registry::note_loaded(&core);
        or_raise(py, idle::watch(&core))?;
        Module::new(py, core)
    }
}

/// Reads the policy, overridden by the other arguments.
///
/// Traps default to explicit. With signals, `faulthandler.enable()` after the first call would
/// install its handler before wasmtime's, and the next access out of bounds would end the process.
fn read_policy(
    py: Python<'_>,
    policy: Option<&Bound<'_, PyAny>>,
    traps: Option<&str>,
    isolation: Option<&str>,
) -> PyResult<Policy> {
    let fields = match policy {
        None => PyDict::new(py),
        Some(policy) => mapping(policy, "a policy")?,
    };
    for (field, value) in [("traps", traps), ("isolation", isolation)] {
        let Some(value) = value else { continue };
        match fields.get_item(field)? {
            Some(known) if !known.eq(value)? => {
                return Err(PyValueError::new_err(format!(
                    "expected one {field}, found {value:?} as an argument and {} in the policy",
                    known.repr()?
                )));
            }
            _ => fields.set_item(field, value)?,
        }
    }
    if !fields.contains("traps")? {
        fields.set_item("traps", "explicit")?;
    }
    let text = json_text(&fields)?;
    or_raise(py, on_enough(|| Policy::from_json(text.as_bytes())))
}

/// A mapping, or the object of JSON text, as a dict.
fn mapping<'py>(given: &Bound<'py, PyAny>, what: &str) -> PyResult<Bound<'py, PyDict>> {
    let py = given.py();
    let read = if given.is_instance_of::<PyString>() || given.is_instance_of::<PyBytes>() {
        py.import("json")?.call_method1("loads", (given,))?
    } else {
        given.clone()
    };
    if !read.is_instance(&py.import("collections.abc")?.getattr("Mapping")?)? {
        return Err(PyTypeError::new_err(format!(
            "expected {what} as a mapping or as JSON text of an object, found {}",
            read.get_type().name()?
        )));
    }
    Ok(py
        .get_type::<PyDict>()
        .call1((read,))?
        .cast_into::<PyDict>()?)
}

fn json_text(fields: &Bound<'_, PyDict>) -> PyResult<String> {
    let json = fields.py().import("json")?;
    json.call_method1("dumps", (fields,))?.extract()
}

/// A module's name in traces: that of its file.
fn label(source: &Bound<'_, PyAny>) -> String {
    let path = argument::<PathBuf>(source).ok();
    file_label(path.as_deref().and_then(Path::file_name))
}

fn file_label(name: Option<&OsStr>) -> String {
    name.map_or_else(
        || "a module".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}
