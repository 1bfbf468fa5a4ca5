//! The twins of a guest's targets, as the table in `guests/cuda/README.md` lists them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use callbox::call::TargetModule;
use callbox::cuda::{CudaModule, NativeGrants};
use callbox::policy::Gpu;

use super::{Manner, libraries, trusted, twins};
use crate::module::{ModuleSource, repository};

/// The modules of twins, each loaded once.
#[derive(Debug, Default)]
pub(super) struct Targets {
    loaded: Mutex<HashMap<(Source, Manner), Arc<CudaModule>>>,
}

/// The origin of a guest's twins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Source {
    /// A folder of `guests` with a manifest.
    Manifest(&'static str),
    /// The libraries of this guest.
    Libraries(&'static str),
}

/// Guests, and the folders with their manifests.
const MANIFESTS: [(&str, &str); 6] = [
    ("add_n", "add_n"),
    ("broadcast_add", "broadcast_add"),
    ("softmax", "softmax"),
    ("typed_ffi", "typed_ffi"),
    ("faults", "faults"),
    ("conventions", "c"),
];

impl Targets {
    /// Whether a guest's target is one of a manifest.
    ///
    /// # Errors
    /// What is wrong with the manifest.
    pub(super) fn has_kernels(&self, guest: &str, target: &str) -> Result<bool> {
        let Some((_, folder)) = MANIFESTS.iter().find(|(name, _)| *name == guest) else {
            return Ok(false);
        };
        let module = self.load(Source::Manifest(folder), Manner::Leaves)?;
        Ok(module.targets().iter().any(|found| found.name == target))
    }

    /// The module with a guest's target. For an unknown target, one of its modules, which reports
    /// it.
    ///
    /// # Errors
    /// A guest without twins, or one that was not built.
    pub(super) fn module(
        &self,
        source: &ModuleSource,
        target: &str,
        manner: Manner,
    ) -> Result<Arc<CudaModule>> {
        let Some(guest) = source.guest() else {
            bail!("expected a guest, found a WebAssembly module");
        };
        let mut modules = Vec::new();
        if let Some((_, folder)) = MANIFESTS.iter().find(|(name, _)| *name == guest) {
            let manner = match manner {
                Manner::Fenced => Manner::Fenced,
                _ => Manner::Leaves,
            };
            modules.push(self.load(Source::Manifest(folder), manner)?);
        }
        if let Some(libraries) = libraries::of(guest) {
            let manner = libraries::manner_of(target, manner);
            modules.push(self.load(Source::Libraries(libraries.guest), manner)?);
        }
        if twins::GUESTS.contains(&guest) {
            // New each time, so that they have new counters.
            modules.push(CudaModule::from_targets(twins::of(guest)?)?);
        }
        let has = |module: &&Arc<CudaModule>| module.targets().iter().any(|t| t.name == target);
        let module = modules.iter().find(has).or(modules.first());
        module
            .cloned()
            .with_context(|| format!("expected a guest with twins, found {guest:?}"))
    }

    fn load(&self, source: Source, manner: Manner) -> Result<Arc<CudaModule>> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = loaded.get(&(source, manner)) {
            return Ok(Arc::clone(module));
        }
        let module = match source {
            Source::Manifest(folder) => {
                let path = repository()
                    .join("guests")
                    .join(folder)
                    .join("callbox.json");
                if manner == Manner::Fenced {
                    let none = NativeGrants::none();
                    CudaModule::load_manifest(&path, &none, &Gpu::default())?
                } else {
                    trusted::manifest(&path)?
                }
            }
            Source::Libraries(guest) => {
                let libraries = libraries::of(guest).context("expected libraries")?;
                libraries.load(manner)?
            }
        };
        loaded.insert((source, manner), Arc::clone(&module));
        Ok(module)
    }
}
