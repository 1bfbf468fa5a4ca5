//! Calls, as handlers in Rust see them.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use callbox_core::call::{
    CallOptions, CallSite, DeviceBuffer, DeviceLeaf, DeviceQueue, Functions, Stage,
};
use callbox_core::values::{ArrayShape, Attribute, Dictionary, Result, Shape, Status};
use cudarc::driver::sys::CUstream;

use super::device::CudaDevice;
use super::queue::CudaQueue;

/// The state that a stage returns to the stages after it.
pub type State = Arc<dyn Any + Send + Sync>;

/// A call site in a stage without a device: `instantiate`, which runs when a program is compiled,
/// or `prepare`, which runs once for each execution.
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

    /// The stage.
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// The state of `instantiate`, in the stage `prepare`.
    #[must_use]
    pub fn instantiated<T: Any>(&self) -> Option<&T> {
        self.instantiated?.downcast_ref()
    }

    /// The user data with this name, which the embedder attached. `instantiate` has none.
    #[must_use]
    pub fn user_data(&self, name: &str) -> Option<&[u8]> {
        user_data(self.options?, name)
    }
}

/// A call in the stage `initialize` or `execute`: a stream to put work into, and the arrays.
///
/// A handler puts its work into the stream and returns without waiting. A failure of that work is
/// reported to the caller that waits for the stream.
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

/// An operand or result of a call, in a device's memory.
#[derive(Clone, Copy, Debug)]
pub struct CudaBuffer<'c> {
    shape: &'c ArrayShape,
    buffer: &'c DeviceBuffer,
}

impl<'c> CudaBuffer<'c> {
    /// The element type, dimensions and layout.
    #[must_use]
    pub fn shape(&self) -> &'c ArrayShape {
        self.shape
    }

    /// The address on the device. It is 0 for an array without elements.
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
    /// The stage.
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

    /// The stream that the call's work belongs into.
    #[must_use]
    pub fn stream(&self) -> CUstream {
        self.queue.stream().raw()
    }

    /// Whether the stream is being captured into a CUDA graph.
    ///
    /// The handler must then neither wait nor allocate memory, except by [`CudaCall::scratch`].
    #[must_use]
    pub fn is_capturing(&self) -> bool {
        self.queue.is_capturing()
    }

    /// The queue, for copies and for work on the host.
    pub fn queue(&mut self) -> &mut CudaQueue {
        self.queue
    }

    /// The leaves of the operands in preorder. The stage `initialize` has none.
    #[must_use]
    pub fn operands(&self) -> Vec<CudaBuffer<'c>> {
        let shapes = self.site.operands.iter().flat_map(Shape::leaves);
        let buffers = self.operands.iter().map(|leaf| &leaf.buffer);
        std::iter::zip(shapes, buffers)
            .map(|(shape, buffer)| CudaBuffer { shape, buffer })
            .collect()
    }

    /// The leaves of the result in preorder. The stage `initialize` has none.
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

    /// The attribute with this name.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the call site has no such attribute.
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

    /// The user data with this name, which the embedder attached.
    #[must_use]
    pub fn user_data(&self, name: &str) -> Option<&'c [u8]> {
        user_data(self.options, name)
    }

    /// Allocates uninitialised memory of this many bytes, which lives until the call's work is
    /// done.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the device has too little memory.
    pub fn scratch(&mut self, size: usize) -> Result<DeviceBuffer> {
        self.queue.allocate(size)
    }

    /// The state that an earlier stage returned, if it has this type.
    #[must_use]
    pub fn state<T: Any>(&self, stage: Stage) -> Option<&'c T> {
        self.states.get(stage as usize)?.as_ref()?.downcast_ref()
    }

    /// Calls a function of the running program, the one with this number in
    /// [`CallSite::functions`], and returns the leaves of its result. Its work goes into the same
    /// stream.
    ///
    /// # Errors
    /// NOT_FOUND if there is no such function; the failure of one of its instructions.
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
