//! Memory of a device.
#![allow(unsafe_code, reason = "calls the driver")]

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUdeviceptr, CUpointer_attribute, CUresult};

use super::{Context, Outcome, Stream};

/// Memory that is allocated and freed in a stream's order.
#[derive(Debug)]
pub(crate) struct Allocation {
    address: CUdeviceptr,
    size: usize,
    stream: Arc<Stream>,
    is_pooled: bool,
}

impl Allocation {
    /// Allocates this many uninitialised bytes. An allocation of none has the address 0.
    pub(crate) fn new(stream: &Arc<Stream>, size: usize, is_pooled: bool) -> Outcome<Self> {
        let mut address: CUdeviceptr = 0;
        if size > 0 && is_pooled {
            stream.context().call("cuMemAllocAsync", || {
                // SAFETY: the stream is alive, and the driver writes `address`.
                unsafe { sys::cuMemAllocAsync(&raw mut address, size, stream.raw()) }
            })?;
        } else if size > 0 {
            stream.context().call("cuMemAlloc_v2", || {
                // SAFETY: the driver writes `address`.
                unsafe { sys::cuMemAlloc_v2(&raw mut address, size) }
            })?;
        }
        Ok(Self {
            address,
            size,
            stream: Arc::clone(stream),
            is_pooled,
        })
    }

    /// The address on the device.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// The size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The stream in whose order the memory is allocated and freed.
    pub(crate) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.address == 0 {
            return;
        }
        // SAFETY: this value owns the memory. Only work that is in the stream already uses it.
        self.stream.context().free(|| unsafe {
            if self.is_pooled {
                sys::cuMemFreeAsync(self.address, self.stream.raw())
            } else {
                sys::cuMemFree_v2(self.address)
            }
        });
    }
}

/// Puts work on `size` bytes or words into a stream, unless `size` is 0.
fn enqueue(
    stream: &Stream,
    size: usize,
    name: &'static str,
    call: impl FnOnce() -> CUresult,
) -> Outcome<()> {
    if size == 0 {
        return Ok(());
    }
    stream.context().call(name, call)
}

/// Copies, in a stream's order.
pub(crate) mod copy {
    use std::ops::Range;

    use super::{Outcome, Stream, enqueue, sys};
    use crate::driver::Pinned;

    /// Copies these bytes of pinned memory to a device.
    ///
    /// # Safety
    /// `to` must be the address of as many bytes of this device's memory. Both sides must live
    /// until the stream has passed the copy.
    pub(crate) unsafe fn to_device(
        stream: &Stream,
        from: &Pinned,
        bytes: &Range<usize>,
        to: u64,
    ) -> Outcome<()> {
        let source = from.address(bytes).cast_const().cast();
        enqueue(stream, bytes.len(), "cuMemcpyHtoDAsync_v2", || {
            // SAFETY: `Pinned::address` has checked the source; the caller promises the rest.
            unsafe { sys::cuMemcpyHtoDAsync_v2(to, source, bytes.len(), stream.raw()) }
        })
    }

    /// Copies from a device to these bytes of pinned memory.
    ///
    /// # Safety
    /// As for [`to_device`], with `from` for `to`.
    pub(crate) unsafe fn to_host(
        stream: &Stream,
        from: u64,
        to: &Pinned,
        bytes: &Range<usize>,
    ) -> Outcome<()> {
        let destination = to.address(bytes).cast();
        enqueue(stream, bytes.len(), "cuMemcpyDtoHAsync_v2", || {
            // SAFETY: `Pinned::address` has checked the destination; the caller promises the rest.
            unsafe { sys::cuMemcpyDtoHAsync_v2(destination, from, bytes.len(), stream.raw()) }
        })
    }

    /// Copies within a device.
    ///
    /// # Safety
    /// Both must be addresses of `size` bytes of this device's memory, which live until the stream
    /// has passed the copy.
    pub(crate) unsafe fn on_device(
        stream: &Stream,
        from: u64,
        to: u64,
        size: usize,
    ) -> Outcome<()> {
        enqueue(stream, size, "cuMemcpyDtoDAsync_v2", || {
            // SAFETY: the caller promises the addresses.
            unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, size, stream.raw()) }
        })
    }
}

/// Fills, in a stream's order.
pub(crate) mod fill {
    use super::{Outcome, Stream, enqueue, sys};

    /// Sets each byte.
    ///
    /// # Safety
    /// `to` must be the address of `size` bytes of this device's memory, which live until the
    /// stream has passed the fill.
    pub(crate) unsafe fn bytes(stream: &Stream, to: u64, value: u8, size: usize) -> Outcome<()> {
        enqueue(stream, size, "cuMemsetD8Async", || {
            // SAFETY: the caller promises the address.
            unsafe { sys::cuMemsetD8Async(to, value, size, stream.raw()) }
        })
    }

    /// Sets each word of four bytes.
    ///
    /// # Safety
    /// As for [`bytes`], with four bytes for each of the words.
    pub(crate) unsafe fn words(stream: &Stream, to: u64, value: u32, words: usize) -> Outcome<()> {
        enqueue(stream, words, "cuMemsetD32Async", || {
            // SAFETY: the caller promises the address.
            unsafe { sys::cuMemsetD32Async(to, value, words, stream.raw()) }
        })
    }
}

/// The owner of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryKind {
    /// The device with this number.
    Device(usize),
    /// The host, in memory that is registered with the driver: a device can reach it.
    Pinned,
    /// Unknown to the driver: the host's own memory.
    Unknown,
}

/// The owner of this address.
pub(crate) fn kind_of(context: &Context, address: u64) -> Outcome<MemoryKind> {
    const INVALID_VALUE: u32 = 1;
    const HOST: u32 = 1;
    let (mut kind, mut ordinal) = (0_u32, 0_i32);
    let ask = |attribute: CUpointer_attribute, value: *mut c_void| {
        context.call("cuPointerGetAttribute", || {
            // SAFETY: both attributes have 32 bits, as their variables. Any address may be asked
            // for.
            unsafe { sys::cuPointerGetAttribute(value, attribute, address) }
        })
    };
    let memory_type = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    match ask(memory_type, (&raw mut kind).cast()) {
        Ok(()) if kind == HOST => return Ok(MemoryKind::Pinned),
        Ok(()) => {}
        Err(failure) if failure.code == INVALID_VALUE => return Ok(MemoryKind::Unknown),
        Err(failure) => return Err(failure),
    }
    let number = CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    ask(number, (&raw mut ordinal).cast())?;
    Ok(MemoryKind::Device(
        usize::try_from(ordinal).unwrap_or(usize::MAX),
    ))
}
