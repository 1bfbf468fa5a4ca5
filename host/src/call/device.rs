//! Devices that programs run on whose memory is not the host's: the little that a program knows of one.
//!
//! A program's values are then [`DeviceBuffer`]s, and work on them is put into a [`DeviceQueue`], which does it in order. Nothing waits for it but
//! [`DeviceQueue::download`].

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::Platform;
use crate::values::Result;

/// Memory of a device, for as long as somebody holds it.
pub trait DeviceMemory: fmt::Debug + Send + Sync {
    /// Where it is, in the device's address space. 0 for memory of no bytes.
    fn address(&self) -> u64;

    /// Its size in bytes.
    fn size(&self) -> usize;

    /// The memory as what its backend knows it as: a queue takes no other's.
    fn as_any(&self) -> &dyn Any;
}

/// An array in a device's memory, dense.
pub type DeviceBuffer = Arc<dyn DeviceMemory>;

/// A leaf of a value on a device.
#[derive(Clone, Debug)]
pub struct DeviceLeaf {
    /// Where its elements are.
    pub buffer: DeviceBuffer,
    /// Whether its address was known when the program was planned: not so for what comes out of a `conditional`, a `while` or a `select` of
    /// tuples. XLA's oldest convention hands such leaves over as null pointers.
    pub is_known: bool,
}

/// What the host computes, from the bytes of the inputs to those of the outputs. It may be done on any thread, and more than once.
pub type HostWork = Arc<dyn Fn(&[&[u8]], &mut [&mut [u8]]) -> Result<()> + Send + Sync>;

/// A device.
pub trait Device: fmt::Debug + Send + Sync {
    /// The platform whose targets run on it.
    fn platform(&self) -> Platform;

    /// A queue of its own for one execution.
    ///
    /// # Errors
    /// UNAVAILABLE if the device is lost, RESOURCE_EXHAUSTED if it has no room for another.
    fn queue(&self) -> Result<Box<dyn DeviceQueue>>;
}

/// Work on one device, done in the order in which it comes in. Whatever fails while it is done is told by a later call.
pub trait DeviceQueue {
    /// Memory of this many bytes, with anything in it, for what comes later in this queue.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the device has not as much.
    fn allocate(&mut self, size: usize) -> Result<DeviceBuffer>;

    /// Memory with these bytes.
    ///
    /// # Errors
    /// As for [`DeviceQueue::allocate`].
    fn upload(&mut self, bytes: &[u8]) -> Result<DeviceBuffer>;

    /// Copies the bytes of one array to another of the same size.
    ///
    /// # Errors
    /// What the device reports.
    fn copy(&mut self, from: &DeviceBuffer, to: &DeviceBuffer) -> Result<()>;

    /// Computes outputs from inputs, on the host, when their turn comes.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if there is no memory for the bytes to pass through. What the work itself fails with is told later.
    fn compute(
        &mut self,
        work: HostWork,
        inputs: &[DeviceBuffer],
        outputs: &[DeviceBuffer],
    ) -> Result<()>;

    /// Whether work that is put in now is kept, and may be done again later: it must hold nothing of this execution.
    fn keeps_work(&self) -> bool {
        false
    }

    /// Waits for all work, and gives the bytes of these arrays.
    ///
    /// # Errors
    /// The first failure of the work.
    fn download(&mut self, buffers: &[DeviceBuffer]) -> Result<Vec<Vec<u8>>>;

    /// The queue as what its backend knows it as.
    fn as_any(&mut self) -> &mut dyn Any;
}
