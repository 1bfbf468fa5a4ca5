//! Graphs: captured work, to be launched as one.
#![allow(unsafe_code, reason = "calls the driver")]

use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUgraph, CUgraphExec, CUgraphExecUpdateResultInfo};

use super::{Context, Outcome, Stream, check};

/// Captured work.
#[derive(Debug)]
pub(in crate::cuda) struct Graph {
    raw: CUgraph,
    context: Arc<Context>,
}

/// Captured work, ready to be launched.
#[derive(Debug)]
pub(in crate::cuda) struct GraphExec {
    raw: CUgraphExec,
    context: Arc<Context>,
}

// SAFETY: a graph may be used from any thread, by one at a time, which `&mut` sees to.
unsafe impl Send for Graph {}
// SAFETY: as above.
unsafe impl Send for GraphExec {}

/// What came of updating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cuda) enum Updated {
    /// It launches the new work.
    Done,
    /// The new work is of another form: it has to be made anew.
    OtherForm,
}

impl Graph {
    /// # Safety
    /// It must be a graph of this context that nobody else has.
    pub(super) unsafe fn from_raw(raw: CUgraph, context: &Arc<Context>) -> Self {
        Self {
            raw,
            context: Arc::clone(context),
        }
    }

    /// Makes it ready to be launched.
    pub(in crate::cuda) fn instantiate(&mut self) -> Outcome<GraphExec> {
        self.context.bind()?;
        let mut raw: CUgraphExec = ptr::null_mut();
        // SAFETY: the graph is alive, and `raw` is the handle that is written.
        check("cuGraphInstantiateWithFlags", unsafe {
            sys::cuGraphInstantiateWithFlags(&raw mut raw, self.raw, 0)
        })?;
        Ok(GraphExec {
            raw,
            context: Arc::clone(&self.context),
        })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        self.context.bind_anyway();
        // SAFETY: nobody has it any longer; what was made of it is apart from it.
        let _ = unsafe { sys::cuGraphDestroy(self.raw) };
    }
}

impl GraphExec {
    /// Puts its work into a stream.
    ///
    /// # Safety
    /// What the work reads, writes and calls must be there until the stream has passed.
    pub(in crate::cuda) unsafe fn launch(&mut self, stream: &Stream) -> Outcome<()> {
        self.context.bind()?;
        // SAFETY: graph and stream are alive; the rest is the caller's promise.
        check("cuGraphLaunch", unsafe {
            sys::cuGraphLaunch(self.raw, stream.raw())
        })
    }

    /// Makes it launch another graph's work, if that differs in parameters alone.
    pub(in crate::cuda) fn update(&mut self, graph: &mut Graph) -> Outcome<Updated> {
        const UPDATE_FAILURE: u32 = 910;
        self.context.bind()?;
        // SAFETY: the structure is plain data, for which zeros are good.
        let mut info: CUgraphExecUpdateResultInfo = unsafe { std::mem::zeroed() };
        // SAFETY: both are alive, and `info` is what is written.
        let result = unsafe { sys::cuGraphExecUpdate_v2(self.raw, graph.raw, &raw mut info) };
        match check("cuGraphExecUpdate_v2", result) {
            Ok(()) => Ok(Updated::Done),
            Err(failure) if failure.code == UPDATE_FAILURE => Ok(Updated::OtherForm),
            Err(failure) => Err(failure),
        }
    }
}

impl Drop for GraphExec {
    fn drop(&mut self) {
        self.context.bind_anyway();
        // SAFETY: nobody has it any longer. The driver keeps one that is still running.
        let _ = unsafe { sys::cuGraphExecDestroy(self.raw) };
    }
}
