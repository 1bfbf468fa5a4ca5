//! Devices with memory of their own, as a program sees them.
//!
//! The program's values are [`DeviceBuffer`]s. A [`DeviceQueue`] does the work on them in order,
//! and only [`DeviceQueue::download`] waits for it.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::{CallOptions, Platform};
use crate::values::Result;

/// Memory of a device, freed when its last owner drops it.
pub trait DeviceMemory: fmt::Debug + Send + Sync {
    /// Its address in the device's address space. 0 for memory of no bytes.
    fn address(&self) -> u64;

    /// Its size in bytes.
    fn size(&self) -> usize;

    /// The memory as the type of its backend, for downcasts.
    fn as_any(&self) -> &dyn Any;
}

/// A dense array in a device's memory.
pub type DeviceBuffer = Arc<dyn DeviceMemory>;

/// A leaf of a value on a device.
#[derive(Clone, Debug)]
pub struct DeviceLeaf {
    /// The memory of its elements.
    pub buffer: DeviceBuffer,
    /// Whether its address was known when the program was planned. It is not for results of a
    /// `conditional`, of a `while` and of a `select` of tuples, which XLA's oldest convention
    /// passes as null pointers.
    pub is_known: bool,
}

/// Work that the host does: computes the bytes of outputs from those of inputs. It may run on any
/// thread, and more than once.
///
/// Work that a queue keeps ([`DeviceQueue::keeps_work`]) is given the options of the execution that
/// it runs in.
pub type HostWork =
    Arc<dyn Fn(Option<&CallOptions>, &[&[u8]], &mut [&mut [u8]]) -> Result<()> + Send + Sync>;

/// A device.
pub trait Device: fmt::Debug + Send + Sync {
    /// The platform of the targets that run on it.
    fn platform(&self) -> Platform;

    /// Makes a queue for one execution.
    ///
    /// # Errors
    /// UNAVAILABLE if the device is lost, RESOURCE_EXHAUSTED if it has no room for another queue.
    fn queue(self: Arc<Self>) -> Result<Box<dyn DeviceQueue>>;
}

/// Work on one device, done in order. A failure of the work itself is reported by a later call.
pub trait DeviceQueue {
    /// Allocates uninitialized memory for later work in this queue.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the device lacks the memory.
    fn allocate(&mut self, size: usize) -> Result<DeviceBuffer>;

    /// Allocates memory with these bytes.
    ///
    /// # Errors
    /// As for [`DeviceQueue::allocate`].
    fn upload(&mut self, bytes: &[u8]) -> Result<DeviceBuffer>;

    /// Copies the bytes of one array to another of the same size.
    ///
    /// # Errors
    /// The device's failure.
    fn copy(&mut self, from: &DeviceBuffer, to: &DeviceBuffer) -> Result<()>;

    /// Enqueues work of the host, which computes outputs from inputs.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if there is no memory for copies of the bytes. A later call reports the
    /// failure of the work itself.
    fn compute(
        &mut self,
        work: HostWork,
        inputs: &[DeviceBuffer],
        outputs: &[DeviceBuffer],
    ) -> Result<()>;

    /// Whether work that is enqueued now is recorded, and may run again after this execution. It
    /// must then borrow nothing from the execution.
    fn keeps_work(&self) -> bool {
        false
    }

    /// Returns a range of the bytes of borrowed memory as memory of its own, such as one element of
    /// a batch.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the range is out of bounds, or the memory was not borrowed from the
    /// queue's device.
    fn part(&self, whole: &DeviceBuffer, range: Range<usize>) -> Result<DeviceBuffer>;

    /// Waits for all work, and returns the bytes of these arrays.
    ///
    /// # Errors
    /// The first failure of the work.
    fn download(&mut self, buffers: &[DeviceBuffer]) -> Result<Vec<Vec<u8>>>;

    /// The queue as the type of its backend, for downcasts.
    fn as_any(&mut self) -> &mut dyn Any;
}
