//! Allocation of device memory and of pinned host memory.

use std::ffi::c_void;

use cudarc::driver::sys::CUresult;

use super::foreign::{Host, Out};
use super::run::{drain_context, enqueue};
use super::{Guard, Needs, call};
use crate::state::memory::{Owner, Place, Request};
use crate::state::stream::Work;

fn request(guard: &Guard, context: usize, size: usize, ready: bool) -> Result<Request, CUresult> {
    if size == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    Ok(Request {
        size,
        device: guard.contexts.get(context)?.device,
        context,
        owner: Owner::Program,
        ready,
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(address: Out<u64>, size: usize) -> CUresult {
    call("cuMemAlloc_v2", Needs::Context, |mut guard| {
        guard.check_unsafe_call()?;
        let context = guard.current()?;
        let request = request(&guard, context, size, true)?;
        if address.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let capacity = guard.settings.capacity(request.device);
        let base = guard.memory.allocate(request, capacity)?.base;
        address.put(base)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocAsync(address: Out<u64>, size: usize, stream: usize) -> CUresult {
    call("cuMemAllocAsync", Needs::Context, |mut guard| {
        let stream = guard.stream(stream)?;
        guard.check_not_capturing(stream)?;
        guard.check_implicit(stream)?;
        let context = guard.streams.get(stream)?.context;
        let request = request(&guard, context, size, false)?;
        if address.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let capacity = guard.settings.capacity(request.device);
        let base = guard.memory.allocate(request, capacity)?.base;
        address.put(base)?;
        enqueue(guard, stream, Work::Allocate(base)).map(drop)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemFree_v2(address: u64) -> CUresult {
    call("cuMemFree_v2", Needs::Release, |mut guard| {
        guard.current()?;
        guard.check_unsafe_call()?;
        if address == 0 {
            return Ok(());
        }
        free(guard, address, Place::Device)
    })
}

/// Frees memory after all work that might use it.
fn free(mut guard: Guard, address: u64, place: Place) -> Result<(), CUresult> {
    let context = guard.memory.release(address, place)?.context;
    let mut guard = drain_context(guard, context);
    guard.memory.remove(address);
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemFreeAsync(address: u64, stream: usize) -> CUresult {
    call("cuMemFreeAsync", Needs::Release, |mut guard| {
        let stream = guard.stream_handle(stream, guard.current()?)?;
        guard.check_not_capturing(stream)?;
        guard.check_implicit(stream)?;
        guard.memory.release(address, Place::Device)?;
        enqueue(guard, stream, Work::Free(address)).map(drop)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) -> CUresult {
    call("cuMemGetInfo_v2", Needs::Context, |guard| {
        let device = guard.contexts.get(guard.current()?)?.device;
        let capacity = guard.settings.capacity(device);
        let left = capacity.saturating_sub(guard.memory.used(device));
        free.put(usize::try_from(left).unwrap_or(usize::MAX))?;
        total.put(usize::try_from(capacity).unwrap_or(usize::MAX))
    })
}

/// CU_MEMHOSTALLOC_PORTABLE, _DEVICEMAP and _WRITECOMBINED.
const HOST_FLAGS: u32 = 1 | 2 | 4;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostAlloc(
    address: Out<*mut c_void>,
    size: usize,
    flags: u32,
) -> CUresult {
    call("cuMemHostAlloc", Needs::Context, |mut guard| {
        guard.check_unsafe_call()?;
        let context = guard.current()?;
        let request = request(&guard, context, size, true)?;
        if address.is_null() || flags & !HOST_FLAGS != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let base = guard.memory.pin(request)?.base;
        address.put(std::ptr::with_exposed_provenance_mut(
            usize::try_from(base).unwrap_or(0),
        ))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemFreeHost(address: Host) -> CUresult {
    call("cuMemFreeHost", Needs::Release, |mut guard| {
        guard.current()?;
        guard.check_unsafe_call()?;
        free(guard, address.address(), Place::Host)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostGetDevicePointer_v2(
    device: Out<u64>,
    host: Host,
    flags: u32,
) -> CUresult {
    call("cuMemHostGetDevicePointer_v2", Needs::Context, |guard| {
        let pinned = guard
            .memory
            .find(host.address())
            .filter(|found| found.place == Place::Host);
        if flags != 0 || pinned.is_none() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        device.put(host.address())
    })
}
