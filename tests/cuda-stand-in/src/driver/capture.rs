//! Stream captures.

use std::ffi::c_void;

use cudarc::driver::sys::{CUgraphEdgeData, CUresult, CUstreamCaptureMode};

use super::foreign::Out;
use super::{Guard, Needs, call};
use crate::state::capture::exchange_mode;

/// CU_STREAM_CAPTURE_STATUS_NONE, _ACTIVE, _INVALIDATED.
const NONE: u32 = 0;
const ACTIVE: u32 = 1;
const INVALIDATED: u32 = 2;

fn mode(number: u32) -> Result<CUstreamCaptureMode, CUresult> {
    match number {
        0 => Ok(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL),
        1 => Ok(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
        2 => Ok(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamBeginCapture_v2(stream: usize, number: u32) -> CUresult {
    call("cuStreamBeginCapture_v2", Needs::Context, |mut guard| {
        let stream = guard.stream(stream)?;
        guard.begin_capture(stream, mode(number)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamEndCapture(stream: usize, graph: Out<usize>) -> CUresult {
    // The capture ends even if this call fails.
    call("cuStreamEndCapture", Needs::Release, |mut guard| {
        if graph.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let current = guard.current()?;
        let stream = guard.stream_handle(stream, current)?;
        let ended = guard.end_capture(stream);
        graph.put(*ended.as_ref().unwrap_or(&0))?;
        ended.map(drop)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuThreadExchangeStreamCaptureMode(number: Out<u32>) -> CUresult {
    call(
        "cuThreadExchangeStreamCaptureMode",
        Needs::Initialised,
        |_guard| number.replace(|number| Ok(exchange_mode(mode(number)?) as u32)),
    )
}

/// Returns a stream's capture status and the capture's number.
fn status(guard: &mut Guard, stream: usize) -> Result<(u32, u64), CUresult> {
    let stream = guard.stream(stream)?;
    guard.check_implicit(stream)?;
    let Some(id) = guard.streams.get(stream)?.capture else {
        return Ok((NONE, 0));
    };
    let invalidated = guard
        .captures
        .get(&id)
        .is_none_or(|capture| capture.invalidated);
    Ok((if invalidated { INVALIDATED } else { ACTIVE }, id))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamIsCapturing(stream: usize, place: Out<u32>) -> CUresult {
    call("cuStreamIsCapturing", Needs::Context, |mut guard| {
        let (status, _) = status(&mut guard, stream)?;
        place.put(status)
    })
}

/// The places for the results.
struct Answers {
    status: Out<u32>,
    id: Out<u64>,
    graph: Out<usize>,
    dependencies: Out<*const c_void>,
    count: Out<usize>,
}

fn info(mut guard: Guard, stream: usize, answers: Answers) -> Result<(), CUresult> {
    let (status, id) = status(&mut guard, stream)?;
    answers.status.put(status)?;
    if status != ACTIVE {
        return Ok(());
    }
    answers.id.put_if_asked(id);
    let stream = guard.stream(stream)?;
    let frontier = guard.streams.get(stream)?.frontier.clone();
    let graph = guard
        .captures
        .get(&id)
        .ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?
        .graph;
    let nodes = &guard.graphs.get(graph)?.nodes;
    let handles: Vec<usize> = frontier
        .iter()
        .filter_map(|node| nodes.get(*node))
        .map(|node| node.handle)
        .collect();
    answers.graph.put_if_asked(graph);
    answers.count.put_if_asked(handles.len());
    if let Some(capture) = guard.captures.get_mut(&id) {
        capture.shown = handles;
        answers
            .dependencies
            .put_if_asked(capture.shown.as_ptr().cast());
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamGetCaptureInfo_v2(
    stream: usize,
    status: Out<u32>,
    id: Out<u64>,
    graph: Out<usize>,
    dependencies: Out<*const c_void>,
    count: Out<usize>,
) -> CUresult {
    let answers = Answers {
        status,
        id,
        graph,
        dependencies,
        count,
    };
    call("cuStreamGetCaptureInfo_v2", Needs::Context, |guard| {
        info(guard, stream, answers)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamGetCaptureInfo_v3(
    stream: usize,
    status: Out<u32>,
    id: Out<u64>,
    graph: Out<usize>,
    dependencies: Out<*const c_void>,
    edges: Out<*const CUgraphEdgeData>,
    count: Out<usize>,
) -> CUresult {
    // No edge has data.
    let answers = Answers {
        status,
        id,
        graph,
        dependencies,
        count,
    };
    call("cuStreamGetCaptureInfo_v3", Needs::Context, |guard| {
        info(guard, stream, answers)?;
        edges.put_if_asked(std::ptr::null());
        Ok(())
    })
}
