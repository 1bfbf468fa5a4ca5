//! Kernels that a manifest describes: loading, checking and launching them, with no code of the author's on the host.
#![allow(
    unsafe_code,
    reason = "loads and launches native code that was granted"
)]

use std::ffi::c_void;
use std::path::Path;
use std::sync::{Arc, Mutex};

use sha2::{Digest, Sha256};

use super::device::CudaDevice;
use super::driver::{Function, Image, Module, Relaxed};
use super::files::read;
use super::grants::{NativeGrants, hex};
use super::guard::locked;
use super::manifest::{
    self, ImageKind, KernelTarget, Manifest, PlannedCall, PlannedLaunch, PlannedParameter,
    check_parameters,
};
use super::module::{Code, CudaModule};
use super::nvrtc;
use super::queue::CudaQueue;
use crate::call::{CallSite, DeviceBuffer, DeviceLeaf, DeviceQueue};
use crate::values::{Blame, Result, Status, StatusCode};

/// A manifest's targets, with its images.
#[derive(Debug)]
pub(super) struct Kernels {
    targets: Vec<KernelTarget>,
    images: Vec<LoadedImage>,
}

#[derive(Debug)]
struct LoadedImage {
    file: String,
    kind: ImageKind,
    bytes: Vec<u8>,
    digest: [u8; 32],
}

/// What a call site launches.
#[derive(Debug)]
pub(super) struct PlannedKernels {
    /// The failure of one of the target's own checks, by which each call fails.
    planned: Result<Arc<PlannedCall>>,
    /// By device: whoever is first on one loads the kernels there.
    ready: Mutex<Vec<(u64, Arc<ReadyKernels>)>>,
}

/// The same, with kernels that are loaded on a device.
#[derive(Debug)]
pub(super) struct ReadyKernels {
    planned: Arc<PlannedCall>,
    functions: Vec<Function>,
}

impl CudaModule {
    /// Loads the targets of a manifest `callbox.json`, and reads the images beside it.
    ///
    /// # Errors
    /// PERMISSION_DENIED, with the digest over manifest and images, if `grants` does not have it; NOT_FOUND for a file that is not there;
    /// INVALID_ARGUMENT for a manifest that is wrong.
    pub fn load_manifest(path: &Path, grants: &NativeGrants) -> Result<Arc<Self>> {
        let bytes = read(path)?;
        let text = std::str::from_utf8(&bytes).map_err(|error| {
            Status::invalid_argument(format!(
                "{}: expected UTF-8, found another byte at {}",
                path.display(),
                error.valid_up_to()
            ))
        })?;
        let manifest = Manifest::parse(text).map_err(|status| status.context(path.display()))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let images = manifest
            .images
            .iter()
            .map(|image| read(&folder.join(&image.file)));
        let images = images.collect::<Result<Vec<_>>>()?;
        Self::from_manifest(text, images, grants).map_err(|status| status.context(path.display()))
    }

    /// The same from a manifest's text, and the bytes of its images in its order.
    ///
    /// # Errors
    /// As for [`CudaModule::load_manifest`].
    pub fn from_manifest(
        text: &str,
        images: Vec<Vec<u8>>,
        grants: &NativeGrants,
    ) -> Result<Arc<Self>> {
        let manifest = Manifest::parse(text)?;
        if images.len() != manifest.images.len() {
            return Err(Status::invalid_argument(format!(
                "expected {} images, found {}",
                manifest.images.len(),
                images.len()
            )));
        }
        let slices: Vec<&[u8]> = images.iter().map(Vec::as_slice).collect();
        let digest = manifest::digest(text.as_bytes(), &slices);
        grants.check("the manifest with its images", digest)?;
        let loaded = std::iter::zip(manifest.images, images);
        let loaded = loaded.map(|(image, bytes)| LoadedImage {
            file: image.file,
            kind: image.kind,
            digest: Sha256::digest(&bytes).into(),
            bytes,
        });
        let kernels = Arc::new(Kernels {
            images: loaded.collect(),
            targets: manifest.targets,
        });
        let targets = kernels.targets.iter().enumerate().map(|(number, target)| {
            let code = Code::Kernels(Arc::clone(&kernels), number);
            (target.signature.clone(), code)
        });
        Self::new(format!("sha256:{}", hex(digest)), targets.collect())
    }
}

impl Kernels {
    /// What a call site of the target with this number launches. Where one of the target's own checks does not hold, each call fails by it.
    pub(super) fn plan(&self, target: usize, site: &CallSite) -> Result<PlannedKernels> {
        let target = &self.targets[target];
        let planned = match target.check(site) {
            Ok(()) => Ok(Arc::new(target.plan(site)?)),
            Err(status) => Err(status),
        };
        Ok(PlannedKernels {
            planned,
            ready: Mutex::default(),
        })
    }

    /// Loads what a call site launches on a device, once, and holds the parameters against what the driver says of each kernel.
    ///
    /// # Errors
    /// What the target's own checks say of the call site; what is wrong with an image or a kernel in it.
    pub(super) fn make_ready(
        &self,
        call: &PlannedKernels,
        device: &CudaDevice,
    ) -> Result<Arc<ReadyKernels>> {
        let planned = call.planned.as_ref().map_err(Clone::clone)?;
        // Whoever comes second waits for the first, and finds what that has loaded.
        let mut ready = locked(&call.ready);
        if let Some((_, known)) = ready.iter().find(|(id, _)| *id == device.id()) {
            return Ok(Arc::clone(known));
        }
        // Whoever captures meanwhile, this thread too, loses nothing by it.
        let _relaxed = device.check("loading kernels", Relaxed::begin())?;
        let functions = planned.launches.iter().map(|launch| {
            let image = &self.images[launch.image];
            let module = device.module(image.digest, || image.load(device))?;
            image.function(device, &module, launch)
        });
        let made = Arc::new(ReadyKernels {
            functions: functions.collect::<Result<_>>()?,
            planned: Arc::clone(planned),
        });
        ready.push((device.id(), Arc::clone(&made)));
        Ok(made)
    }
}

impl PlannedKernels {
    /// # Errors
    /// FAILED_PRECONDITION if the launches need memory of their own, which nobody would keep for a graph of somebody else's.
    pub(super) fn check_without_scratch(&self, target: &str) -> Result<()> {
        let Ok(planned) = &self.planned else {
            return Ok(());
        };
        match planned.scratch.iter().sum::<usize>() {
            0 => Ok(()),
            bytes => Err(Status::new(
                StatusCode::FailedPrecondition,
                Blame::Guest,
                format!(
                    "{target:?}: expected a target without scratch memory, which is all that a graph of somebody else's can hold, found one with {bytes} bytes of it"
                ),
            )),
        }
    }
}

impl LoadedImage {
    fn load(&self, device: &CudaDevice) -> Result<Arc<Module>> {
        let text = || {
            std::str::from_utf8(&self.bytes).map_err(|_| {
                Status::invalid_argument(format!("{}: expected text, found bytes", self.file))
            })
        };
        let compiled;
        let image = match self.kind {
            ImageKind::Ptx => Image::Ptx(text()?),
            ImageKind::Cubin | ImageKind::Fatbin => Image::Binary(&self.bytes),
            ImageKind::Source => {
                compiled = nvrtc::compile(&self.file, text()?, device.compute_capability(), &[])?;
                Image::Ptx(&compiled)
            }
        };
        if let Image::Ptx(text) = image
            && text.contains('\0')
        {
            return Err(Status::invalid_argument(format!(
                "{}: expected text, found a NUL in it",
                self.file
            )));
        }
        // SAFETY: it was granted by digest when the manifest was loaded.
        match unsafe { Module::load(device.context(), image) } {
            Ok(module) => Ok(Arc::new(module)),
            Err((failure, log)) => {
                let doing = match log.trim() {
                    "" => format!("loading {}", self.file),
                    log => format!("loading {} ({log})", self.file),
                };
                device.check(&doing, Err(failure))
            }
        }
    }

    fn function(
        &self,
        device: &CudaDevice,
        module: &Arc<Module>,
        launch: &PlannedLaunch,
    ) -> Result<Function> {
        let doing = |what: &str| format!("{what} {:?} of {}", launch.entry, self.file);
        let function =
            device.check(&doing("finding the kernel"), module.function(&launch.entry))?;
        let parameters = device.check(&doing("asking what is taken by"), function.parameters())?;
        check_parameters(launch, &parameters).map_err(|status| status.context(&self.file))?;
        let ready = function.make_ready(launch.shared_bytes);
        device.check(&doing("making ready"), ready)?;
        Ok(function)
    }
}

impl ReadyKernels {
    /// Puts the launches into a queue.
    pub(super) fn launch(
        &self,
        queue: &mut CudaQueue,
        operands: &[DeviceLeaf],
        results: &[DeviceBuffer],
    ) -> Result<()> {
        let Self { planned, functions } = self;
        let scratch = planned.scratch.iter().map(|&size| queue.allocate(size));
        let scratch = scratch.collect::<Result<Vec<_>>>()?;
        for (launch, function) in std::iter::zip(&planned.launches, functions) {
            let mut values: Vec<[u8; 8]> = Vec::with_capacity(launch.parameters.len());
            for parameter in &launch.parameters {
                values.push(match parameter {
                    PlannedParameter::Operand(n) => operands[*n].buffer.address().to_le_bytes(),
                    PlannedParameter::Result(n) => results[*n].address().to_le_bytes(),
                    PlannedParameter::Scratch(n) => scratch[*n].address().to_le_bytes(),
                    PlannedParameter::Bytes(bytes) => {
                        let mut value = [0; 8];
                        value[..bytes.len()].copy_from_slice(bytes);
                        value
                    }
                });
            }
            let mut parameters: Vec<*mut c_void> = values
                .iter_mut()
                .map(|value| value.as_mut_ptr().cast())
                .collect();
            // SAFETY: number and sizes of the parameters were held against the kernel's own; the addresses are of buffers that are given back in the
            // stream's order; and the code was granted.
            let launched = unsafe {
                function.launch(
                    queue.stream(),
                    launch.grid,
                    launch.block,
                    launch.shared_bytes,
                    &mut parameters,
                )
            };
            let device = Arc::clone(queue.device());
            device.check(&format!("launching {:?}", launch.entry), launched)?;
        }
        Ok(())
    }
}
