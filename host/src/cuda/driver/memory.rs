//! Memory of a device.
#![allow(unsafe_code, reason = "calls the driver")]

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUdeviceptr, CUpointer_attribute};

use super::{Outcome, Pinned, Stream, check};

/// Memory that was taken in a stream's order, and is given back in it.
#[derive(Debug)]
pub(in crate::cuda) struct Allocation {
    address: CUdeviceptr,
    size: usize,
    stream: Arc<Stream>,
    is_pooled: bool,
}

impl Allocation {
    /// Takes this many bytes, with anything in them. None have no address.
    pub(in crate::cuda) fn new(
        stream: &Arc<Stream>,
        size: usize,
        is_pooled: bool,
    ) -> Outcome<Self> {
        let mut address: CUdeviceptr = 0;
        if size > 0 {
            stream.context().bind()?;
            // SAFETY: the context is current, the stream alive, and `address` is what is written.
            unsafe {
                match is_pooled {
                    true => check(
                        "cuMemAllocAsync",
                        sys::cuMemAllocAsync(&raw mut address, size, stream.raw()),
                    )?,
                    false => check("cuMemAlloc_v2", sys::cuMemAlloc_v2(&raw mut address, size))?,
                }
            }
        }
        Ok(Self {
            address,
            size,
            stream: Arc::clone(stream),
            is_pooled,
        })
    }

    /// Where it is.
    pub(in crate::cuda) fn address(&self) -> u64 {
        self.address
    }

    /// How many bytes it has.
    pub(in crate::cuda) fn size(&self) -> usize {
        self.size
    }

    /// The stream in whose order it was taken and is given back.
    pub(in crate::cuda) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.address == 0 {
            return;
        }
        self.stream.context().bind_anyway();
        // SAFETY: it was taken above, and nobody has the address any longer but what is in the stream already.
        let _ = unsafe {
            match self.is_pooled {
                true => sys::cuMemFreeAsync(self.address, self.stream.raw()),
                false => sys::cuMemFree_v2(self.address),
            }
        };
    }
}

/// Copies, each behind what is in the stream. The addresses must be of memory that stays until the stream has passed.
pub(in crate::cuda) mod copy {
    use super::{Outcome, Pinned, Stream, check, sys};

    /// From pinned memory to a device.
    ///
    /// # Safety
    /// `to` must be the address of as many bytes of this device's memory. Both must stay until the stream has passed.
    pub(in crate::cuda) unsafe fn to_device(
        stream: &Stream,
        from: &Pinned,
        offset: usize,
        to: u64,
        size: usize,
    ) -> Outcome<()> {
        if size == 0 {
            return Ok(());
        }
        stream.context().bind()?;
        let source = from.address(offset, size).cast_const().cast();
        // SAFETY: `address` has checked that the source is in pinned memory; the rest is the caller's promise.
        check("cuMemcpyHtoDAsync_v2", unsafe {
            sys::cuMemcpyHtoDAsync_v2(to, source, size, stream.raw())
        })
    }

    /// From a device to pinned memory.
    ///
    /// # Safety
    /// As for [`to_device`].
    pub(in crate::cuda) unsafe fn to_host(
        stream: &Stream,
        from: u64,
        to: &Pinned,
        offset: usize,
        size: usize,
    ) -> Outcome<()> {
        if size == 0 {
            return Ok(());
        }
        stream.context().bind()?;
        let destination = to.address(offset, size).cast();
        // SAFETY: as above.
        check("cuMemcpyDtoHAsync_v2", unsafe {
            sys::cuMemcpyDtoHAsync_v2(destination, from, size, stream.raw())
        })
    }

    /// Within a device.
    ///
    /// # Safety
    /// Both must be addresses of as many bytes of this device's memory, which stay until the stream has passed.
    pub(in crate::cuda) unsafe fn on_device(
        stream: &Stream,
        from: u64,
        to: u64,
        size: usize,
    ) -> Outcome<()> {
        if size == 0 {
            return Ok(());
        }
        stream.context().bind()?;
        // SAFETY: the caller's promise.
        check("cuMemcpyDtoDAsync_v2", unsafe {
            sys::cuMemcpyDtoDAsync_v2(to, from, size, stream.raw())
        })
    }
}

/// Fills, each behind what is in the stream.
pub(in crate::cuda) mod fill {
    use super::{Outcome, Stream, check, sys};

    /// Sets each byte.
    ///
    /// # Safety
    /// `to` must be the address of as many bytes of this device's memory, which stay until the stream has passed.
    pub(in crate::cuda) unsafe fn bytes(
        stream: &Stream,
        to: u64,
        value: u8,
        size: usize,
    ) -> Outcome<()> {
        if size == 0 {
            return Ok(());
        }
        stream.context().bind()?;
        // SAFETY: the caller's promise.
        check("cuMemsetD8Async", unsafe {
            sys::cuMemsetD8Async(to, value, size, stream.raw())
        })
    }

    /// Sets each four bytes.
    ///
    /// # Safety
    /// As for [`bytes`], with four bytes for each of the words.
    pub(in crate::cuda) unsafe fn words(
        stream: &Stream,
        to: u64,
        value: u32,
        words: usize,
    ) -> Outcome<()> {
        if words == 0 {
            return Ok(());
        }
        stream.context().bind()?;
        // SAFETY: the caller's promise.
        check("cuMemsetD32Async", unsafe {
            sys::cuMemsetD32Async(to, value, words, stream.raw())
        })
    }
}

/// Whose memory an address is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cuda) enum MemoryKind {
    /// The device with this number.
    Device(usize),
    /// The host, known to the driver: a device can reach it.
    Pinned,
    /// Nobody's that the driver knows of: the host's own.
    Unknown,
}

/// Whose memory this address is of.
pub(in crate::cuda) fn kind_of(context: &super::Context, address: u64) -> Outcome<MemoryKind> {
    const INVALID_VALUE: u32 = 1;
    const HOST: u32 = 1;
    context.bind()?;
    let (mut kind, mut ordinal) = (0_u32, 0_i32);
    let ask = |what: CUpointer_attribute, to: *mut c_void| {
        // SAFETY: both attributes are 32 bits, which is what `to` points to; an address that is nobody's is an error and no harm.
        check("cuPointerGetAttribute", unsafe {
            sys::cuPointerGetAttribute(to, what, address)
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
