//! Custom calls: what a call site says, what a target is, and the little that a program knows of a backend.
//!
//! A backend is a [`TargetModule`]: a unit of code with targets in it. An executable hands it all of its call sites at once and gets
//! [`PreparedCalls`], from which each run of the program begins an [`Execution`]. Data crosses as borrowed bytes.

mod buffers;
mod device;
mod options;
mod signature;
mod site;

pub use buffers::{CallBuffers, Slices};
pub use device::{Device, DeviceBuffer, DeviceLeaf, DeviceMemory, DeviceQueue, HostWork};
pub use options::{Bounds, CallOptions, CancelToken, Deadline, Fuel, UserData};
pub(crate) use signature::json as signature_json;
pub use signature::{AttributeSignature, BufferSignature, Dimension, Signature, Stage};
pub use site::{Alias, ApiVersion, CallSite, FunctionReference, StaticInfo};

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
    /// What tells this module from others: two modules of the same identity have the same targets.
    fn identity(&self) -> &str;

    /// The platform that its targets run on.
    fn platform(&self) -> Platform;

    /// What it exports as targets, by name.
    fn targets(&self) -> &[Signature];

    /// Prepares the call sites that one executable has of this module's targets. [`CallSite::target`] names the
    /// module's target. Instances made for them serve these call sites alone.
    ///
    /// # Errors
    /// What is wrong with a call site, for the target or in itself: INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED or
    /// RESOURCE_EXHAUSTED. The message begins with what `CallSite::name` says.
    fn prepare(self: Arc<Self>, sites: Vec<CallSite>) -> Result<Box<dyn PreparedCalls>>;
}

/// The call sites of one executable that one module serves.
pub trait PreparedCalls: fmt::Debug + Send + Sync {
    /// Begins an execution in which these call sites take part: sets an instance aside for it and runs their stages `prepare`. `functions` is
    /// what call sites call back, if one of them can.
    ///
    /// # Errors
    /// What a stage reports, or RESOURCE_EXHAUSTED if there are too many instances.
    fn begin(
        &self,
        options: &CallOptions,
        functions: Option<&Arc<dyn Functions>>,
        sites: &[usize],
    ) -> Result<Box<dyn Execution + '_>>;
}

/// The functions of a running program, for targets that call back. It may outlive the execution: then it fails.
pub trait Functions: fmt::Debug + Send + Sync {
    /// How many calls back are under way in this execution, one inside the other. 0 in the execution that the embedder began.
    fn depth(&self) -> usize;

    /// Calls the function of this [`FunctionReference::id`], as a part of the execution: within `bounds`, which are the call's that calls back, and
    /// the execution's own.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the operands are not as many, or not of the shapes, that it takes; what its instructions fail with.
    fn call(&self, id: usize, operands: &[Literal], bounds: &Bounds) -> Result<Literal>;

    /// The same on a device, in the queue of the call that calls back: operands and results are leaves in preorder. The results are there when what
    /// was put into the queue is done.
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

/// One run of an executable, as far as one module's targets take part in it.
pub trait Execution {
    /// Runs the call sites' stages `initialize`. It is called once, before any call, when every module of the executable has begun.
    ///
    /// # Errors
    /// What a stage reports.
    fn initialize(&mut self) -> Result<()>;

    /// The same for an execution on a device, in its queue.
    ///
    /// # Errors
    /// What a stage reports.
    fn initialize_on(&mut self, _queue: &mut dyn DeviceQueue) -> Result<()> {
        self.initialize()
    }

    /// Calls the target of the call site with this number, in the order in which they were prepared. Operands and results are
    /// leaves in preorder, each as long as its shape says, but for those in [`CallSite::scratch`], which are empty. Results are written only
    /// if the call succeeds.
    ///
    /// # Errors
    /// What the target reports or how it failed; INVALID_ARGUMENT if the buffers do not fit the call site.
    fn call(&mut self, site: usize, operands: &[&[u8]], results: &mut [&mut [u8]]) -> Result<()>;

    /// The same on a device: the target's work comes into the queue. Of a call that fails, results may have been written.
    ///
    /// # Errors
    /// What the target reports; FAILED_PRECONDITION if its platform has no such devices.
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
