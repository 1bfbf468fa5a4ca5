//! The registry of a command line, with the file of each name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callbox::call::TargetModule;
use callbox::graph_launch;
use callbox::traced::{TARGET, TARGET_COMMAND_BUFFER, TracedCalls};
use callbox::{Blame, Platform, Registry, Result, Status, StatusCode};

use super::failure::Outcome;
use super::output;

/// The name of `callbox.graph.launch` in "RFC: Cuda Graphs support in XLA".
const XLA_LAUNCH: &str = "xla.graph.launch";

/// The names of targets that callbox itself has.
const OWN: [&str; 3] = [graph_launch::NAME, TARGET, TARGET_COMMAND_BUFFER];

/// The most names of targets in folders that the program does not call.
const MOST_UNCALLED: usize = 4096;

/// A registry, with the file of each name for messages.
pub(super) struct Registered {
    registry: Registry,
    launch: Arc<dyn TargetModule>,
    files: BTreeMap<String, PathBuf>,
    /// The names that only programs that call them fail for.
    refused: BTreeSet<String>,
    /// The number of names of targets that the program does not call.
    uncalled: usize,
}

impl Registered {
    /// A registry with a platform's own target, `callbox.graph.launch`.
    pub(super) fn new(launch: Arc<dyn TargetModule>) -> Result<Self> {
        let mut registry = Registry::new();
        registry.register_module(Arc::clone(&launch))?;
        let files = OWN.map(|name| (name.to_owned(), "callbox itself".into()));
        Ok(Self {
            registry,
            launch,
            files: files.into(),
            refused: BTreeSet::new(),
            uncalled: 0,
        })
    }

    /// Registers a module's target that the command line names.
    pub(super) fn target(
        &mut self,
        file: &Path,
        module: &Arc<dyn TargetModule>,
        name: &str,
        export: &str,
    ) -> Outcome<()> {
        Ok(self.register(file, module, name, export)?)
    }

    /// Registers a target of a module in a folder, which `load` loads. Without it the program does
    /// not call the target, whose name is kept for messages, as one of a few thousand.
    ///
    /// If the module cannot be loaded, or the name is taken, only programs that call the target
    /// fail. Returns whether it was registered, and not by another copy of its file before.
    pub(super) fn target_in_folder(
        &mut self,
        file: &Path,
        name: &str,
        load: Option<impl FnOnce() -> Outcome<Arc<dyn TargetModule>>>,
    ) -> bool {
        if OWN.contains(&name) || name == XLA_LAUNCH {
            // No file in the folder is to fail the calls of callbox's own.
            let file = file.display();
            output::warn(&format!(
                "{file}: its target {name:?} is left out: it is callbox's own"
            ));
            return false;
        }
        if self.refused.contains(name) {
            return false;
        }
        let Some(load) = load else {
            if self.uncalled < MOST_UNCALLED && !self.registry.has(name, Platform::Host) {
                self.uncalled += 1;
                let status = Status::not_found("the program does not call the target");
                self.registry.refuse(name, Platform::Host, status);
            }
            return false;
        };
        let is_new = !self.files.contains_key(name);
        let registered = match load() {
            Ok(module) => self.register(file, &module, name, name),
            Err(_) if self.files.contains_key(name) => Err(self.taken(file, name)),
            Err(failure) => Err(failure.status().clone()),
        };
        if let Err(status) = registered {
            self.registry.refuse(name, Platform::Host, status);
            self.refused.insert(name.to_owned());
            return false;
        }
        is_new
    }

    fn register(
        &mut self,
        file: &Path,
        module: &Arc<dyn TargetModule>,
        name: &str,
        export: &str,
    ) -> Result<()> {
        let registered = self.registry.register(name, Arc::clone(module), export);
        registered.map_err(|status| {
            if status.code() == StatusCode::AlreadyExists {
                self.taken(file, name)
            } else {
                status.context(file.display())
            }
        })?;
        let known = self.files.entry(name.to_owned());
        known.or_insert_with(|| file.to_owned());
        Ok(())
    }

    /// Registers the target of traced programs.
    pub(super) fn traced(&mut self, calls: TracedCalls) -> Result<()> {
        self.registry.register_module(Arc::new(calls))
    }

    /// Fails traced programs, whose modules the command line does not name.
    pub(super) fn without_traced(&mut self, status: &Status) {
        for name in [TARGET, TARGET_COMMAND_BUFFER] {
            self.registry.refuse(name, Platform::Host, status.clone());
        }
    }

    /// The failure of a second target of this name.
    fn taken(&self, file: &Path, name: &str) -> Status {
        let known = self.files.get(name).map_or(file, PathBuf::as_path);
        let message = format!(
            "two modules have the target {name:?}: {} and {}",
            known.display(),
            file.display()
        );
        Status::new(StatusCode::AlreadyExists, Blame::Caller, message)
    }

    /// Registers each target of a module by its own name.
    #[cfg(feature = "cuda")]
    pub(super) fn module(&mut self, file: &Path, module: &Arc<dyn TargetModule>) -> Outcome<()> {
        let mut targets = module.targets().iter();
        targets.try_for_each(|target| self.target(file, module, &target.name, &target.name))
    }

    /// The registry, in which `xla.graph.launch` is `callbox.graph.launch` unless a module has a
    /// target of that name.
    pub(super) fn into_registry(mut self) -> Result<Registry> {
        let platform = self.launch.platform();
        if self.registry.names(platform).all(|name| name != XLA_LAUNCH) {
            let launch = graph_launch::NAME;
            self.registry.register(XLA_LAUNCH, self.launch, launch)?;
        }
        Ok(self.registry)
    }
}
