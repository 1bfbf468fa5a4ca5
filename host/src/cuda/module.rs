//! Modules: native targets, as a registry has them.

mod calls;
mod mapped;
mod target;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use self::calls::CudaPreparedCall;
pub use self::mapped::CudaMappedCall;
pub use self::target::CudaTarget;

use self::calls::CudaCalls;
use super::c_abi::CFunction;
use super::device::CudaDevice;
use super::kernel::Kernels;
use crate::call::{ApiVersion, CallSite, Platform, PreparedCalls, Signature, TargetModule};
use crate::graph_launch;
use crate::registry::Registry;
use crate::values::{Blame, Result, Status, StatusCode};

/// Native targets.
pub struct CudaModule {
    identity: String,
    signatures: Vec<Signature>,
    code: Vec<Code>,
    conventions: Conventions,
    /// Where calls run whose data is in the host's memory.
    device: Option<Arc<CudaDevice>>,
}

/// How the oldest convention is played: for tests of targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conventions {
    /// Hand all sub-buffers of operands over as null pointers, as if no address were known: a target has to find them in the root tuples.
    pub null_sub_buffers: bool,
    /// After each call, wait and look whether the root tuples of the result were filled.
    pub check_roots: bool,
}

/// What is behind a target.
pub(super) enum Code {
    /// Handlers in Rust.
    Rust(Arc<CudaTarget>),
    /// A function of the C calling convention.
    C(CFunction),
    /// Kernels that a manifest describes: the target with this number.
    Kernels(Arc<Kernels>, usize),
}

impl CudaModule {
    /// Targets in Rust. Registering them is the grant: it is the embedder's own code.
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

    /// The same targets, called in this manner.
    #[must_use]
    pub fn with_conventions(&self, conventions: Conventions) -> Arc<Self> {
        Arc::new(Self {
            identity: format!("{} {conventions:?}", self.identity),
            conventions,
            ..self.copied()
        })
    }

    /// The same targets, for callers whose data is in the host's memory: it is copied to this device and back.
    #[must_use]
    pub fn on_device(&self, device: &Arc<CudaDevice>) -> Arc<Self> {
        Arc::new(Self {
            identity: format!("{} on device {}", self.identity, device.ordinal()),
            device: Some(Arc::clone(device)),
            ..self.copied()
        })
    }

    /// # Errors
    /// FAILED_PRECONDITION if it has none.
    fn own_device(&self) -> Result<&Arc<CudaDevice>> {
        self.device.as_ref().ok_or_else(|| {
            Status::new(
                StatusCode::FailedPrecondition,
                Blame::Caller,
                "expected arrays in the memory of a CUDA device, found some in the host's and targets without a device (CudaModule::on_device)",
            )
        })
    }

    /// The same targets, of which this one has a trait that its code does not say: `command_buffer_compatible` of a function of C that always puts the same
    /// work into its stream and waits for nothing.
    ///
    /// # Errors
    /// NOT_FOUND if there is no such target.
    pub fn with_trait(&self, target: &str, name: &str) -> Result<Arc<Self>> {
        let mut copy = self.copied();
        let Some(signature) = copy.signatures.iter_mut().find(|s| s.name == target) else {
            return Err(Status::not_found(format!(
                "the module has no target {target:?}"
            )));
        };
        if !signature.has_trait(name) {
            signature.traits.push(name.to_owned());
        }
        copy.identity = format!("{} with {target:?} {name}", self.identity);
        Ok(Arc::new(copy))
    }

    fn copied(&self) -> Self {
        let code = self.code.iter().map(|code| match code {
            Code::Rust(target) => Code::Rust(Arc::clone(target)),
            Code::C(function) => Code::C(function.clone()),
            Code::Kernels(kernels, number) => Code::Kernels(Arc::clone(kernels), *number),
        });
        Self {
            identity: self.identity.clone(),
            signatures: self.signatures.clone(),
            code: code.collect(),
            conventions: self.conventions,
            device: self.device.clone(),
        }
    }

    /// # Errors
    /// FAILED_PRECONDITION if the target does not say that its work can be captured: that it always does the same work, and waits for nothing.
    fn check_capturable(&self, target: usize) -> Result<()> {
        const TRAIT: &str = "command_buffer_compatible";
        let signature = &self.signatures[target];
        match signature.has_trait(TRAIT) || signature.name == graph_launch::NAME {
            true => Ok(()),
            false => Err(Status::new(
                StatusCode::FailedPrecondition,
                Blame::Guest,
                format!(
                    "{:?}: expected a target with the trait {TRAIT:?}, which is all that a graph can hold, found one without",
                    signature.name
                ),
            )),
        }
    }

    /// Prepares one call site for calls of its own, on a device.
    ///
    /// # Errors
    /// As for [`TargetModule::prepare`].
    pub fn prepare_call(
        self: &Arc<Self>,
        device: &Arc<CudaDevice>,
        site: CallSite,
    ) -> Result<CudaPreparedCall> {
        let calls = CudaCalls::new(self, vec![site])?;
        Ok(CudaPreparedCall::new(calls, Arc::clone(device)))
    }
}

/// Registers a target in Rust by its name, on the platform CUDA, that has `execute` alone and declares nothing else.
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

    fn prepare(self: Arc<Self>, sites: Vec<CallSite>) -> Result<Box<dyn PreparedCalls>> {
        Ok(Box::new(CudaCalls::new(&self, sites)?))
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

/// All conventions that native targets can be called by.
pub(super) const API_VERSIONS: [ApiVersion; 4] = [
    ApiVersion::Original,
    ApiVersion::StatusReturning,
    ApiVersion::StatusReturningUnified,
    ApiVersion::TypedFfi,
];
