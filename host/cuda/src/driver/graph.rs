//! Graphs: captured work that is launched as one.
#![allow(unsafe_code, reason = "calls the driver")]

use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUgraph, CUgraphExec, CUgraphExecUpdateResultInfo};

use super::{Context, Outcome, Stream};

/// Captured work.
#[derive(Debug)]
pub(crate) struct Graph {
    raw: CUgraph,
    context: Arc<Context>,
}

/// Captured work that can be launched.
#[derive(Debug)]
pub(crate) struct GraphExec {
    raw: CUgraphExec,
    context: Arc<Context>,
}

// SAFETY: a graph may be used from any thread, by one at a time, which `&mut` enforces.
unsafe impl Send for Graph {}
// SAFETY: as for `Graph`.
unsafe impl Send for GraphExec {}

/// The outcome of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Updated {
    /// The executable graph launches the new work.
    Done,
    /// The new work has another form, and needs a new executable graph.
    OtherForm,
}

impl Graph {
    /// # Safety
    /// The handle must be a graph's of this context, and nothing else may own it.
    pub(super) unsafe fn from_raw(raw: CUgraph, context: &Arc<Context>) -> Self {
        Self {
            raw,
            context: Arc::clone(context),
        }
    }

    /// Makes a graph that can be launched.
    pub(crate) fn instantiate(&mut self) -> Outcome<GraphExec> {
        let mut raw: CUgraphExec = ptr::null_mut();
        self.context.call("cuGraphInstantiateWithFlags", || {
            // SAFETY: the graph is alive, and the driver writes `raw`.
            unsafe { sys::cuGraphInstantiateWithFlags(&raw mut raw, self.raw, 0) }
        })?;
        Ok(GraphExec {
            raw,
            context: Arc::clone(&self.context),
        })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: this value owns the handle. Executable graphs are independent of it.
        self.context
            .free(|| unsafe { sys::cuGraphDestroy(self.raw) });
    }
}

impl GraphExec {
    /// Puts the graph's work into a stream.
    ///
    /// # Safety
    /// Everything that the work reads, writes and calls must live until the stream has passed it.
    pub(crate) unsafe fn launch(&mut self, stream: &Stream) -> Outcome<()> {
        self.context.call("cuGraphLaunch", || {
            // SAFETY: the graph and the stream are alive; the caller keeps what the work uses.
            unsafe { sys::cuGraphLaunch(self.raw, stream.raw()) }
        })
    }

    /// Makes it launch another graph's work, if only parameters differ.
    pub(crate) fn update(&mut self, graph: &mut Graph) -> Outcome<Updated> {
        const UPDATE_FAILURE: u32 = 910;
        // SAFETY: the structure is plain data, for which zeros are valid.
        let mut info: CUgraphExecUpdateResultInfo = unsafe { std::mem::zeroed() };
        let updated = self.context.call("cuGraphExecUpdate_v2", || {
            // SAFETY: both graphs are alive, and the driver writes `info`.
            unsafe { sys::cuGraphExecUpdate_v2(self.raw, graph.raw, &raw mut info) }
        });
        match updated {
            Ok(()) => Ok(Updated::Done),
            Err(failure) if failure.code == UPDATE_FAILURE => Ok(Updated::OtherForm),
            Err(failure) => Err(failure),
        }
    }
}

impl Drop for GraphExec {
    fn drop(&mut self) {
        // SAFETY: this value owns the handle. The driver keeps a graph that is still running.
        self.context
            .free(|| unsafe { sys::cuGraphExecDestroy(self.raw) });
    }
}
