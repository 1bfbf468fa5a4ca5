//! The driver calls of the tests, without pointers. Errors are returned as the driver's code.
#![allow(unsafe_code, reason = "calls the driver API")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod graphs;
mod kernels;

use std::ptr::{null, null_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use callbox_cuda_stand_in::StandIn;
use cudarc::driver::sys::{self, CUevent, CUresult, CUstream, CUstreamCaptureMode};

pub(crate) use self::graphs::*;
pub(crate) use self::kernels::*;

/// Kernels: `axpb(x, y, a, b, n)`, `count()`, `stop()`; a variable `counter` with the initial value
/// 7.
pub(crate) const PTX: &str = include_str!("axpb.ptx");
pub(crate) const THREAD_LOCAL: CUstreamCaptureMode =
    CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
pub(crate) const GLOBAL: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;

pub(crate) type Outcome<T> = Result<T, CUresult>;

/// Resets the stand-in, and serialises the tests.
pub(crate) fn alone() -> (MutexGuard<'static, ()>, &'static StandIn) {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let stand_in = StandIn::preload();
    stand_in.reset();
    (guard, stand_in)
}

pub(crate) fn code(code: CUresult) -> Outcome<()> {
    if code == CUresult::CUDA_SUCCESS {
        Ok(())
    } else {
        Err(code)
    }
}

/// Calls with a place for the result, and returns the result.
fn out<T>(mut first: T, fill: impl FnOnce(*mut T) -> CUresult) -> Outcome<T> {
    code(fill(&mut first))?;
    Ok(first)
}

macro_rules! driver {
    ($call:expr) => {
        // SAFETY: every pointer is to a place or a slice that outlives the call, or a handle, which
        // the stand-in looks up.
        unsafe { $call }
    };
}

use driver;

pub(crate) fn init() -> Outcome<()> {
    code(driver!(sys::cuInit(0)))
}

/// Retains a device's primary context and makes it current.
pub(crate) fn enter(device: i32) -> Outcome<sys::CUcontext> {
    let context = out(null_mut(), |place| {
        driver!(sys::cuDevicePrimaryCtxRetain(place, device))
    })?;
    code(driver!(sys::cuCtxSetCurrent(context)))?;
    Ok(context)
}

pub(crate) fn leave(device: i32) -> Outcome<()> {
    code(driver!(sys::cuDevicePrimaryCtxRelease_v2(device)))
}

pub(crate) fn reset_device(device: i32) -> Outcome<()> {
    code(driver!(sys::cuDevicePrimaryCtxReset_v2(device)))
}

pub(crate) fn set_current(context: sys::CUcontext) -> Outcome<()> {
    code(driver!(sys::cuCtxSetCurrent(context)))
}

pub(crate) fn synchronise_context() -> Outcome<()> {
    code(driver!(sys::cuCtxSynchronize()))
}

/// Creates a stream that does not wait for the default stream.
pub(crate) fn stream() -> Outcome<CUstream> {
    out(null_mut(), |place| driver!(sys::cuStreamCreate(place, 1)))
}

pub(crate) fn blocking_stream() -> Outcome<CUstream> {
    out(null_mut(), |place| driver!(sys::cuStreamCreate(place, 0)))
}

pub(crate) fn destroy_stream(stream: CUstream) -> Outcome<()> {
    code(driver!(sys::cuStreamDestroy_v2(stream)))
}

pub(crate) fn synchronise(stream: CUstream) -> Outcome<()> {
    code(driver!(sys::cuStreamSynchronize(stream)))
}

pub(crate) fn query(stream: CUstream) -> Outcome<()> {
    code(driver!(sys::cuStreamQuery(stream)))
}

pub(crate) fn event() -> Outcome<CUevent> {
    out(null_mut(), |place| driver!(sys::cuEventCreate(place, 0)))
}

pub(crate) fn destroy_event(event: CUevent) -> Outcome<()> {
    code(driver!(sys::cuEventDestroy_v2(event)))
}

pub(crate) fn record(event: CUevent, stream: CUstream) -> Outcome<()> {
    code(driver!(sys::cuEventRecord(event, stream)))
}

pub(crate) fn wait(stream: CUstream, event: CUevent) -> Outcome<()> {
    code(driver!(sys::cuStreamWaitEvent(stream, event, 0)))
}

pub(crate) fn query_event(event: CUevent) -> Outcome<()> {
    code(driver!(sys::cuEventQuery(event)))
}

pub(crate) fn synchronise_event(event: CUevent) -> Outcome<()> {
    code(driver!(sys::cuEventSynchronize(event)))
}

pub(crate) fn elapsed(start: CUevent, end: CUevent) -> Outcome<f32> {
    out(0.0, |place| {
        driver!(sys::cuEventElapsedTime_v2(place, start, end))
    })
}

pub(crate) fn alloc(bytes: usize) -> Outcome<u64> {
    out(0, |place| driver!(sys::cuMemAlloc_v2(place, bytes)))
}

pub(crate) fn alloc_async(bytes: usize, stream: CUstream) -> Outcome<u64> {
    out(0, |place| {
        driver!(sys::cuMemAllocAsync(place, bytes, stream))
    })
}

pub(crate) fn free(address: u64) -> Outcome<()> {
    code(driver!(sys::cuMemFree_v2(address)))
}

pub(crate) fn free_async(address: u64, stream: CUstream) -> Outcome<()> {
    code(driver!(sys::cuMemFreeAsync(address, stream)))
}

pub(crate) fn memory_info() -> Outcome<(usize, usize)> {
    let mut total = 0;
    let free = out(0, |place| driver!(sys::cuMemGetInfo_v2(place, &mut total)))?;
    Ok((free, total))
}

/// Pinned memory of 32-bit words, accessed only while no work that uses it is in progress.
pub(crate) struct Pinned {
    pub(crate) at: *mut u32,
    words: usize,
}

pub(crate) fn pin(words: usize) -> Outcome<Pinned> {
    let at = out(null_mut(), |place| {
        driver!(sys::cuMemHostAlloc(place, words * 4, 0))
    })?;
    Ok(Pinned {
        at: at.cast(),
        words,
    })
}

impl Pinned {
    pub(crate) fn read(&self) -> Vec<u32> {
        // SAFETY: the driver allocated this memory here, and `unpin` consumes the value.
        (0..self.words)
            .map(|index| unsafe { self.at.add(index).read_volatile() })
            .collect()
    }

    pub(crate) fn fill(&self, value: u32) {
        for index in 0..self.words {
            // SAFETY: the driver allocated this memory here, and `unpin` consumes the value.
            unsafe { self.at.add(index).write_volatile(value) };
        }
    }

    pub(crate) fn unpin(self) -> Outcome<()> {
        code(driver!(sys::cuMemFreeHost(self.at.cast())))
    }
}

/// Enqueues a copy from pageable memory to a device.
pub(crate) fn upload(to: u64, words: &[u32], stream: CUstream) -> Outcome<()> {
    code(driver!(sys::cuMemcpyHtoDAsync_v2(
        to,
        words.as_ptr().cast(),
        size_of_val(words),
        stream
    )))
}

pub(crate) fn upload_pinned(to: u64, from: &Pinned, stream: CUstream) -> Outcome<()> {
    code(driver!(sys::cuMemcpyHtoDAsync_v2(
        to,
        from.at.cast(),
        from.words * 4,
        stream
    )))
}

/// Enqueues a copy to pageable memory.
pub(crate) fn download(from: u64, words: usize, stream: CUstream) -> Outcome<Vec<u32>> {
    let mut to = vec![0u32; words];
    code(driver!(sys::cuMemcpyDtoHAsync_v2(
        to.as_mut_ptr().cast(),
        from,
        words * 4,
        stream
    )))?;
    Ok(to)
}

pub(crate) fn download_pinned(to: &Pinned, from: u64, stream: CUstream) -> Outcome<()> {
    code(driver!(sys::cuMemcpyDtoHAsync_v2(
        to.at.cast(),
        from,
        to.words * 4,
        stream
    )))
}

pub(crate) fn copy(to: u64, from: u64, bytes: usize, stream: CUstream) -> Outcome<()> {
    code(driver!(sys::cuMemcpyDtoDAsync_v2(to, from, bytes, stream)))
}

/// Copies between places that are determined by their addresses.
pub(crate) fn copy_any(to: u64, from: u64, bytes: usize, stream: CUstream) -> Outcome<()> {
    code(driver!(sys::cuMemcpyAsync(to, from, bytes, stream)))
}

/// Copies on the default stream and waits.
pub(crate) fn download_now(from: u64, words: usize) -> Outcome<Vec<u32>> {
    let mut to = vec![0u32; words];
    code(driver!(sys::cuMemcpyDtoH_v2(
        to.as_mut_ptr().cast(),
        from,
        words * 4
    )))?;
    Ok(to)
}

pub(crate) fn set_words(to: u64, value: u32, count: usize, stream: CUstream) -> Outcome<()> {
    code(driver!(sys::cuMemsetD32Async(to, value, count, stream)))
}

pub(crate) fn memory_type(address: u64) -> Outcome<u32> {
    let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    out(0u32, |place| {
        driver!(sys::cuPointerGetAttribute(place.cast(), attribute, address))
    })
}

pub(crate) fn device_of(address: u64) -> Outcome<i32> {
    let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    out(-1, |place| {
        driver!(sys::cuPointerGetAttribute(place.cast(), attribute, address))
    })
}

/// Calls functions with null pointers, and returns their codes.
pub(crate) fn null_calls() -> Vec<CUresult> {
    driver!(vec![
        sys::cuDeviceGetCount(null_mut()),
        sys::cuMemAlloc_v2(null_mut(), 4),
        sys::cuStreamCreate(null_mut(), 0),
        sys::cuEventCreate(null_mut(), 0),
        sys::cuModuleLoadData(null_mut(), null()),
        sys::cuMemcpyHtoD_v2(alloc(4).unwrap(), null(), 4),
        sys::cuMemHostAlloc(null_mut(), 4, 0),
    ])
}
