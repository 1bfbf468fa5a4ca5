//! Modules, with their targets as attributes.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use callbox::call::Signature;
use callbox::policy::Grants;
use callbox::wasm::{self, Engine, inspect};
use pyo3::exceptions::{PyAttributeError, PyKeyError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyList, PyMappingProxy};
use sha2::{Digest, Sha256};

use crate::host::{HostCore, read, replace};
use crate::native::Native;
use crate::site::{CallText, Passage, Ready, Shapes, to_hex};
use crate::stats::Stats;
use crate::targets::Target;

/// How many call sites of a module are kept ready. Past it the oldest make way: whoever calls with ever other shapes or attributes would fill the
/// memory.
const MOST_SITES: usize = 256;

/// How many bytes the arenas of a module's call sites may have together, and texts of attributes with them. Past it the oldest make way, but for the one
/// that comes last.
const MOST_BYTES: usize = 512 << 20;

/// Texts of attributes longer than this are known by their digest.
const LONG: usize = 4 << 10;

/// A module, for all who have it.
pub(crate) struct ModuleCore {
    host: Arc<HostCore>,
    bytes: Vec<u8>,
    pub(crate) sha256: String,
    /// What programs know it by: file, policy and native code.
    pub(crate) key: String,
    pub(crate) targets: Vec<TargetInfo>,
    /// What the targets may reach, each once.
    grants: Vec<Grants>,
    pub(crate) native: Option<Native>,
    loaded: RwLock<Arc<Loaded>>,
}

/// One of its targets.
pub(crate) struct TargetInfo {
    pub(crate) signature: Signature,
    /// What it may reach: a number of [`ModuleCore::grants`].
    group: usize,
}

/// The module in one process: not in one that was forked from it.
pub(crate) struct Loaded {
    engine: Engine,
    /// For each set of grants.
    modules: Vec<Arc<wasm::Module>>,
    sites: Mutex<Sites>,
}

/// Call sites, ready to be called.
#[derive(Default)]
struct Sites {
    ready: HashMap<SiteKey, Arc<Ready>>,
    /// The oldest first.
    order: VecDeque<SiteKey>,
    bytes: usize,
}

impl Sites {
    /// Keeps a call site, and gives it, or the one that somebody else made meanwhile. What made way is given, too: it takes time to go.
    fn keep(&mut self, key: SiteKey, ready: Arc<Ready>) -> (Arc<Ready>, Vec<Arc<Ready>>) {
        if let Some(known) = self.ready.get(&key) {
            return (Arc::clone(known), vec![ready]);
        }
        self.bytes = self.bytes.saturating_add(ready.bytes());
        let mut gone = Vec::new();
        while self.order.len() >= MOST_SITES || self.bytes > MOST_BYTES {
            let Some(oldest) = self.order.pop_front() else {
                break;
            };
            if let Some(oldest) = self.ready.remove(&oldest) {
                self.bytes = self.bytes.saturating_sub(oldest.bytes());
                gone.push(oldest);
            }
        }
        self.order.push_back(key.clone());
        self.ready.insert(key, Arc::clone(&ready));
        (ready, gone)
    }
}

/// A text by which something is known, or its digest if it is long.
pub(crate) fn short(text: &str) -> String {
    match text.len() > LONG {
        true => format!("sha256 {}", to_hex(&Sha256::digest(text))),
        false => text.to_owned(),
    }
}

/// What tells call sites of a module apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SiteKey {
    pub(crate) target: usize,
    /// The call's text as JSON, and the attributes as MLIR has them, or their digest.
    pub(crate) call: String,
    pub(crate) attributes: String,
    /// Element types and dimensions of operands, then results.
    pub(crate) arrays: Vec<(u8, Vec<usize>)>,
    pub(crate) passage: Passage,
}

impl SiteKey {
    pub(crate) fn arrays(shapes: &Shapes) -> Vec<(u8, Vec<usize>)> {
        let all = shapes.operands.iter().chain(&shapes.results);
        all.map(|shape| (shape.element_type().number(), shape.dimensions().to_vec()))
            .collect()
    }
}

impl Loaded {
    fn new(engine: Engine, bytes: &[u8], grants: &[Grants]) -> callbox::Result<Self> {
        let modules = grants.iter().map(|grants| engine.load_with(bytes, grants));
        Ok(Self {
            modules: modules.collect::<callbox::Result<_>>()?,
            engine,
            sites: Mutex::default(),
        })
    }
}

impl ModuleCore {
    pub(crate) fn new(
        host: &Arc<HostCore>,
        bytes: Vec<u8>,
        native: Option<Native>,
    ) -> callbox::Result<Self> {
        let info = inspect(&bytes, &host.policy.limits)?;
        let mut grants: Vec<Grants> = Vec::new();
        let mut targets = Vec::new();
        for signature in info.targets {
            let own = host.policy.grants_for(&signature.name, &info.sha256)?;
            let group = grants.iter().position(|known| known == own);
            let group = group.unwrap_or_else(|| {
                grants.push(own.clone());
                grants.len() - 1
            });
            targets.push(TargetInfo { signature, group });
        }
        let key = key(&info.sha256, host, native.as_ref())?;
        let loaded = Loaded::new(host.engine()?, &bytes, &grants)?;
        Ok(Self {
            host: Arc::clone(host),
            bytes,
            sha256: info.sha256,
            key,
            targets,
            grants,
            native,
            loaded: RwLock::new(Arc::new(loaded)),
        })
    }

    /// The module in this process. In a forked child it is loaded anew.
    pub(crate) fn loaded(&self) -> callbox::Result<Arc<Loaded>> {
        let known = read(&self.loaded, "the module")?;
        if known.engine.is_of_this_process() {
            return Ok(known);
        }
        let loaded = Loaded::new(self.host.engine()?, &self.bytes, &self.grants)?;
        let loaded = Arc::new(loaded);
        replace(&self.loaded, &loaded, "the module")?;
        Ok(loaded)
    }

    /// What counts the host's calls.
    pub(crate) fn stats(&self) -> &Arc<Stats> {
        &self.host.stats
    }

    /// The number of the target of this name.
    pub(crate) fn target(&self, name: &str) -> Option<usize> {
        self.targets
            .iter()
            .position(|target| target.signature.name == name)
    }

    /// A call site, ready to be called. Each is laid out once.
    pub(crate) fn ready(
        &self,
        loaded: &Loaded,
        key: SiteKey,
        said: (&CallText, &str),
        shapes: &Shapes,
    ) -> callbox::Result<Arc<Ready>> {
        let sites = || loaded.sites.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ready) = sites().ready.get(&key) {
            return Ok(Arc::clone(ready));
        }
        let target = &self.targets[key.target];
        let ready = Arc::new(Ready::new(
            &loaded.modules[target.group],
            &target.signature.name,
            said,
            shapes,
            key.passage,
            &self.host.stats,
        )?);
        let (ready, gone) = sites().keep(key, ready);
        drop(gone);
        Ok(ready)
    }
}

impl fmt::Debug for ModuleCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModuleCore")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// The digest of all that decides what a call of one of the module's targets does.
fn key(sha256: &str, host: &HostCore, native: Option<&Native>) -> callbox::Result<String> {
    let policy = host.policy.to_json()?;
    let native = native.map_or("", |native| native.digest.as_str());
    let digest = Sha256::new()
        .chain_update(sha256)
        .chain_update("\0")
        .chain_update(native)
        .chain_update("\0")
        .chain_update(policy)
        .finalize();
    Ok(to_hex(&digest))
}

/// A loaded module. Its targets are attributes, `module.add_n`, and items, `module["add_n"]`, for names that Python has no attributes for.
#[pyclass(frozen, mapping, module = "callbox")]
pub(crate) struct Module {
    core: Arc<ModuleCore>,
    targets: Py<PyDict>,
}

impl Module {
    pub(crate) fn new(py: Python<'_>, core: Arc<ModuleCore>) -> PyResult<Self> {
        let targets = PyDict::new(py);
        for (number, target) in core.targets.iter().enumerate() {
            targets.set_item(&target.signature.name, Target::new(&core, number))?;
        }
        Ok(Self {
            core,
            targets: targets.unbind(),
        })
    }
}

#[pymethods]
impl Module {
    /// The file's SHA-256, in hexadecimal.
    #[getter]
    fn digest(&self) -> &str {
        &self.core.sha256
    }

    /// The digest, in hexadecimal, of the file, the policy and the native code: what programs know the module by.
    #[getter]
    fn key(&self) -> &str {
        &self.core.key
    }

    /// The digest of the manifest that the CUDA kernels come from, if there is one.
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

    /// Has programs find the module that were made in another process, and exported or cached: they know it by its key. It stays for as long as
    /// the process lives. A module that a program of this process was traced with needs no registering.
    fn register(&self) {
        crate::registry::keep(&self.core);
    }

    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let target = self.targets.bind(py).get_item(name)?;
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
        let names = py
            .get_type::<PyAny>()
            .call_method1("__dir__", (slf,))?
            .cast_into::<PyList>()?;
        for name in slf.get().targets.bind(py).keys() {
            names.append(name)?;
        }
        Ok(names)
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
        let names: Vec<_> = self.names().collect();
        let digest = &self.core.sha256[..12];
        format!("<callbox.Module {digest} with {}>", names.join(", "))
    }
}

impl Module {
    fn names(&self) -> impl Iterator<Item = &str> {
        let targets = self.core.targets.iter();
        targets.map(|target| target.signature.name.as_str())
    }

    fn unknown(&self, name: &str) -> String {
        const MOST: usize = 8;
        let names: Vec<_> = self.names().take(MOST).collect();
        let more = self.core.targets.len().saturating_sub(MOST);
        let more = match more {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!(
            "expected a target of the module ({}{more}), found {name:?}",
            names.join(", ")
        )
    }
}
