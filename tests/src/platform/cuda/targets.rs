//! Which of a guest's targets has which twin: the table of `guests/cuda/README.md`.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use callbox::call::TargetModule;
use callbox::cuda::manifest::{Manifest, digest};
use callbox::cuda::{CudaModule, NativeGrants};

use super::{Manner, libraries, twins};
use crate::module::{ModuleSource, repository};

/// The modules of twins, each loaded once.
#[derive(Debug, Default)]
pub(super) struct Targets {
    loaded: Mutex<HashMap<(Source, Manner), Arc<CudaModule>>>,
}

/// Where a guest's twins are from.
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
    /// The module that has a guest's target. For a target that the guest has not, one of its modules, which says so.
    ///
    /// # Errors
    /// A guest without twins; what was not built.
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
            modules.push(self.load(Source::Manifest(folder), Manner::Leaves)?);
        }
        if let Some(libraries) = libraries::of(guest) {
            let manner = libraries::manner_of(target, manner);
            modules.push(self.load(Source::Libraries(libraries.guest), manner)?);
        }
        if twins::GUESTS.contains(&guest) {
            // These are new each time, with counters of their own.
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
            Source::Manifest(folder) => load_manifest(folder)?,
            Source::Libraries(guest) => {
                let libraries = libraries::of(guest).context("expected libraries")?;
                libraries.load(manner)?
            }
        };
        loaded.insert((source, manner), Arc::clone(&module));
        Ok(module)
    }
}

fn load_manifest(folder: &str) -> Result<Arc<CudaModule>> {
    let path = repository()
        .join("guests")
        .join(folder)
        .join("callbox.json");
    let bytes = read(&path)?;
    let images = Manifest::parse(std::str::from_utf8(&bytes)?)?.images;
    let images = images
        .iter()
        .map(|image| read(&path.with_file_name(&image.file)))
        .collect::<Result<Vec<Vec<u8>>>>()?;
    let slices: Vec<&[u8]> = images.iter().map(Vec::as_slice).collect();
    let grants = NativeGrants::none().allow(digest(&bytes, &slices));
    Ok(CudaModule::load_manifest(&path, &grants)?)
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}
