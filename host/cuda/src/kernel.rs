//! Kernels that a manifest describes: planned, made ready on a device, and launched.
//!
//! A granted manifest's images are loaded as they are. PTX without a grant is fenced first. No code
//! of the kernels' author runs on the host.
#![allow(
    unsafe_code,
    reason = "launches native code that was granted or fenced"
)]

mod image;

use std::ffi::c_void;
use std::path::Path;
use std::sync::{Arc, Mutex};

use callbox_core::call::{
    CallOptions, CallSite, Deadline, DeviceBuffer, DeviceLeaf, DeviceQueue, Signature,
};
use callbox_core::locks::locked;
use callbox_core::policy::Gpu;
use callbox_core::untrusted_text::shown_path;
use callbox_core::values::{Blame, Result, Status, StatusCode};
use sha2::{Digest, Sha256};

use self::image::LoadedImage;
use super::device::CudaDevice;
use super::driver::{Function, Relaxed};
use super::fenced::{
    Arrays, Bounds, FencedImage, FencedImages, FencedKernel, Preparation, USUAL_ALIGN,
    check_scratch,
};
use super::files::{MAX_BYTES, read};
use super::grants::NativeGrants;
use super::manifest::{self, ImageKind, KernelTarget, Manifest, PlannedCall, PlannedParameter};
use super::module::{COMMAND_BUFFER_COMPATIBLE, Code, CudaModule};
use super::queue::CudaQueue;

/// The targets and images of a manifest.
#[derive(Debug)]
pub(super) struct Kernels {
    targets: Vec<KernelTarget>,
    images: Vec<LoadedImage>,
    /// The same images, if the manifest is not granted.
    fenced: Option<FencedImages>,
}

/// The launches of a call site.
#[derive(Debug)]
pub(super) struct PlannedKernels {
    /// The plan, or the failure of the target's check with which each call fails.
    planned: Result<Arc<PlannedCall>>,
    /// The sizes of the call's arrays.
    arrays: Arrays,
    /// The loaded kernels. The first call on a device loads them.
    ready: Mutex<Vec<(ReadyKey, Arc<ReadyKernels>)>>,
}

/// A device's [`CudaDevice::id`], and the alignment of addresses.
type ReadyKey = (u64, u32);

/// The launches of a call site, with their kernels loaded on a device.
#[derive(Debug)]
pub(super) struct ReadyKernels {
    planned: Arc<PlannedCall>,
    functions: Vec<ReadyFunction>,
}

#[derive(Debug)]
struct ReadyFunction {
    function: Function,
    /// The kernel, if it is fenced: it takes the address of a record as its last parameter.
    fenced: Option<Arc<FencedKernel>>,
}

impl CudaModule {
    /// Loads the targets of a manifest `callbox.json`, and reads the images beside it.
    ///
    /// If `grants` has the digest over manifest and images, they are loaded as they are. Otherwise
    /// all images must be PTX, whose kernels run with a fence, within the limits of `gpu`.
    ///
    /// # Errors
    /// PERMISSION_DENIED, with the digest, if the manifest is not granted and has other images than
    /// PTX, or PTX that cannot be fenced, or if `gpu` forbids fenced kernels; NOT_FOUND for a file
    /// that does not exist; INVALID_ARGUMENT for a manifest that is wrong; RESOURCE_EXHAUSTED for
    /// images of more than 1 GiB in all, or PTX without a grant past a limit of `gpu`.
    pub fn load_manifest(path: &Path, grants: &NativeGrants, gpu: &Gpu) -> Result<Arc<Self>> {
        let bytes = read(path, manifest::MAX_LENGTH as u64)?;
        let load = || {
            let text = std::str::from_utf8(&bytes).map_err(|error| {
                let position = error.valid_up_to();
                Status::invalid_argument(format!(
                    "expected UTF-8, found another byte at {position}"
                ))
            })?;
            let manifest = Manifest::parse(text)?;
            Ok((text, manifest))
        };
        let in_manifest = |status: Status| status.context(shown_path(path));
        let (text, manifest) = load().map_err(in_manifest)?;
        let is_ptx = |image: &manifest::Image| image.kind == ImageKind::Ptx;
        let is_fenced = gpu.fenced && grants.is_empty() && manifest.images.iter().all(is_ptx);
        let mut left = MAX_BYTES;
        if is_fenced {
            left = left.min(gpu.ptx_bytes as u64);
        }
        let images = manifest.images.iter().map(|image| {
            let file = path.with_file_name(&image.file);
            let bytes = match read(&file, left) {
                Err(status) if is_fenced && status.code() == StatusCode::ResourceExhausted => {
                    return Err(too_much_ptx(gpu));
                }
                read => read?,
            };
            left -= bytes.len() as u64;
            Ok(bytes)
        });
        let images = images.collect::<Result<_>>()?;
        Self::from_parts(text, manifest, images, grants, gpu).map_err(in_manifest)
    }

    /// Loads the targets of a manifest from its text and the bytes of its images, in its order.
    ///
    /// # Errors
    /// As for [`CudaModule::load_manifest`].
    pub fn from_manifest(
        text: &str,
        images: Vec<Vec<u8>>,
        grants: &NativeGrants,
        gpu: &Gpu,
    ) -> Result<Arc<Self>> {
        Self::from_parts(text, Manifest::parse(text)?, images, grants, gpu)
    }

    fn from_parts(
        text: &str,
        manifest: Manifest,
        images: Vec<Vec<u8>>,
        grants: &NativeGrants,
        gpu: &Gpu,
    ) -> Result<Arc<Self>> {
        if images.len() != manifest.images.len() {
            return Err(Status::invalid_argument(format!(
                "expected {} images, found {}",
                manifest.images.len(),
                images.len()
            )));
        }
        let slices: Vec<&[u8]> = images.iter().map(Vec::as_slice).collect();
        let digest = manifest::digest(text.as_bytes(), &slices);
        let is_ptx = |image: &manifest::Image| image.kind == ImageKind::Ptx;
        let granted = grants.check("the manifest with its images", digest);
        let can_fence = gpu.fenced && manifest.images.iter().all(is_ptx);
        let fenced = match granted {
            Ok(()) => None,
            Err(denied) if !can_fence => return Err(denied),
            Err(_) => {
                check_ptx(&slices, gpu)?;
                // A syntax tree takes tens of bytes for each token.
                let mut limits = callbox_ptx::Limits {
                    text_bytes: gpu.ptx_bytes,
                    ..callbox_ptx::Limits::default()
                };
                let images = std::iter::zip(&manifest.images, &slices);
                let images = images.map(|(image, bytes)| {
                    FencedImage::read(&image.file, bytes, digest, gpu, &mut limits)
                });
                let images = images.collect::<Result<_>>()?;
                Some(FencedImages::new(images, gpu.clone()))
            }
        };
        let images = std::iter::zip(manifest.images, images).map(|(image, bytes)| LoadedImage {
            file: image.file,
            kind: image.kind,
            digest: Sha256::digest(&bytes).into(),
            bytes,
        });
        let kernels = Arc::new(Kernels {
            images: images.collect(),
            targets: manifest.targets,
            fenced,
        });
        let grade = if kernels.is_fenced() { "fenced " } else { "" };
        let identity = format!("{grade}sha256:{}", hex::encode(digest));
        Self::new(identity, targets(&kernels))
    }
}

/// Checks that the PTX of all images together is within the policy's limit. Each image is kept as a
/// syntax tree, which is some fifteen times as large, and images may have the same contents.
fn check_ptx(images: &[&[u8]], gpu: &Gpu) -> Result<()> {
    let total: usize = images.iter().map(|bytes| bytes.len()).sum();
    if total > gpu.ptx_bytes {
        return Err(too_much_ptx(gpu));
    }
    Ok(())
}

fn too_much_ptx(gpu: &Gpu) -> Status {
    let message = format!(
        "the images take more bytes of PTX together than allowed, the limit is {} \
         (`gpu.ptx_bytes`)",
        gpu.ptx_bytes
    );
    Status::new(StatusCode::ResourceExhausted, Blame::Guest, message)
}

/// The targets of a manifest, with their code.
fn targets(kernels: &Arc<Kernels>) -> Vec<(Signature, Code)> {
    let targets = kernels.targets.iter().enumerate().map(|(number, target)| {
        let mut signature = target.signature.clone();
        if kernels.is_fenced() {
            // The host prepares and reads a record for each launch.
            signature
                .traits
                .retain(|name| name != COMMAND_BUFFER_COMPATIBLE);
        }
        (signature, Code::Kernels(Arc::clone(kernels), number))
    });
    targets.collect()
}

impl Kernels {
    /// Whether the manifest is not granted.
    pub(super) fn is_fenced(&self) -> bool {
        self.fenced.is_some()
    }

    /// The files of the images, as the manifest names them.
    pub(super) fn image_files(&self) -> impl Iterator<Item = &str> {
        self.images.iter().map(|image| image.file.as_str())
    }

    /// The bounds of a fenced launch.
    pub(super) fn bounds(&self, options: &CallOptions) -> Bounds {
        let limit = self.fenced.as_ref().and_then(|fenced| fenced.gpu.deadline);
        Bounds {
            deadline: options.deadline.map(Deadline::instant),
            limit: limit.filter(|_| options.deadline.is_none()),
            cancel: options.cancel.clone(),
        }
    }

    /// Plans the launches of a call site of the target with this number, and verifies those that
    /// are not granted. `aliases` has for each result leaf the operand leaf that shares its memory.
    ///
    /// A check of the target that does not hold fails each call, not the plan, as it does on the
    /// Host platform, where the target itself checks.
    pub(super) fn plan(
        &self,
        target: usize,
        site: &CallSite,
        aliases: &[Option<usize>],
        options: &CallOptions,
    ) -> Result<PlannedKernels> {
        let target = &self.targets[target];
        let planned = match target.check(site) {
            Ok(()) => Ok(Arc::new(target.plan(site)?)),
            Err(status) => Err(status),
        };
        let arrays = Arrays::of(site, aliases);
        if let (Some(fenced), Ok(planned)) = (&self.fenced, &planned) {
            check_scratch(planned, &fenced.gpu)?;
            let mut call = Preparation::of(planned);
            for launch in &planned.launches {
                options.check()?;
                fenced.prepare(&mut call, launch, &planned.scratch, &arrays, USUAL_ALIGN)?;
            }
        }
        Ok(PlannedKernels {
            planned,
            arrays,
            ready: Mutex::default(),
        })
    }

    /// Loads the kernels of a call site on a device, once, and checks their parameters against
    /// those that the driver reports. Fenced kernels must get addresses that are aligned to `align`
    /// bytes.
    ///
    /// # Errors
    /// The failure of the target's own check; INVALID_ARGUMENT for an image or a kernel that is
    /// wrong.
    pub(super) fn make_ready(
        &self,
        call: &PlannedKernels,
        device: &CudaDevice,
        align: u32,
        options: &CallOptions,
    ) -> Result<Arc<ReadyKernels>> {
        let planned = call.planned.as_ref().map_err(Clone::clone)?;
        // The lock is held while the kernels are loaded: a concurrent call waits, and finds them.
        let mut ready = locked(&call.ready);
        let key = (device.id(), align);
        if let Some((_, known)) = ready.iter().find(|(known, _)| *known == key) {
            return Ok(Arc::clone(known));
        }
        // Loading does not invalidate a capture that is under way on any thread.
        let _relaxed = device.check("loading kernels", Relaxed::begin())?;
        let mut preparation = Preparation::of(planned);
        let functions = planned.launches.iter().map(|launch| {
            options.check()?;
            let image = &self.images[launch.image];
            let Some(fenced) = &self.fenced else {
                let module = device.module(image.digest, || image.load(device))?;
                let function = image.function(device, &module, launch, false)?;
                return Ok(ReadyFunction {
                    function,
                    fenced: None,
                });
            };
            let (scratch, arrays) = (&planned.scratch, &call.arrays);
            let prepared = fenced.prepare(&mut preparation, launch, scratch, arrays, align)?;
            let module = device.module(prepared.digest, || {
                image.load_fenced(device, &prepared.text, &fenced.gpu)
            })?;
            let mut launch = launch.clone();
            launch.parameters.push(PlannedParameter::Bytes(vec![0; 8]));
            let function = image.function(device, &module, &launch, true)?;
            Ok(ReadyFunction {
                function,
                fenced: Some(prepared.kernel),
            })
        });
        let made = Arc::new(ReadyKernels {
            functions: functions.collect::<Result<_>>()?,
            planned: Arc::clone(planned),
        });
        ready.push((key, Arc::clone(&made)));
        Ok(made)
    }
}

impl PlannedKernels {
    /// Checks that another framework may capture the launches: they take no scratch memory, which
    /// nothing would keep for as long as that framework's graph exists.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if they take some.
    pub(super) fn check_without_scratch(&self, target: &str) -> Result<()> {
        let scratch = self
            .planned
            .as_ref()
            .map_or(&[][..], |planned| &planned.scratch);
        match scratch.iter().sum::<usize>() {
            0 => Ok(()),
            bytes => Err(Status::new(
                StatusCode::FailedPrecondition,
                Blame::Guest,
                format!(
                    "target {target:?} takes {bytes} bytes of scratch memory, which is not possible \
                     while another framework captures this stream"
                ),
            )),
        }
    }
}

impl ReadyKernels {
    /// Puts the launches into a queue. The options and a limit of the policy stop those that are
    /// fenced, and their addresses must be aligned as [`Kernels::make_ready`] was told.
    pub(super) fn launch(
        &self,
        queue: &mut CudaQueue,
        operands: &[DeviceLeaf],
        results: &[DeviceBuffer],
        options: &CallOptions,
        bounds: &Bounds,
    ) -> Result<()> {
        let Self { planned, functions } = self;
        let scratch = planned.scratch.iter().map(|&size| queue.allocate(size));
        let scratch = scratch.collect::<Result<Vec<_>>>()?;
        if functions.iter().any(|one| one.fenced.is_some()) {
            scratch.iter().try_for_each(|one| queue.fill(one, 0))?;
        }
        let value = |parameter: &PlannedParameter| match parameter {
            PlannedParameter::Operand(n) => operands[*n].buffer.address().to_le_bytes(),
            PlannedParameter::Result(n) => results[*n].address().to_le_bytes(),
            PlannedParameter::Scratch(n) => scratch[*n].address().to_le_bytes(),
            PlannedParameter::Bytes(bytes) => {
                let mut value = [0; 8];
                value[..bytes.len()].copy_from_slice(bytes);
                value
            }
        };
        for (launch, ready) in std::iter::zip(&planned.launches, functions) {
            let mut values: Vec<[u8; 8]> = launch.parameters.iter().map(value).collect();
            if let Some(kernel) = &ready.fenced {
                queue.count_units(kernel.units, options)?;
                // A kernel of which everything was proved does not use its record.
                let record = if kernel.sites.is_empty() {
                    0
                } else {
                    queue.begin_fenced(kernel, bounds.clone())?.record()
                };
                values.push(record.to_le_bytes());
            }
            let values = values.iter_mut();
            let mut parameters: Vec<*mut c_void> =
                values.map(|value| value.as_mut_ptr().cast()).collect();
            // SAFETY: `check_parameters` compared the number and sizes of the parameters with the
            // kernel's own; the buffers are freed in the stream's order, and the queue keeps the
            // record. `NativeGrants::allow` promises that the kernel is sound with the parameters
            // that its manifest plans, or it was verified and fenced for them: the grid, the block,
            // the shared memory and the values are the plan's, `check_sizes` has compared the
            // buffers with the call site, and the caller their alignment.
            let launched = unsafe {
                ready
                    .function
                    .launch(queue.stream(), launch, &mut parameters)
            };
            queue.check(&format!("launching {:?}", launch.entry), launched)?;
        }
        Ok(())
    }
}
