//! Events.

use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::sys::CUresult;

use super::foreign::Out;
use super::run::{drive, settle};
use super::{Guard, Needs, call};
use crate::state::stream::{Mark, Poll};
use crate::state::{Event, Recorded};

/// CU_EVENT_BLOCKING_SYNC, CU_EVENT_DISABLE_TIMING.
const FLAGS: u32 = 1 | 2;
const DISABLE_TIMING: u32 = 2;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventCreate(event: Out<usize>, flags: u32) -> CUresult {
    call("cuEventCreate", Needs::Context, |mut guard| {
        if flags & !FLAGS != 0 || event.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let context = guard.current()?;
        let handle = guard.events.insert(Event {
            context,
            timing: flags & DISABLE_TIMING == 0,
            recorded: Recorded::Never,
        });
        event.put(handle)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventDestroy_v2(event: usize) -> CUresult {
    call("cuEventDestroy_v2", Needs::Release, |mut guard| {
        guard.events.remove(event).map(drop)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventRecord(event: usize, stream: usize) -> CUresult {
    call("cuEventRecord", Needs::Context, |guard| {
        record(guard, event, stream)
    })
}

fn record(mut guard: Guard, event: usize, stream: usize) -> Result<(), CUresult> {
    let stream = guard.stream(stream)?;
    let found = guard.streams.get(stream)?;
    let (context, capture, nodes) = (found.context, found.capture, found.frontier.clone());
    if guard.events.get(event)?.context != context {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    if let Some(capture) = capture {
        if guard
            .captures
            .get(&capture)
            .is_none_or(|capture| capture.invalidated)
        {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
        guard.events.get_mut(event)?.recorded = Recorded::Captured { capture, nodes };
        return Ok(());
    }
    guard.check_implicit(stream)?;
    let mark = guard.push_mark(stream)?;
    guard.events.get_mut(event)?.recorded = Recorded::Mark(mark);
    drop(settle(guard, stream));
    Ok(())
}

/// Returns the mark of a queried event. Events of a capture have none.
fn mark(guard: &mut Guard, event: usize) -> Result<(usize, Option<Arc<Mark>>), CUresult> {
    let found = guard.events.get(event)?;
    let context = found.context;
    match found.recorded.clone() {
        Recorded::Never => Ok((context, None)),
        Recorded::Mark(mark) => Ok((context, Some(mark))),
        Recorded::Captured { capture, .. } => {
            guard.invalidate(capture);
            Err(CUresult::CUDA_ERROR_CAPTURED_EVENT)
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventQuery(event: usize) -> CUresult {
    call("cuEventQuery", Needs::Context, |mut guard| {
        let (context, mark) = mark(&mut guard, event)?;
        guard.check_unsafe_call()?;
        guard.check(context)?;
        let Some(mark) = mark else { return Ok(()) };
        match guard.poll(mark.stream, mark.position) {
            Poll::Ready => Ok(()),
            Poll::NotReady => Err(CUresult::CUDA_ERROR_NOT_READY),
            Poll::Run => drive(guard, mark.stream, mark.position).check(context),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventSynchronize(event: usize) -> CUresult {
    call("cuEventSynchronize", Needs::Context, |mut guard| {
        let (context, mark) = mark(&mut guard, event)?;
        guard.check(context)?;
        let Some(mark) = mark else { return Ok(()) };
        drive(guard, mark.stream, mark.position).check(context)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime_v2(
    milliseconds: Out<f32>,
    start: usize,
    end: usize,
) -> CUresult {
    call("cuEventElapsedTime_v2", Needs::Context, |guard| {
        elapsed(guard, milliseconds, start, end)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime(
    milliseconds: Out<f32>,
    start: usize,
    end: usize,
) -> CUresult {
    call("cuEventElapsedTime", Needs::Context, |guard| {
        elapsed(guard, milliseconds, start, end)
    })
}

fn elapsed(
    mut guard: Guard,
    milliseconds: Out<f32>,
    start: usize,
    end: usize,
) -> Result<(), CUresult> {
    let (start, end) = (time(&mut guard, start)?, time(&mut guard, end)?);
    let seconds = match end.checked_duration_since(start) {
        Some(after) => after.as_secs_f32(),
        None => -start.duration_since(end).as_secs_f32(),
    };
    milliseconds.put(seconds * 1e3)
}

/// Returns the time at which the stream reached an event.
fn time(guard: &mut Guard, event: usize) -> Result<Instant, CUresult> {
    let (_, mark) = mark(guard, event)?;
    if !guard.events.get(event)?.timing {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    let mark = mark.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    mark.at.get().copied().ok_or(CUresult::CUDA_ERROR_NOT_READY)
}
