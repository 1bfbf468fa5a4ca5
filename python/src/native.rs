//! The CUDA kernels beside a module: native code, by grant.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use callbox::call::{CallSite, TargetModule};
use callbox::cuda::{CudaDevice, CudaModule, NativeGrants};
use callbox::{CallOptions, Status};

use crate::module::SiteKey;
use crate::xla::Launches;

/// How many call sites are kept ready. Past it all make way: whoever calls with ever other attributes would fill the memory.
const MOST_SITES: usize = 256;

/// Targets on the platform CUDA.
pub(crate) struct Native {
    pub(crate) module: Arc<CudaModule>,
    /// What was granted.
    pub(crate) digest: String,
    /// Call sites of programs, ready to be launched on any device.
    sites: Mutex<HashMap<SiteKey, Arc<Launches>>>,
}

impl Native {
    pub(crate) fn load(path: &Path, digests: &[String]) -> callbox::Result<Self> {
        let mut grants = NativeGrants::none();
        for digest in digests {
            grants = grants.allow_hex(digest)?;
        }
        let module = CudaModule::load_manifest(path, &grants)?;
        // What was granted is what the module is known by.
        let digest = module.identity().trim_start_matches("sha256:").to_owned();
        Ok(Self {
            module,
            digest,
            sites: Mutex::default(),
        })
    }

    /// Whether it has a target of this name.
    pub(crate) fn has(&self, target: &str) -> bool {
        self.module.targets().iter().any(|t| t.name == target)
    }

    /// The traits of its target of this name.
    pub(crate) fn traits(&self, target: &str) -> Option<&[String]> {
        let mut targets = self.module.targets().iter();
        let target = targets.find(|t| t.name == target)?;
        Some(&target.traits)
    }

    /// A call site of a program, ready to be launched. Each is laid out once.
    pub(crate) fn launches(
        &self,
        key: SiteKey,
        make: impl FnOnce(&Arc<CudaModule>) -> callbox::Result<Launches>,
    ) -> callbox::Result<Arc<Launches>> {
        let sites = || self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ready) = sites().get(&key) {
            return Ok(Arc::clone(ready));
        }
        let ready = Arc::new(make(&self.module)?);
        let mut sites = sites();
        if sites.len() >= MOST_SITES {
            sites.clear();
        }
        Ok(Arc::clone(sites.entry(key).or_insert(ready)))
    }

    /// Calls a target with arrays in the host's memory, which are copied to the first device and back.
    pub(crate) fn call(
        &self,
        site: CallSite,
        options: &CallOptions,
        operands: &[&[u8]],
        results: &mut [&mut [u8]],
    ) -> callbox::Result<()> {
        let device = kept(CudaDevice::open(0)?);
        let call = self.module.prepare_call(&device, site)?;
        call.call_with(options, operands, results)
    }
}

/// Keeps a device open for as long as the process lives, with the kernels that were loaded on it: the next call finds them there, and so do XLA's graphs, of which
/// nobody here knows when they are launched.
pub(crate) fn kept(device: Arc<CudaDevice>) -> Arc<CudaDevice> {
    static KEPT: Mutex<BTreeMap<usize, Arc<CudaDevice>>> = Mutex::new(BTreeMap::new());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(kept.entry(device.ordinal()).or_insert(device))
}

/// What says that a target has no kernels.
pub(crate) fn missing(target: &str) -> Status {
    Status::not_found(format!(
        "target {target:?}: expected a CUDA kernel of that name, found none: load the module with native=, its manifest, and allow_native="
    ))
}
