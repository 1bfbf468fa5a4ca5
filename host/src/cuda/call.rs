//! What a native target finds when it is called.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys::CUstream;

use super::device::CudaDevice;
use super::queue::CudaQueue;
use crate::call::{CallOptions, CallSite, DeviceBuffer, DeviceLeaf, DeviceQueue, Functions, Stage};
use crate::values::{ArrayShape, Attribute, Dictionary, Result, Shape, Status};

/// What a stage made, for the stages that come after it.
pub type State = Arc<dyn Any + Send + Sync>;

/// A call site in a stage that has no device yet: `instantiate`, once when a program is compiled, and `prepare`, once for each execution.
#[derive(Debug)]
pub struct CudaStage<'c> {
    pub(super) site: &'c CallSite,
    pub(super) stage: Stage,
    pub(super) instantiated: Option<&'c State>,
    pub(super) options: Option<&'c CallOptions>,
}

impl CudaStage<'_> {
    /// The call site: shapes, attributes, opaque bytes.
    #[must_use]
    pub fn site(&self) -> &CallSite {
        self.site
    }

    /// Which stage it is.
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// What `instantiate` made, in `prepare`.
    #[must_use]
    pub fn instantiated<T: Any>(&self) -> Option<&T> {
        self.instantiated?.downcast_ref()
    }

    /// Bytes that the embedder attached by this name. `instantiate` finds none.
    #[must_use]
    pub fn user_data(&self, name: &str) -> Option<&[u8]> {
        user_data(self.options?, name)
    }
}

/// A call, in the stages `initialize` and `execute`: a stream to put work into, and where its arrays are.
///
/// A target does not wait for the stream: it puts its work into it and returns. What the work fails with is told to whoever waits.
pub struct CudaCall<'c> {
    pub(super) site: &'c CallSite,
    pub(super) stage: Stage,
    pub(super) queue: &'c mut CudaQueue,
    pub(super) operands: &'c [DeviceLeaf],
    pub(super) results: &'c [DeviceBuffer],
    pub(super) options: &'c CallOptions,
    pub(super) functions: Option<&'c Arc<dyn Functions>>,
    pub(super) states: &'c [Option<State>; 3],
}

/// An array of a call's, in a device's memory.
#[derive(Clone, Copy, Debug)]
pub struct CudaBuffer<'c> {
    shape: &'c ArrayShape,
    buffer: &'c DeviceBuffer,
}

impl<'c> CudaBuffer<'c> {
    /// Its element type, dimensions and layout.
    #[must_use]
    pub fn shape(&self) -> &'c ArrayShape {
        self.shape
    }

    /// Where it is. 0 if it has no elements.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.buffer.address()
    }

    /// The memory.
    #[must_use]
    pub fn memory(&self) -> &'c DeviceBuffer {
        self.buffer
    }
}

impl<'c> CudaCall<'c> {
    /// Which stage it is.
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// The call site: shapes, attributes, opaque bytes.
    #[must_use]
    pub fn site(&self) -> &'c CallSite {
        self.site
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Arc<CudaDevice> {
        self.queue.device()
    }

    /// The stream that its work belongs into.
    #[must_use]
    pub fn stream(&self) -> CUstream {
        self.queue.stream().raw()
    }

    /// Whether its work becomes a graph. It must not wait then, nor take memory by itself: [`CudaCall::scratch`] is fine.
    #[must_use]
    pub fn is_capturing(&self) -> bool {
        self.queue.is_capturing()
    }

    /// The queue, for copies and for work on the host.
    pub fn queue(&mut self) -> &mut CudaQueue {
        self.queue
    }

    /// The operands' leaves in preorder. None in `initialize`.
    #[must_use]
    pub fn operands(&self) -> Vec<CudaBuffer<'c>> {
        let shapes = self.site.operands.iter().flat_map(Shape::leaves);
        let buffers = self.operands.iter().map(|leaf| &leaf.buffer);
        std::iter::zip(shapes, buffers)
            .map(|(shape, buffer)| CudaBuffer { shape, buffer })
            .collect()
    }

    /// The results' leaves in preorder. None in `initialize`.
    #[must_use]
    pub fn results(&self) -> Vec<CudaBuffer<'c>> {
        std::iter::zip(self.site.result.leaves(), self.results)
            .map(|(shape, buffer)| CudaBuffer { shape, buffer })
            .collect()
    }

    /// The attributes.
    #[must_use]
    pub fn attributes(&self) -> &'c Dictionary {
        &self.site.attributes
    }

    /// The attribute of this name.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if there is none.
    pub fn attribute(&self, name: &str) -> Result<&'c Attribute> {
        let attribute = self.site.attributes.get(name);
        attribute.ok_or_else(|| {
            Status::invalid_argument(format!("expected an attribute {name:?}, found none"))
        })
    }

    /// The opaque bytes.
    #[must_use]
    pub fn opaque(&self) -> &'c [u8] {
        &self.site.opaque
    }

    /// Bytes that the embedder attached by this name.
    #[must_use]
    pub fn user_data(&self, name: &str) -> Option<&'c [u8]> {
        user_data(self.options, name)
    }

    /// Memory of this many bytes for as long as the call's work takes, with anything in it.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the device has not as much.
    pub fn scratch(&mut self, size: usize) -> Result<DeviceBuffer> {
        self.queue.allocate(size)
    }

    /// What an earlier stage made.
    #[must_use]
    pub fn state<T: Any>(&self, stage: Stage) -> Option<&'c T> {
        self.states.get(stage as usize)?.as_ref()?.downcast_ref()
    }

    /// Calls a function of the running program: the one with this number among [`CallSite::functions`]. Its work comes into the same stream; what it gives
    /// are the leaves of its result.
    ///
    /// # Errors
    /// NOT_FOUND if there is no such function; what its instructions fail with.
    pub fn call_function(
        &mut self,
        number: usize,
        operands: &[DeviceBuffer],
    ) -> Result<Vec<DeviceBuffer>> {
        let reference = self.site.functions.get(number);
        let (Some(reference), Some(functions)) = (reference, self.functions) else {
            return Err(Status::not_found(format!(
                "call-function: expected one of {} functions that the call site refers to, found number {number}",
                self.site.functions.len()
            )));
        };
        let called = functions.enqueue(reference.id, self.queue, operands);
        called.map_err(|status| status.context(format_args!("function {:?}", reference.name)))
    }
}

impl fmt::Debug for CudaCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaCall")
            .field("site", &self.site.name)
            .field("stage", &self.stage)
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

fn user_data<'c>(options: &'c CallOptions, name: &str) -> Option<&'c [u8]> {
    let data = options.user_data.as_ref()?;
    data.get(name).map(Vec::as_slice)
}
