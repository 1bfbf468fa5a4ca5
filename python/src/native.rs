//! The CUDA kernels of a module: fenced PTX, or native code, which needs a grant.
#![allow(
    unsafe_code,
    reason = "grants native code that the caller in Python vouches for"
)]

mod kernels;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use callbox::call::{CallSite, TargetModule};
use callbox::cuda::{CudaDevice, CudaModule, NativeGrants};
use callbox::policy::Gpu;
use callbox::{CallOptions, Status};
use callbox_cli::packages;

pub(crate) use self::kernels::{Kernels, NativeFrom};
use crate::module::SiteKey;
use crate::xla::Launches;

/// The maximum number of call sites. The cache is cleared when full, so that calls with ever new
/// attributes do not fill the memory.
const MOST_SITES: usize = 256;

/// The targets for the platform CUDA.
pub(crate) struct Native {
    pub(crate) module: Arc<CudaModule>,
    /// The digest of the manifest with its images.
    pub(crate) digest: String,
    /// The grants that it was loaded with.
    pub(crate) grants: NativeGrants,
    /// The call sites of programs, ready to be launched on any device.
    sites: Mutex<HashMap<SiteKey, Arc<Launches>>>,
}

impl Native {
    /// Loads the kernels that a manifest in a file describes.
    pub(crate) fn load(path: &Path, grants: NativeGrants, gpu: &Gpu) -> callbox::Result<Self> {
        let module = CudaModule::load_manifest(path, &grants, gpu)?;
        Ok(Self::new(module, grants))
    }

    /// Loads the kernels that a package carries.
    pub(crate) fn carried(
        package: &[u8],
        grants: NativeGrants,
        gpu: &Gpu,
    ) -> callbox::Result<Self> {
        let module = packages::load_twin(package, &grants, gpu)?;
        Ok(Self::new(module, grants))
    }

    fn new(module: Arc<CudaModule>, grants: NativeGrants) -> Self {
        let identity = module.identity();
        let digest = identity.rsplit(':').next().unwrap_or(identity).to_owned();
        Self {
            module,
            digest,
            grants,
            sites: Mutex::default(),
        }
    }

    /// The digest, and whether the kernels are granted.
    pub(crate) fn identity(&self) -> &str {
        self.module.identity()
    }

    /// Returns whether there is a target of this name.
    pub(crate) fn has(&self, target: &str) -> bool {
        self.module.targets().iter().any(|t| t.name == target)
    }

    /// The traits of the target of this name.
    pub(crate) fn traits(&self, target: &str) -> Option<&[String]> {
        let mut targets = self.module.targets().iter();
        let target = targets.find(|t| t.name == target)?;
        Some(&target.traits)
    }

    /// Returns a call site of a program that is ready to be launched, prepared at the first call.
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

    /// Calls a target with arrays in host memory, which are copied to the first device and back.
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

/// The grants of `allow_native=`, and of a rule for the signature of a package with this twin.
fn grants(digests: &[String], signed: Option<[u8; 32]>) -> callbox::Result<NativeGrants> {
    let mut grants = NativeGrants::none();
    for digest in digests {
        let digest = NativeGrants::parse_digest(digest)?;
        // SAFETY: with `allow_native=` the caller in Python vouches for the code with this digest,
        // which runs without a sandbox, as the documentation of `Host.load` says.
        grants = unsafe { grants.allow(digest) };
    }
    if let Some(digest) = signed {
        // SAFETY: with `"native": true` in a rule of `trust=` the caller in Python vouches for the
        // native code of each package that the rule's keys signed, as the documentation of `Host`
        // says. `trusted::signed_twin`, whose result this is, takes the digest from such a package.
        grants = unsafe { grants.allow(digest) };
    }
    Ok(grants)
}

/// Keeps a device open until the process ends, with the kernels loaded on it.
///
/// Later calls reuse the kernels, and XLA may launch its graphs, which contain them, at any time.
pub(crate) fn kept(device: Arc<CudaDevice>) -> Arc<CudaDevice> {
    static KEPT: Mutex<BTreeMap<usize, Arc<CudaDevice>>> = Mutex::new(BTreeMap::new());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(kept.entry(device.ordinal()).or_insert(device))
}

/// The error for a target without kernels.
pub(crate) fn missing(target: &str) -> Status {
    Status::not_found(format!(
        "target {target:?}: expected a CUDA kernel of that name, found none: load the module with native=, its manifest"
    ))
}
