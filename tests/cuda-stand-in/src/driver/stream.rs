//! Streams.

use std::ffi::{c_int, c_void};

use cudarc::driver::sys::CUresult;

use super::foreign::Out;
use super::run::{drain, drive, enqueue, submit};
use super::{Needs, call};
use crate::state::Recorded;
use crate::state::stream::{HostFunction, NodeWork, Poll, Stream, Work};

/// CU_STREAM_NON_BLOCKING.
const NON_BLOCKING: u32 = 1;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreate(stream: Out<usize>, flags: u32) -> CUresult {
    call("cuStreamCreate", Needs::Context, |guard| {
        create(guard, stream, flags, 0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreateWithPriority(
    stream: Out<usize>,
    flags: u32,
    priority: c_int,
) -> CUresult {
    call("cuStreamCreateWithPriority", Needs::Context, |guard| {
        create(guard, stream, flags, priority)
    })
}

fn create(
    mut guard: super::Guard,
    stream: Out<usize>,
    flags: u32,
    priority: i32,
) -> Result<(), CUresult> {
    if flags & !NON_BLOCKING != 0 || stream.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let context = guard.current()?;
    let handle = guard
        .streams
        .insert(Stream::new(context, flags & NON_BLOCKING != 0, priority));
    stream.put(handle)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamDestroy_v2(stream: usize) -> CUresult {
    call("cuStreamDestroy_v2", Needs::Release, |mut guard| {
        // The program cannot destroy default streams.
        if stream < 3 {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        let context = guard.streams.get(stream)?.context;
        let handle = guard.stream_handle(stream, context)?;
        let found = guard.streams.get_mut(handle)?;
        found.destroyed = true;
        let (idle, capture) = (found.is_idle(), found.capture);
        if let Some(capture) = capture {
            guard.invalidate(capture);
        }
        if idle {
            guard.streams.remove(handle)?;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamSynchronize(stream: usize) -> CUresult {
    call("cuStreamSynchronize", Needs::Context, |mut guard| {
        let stream = guard.stream(stream)?;
        guard.check_not_capturing(stream)?;
        guard.check_implicit(stream)?;
        let context = guard.streams.get(stream)?.context;
        if guard.contexts.get(context)?.null_stream == stream {
            // Waiting for the legacy default stream includes the blocking streams.
            guard.push(stream, Work::Node(NodeWork::Empty))?;
        }
        drain(guard, stream).check(context)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamQuery(stream: usize) -> CUresult {
    call("cuStreamQuery", Needs::Context, |mut guard| {
        let stream = guard.stream(stream)?;
        guard.check_not_capturing(stream)?;
        guard.check_implicit(stream)?;
        let (context, tail) = guard
            .streams
            .get(stream)
            .map(|found| (found.context, found.tail()))?;
        match guard.poll(stream, tail) {
            Poll::Ready => Ok(()),
            Poll::NotReady => Err(CUresult::CUDA_ERROR_NOT_READY),
            Poll::Run => drive(guard, stream, tail).check(context),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamWaitEvent(stream: usize, event: usize, _flags: u32) -> CUresult {
    call("cuStreamWaitEvent", Needs::Context, |mut guard| {
        let stream = guard.stream(stream)?;
        let recorded = guard.events.get(event)?.recorded.clone();
        let capture = guard.streams.get(stream)?.capture;
        match recorded {
            // The event was never recorded.
            Recorded::Never => Ok(()),
            Recorded::Captured { capture, nodes } => guard.wait_captured(stream, capture, &nodes),
            Recorded::Mark(_) if let Some(capture) = capture => {
                guard.invalidate(capture);
                Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
            }
            Recorded::Mark(mark) => {
                guard.check_implicit(stream)?;
                enqueue(
                    guard,
                    stream,
                    Work::Wait {
                        stream: mark.stream,
                        position: mark.position,
                    },
                )
                .map(drop)
            }
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchHostFunc(
    stream: usize,
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    data: *mut c_void,
) -> CUresult {
    call("cuLaunchHostFunc", Needs::Context, |guard| {
        let stream = guard.stream(stream)?;
        let function = function.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let work = NodeWork::Host(HostFunction {
            function,
            data: data.expose_provenance(),
        });
        submit(guard, stream, work).map(drop)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamGetCtx(stream: usize, context: Out<usize>) -> CUresult {
    call("cuStreamGetCtx", Needs::Context, |mut guard| {
        let stream = guard.stream(stream)?;
        guard.check_not_capturing(stream)?;
        context.put(guard.streams.get(stream)?.context)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamGetDevice(stream: usize, device: Out<c_int>) -> CUresult {
    call("cuStreamGetDevice", Needs::Context, |mut guard| {
        let stream = guard.stream(stream)?;
        // As the driver 580.159 does on an H100.
        guard.check_not_capturing(stream)?;
        let number = guard
            .contexts
            .get(guard.streams.get(stream)?.context)?
            .device;
        device.put(c_int::try_from(number).unwrap_or(c_int::MAX))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamGetFlags(stream: usize, flags: Out<u32>) -> CUresult {
    call("cuStreamGetFlags", Needs::Context, |guard| {
        let stream = guard.stream(stream)?;
        flags.put(if guard.streams.get(stream)?.non_blocking {
            NON_BLOCKING
        } else {
            0
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamGetPriority(stream: usize, priority: Out<c_int>) -> CUresult {
    call("cuStreamGetPriority", Needs::Context, |guard| {
        let stream = guard.stream(stream)?;
        priority.put(guard.streams.get(stream)?.priority)
    })
}
