//! Custom calls: call sites, targets, and the traits of a backend.
//!
//! A backend implements [`TargetModule`]: a unit of code that exports targets. An executable has it
//! prepare all of its call sites at once, and each run of the program begins an [`Execution`] of
//! these [`PreparedCalls`]. Data is passed as borrowed bytes.

mod aliasing;
pub mod batch;
mod buffers;
mod copying;
mod device;
mod mapping;
mod merging;
mod options;
mod pieces;
mod prepared;
mod sharing;
pub mod signature;
mod site;
mod team;
mod threads;

#[doc(inline)]
pub use callbox_abi::{ApiVersion, Stage};

pub use aliasing::resolve_aliases;
pub use batch::Failed;
pub use buffers::{CallBuffers, SharedBuffers, SliceCall, Slices};
pub use copying::{copy, copy_bytes};
pub use device::{Device, DeviceBuffer, DeviceLeaf, DeviceMemory, DeviceQueue, HostWork};
pub use mapping::Mapping;
pub use options::{Bounds, CallOptions, CancelToken, Deadline, Delays, Fuel, UserData};
pub use prepared::{
    BufferExecution, DirectCalls, DirectModule, FailedOnDevice, InstanceMemory, PreparedCall,
};
pub use signature::{
    AttributeSignature, BufferSignature, DerivativeMode, DerivativeOf, Dimension, Expression,
    Signature,
};
pub use site::{Alias, CallSite, FunctionReference, StaticInfo};
pub use threads::{Job, ThreadPool, Threads, processors};

use std::fmt;
use std::sync::Arc;

use crate::values::{Blame, Literal, Result, Status, StatusCode};

/// A kind of device that targets run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Platform {
    /// The CPU. XLA calls it "Host" and "Cpu".
    Host,
    /// NVIDIA GPUs.
    Cuda,
}

impl Platform {
    /// XLA's canonical name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "Host",
            Self::Cuda => "CUDA",
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Platform {
    type Err = crate::Status;

    /// Reads a platform's name, in any case. "Host" and "Cpu" are the same platform.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for any other name.
    fn from_str(name: &str) -> Result<Self> {
        match name.to_ascii_lowercase().as_str() {
            "host" | "cpu" => Ok(Self::Host),
            "cuda" => Ok(Self::Cuda),
            _ => Err(crate::Status::invalid_argument(format!(
                "expected the platform Host, Cpu or CUDA, found {name:?}"
            ))),
        }
    }
}

/// A unit of code with targets in it, loaded by a backend and ready to be prepared for call sites.
pub trait TargetModule: fmt::Debug + Send + Sync {
    /// The module's identity. Two modules of the same identity have the same targets.
    fn identity(&self) -> &str;

    /// The platform of its targets.
    fn platform(&self) -> Platform;

    /// The exported targets, by name.
    fn targets(&self) -> &[Signature];

    /// Loads what the call sites need and the module does not have yet. No deadline counts this: it
    /// has the limits of loading.
    ///
    /// # Errors
    /// The failure to load it. The message begins with `CallSite::name`.
    fn load(&self, _sites: &[CallSite]) -> Result<()> {
        Ok(())
    }

    /// Prepares the call sites that one executable has of this module's targets.
    /// [`CallSite::target`] names the module's target. Instances made for them serve these call
    /// sites alone. The stage `instantiate` runs within the deadline and the cancel token of
    /// `options`.
    ///
    /// # Errors
    /// The error in a call site: INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED or RESOURCE_EXHAUSTED;
    /// or the failure of the stage. The message begins with `CallSite::name`.
    fn prepare(
        self: Arc<Self>,
        sites: Vec<CallSite>,
        options: &CallOptions,
    ) -> Result<Box<dyn PreparedCalls>>;
}

/// The call sites of one executable that one module serves.
pub trait PreparedCalls: fmt::Debug + Send + Sync {
    /// Begins an execution of these call sites: leases an instance for it, and runs their stages
    /// `prepare`. `functions` are those that targets can call back.
    ///
    /// # Errors
    /// The failure of a stage, or RESOURCE_EXHAUSTED if there are too many instances.
    fn begin(
        &self,
        options: &CallOptions,
        functions: Option<&Arc<dyn Functions>>,
        sites: &[usize],
    ) -> Result<Box<dyn Execution + '_>>;
}

/// The functions of a running program, for targets that call back. Calls fail after the end of the
/// execution.
pub trait Functions: fmt::Debug + Send + Sync {
    /// The nesting of the calls back in progress: 0 in the execution that the embedder began.
    fn depth(&self) -> usize;

    /// Calls the function of this [`FunctionReference::id`] as a part of the execution. Both
    /// `bounds`, those of the calling target, and the bounds of the execution apply.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the number or the shapes of the operands are wrong; the failure of an
    /// instruction.
    fn call(&self, id: usize, operands: &[Literal], bounds: &Bounds) -> Result<Literal>;

    /// Calls a function on a device, in the queue of the calling target. Operands and results are
    /// leaves in preorder. The results are valid once the queue has passed this point.
    ///
    /// # Errors
    /// As for [`Functions::call`], and FAILED_PRECONDITION if the execution is not on a device.
    fn enqueue(
        &self,
        _id: usize,
        _queue: &mut dyn DeviceQueue,
        _operands: &[DeviceBuffer],
    ) -> Result<Vec<DeviceBuffer>> {
        Err(Status::new(
            StatusCode::FailedPrecondition,
            Blame::Caller,
            "expected an execution on a device, found one on the host",
        ))
    }
}

/// The part of one module in one run of an executable.
pub trait Execution {
    /// Runs the call sites' stages `initialize`. Called once, after every module of the executable
    /// has begun and before any call.
    ///
    /// # Errors
    /// The failure of a stage.
    fn initialize(&mut self) -> Result<()>;

    /// Runs the stages `initialize` of an execution on a device, in its queue.
    ///
    /// # Errors
    /// The failure of a stage.
    fn initialize_on(&mut self, _queue: &mut dyn DeviceQueue) -> Result<()> {
        self.initialize()
    }

    /// Returns whether a call broke this execution: what its stages made is lost, and further calls
    /// run as executions of their own.
    fn is_broken(&mut self) -> bool {
        false
    }

    /// Calls the target of the call site with this number, in the order of preparation.
    ///
    /// Operands and results are leaves in preorder, of the sizes of their shapes; those in
    /// [`CallSite::scratch`] are empty. Results are written only if the call succeeds.
    ///
    /// # Errors
    /// The failure of the target; INVALID_ARGUMENT if the buffers do not fit the call site.
    fn call(&mut self, site: usize, operands: &[&[u8]], results: &mut [&mut [u8]]) -> Result<()>;

    /// Calls the target on a device: its work is put into the queue. A failed call may have written
    /// results.
    ///
    /// # Errors
    /// The failure of the target; FAILED_PRECONDITION if its platform has no such devices.
    fn enqueue(
        &mut self,
        _site: usize,
        _queue: &mut dyn DeviceQueue,
        _operands: &[DeviceLeaf],
        _results: &[DeviceBuffer],
    ) -> Result<()> {
        Err(Status::new(
            StatusCode::FailedPrecondition,
            Blame::Caller,
            "expected a target of a device's platform, found one that runs on the host",
        ))
    }
}
