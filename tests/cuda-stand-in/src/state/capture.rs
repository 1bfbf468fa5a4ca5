//! Captures: streams whose work becomes a graph, and the restrictions during a capture.

use std::cell::Cell;
use std::thread::ThreadId;

use cudarc::driver::sys::{CUresult, CUstreamCaptureMode};

use super::State;
use super::graph::Graph;
use super::stream::NodeWork;

/// A capture in progress.
#[derive(Debug)]
pub(crate) struct Capture {
    pub(crate) graph: usize,
    pub(crate) origin: usize,
    pub(crate) mode: CUstreamCaptureMode,
    pub(crate) thread: ThreadId,
    pub(crate) invalidated: bool,
    /// The handles last returned as a stream's dependencies. The array must stay valid until the
    /// next call about this capture.
    pub(crate) shown: Vec<usize>,
}

thread_local! {
    /// The restrictions on this thread during captures.
    static MODE: Cell<CUstreamCaptureMode> = const { Cell::new(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL) };
}

/// Sets this thread's mode and returns the old one.
pub(crate) fn exchange_mode(mode: CUstreamCaptureMode) -> CUstreamCaptureMode {
    MODE.replace(mode)
}

const GLOBAL: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
const RELAXED: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;

impl State {
    /// Invalidates a capture: it can still be ended, but gives no graph.
    pub(crate) fn invalidate(&mut self, capture: u64) {
        if let Some(capture) = self.captures.get_mut(&capture) {
            capture.invalidated = true;
        }
    }

    /// Rejects calls that may wait for other streams, such as an allocation, while a capture
    /// forbids them to this thread.
    pub(crate) fn check_unsafe_call(&mut self) -> Result<(), CUresult> {
        let (mode, thread) = (MODE.get(), std::thread::current().id());
        let mut refused = false;
        for capture in self.captures.values_mut() {
            let own = capture.thread == thread && capture.mode != RELAXED;
            let forbids = match mode {
                CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL => own || capture.mode == GLOBAL,
                CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL => own,
                CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED => false,
            };
            capture.invalidated |= forbids;
            refused |= forbids;
        }
        if refused {
            Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        } else {
            Ok(())
        }
    }

    /// Rejects calls that a capturing stream does not support, and invalidates the capture.
    pub(crate) fn check_not_capturing(&mut self, stream: usize) -> Result<(), CUresult> {
        match self.streams.get(stream)?.capture {
            None => Ok(()),
            Some(capture) => {
                self.invalidate(capture);
                Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
            }
        }
    }

    /// Rejects calls that wait for all work of a context, if one of its streams is captured.
    pub(crate) fn check_no_capture_in(&mut self, context: usize) -> Result<(), CUresult> {
        let captures: Vec<u64> = self
            .streams
            .iter()
            .filter(|(_, found)| found.context == context)
            .filter_map(|(_, found)| found.capture)
            .collect();
        for capture in &captures {
            self.invalidate(*capture);
        }
        if captures.is_empty() {
            Ok(())
        } else {
            Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        }
    }

    /// Rejects work on the legacy default stream while a blocking stream is captured, because it
    /// would wait for that stream.
    pub(crate) fn check_implicit(&mut self, stream: usize) -> Result<(), CUresult> {
        let context = self.streams.get(stream)?.context;
        if self.contexts.get(context)?.null_stream != stream {
            return Ok(());
        }
        let blocking = self
            .streams
            .iter()
            .filter(|(_, found)| found.context == context && !found.non_blocking);
        let captures: Vec<u64> = blocking.filter_map(|(_, found)| found.capture).collect();
        for capture in &captures {
            self.invalidate(*capture);
        }
        if captures.is_empty() {
            Ok(())
        } else {
            Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
        }
    }

    /// Turns work into a node if its stream is being captured.
    ///
    /// # Errors
    /// CUDA_ERROR_STREAM_CAPTURE_INVALIDATED if the capture was invalidated.
    pub(crate) fn capture_node(
        &mut self,
        stream: usize,
        work: &NodeWork,
    ) -> Result<bool, CUresult> {
        let found = self.streams.get_mut(stream)?;
        let Some(id) = found.capture else {
            return Ok(false);
        };
        let capture = self
            .captures
            .get(&id)
            .filter(|capture| !capture.invalidated);
        let capture = capture.ok_or(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)?;
        let node = self
            .graphs
            .get_mut(capture.graph)?
            .add(work.clone(), std::mem::take(&mut found.frontier));
        found.frontier = vec![node];
        Ok(true)
    }

    /// Begins to capture a stream.
    pub(crate) fn begin_capture(
        &mut self,
        stream: usize,
        mode: CUstreamCaptureMode,
    ) -> Result<(), CUresult> {
        let found = self.streams.get(stream)?;
        let context = found.context;
        if found.capture.is_some() {
            return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
        }
        if self.contexts.get(context)?.null_stream == stream {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        let graph = self.graphs.insert(Graph {
            context,
            nodes: Vec::new(),
        });
        self.next_capture += 1;
        let id = self.next_capture;
        let thread = std::thread::current().id();
        self.captures.insert(
            id,
            Capture {
                graph,
                origin: stream,
                mode,
                thread,
                invalidated: false,
                shown: Vec::new(),
            },
        );
        let found = self.streams.get_mut(stream)?;
        found.capture = Some(id);
        found.frontier = Vec::new();
        Ok(())
    }

    /// Makes a stream wait for an event of a capture, which adds the stream to the capture.
    pub(crate) fn wait_captured(
        &mut self,
        stream: usize,
        capture: u64,
        nodes: &[usize],
    ) -> Result<(), CUresult> {
        if !self.captures.contains_key(&capture) {
            return Err(CUresult::CUDA_ERROR_CAPTURED_EVENT);
        }
        let found = self.streams.get_mut(stream)?;
        match found.capture {
            None => {
                found.capture = Some(capture);
                found.frontier = nodes.to_vec();
            }
            Some(own) if own == capture => {
                for node in nodes {
                    if !found.frontier.contains(node) {
                        found.frontier.push(*node);
                    }
                }
            }
            Some(own) => {
                self.invalidate(own);
                self.invalidate(capture);
                return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE);
            }
        }
        Ok(())
    }

    /// Ends a capture and returns its graph. An error ends the capture too, unless the stream is
    /// the wrong one.
    pub(crate) fn end_capture(&mut self, stream: usize) -> Result<usize, CUresult> {
        let id = self
            .streams
            .get(stream)?
            .capture
            .ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
        let capture = self
            .captures
            .get_mut(&id)
            .ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
        if capture.origin != stream {
            capture.invalidated = true;
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != RELAXED && capture.thread != std::thread::current().id() {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
        }
        let (graph, invalidated) = (capture.graph, capture.invalidated);
        let ends = self.streams.get(stream)?.frontier.clone();
        self.drop_capture(id);
        let whole = if invalidated {
            Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
        } else if !self.graphs.get(graph)?.is_joined(&ends) {
            Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
        } else {
            Ok(graph)
        };
        if whole.is_err() {
            let _ = self.graphs.remove(graph);
        }
        whole
    }

    /// Releases the streams of a capture.
    fn drop_capture(&mut self, id: u64) {
        self.captures.remove(&id);
        for stream in self.streams.values_mut() {
            if stream.capture == Some(id) {
                stream.capture = None;
                stream.frontier.clear();
            }
        }
    }
}
