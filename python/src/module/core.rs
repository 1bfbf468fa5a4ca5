//! A module as its Python objects and compiled programs share it.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use callbox::CallOptions;
use callbox::call::{CallSite, Mapping, Signature};
use callbox::policy::Grants;
use callbox::traced::module_key;
use callbox::wasm::{CompiledIn, ModuleFile, PerProcess, PreparedCall, room_for_load};
use callbox::{ArrayShape, Blame, Status, StatusCode};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::loaded::Loaded;
use super::sites::{Found, SiteKey};
use crate::error::or_raise;
use crate::host::HostCore;
use crate::native::Native;
use crate::shadow::Shadow;
use crate::site::{LateRuns, Origin, Ready, Shapes, SiteText};
use crate::stats::{Counted, Stats};

/// A module, shared by its Python objects and by compiled programs.
pub(crate) struct ModuleCore {
    host: Arc<HostCore>,
    pub(super) file: ModuleFile,
    pub(crate) sha256: String,
    /// The key of the module in programs: a digest of file, policy and native code.
    pub(crate) key: String,
    pub(crate) targets: Vec<TargetInfo>,
    /// The distinct grants of the targets.
    grants: Vec<Grants>,
    pub(crate) native: Option<Native>,
    /// The calls of native code that also run as wasm.
    pub(crate) shadow: Option<Arc<Shadow>>,
    pub(crate) late: Arc<LateRuns>,
    /// The module as loaded in this process. None once it is closed.
    loaded: PerProcess<RwLock<Option<Arc<Loaded>>>>,
    is_closed: AtomicBool,
}

/// The counters that are made when they are first asked for. A child that is forked while another
/// thread makes them must not wait for that thread, so that making them is no part of the lock.
fn counters(known: &OnceLock<Arc<Stats>>, make: impl FnOnce() -> Arc<Stats>) -> &Arc<Stats> {
    known.get().unwrap_or_else(|| {
        let made = make();
        known.get_or_init(|| made)
    })
}

fn read(loaded: &RwLock<Option<Arc<Loaded>>>) -> Option<Arc<Loaded>> {
    loaded
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

fn free(loaded: &RwLock<Option<Arc<Loaded>>>) {
    let mut loaded = loaded.write().unwrap_or_else(PoisonError::into_inner);
    let freed = loaded.take();
    // Without the lock: dropping a module takes time.
    drop(loaded);
    drop(freed);
}

/// A target of a module.
pub(crate) struct TargetInfo {
    /// The index of its grants in [`ModuleCore::grants`].
    group: usize,
    /// The counters, once it was called. They stay with the host, and a module can have thousands
    /// of targets.
    stats: OnceLock<Arc<Stats>>,
    /// The counters of its native code.
    native_stats: OnceLock<Arc<Stats>>,
}

impl ModuleCore {
    /// The options of a call that its site is first prepared for, with its time begun.
    pub(crate) fn begun(&self, options: &CallOptions) -> CallOptions {
        options.begun_under(Some(&self.host.policy))
    }

    pub(crate) fn new(
        host: &Arc<HostCore>,
        bytes: Vec<u8>,
        name: Option<&Path>,
        native: Option<Native>,
    ) -> callbox::Result<Self> {
        let room = room_for_load(bytes.len())?;
        let mut file = ModuleFile::read(bytes, &host.policy.limits)?;
        drop(room);
        if let Some(name) = name.and_then(Path::file_name) {
            file = file.named(&name.to_string_lossy());
        }
        let info = file.info();
        let mut grants: Vec<Grants> = Vec::new();
        let mut targets = Vec::new();
        for signature in &info.targets {
            let own = host.policy.grants_for(&signature.name, &info.sha256)?;
            let group = grants.iter().position(|known| known == own);
            let group = group.unwrap_or_else(|| {
                grants.push(own.clone());
                grants.len() - 1
            });
            targets.push(TargetInfo {
                group,
                stats: OnceLock::new(),
                native_stats: OnceLock::new(),
            });
        }
        let shadow = native.as_ref().zip(host.policy.shadow);
        let shadow = shadow.map(|(native, policy)| Shadow::new(policy, &file, native));
        let identity = native.as_ref().map_or("", Native::identity);
        let key = module_key(&info.sha256, identity, &host.policy)?;
        let loaded = Loaded::new(&host.engine()?, &file, &grants)?;
        Ok(Self {
            host: Arc::clone(host),
            sha256: info.sha256.clone(),
            file,
            key,
            targets,
            grants,
            shadow: shadow.transpose()?.map(Arc::new),
            native,
            late: Arc::new(LateRuns::new(&host.policy)),
            loaded: PerProcess::new(RwLock::new(Some(Arc::new(loaded)))),
            is_closed: AtomicBool::new(false),
        })
    }

    /// The module, if it is open and was loaded in this process.
    pub(crate) fn loaded_here(&self) -> Option<Arc<Loaded>> {
        let loaded = self.loaded.of_this_process()?;
        read(loaded)
    }

    /// Returns the module in this process. A forked child loads it again.
    pub(crate) fn loaded(&self) -> callbox::Result<Arc<Loaded>> {
        self.check_open()?;
        let loaded = self.loaded.get_or_make(|| {
            let loaded = Loaded::new(&self.host.engine()?, &self.file, &self.grants)?;
            Ok::<_, Status>(RwLock::new(Some(Arc::new(loaded))))
        })?;
        if !self.is_open() {
            // It was closed meanwhile, when this one was not there to be freed.
            free(loaded);
        }
        read(loaded).ok_or_else(|| self.closed())
    }

    /// Frees the code and the call sites. Calls that run now keep them until they end.
    pub(crate) fn close(self: &Arc<Self>) {
        self.is_closed.swap(true, Ordering::SeqCst);
        // Programs go on with another module of its key.
        crate::registry::forget(self);
        if let Some(loaded) = self.loaded.of_this_process() {
            free(loaded);
        }
    }

    /// # Errors
    /// FAILED_PRECONDITION if the module is closed.
    pub(crate) fn check_open(&self) -> callbox::Result<()> {
        if self.is_open() {
            Ok(())
        } else {
            Err(self.closed())
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.is_closed.load(Ordering::SeqCst)
    }

    #[cold]
    fn closed(&self) -> Status {
        let message = format!("{}: the module is closed", self.label());
        Status::new(StatusCode::FailedPrecondition, Blame::Caller, message)
    }

    /// The host.
    pub(crate) fn host(&self) -> &Arc<HostCore> {
        &self.host
    }

    /// Where the module was compiled, in this process.
    pub(super) fn compiled_in(&self) -> callbox::Result<&'static str> {
        let loaded = self.loaded()?;
        let module = loaded.modules.first();
        Ok(match module.map(|module| module.compiled_in()) {
            Some(CompiledIn::Cache) => "cache",
            Some(CompiledIn::Process) => "process",
            Some(CompiledIn::ThisProcess(_)) | None => "this_process",
        })
    }

    /// The name of the file in messages.
    pub(crate) fn label(&self) -> String {
        self.file.label()
    }

    /// The arguments of `callbox._pickling.module`, which finds the same module when unpickled.
    pub(crate) fn identity<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let policy = or_raise(py, self.host.policy.to_json())?;
        (&self.key, &self.sha256, self.label(), policy).into_pyobject(py)
    }

    /// Prepares a call site of a target without keeping it.
    pub(crate) fn prepare_alone(
        &self,
        target: usize,
        site: CallSite,
        mapping: &Mapping,
    ) -> callbox::Result<PreparedCall> {
        let loaded = self.loaded()?;
        let module = &loaded.modules[self.targets[target].group];
        module.prepare_mapped(site, mapping)
    }

    /// The index of the target with this name.
    pub(crate) fn target(&self, name: &str) -> Option<usize> {
        self.signatures()
            .iter()
            .position(|target| target.name == name)
    }

    /// The signatures of the targets.
    pub(crate) fn signatures(&self) -> &[Signature] {
        &self.file.info().targets
    }

    /// Checks the sizes of new arrays for results that the module declares: no limit on the guest
    /// bounds them where its target gets pieces.
    pub(crate) fn check_declared(
        &self,
        target: &Signature,
        operands: &[ArrayShape],
        new: impl Iterator<Item = usize>,
    ) -> callbox::Result<()> {
        /// The bytes of results for each byte of the operands, beyond an instance's memory.
        const RATIO: usize = 16;
        let operands = operands.iter().map(ArrayShape::byte_size);
        let given = operands.fold(0, usize::saturating_add);
        let memory = self.host.policy.limits.memory_bytes;
        let most = memory.saturating_add(given.saturating_mul(RATIO));
        let found = new.fold(0, usize::saturating_add);
        if found <= most {
            return Ok(());
        }
        Err(Status::new(
            StatusCode::ResourceExhausted,
            Blame::Guest,
            format!(
                "{}(): expected declared results of at most {most} bytes (`memory_bytes`, and \
                 {RATIO} times the operands), found {found}: pass out= or result_shape_dtypes=",
                target.name
            ),
        ))
    }

    /// The counters of a target.
    pub(crate) fn stats(&self, target: usize) -> &Arc<Stats> {
        let stats = &self.targets[target].stats;
        counters(stats, || self.counted(target, "Host"))
    }

    /// The counters of a target's native code, or of the target if it has none.
    pub(crate) fn native_stats(&self, target: usize) -> &Arc<Stats> {
        if self.native.is_none() {
            return self.stats(target);
        }
        let stats = &self.targets[target].native_stats;
        counters(stats, || self.counted(target, "CUDA"))
    }

    #[cold]
    fn counted(&self, target: usize, platform: &'static str) -> Arc<Stats> {
        self.host.stats.of(Counted {
            module: self.label(),
            sha256: self.sha256.clone(),
            target: self.signatures()[target].name.clone(),
            platform,
        })
    }

    /// Returns a call site that is ready to be called. The first call prepares it, within
    /// `options`, or only its attributes if another one of its family is ready.
    pub(crate) fn ready(
        &self,
        loaded: &Loaded,
        key: SiteKey,
        text: SiteText<'_>,
        shapes: &Shapes,
        options: &CallOptions,
    ) -> callbox::Result<Arc<Ready>> {
        let found = loaded.sites().find(&key);
        let relative = match found {
            Found::Same(ready) => return Ok(ready),
            Found::Relative(relative) => relative,
        };
        let varied = relative.map(|relative| relative.with_attributes(text));
        let ready = match varied.transpose()?.flatten() {
            Some(ready) => ready,
            None => {
                let target = &self.targets[key.family.target];
                let origin = Origin {
                    module: &loaded.modules[target.group],
                    file: &self.file,
                    host: &self.host,
                    stats: self.stats(key.family.target),
                    late: &self.late,
                };
                Ready::new(
                    &origin,
                    &self.signatures()[key.family.target].name,
                    text,
                    shapes,
                    key.family.passage,
                    options,
                )?
            }
        };
        let (ready, gone) = loaded.sites().keep(key, Arc::new(ready));
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
