//! Fenced kernels: PTX without a grant.
//!
//! A manifest without a grant is loaded if all of its images are PTX. When a call site is planned,
//! `callbox-ptx` verifies each launch with its grid, block, buffer sizes and parameter values, and
//! adds run-time checks for what is not proved. The driver gets text that is printed anew. The
//! first thing that a kernel does wrong is in the launch's record, which becomes a status when the
//! stream is waited for.

mod running;
mod watcher;

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use callbox_core::call::CallSite;
use callbox_core::locks::locked;
use callbox_core::policy::Gpu;
use callbox_core::untrusted_text::clean_line;
use callbox_core::values::{ArrayShape, Blame, Result, Shape, Status, StatusCode};
use callbox_ptx::ast::Module;
use callbox_ptx::fence::{Fault, Site, fence};
use callbox_ptx::verify::{Budget, Launch, Limits, Param, Refusal, Rule, verify_within};
use sha2::{Digest, Sha256};

pub(super) use self::running::{Bounds, QueueStop, Running};
use super::manifest::{PlannedCall, PlannedLaunch, PlannedParameter};

/// The alignment of addresses that launches are verified for first, in bytes. No access is wider.
pub(super) const USUAL_ALIGN: u32 = 16;

/// The most fenced kernels that an image keeps. All are dropped when it is full.
const MAX_KEPT: usize = 256;

/// The most launches of a call whose blocks need not look at the stop word as they begin. What each
/// may take beyond the deadline adds up.
pub(super) const FEW_LAUNCHES: usize = 8;

/// The most bytes of the fenced kernels that the images of a manifest keep, and of those that a
/// call launches, with their variables.
const MAX_KEPT_BYTES: usize = 64 << 20;

/// The longest message of a refusal, in bytes.
const MAX_MESSAGE: usize = 4096;

/// A PTX image that is not granted.
#[derive(Debug)]
pub(super) struct FencedImage {
    file: String,
    module: Module,
    /// The digest of the manifest, which a grant would name.
    digest: [u8; 32],
    /// The fenced kernels by entry and launch.
    kernels: Mutex<Vec<Prepared>>,
}

/// A kernel that was verified and fenced for one launch.
#[derive(Debug)]
pub(super) struct FencedKernel {
    pub(super) file: String,
    pub(super) entry: String,
    launch: Launch,
    /// Whether it was fenced for a call with many launches.
    is_of_many: bool,
    /// The bytes of the module's variables, which take device memory while the kernel is loaded.
    global_bytes: usize,
    /// The units of work of the launch that no stop ends.
    pub(super) units: u64,
    /// The parameters, as the manifest names them.
    parameters: Vec<PlannedParameter>,
    /// The places that a record can name. Without any, the kernel does not use its record.
    pub(super) sites: Vec<Site>,
}

/// A fenced kernel with its text.
#[derive(Clone, Debug)]
pub(super) struct Prepared {
    pub(super) kernel: Arc<FencedKernel>,
    /// The text for the driver.
    pub(super) text: Arc<str>,
    /// The digest of the text.
    pub(super) digest: [u8; 32],
}

impl Prepared {
    fn bytes(&self) -> usize {
        let sites = std::mem::size_of_val(self.kernel.sites.as_slice());
        self.text.len() + sites + self.kernel.global_bytes
    }
}

/// The images of a manifest that is not granted, and what their kernels may use.
#[derive(Debug)]
pub(super) struct FencedImages {
    images: Vec<FencedImage>,
    pub(super) gpu: Gpu,
    /// The size of the kernels that all images keep.
    kept_bytes: AtomicUsize,
}

/// The kernels of one call, which have limits together.
#[derive(Debug)]
pub(super) struct Preparation {
    budget: Budget,
    /// Whether each block looks at the stop word as it begins.
    is_of_many: bool,
    /// The size of the distinct kernels, by the digests of their texts.
    kernels: HashSet<[u8; 32]>,
    bytes: usize,
}

impl Preparation {
    pub(super) fn of(call: &PlannedCall) -> Self {
        Self {
            budget: Budget::default(),
            is_of_many: call.launches.len() > FEW_LAUNCHES,
            kernels: HashSet::new(),
            bytes: 0,
        }
    }
}

impl FencedImages {
    pub(super) fn new(images: Vec<FencedImage>, gpu: Gpu) -> Self {
        Self {
            images,
            gpu,
            kept_bytes: AtomicUsize::new(0),
        }
    }

    /// Verifies and fences a launch of a call, unless the same launch was before. A call that is
    /// refused for the verifier's steps goes on where it stopped when it is prepared again.
    ///
    /// # Errors
    /// PERMISSION_DENIED, with the first refusal and its line; INVALID_ARGUMENT if the launch does
    /// not fit the kernel; RESOURCE_EXHAUSTED past a limit of the policy, or if the kernels of the
    /// call take too many bytes.
    pub(super) fn prepare(
        &self,
        call: &mut Preparation,
        planned: &PlannedLaunch,
        scratch: &[usize],
        arrays: &Arrays,
        align: u32,
    ) -> Result<Prepared> {
        let image = &self.images[planned.image];
        let launch = verifier_launch(planned, scratch, arrays, &self.gpu, align);
        check_limits(planned, &image.file, &self.gpu)?;
        let known = image.find(planned, &launch, call.is_of_many);
        let is_new = known.is_none();
        let prepared = match known {
            Some(known) => known,
            None => image.fence(planned, launch, &self.gpu, call)?,
        };
        if call.kernels.insert(prepared.digest) {
            call.bytes = call.bytes.saturating_add(prepared.bytes());
        }
        if call.bytes > MAX_KEPT_BYTES {
            let message = format!(
                "{}: the kernels of a call take {} bytes with their fences, the limit is \
                 {MAX_KEPT_BYTES}",
                image.file, call.bytes
            );
            let status = Status::new(StatusCode::ResourceExhausted, Blame::Guest, message);
            return Err(clean_line(status, MAX_MESSAGE));
        }
        if is_new {
            self.keep(image, prepared.clone());
        }
        Ok(prepared)
    }

    /// Keeps a kernel for later calls.
    fn keep(&self, image: &FencedImage, prepared: Prepared) {
        let bytes = prepared.bytes();
        if self.kept_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > MAX_KEPT_BYTES {
            self.images.iter().for_each(|image| self.forget(image));
        }
        if locked(&image.kernels).len() >= MAX_KEPT {
            self.forget(image);
        }
        locked(&image.kernels).push(prepared);
    }

    fn forget(&self, image: &FencedImage) {
        let gone = std::mem::take(&mut *locked(&image.kernels));
        let bytes = gone.iter().map(Prepared::bytes).sum();
        self.kept_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl FencedKernel {
    /// Whether it looks at the stop word. Loops and grids that are proved to be short do not.
    pub(super) fn is_stoppable(&self) -> bool {
        let mut sites = self.sites.iter();
        sites.any(|site| site.fault == Fault::Stopped)
    }
}

/// The sizes of a call's arrays, and which operands a kernel may write.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrays {
    /// The bytes of each operand leaf, and whether a result shares its memory.
    pub(super) operands: Vec<(usize, bool)>,
    /// The bytes of each result leaf.
    pub(super) results: Vec<usize>,
}

impl Arrays {
    /// The sizes of a call site's arrays. `aliases` has for each result leaf the operand leaf that
    /// shares its memory.
    pub(super) fn of(site: &CallSite, aliases: &[Option<usize>]) -> Self {
        let shared: HashSet<usize> = aliases.iter().flatten().copied().collect();
        let operands = site.operands.iter().flat_map(Shape::leaves).enumerate();
        let operands = operands.map(|(leaf, shape)| (shape.byte_size(), shared.contains(&leaf)));
        let results = site.result.leaves().into_iter();
        Self {
            operands: operands.collect(),
            results: results.map(ArrayShape::byte_size).collect(),
        }
    }
}

impl FencedImage {
    /// Reads one of the images of a manifest. Its tokens are taken off the limit.
    pub(super) fn read(
        file: &str,
        bytes: &[u8],
        digest: [u8; 32],
        gpu: &Gpu,
        limits: &mut callbox_ptx::Limits,
    ) -> Result<Self> {
        if bytes.len() > gpu.ptx_bytes {
            return Err(exhausted(
                file,
                "bytes of PTX",
                bytes.len() as u64,
                gpu.ptx_bytes as u64,
                "ptx_bytes",
            ));
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|_| refused(&digest, format!("{file}: expected text, found other bytes")))?;
        let module = callbox_ptx::read_one_of(text, file, limits)
            .map_err(|error| refused(&digest, error.to_string()))?;
        Ok(Self {
            file: file.to_owned(),
            module,
            digest,
            kernels: Mutex::default(),
        })
    }

    /// The kernel of an earlier launch that is the same.
    fn find(&self, planned: &PlannedLaunch, launch: &Launch, is_of_many: bool) -> Option<Prepared> {
        let kernels = locked(&self.kernels);
        let mut kernels = kernels.iter();
        let found = kernels.find(|Prepared { kernel, .. }| {
            kernel.launch == *launch
                && kernel.entry == planned.entry
                && kernel.is_of_many == is_of_many
                && kernel.parameters == planned.parameters
        });
        found.cloned()
    }

    /// Verifies and fences a launch.
    fn fence(
        &self,
        planned: &PlannedLaunch,
        launch: Launch,
        gpu: &Gpu,
        call: &Preparation,
    ) -> Result<Prepared> {
        let usual = Limits::default();
        let limits = Limits {
            grid: gpu.grid_blocks,
            // Checked below, by the name of the policy.
            shared_bytes: u64::MAX,
            grid_instructions: if call.is_of_many {
                0
            } else {
                usual.grid_instructions
            },
            ..usual
        };
        let proof = verify_within(&self.module, &planned.entry, &launch, &limits, &call.budget)
            .map_err(|refusals| self.status(&planned.entry, &refusals))?;
        let fenced = fence(&self.module, &proof);
        let text = callbox_ptx::print(&fenced.module);
        if proof.shared_bytes > gpu.shared_bytes {
            let what = "bytes of shared memory";
            let most = gpu.shared_bytes;
            return Err(exhausted(
                &self.file,
                what,
                proof.shared_bytes,
                most,
                "shared_bytes",
            ));
        }
        Ok(Prepared {
            kernel: Arc::new(FencedKernel {
                file: self.file.clone(),
                entry: planned.entry.clone(),
                launch,
                is_of_many: call.is_of_many,
                global_bytes: usize::try_from(proof.global_bytes).unwrap_or(usize::MAX),
                units: proof.grid_units,
                parameters: planned.parameters.clone(),
                sites: fenced.sites,
            }),
            digest: Sha256::digest(text.as_bytes()).into(),
            text: text.into(),
        })
    }

    fn status(&self, entry: &str, refusals: &[Refusal]) -> Status {
        let Some(first) = refusals.first() else {
            return Status::internal("a refusal without a reason");
        };
        let more = match refusals.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        let message = format!("{}: kernel `{entry}`: {first}{more}", self.file);
        match first.rule {
            Rule::Launch => {
                let status = Status::new(StatusCode::InvalidArgument, Blame::Guest, message);
                clean_line(status, MAX_MESSAGE)
            }
            _ => refused(&self.digest, message),
        }
    }
}

/// The launch, as the verifier takes it.
pub(super) fn verifier_launch(
    planned: &PlannedLaunch,
    scratch: &[usize],
    arrays: &Arrays,
    gpu: &Gpu,
    align: u32,
) -> Launch {
    let buffer = |bytes: Option<&usize>, writable| Param::Buffer {
        bytes: bytes.map_or(0, |&bytes| bytes as u64),
        writable,
        align,
    };
    let params = planned.parameters.iter().map(|parameter| match parameter {
        PlannedParameter::Operand(leaf) => {
            let found = arrays.operands.get(*leaf);
            let is_result = found.is_some_and(|(_, is_result)| *is_result);
            buffer(found.map(|(bytes, _)| bytes), is_result)
        }
        PlannedParameter::Result(leaf) => buffer(arrays.results.get(*leaf), true),
        PlannedParameter::Scratch(number) => buffer(scratch.get(*number), true),
        PlannedParameter::Bytes(bytes) => Param::Value(bytes.clone()),
    });
    Launch {
        grid: planned.grid,
        block: planned.block,
        shared_bytes: planned.shared_bytes,
        params: params.collect(),
        has_clock: gpu.clock,
    }
}

/// Checks a launch against the limits of a policy.
pub(super) fn check_limits(planned: &PlannedLaunch, file: &str, gpu: &Gpu) -> Result<()> {
    let product = |sizes: [u32; 3]| {
        let sizes = sizes.into_iter().map(u64::from);
        sizes.fold(1, u64::saturating_mul)
    };
    let (blocks, threads) = (product(planned.grid), product(planned.block));
    let shared = u64::from(planned.shared_bytes);
    for (what, found, most, name) in [
        ("blocks in a grid", blocks, gpu.grid_blocks, "grid_blocks"),
        (
            "threads in a block",
            threads,
            u64::from(gpu.block_threads),
            "block_threads",
        ),
        (
            "bytes of shared memory",
            shared,
            gpu.shared_bytes,
            "shared_bytes",
        ),
    ] {
        if found > most {
            return Err(exhausted(file, what, found, most, name));
        }
    }
    Ok(())
}

/// Checks the scratch memory of a call.
pub(super) fn check_scratch(planned: &PlannedCall, gpu: &Gpu) -> Result<()> {
    let bytes = planned
        .scratch
        .iter()
        .fold(0, |all: usize, &one| all.saturating_add(one));
    if bytes <= gpu.scratch_bytes {
        return Ok(());
    }
    let most = gpu.scratch_bytes as u64;
    Err(exhausted(
        "the call",
        "bytes of scratch memory",
        bytes as u64,
        most,
        "scratch_bytes",
    ))
}

fn exhausted(whose: &str, what: &str, found: u64, most: u64, name: &str) -> Status {
    let message = format!("{whose} takes {found} {what}, the limit is {most} (`gpu.{name}`)");
    let status = Status::new(StatusCode::ResourceExhausted, Blame::Guest, message);
    clean_line(status, MAX_MESSAGE)
}

/// The status of PTX that does not pass.
fn refused(digest: &[u8; 32], message: String) -> Status {
    let status = Status::new(StatusCode::PermissionDenied, Blame::Guest, message);
    clean_line(status, MAX_MESSAGE).map_message(|message| {
        format!(
            "{message}; only PTX that passes the verifier runs without a grant, and a grant would \
             trust the whole manifest (--allow-native {})",
            hex::encode(digest)
        )
    })
}
