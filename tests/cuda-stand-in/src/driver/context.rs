//! Primary contexts, and each thread's current context.

use std::ffi::c_int;

use cudarc::driver::sys::CUresult;

use super::device::known;
use super::foreign::Out;
use super::run::{drain, drain_context};
use super::{Guard, Needs, call};
use crate::state::stream::Stream;
use crate::state::{Context, with_current};

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: Out<usize>, device: c_int) -> CUresult {
    call(
        "cuDevicePrimaryCtxRetain",
        Needs::Initialised,
        |mut guard| {
            let device = known(&guard, device)?;
            if context.is_null() {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
            let handle = match guard.primary.get(&device) {
                Some(handle) => *handle,
                None => create(&mut guard, device)?,
            };
            guard.contexts.get_mut(handle)?.retained += 1;
            context.put(handle)
        },
    )
}

fn create(guard: &mut Guard, device: usize) -> Result<usize, CUresult> {
    let handle = guard.contexts.insert(Context {
        device,
        retained: 0,
        failed: None,
        null_stream: 0,
    });
    let null_stream = guard.streams.insert(Stream::new(handle, false, 0));
    guard.contexts.get_mut(handle)?.null_stream = null_stream;
    guard.primary.insert(device, handle);
    Ok(handle)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> CUresult {
    call(
        "cuDevicePrimaryCtxRelease_v2",
        Needs::Release,
        |mut guard| {
            let device = known(&guard, device)?;
            let handle = *guard
                .primary
                .get(&device)
                .ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
            let context = guard.contexts.get_mut(handle)?;
            context.retained -= 1;
            if context.retained > 0 {
                return Ok(());
            }
            let mut guard = drain_context(guard, handle);
            // Another thread may have retained the context while its work ran.
            if guard.contexts.get(handle)?.retained > 0 {
                return Ok(());
            }
            guard.destroy_context(handle)
        },
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxReset_v2(device: c_int) -> CUresult {
    call(
        "cuDevicePrimaryCtxReset_v2",
        Needs::Initialised,
        |mut guard| {
            let device = known(&guard, device)?;
            let handle = guard.primary.get(&device).copied();
            if let Some(handle) = handle {
                guard.clear_context(handle);
            }
            Ok(())
        },
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxGetState(
    device: c_int,
    flags: Out<u32>,
    active: Out<c_int>,
) -> CUresult {
    call("cuDevicePrimaryCtxGetState", Needs::Initialised, |guard| {
        let device = known(&guard, device)?;
        flags.put(0)?;
        active.put(c_int::from(guard.primary.contains_key(&device)))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetCurrent(context: Out<usize>) -> CUresult {
    call("cuCtxGetCurrent", Needs::Initialised, |_guard| {
        context.put(with_current(|all| all.last().copied().unwrap_or(0)))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxSetCurrent(context: usize) -> CUresult {
    call("cuCtxSetCurrent", Needs::Initialised, |guard| {
        if context != 0 {
            guard
                .contexts
                .get(context)
                .map_err(|_| CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        }
        with_current(|all| {
            all.pop();
            if context != 0 {
                all.push(context);
            }
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxPushCurrent_v2(context: usize) -> CUresult {
    call("cuCtxPushCurrent_v2", Needs::Initialised, |guard| {
        guard
            .contexts
            .get(context)
            .map_err(|_| CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        with_current(|all| all.push(context));
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxPopCurrent_v2(context: Out<usize>) -> CUresult {
    call("cuCtxPopCurrent_v2", Needs::Initialised, |_guard| {
        let popped = with_current(Vec::pop).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        context.put_if_asked(popped);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetDevice(device: Out<c_int>) -> CUresult {
    call("cuCtxGetDevice", Needs::Context, |guard| {
        let number = guard.contexts.get(guard.current()?)?.device;
        device.put(c_int::try_from(number).unwrap_or(c_int::MAX))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxSynchronize() -> CUresult {
    call("cuCtxSynchronize", Needs::Context, |mut guard| {
        let context = guard.current()?;
        guard.check_no_capture_in(context)?;
        drain_context(guard, context).check(context)
    })
}

/// Waits for the legacy default stream and thereby for all blocking streams, as synchronous calls
/// do.
pub(super) fn synchronise_default(guard: Guard) -> Result<Guard, CUresult> {
    let context = guard.current()?;
    let null = guard.contexts.get(context)?.null_stream;
    let guard = drain(guard, null);
    guard.check(context)?;
    Ok(guard)
}
