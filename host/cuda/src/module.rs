//! Modules: native targets, as a registry holds them.
#![allow(
    unsafe_code,
    reason = "declares an unsafe function: a trait of native code is the caller's promise"
)]

mod calls;
mod execution;
mod target;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use callbox_core::Registry;
use callbox_core::call::{
    CallOptions, CallSite, Mapping, Platform, PreparedCalls, Signature, TargetModule,
};
use callbox_core::graph_launch;
use callbox_core::untrusted_text::shown_name;
use callbox_core::values::{Blame, Result, Status, StatusCode};

pub use self::target::CudaTarget;

use self::calls::CudaCalls;
pub(super) use self::target::undeclared;
use super::c_abi::CFunction;
use super::device::CudaDevice;
use super::kernel::Kernels;

/// The trait of targets that can be captured into graphs.
pub(super) const COMMAND_BUFFER_COMPATIBLE: &str = "command_buffer_compatible";

/// Native targets.
#[derive(Clone)]
pub struct CudaModule {
    identity: String,
    signatures: Vec<Signature>,
    code: Vec<Code>,
    conventions: Conventions,
    /// The device for calls whose arrays are in the host's memory.
    device: Option<Arc<CudaDevice>>,
}

/// Variants of the oldest convention, for tests of targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conventions {
    /// Pass null for all sub-buffers of operands, as if their addresses were unknown. The target
    /// has to read them from the root tuples.
    pub null_sub_buffers: bool,
    /// After each call, wait and check that the target filled the root tuples of the result.
    pub check_roots: bool,
}

/// The code of a target.
#[derive(Clone)]
pub(super) enum Code {
    /// Handlers in Rust.
    Rust(Arc<CudaTarget>),
    /// A function of the C calling convention.
    C(CFunction),
    /// Kernels that a manifest describes: the target with this number.
    Kernels(Arc<Kernels>, usize),
}

impl CudaModule {
    /// Makes a module of targets in Rust, which need no grant: they are the embedder's own code.
    ///
    /// # Errors
    /// ALREADY_EXISTS if two have the same name.
    pub fn from_targets(targets: impl IntoIterator<Item = CudaTarget>) -> Result<Arc<Self>> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let targets = targets
            .into_iter()
            .map(|target| (target.signature().clone(), Code::Rust(Arc::new(target))));
        Self::new(format!("native targets {number}"), targets.collect())
    }

    pub(super) fn new(identity: String, targets: Vec<(Signature, Code)>) -> Result<Arc<Self>> {
        let (signatures, code): (Vec<Signature>, Vec<Code>) = targets.into_iter().unzip();
        for (place, signature) in signatures.iter().enumerate() {
            if signatures[..place].iter().any(|s| s.name == signature.name) {
                return Err(Status::new(
                    StatusCode::AlreadyExists,
                    Blame::Caller,
                    format!(
                        "expected targets of different names, found {:?} twice",
                        signature.name
                    ),
                ));
            }
        }
        Ok(Arc::new(Self {
            identity,
            signatures,
            code,
            conventions: Conventions::default(),
            device: None,
        }))
    }

    /// Whether the kernels run with a fence, because they are not granted.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.code
            .iter()
            .any(|code| matches!(code, Code::Kernels(kernels, _) if kernels.is_fenced()))
    }

    /// The files of a manifest's images, as it names them: from its own folder.
    pub fn image_files(&self) -> impl Iterator<Item = &str> {
        let kernels = self.code.iter().find_map(|code| match code {
            Code::Kernels(kernels, _) => Some(kernels),
            _ => None,
        });
        kernels
            .into_iter()
            .flat_map(|kernels| kernels.image_files())
    }

    /// The same targets, called with these variants of their convention.
    #[must_use]
    pub fn with_conventions(&self, conventions: Conventions) -> Arc<Self> {
        Arc::new(Self {
            identity: format!("{} {conventions:?}", self.identity),
            conventions,
            ..self.clone()
        })
    }

    /// The same targets, for callers whose arrays are in the host's memory: each call copies them
    /// to this device and back.
    #[must_use]
    pub fn on_device(&self, device: &Arc<CudaDevice>) -> Arc<Self> {
        Arc::new(Self {
            identity: format!("{} on device {}", self.identity, device.ordinal()),
            device: Some(Arc::clone(device)),
            ..self.clone()
        })
    }

    /// The device of [`CudaModule::on_device`].
    ///
    /// # Errors
    /// FAILED_PRECONDITION if the module has none.
    fn own_device(&self) -> Result<&Arc<CudaDevice>> {
        self.device.as_ref().ok_or_else(|| {
            Status::new(
                StatusCode::FailedPrecondition,
                Blame::Caller,
                "expected arrays in the memory of a CUDA device, found some in the host's and \
                 targets without a device (CudaModule::on_device)",
            )
        })
    }

    /// The same targets, one of which has a trait that its code cannot declare.
    ///
    /// A function of C has the trait `command_buffer_compatible` if it always puts the same work
    /// into its stream and waits for nothing: callbox then captures it into CUDA graphs.
    ///
    /// # Errors
    /// NOT_FOUND if there is no such target.
    ///
    /// # Safety
    /// With `command_buffer_compatible`, the work that the target puts into a stream must be sound
    /// each time that a graph repeats it with the same addresses: it must not use memory that the
    /// target has freed.
    pub unsafe fn with_trait(&self, target: &str, name: &str) -> Result<Arc<Self>> {
        let mut module = self.clone();
        let mut signatures = module.signatures.iter_mut();
        let signature = signatures
            .find(|signature| signature.name == target)
            .ok_or_else(|| no_target(target))?;
        if !signature.has_trait(name) {
            signature.traits.push(name.to_owned());
        }
        module.identity = format!("{} with {target:?} {name}", self.identity);
        Ok(Arc::new(module))
    }

    /// Checks that a target may be captured into a graph: it declares that it always does the same
    /// work, and waits for nothing.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if it does not.
    fn check_capturable(&self, target: usize) -> Result<()> {
        let signature = &self.signatures[target];
        if signature.has_trait(COMMAND_BUFFER_COMPATIBLE) || signature.name == graph_launch::NAME {
            return Ok(());
        }
        let is_fenced =
            matches!(&self.code[target], Code::Kernels(kernels, _) if kernels.is_fenced());
        let reason = if is_fenced {
            "its kernels are not granted, and each launch of a fenced kernel needs the host"
                .to_owned()
        } else {
            format!("it does not have the trait {COMMAND_BUFFER_COMPATIBLE:?}")
        };
        Err(Status::new(
            StatusCode::FailedPrecondition,
            Blame::Guest,
            format!(
                "target {:?} cannot be captured in a CUDA graph: {reason}",
                signature.name
            ),
        ))
    }

    /// Prepares a call site for calls outside a program, with arrays in the host's memory that are
    /// copied to this device and back, or in the memory of any device.
    ///
    /// # Errors
    /// As for [`PreparedCall::new`](callbox_core::call::PreparedCall::new).
    pub fn prepare_call(
        self: &Arc<Self>,
        device: &Arc<CudaDevice>,
        site: CallSite,
    ) -> Result<CudaPreparedCall> {
        self.on_device(device)
            .prepare_mapped(site, &Mapping::default())
    }

    /// Prepares a call site whose calls are mapped over the caller's arrays.
    ///
    /// # Errors
    /// As for [`PreparedCall::new`](callbox_core::call::PreparedCall::new).
    pub fn prepare_mapped(
        self: &Arc<Self>,
        site: CallSite,
        mapping: &Mapping,
    ) -> Result<CudaPreparedCall> {
        CudaPreparedCall::new(self, site, mapping)
    }
}

/// A call site of a native target, prepared for calls outside a program.
pub type CudaPreparedCall = callbox_core::call::PreparedCall<CudaCalls>;

fn no_target(name: &str) -> Status {
    let name = shown_name(name);
    Status::not_found(format!("the module has no target \"{name}\""))
}

/// Registers a target in Rust on the platform CUDA: a handler for `execute` that declares nothing.
///
/// # Errors
/// As for [`Registry::register`].
pub fn register_cuda(
    registry: &mut Registry,
    name: &str,
    execute: impl Fn(&mut super::CudaCall<'_>) -> Result<()> + Send + Sync + 'static,
) -> Result<()> {
    let module = CudaModule::from_targets([CudaTarget::new(name, execute)])?;
    registry.register(name, module, name)
}

impl TargetModule for CudaModule {
    fn identity(&self) -> &str {
        &self.identity
    }

    fn platform(&self) -> Platform {
        Platform::Cuda
    }

    fn targets(&self) -> &[Signature] {
        &self.signatures
    }

    fn prepare(
        self: Arc<Self>,
        sites: Vec<CallSite>,
        options: &CallOptions,
    ) -> Result<Box<dyn PreparedCalls>> {
        Ok(Box::new(CudaCalls::new(&self, sites, options)?))
    }
}

impl fmt::Debug for CudaModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.signatures.iter().map(|s| &s.name).collect();
        f.debug_struct("CudaModule")
            .field("identity", &self.identity)
            .field("targets", &names)
            .field("conventions", &self.conventions)
            .finish_non_exhaustive()
    }
}
