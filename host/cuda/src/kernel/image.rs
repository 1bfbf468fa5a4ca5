//! Images of a manifest: loading them on a device, and finding their kernels.
#![allow(unsafe_code, reason = "loads native code that was granted or fenced")]

use std::sync::Arc;

use crate::assembler;
use crate::device::CudaDevice;
use crate::driver::{Function, Image, Module};
use crate::failure::DriverFailure;
use crate::manifest::{ImageKind, PlannedLaunch, check_parameters};
use crate::nvrtc;
use callbox_core::policy::Gpu;
use callbox_core::values::{Blame, Result, Status, StatusCode};

/// The most bytes of local memory of a thread of a fenced kernel: those of its variables, which the
/// verifier limits to half of this, and of registers that the assembler spilled. A driver reserves
/// them for all threads that a device can run: two gigabytes on a large GPU.
const MOST_LOCAL_BYTES: u64 = 8 << 10;

#[derive(Debug)]
pub(super) struct LoadedImage {
    pub(super) file: String,
    pub(super) kind: ImageKind,
    pub(super) bytes: Vec<u8>,
    pub(super) digest: [u8; 32],
}

impl LoadedImage {
    pub(super) fn load(&self, device: &CudaDevice) -> Result<Arc<Module>> {
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
                compiled = nvrtc::compile(&self.file, text()?, device.compute_capability())?;
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
        // SAFETY: `NativeGrants::allow` promises that the image's code is sound, and `from_parts`
        // has checked the digest over these bytes: it is called only if the manifest is granted.
        self.loaded(device, unsafe { Module::load(device.context(), image) })
    }

    /// Loads a kernel of this image from its text with the fence.
    ///
    /// `ptxas` assembles it where there is one. If its version is not the driver's, the driver may
    /// refuse the machine code: then it compiles the text, which has not crashed `ptxas`.
    pub(super) fn load_fenced(
        &self,
        device: &CudaDevice,
        text: &str,
        gpu: &Gpu,
    ) -> Result<Arc<Module>> {
        let capability = device.compute_capability();
        let code = assembler::assemble(&self.file, text, capability, gpu)?;
        // SAFETY: `callbox-ptx` verified the kernel and printed it with its fence. It accesses only
        // the arrays of its launch, and its record, if the launch is the verified one, which
        // `ReadyKernels::launch` sees to.
        let load = |image| unsafe { Module::load(device.context(), image) };
        let loaded = match &code {
            Some(code) => match load(Image::Binary(code)) {
                Err((failure, _)) if failure.is_refused_image() => load(Image::Ptx(text)),
                loaded => loaded,
            },
            None => load(Image::Ptx(text)),
        };
        self.loaded(device, loaded)
    }

    fn loaded(
        &self,
        device: &CudaDevice,
        loaded: Result<Module, (DriverFailure, String)>,
    ) -> Result<Arc<Module>> {
        match loaded {
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

    /// A kernel of a loaded module, ready to be launched. Of one with a fence, a thread takes at
    /// most [`MOST_LOCAL_BYTES`] of local memory.
    pub(super) fn function(
        &self,
        device: &CudaDevice,
        module: &Arc<Module>,
        launch: &PlannedLaunch,
        is_fenced: bool,
    ) -> Result<Function> {
        let doing = |what: &str| format!("{what} {:?} of {}", launch.entry, self.file);
        let function = module.function(&launch.entry);
        let function = device.check(&doing("finding the kernel"), function)?;
        let parameters = function.parameters();
        let parameters = device.check(&doing("asking for the parameters of"), parameters)?;
        check_parameters(launch, &parameters).map_err(|status| status.context(&self.file))?;
        if is_fenced {
            let bytes = function.local_bytes();
            let bytes = device.check(&doing("asking for the local memory of"), bytes)?;
            if bytes > MOST_LOCAL_BYTES {
                return Err(Status::new(
                    StatusCode::ResourceExhausted,
                    Blame::Guest,
                    format!(
                        "{}: kernel {:?}: a thread takes {bytes} bytes of local memory with its spilled registers, the limit is {MOST_LOCAL_BYTES}",
                        self.file, launch.entry
                    ),
                ));
            }
        }
        let ready = function.make_ready(launch.shared_bytes);
        device.check(&doing("making ready"), ready)?;
        Ok(function)
    }
}
