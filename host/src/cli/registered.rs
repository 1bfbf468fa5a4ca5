//! The registry of a command line, and which file each name in it comes from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callbox::call::TargetModule;
use callbox::cuda;
use callbox::graph_launch::{self, GraphLaunch};
use callbox::{Platform, Registry, Result, Status, StatusCode};

use super::failure::Outcome;

/// A registry, and which file each name in it comes from.
pub(super) struct Registered {
    registry: Registry,
    files: BTreeMap<String, PathBuf>,
}

impl Registered {
    /// With callbox's own target for a platform: `callbox.graph.launch`.
    pub(super) fn new(platform: Platform) -> Result<Self> {
        let launch: Arc<dyn TargetModule> = match platform {
            Platform::Host => GraphLaunch::on_host(),
            Platform::Cuda => cuda::GraphLaunch::default().module()?,
        };
        let mut registry = Registry::new();
        registry.register_module(launch)?;
        let files = BTreeMap::from([(graph_launch::NAME.to_owned(), "callbox itself".into())]);
        Ok(Self { registry, files })
    }

    /// Registers a module's target by a name.
    pub(super) fn target(
        &mut self,
        file: &Path,
        module: &Arc<dyn TargetModule>,
        name: &str,
        export: &str,
    ) -> Outcome<()> {
        let registered = self.registry.register(name, Arc::clone(module), export);
        match registered {
            Ok(()) => {
                let known = self.files.entry(name.to_owned());
                known.or_insert_with(|| file.to_owned());
                Ok(())
            }
            Err(status) if status.code() == StatusCode::AlreadyExists => {
                let known = self.files.get(name).map_or(file, PathBuf::as_path);
                let message = format!(
                    "expected the target {name:?} to be of one module, found it in {} and as \
                     {export:?} in {}",
                    known.display(),
                    file.display()
                );
                Err(Status::new(StatusCode::AlreadyExists, status.blame(), message).into())
            }
            Err(status) => Err(status.context(file.display()).into()),
        }
    }

    /// Registers each target of a module by its own name.
    pub(super) fn module(&mut self, file: &Path, module: &Arc<dyn TargetModule>) -> Outcome<()> {
        let mut targets = module.targets().iter();
        targets.try_for_each(|target| self.target(file, module, &target.name, &target.name))
    }

    pub(super) fn into_registry(self) -> Registry {
        self.registry
    }
}
