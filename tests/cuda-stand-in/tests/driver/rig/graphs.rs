//! Captures and graphs.

use std::ptr::null_mut;

use cudarc::driver::sys::{
    self, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUresult, CUstream, CUstreamCaptureMode,
};

use super::kernels::Axpb;
use super::{Outcome, code, driver, out};

pub(crate) fn begin(stream: CUstream, mode: CUstreamCaptureMode) -> Outcome<()> {
    code(driver!(sys::cuStreamBeginCapture_v2(stream, mode)))
}

pub(crate) fn end(stream: CUstream) -> Outcome<CUgraph> {
    out(null_mut(), |place| {
        driver!(sys::cuStreamEndCapture(stream, place))
    })
}

pub(crate) fn capture_status(stream: CUstream) -> Outcome<sys::CUstreamCaptureStatus> {
    let first = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    out(first, |place| {
        driver!(sys::cuStreamIsCapturing(stream, place))
    })
}

pub(crate) fn exchange_mode(mode: CUstreamCaptureMode) -> Outcome<CUstreamCaptureMode> {
    out(mode, |place| {
        driver!(sys::cuThreadExchangeStreamCaptureMode(place))
    })
}

pub(crate) fn instantiate(graph: CUgraph) -> Outcome<CUgraphExec> {
    out(null_mut(), |place| {
        driver!(sys::cuGraphInstantiateWithFlags(place, graph, 0))
    })
}

pub(crate) fn launch_graph(exec: CUgraphExec, stream: CUstream) -> Outcome<()> {
    code(driver!(sys::cuGraphLaunch(exec, stream)))
}

pub(crate) fn nodes(graph: CUgraph) -> Outcome<Vec<CUgraphNode>> {
    let mut count = 0;
    code(driver!(sys::cuGraphGetNodes(graph, null_mut(), &mut count)))?;
    let mut nodes = vec![null_mut(); count];
    code(driver!(sys::cuGraphGetNodes(
        graph,
        nodes.as_mut_ptr(),
        &mut count
    )))?;
    Ok(nodes)
}

pub(crate) fn node_type(node: CUgraphNode) -> Outcome<sys::CUgraphNodeType> {
    let first = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
    out(first, |place| driver!(sys::cuGraphNodeGetType(node, place)))
}

/// Returns the argument values of an `axpb` kernel node, with its function.
pub(crate) fn node_arguments(node: CUgraphNode) -> Outcome<(CUfunction, Axpb)> {
    // SAFETY: all members of the structure may be zero.
    let first: sys::CUDA_KERNEL_NODE_PARAMS = unsafe { std::mem::zeroed() };
    let found = out(first, |place| {
        driver!(sys::cuGraphKernelNodeGetParams_v2(node, place))
    })?;
    // SAFETY: the node is one of `axpb`, which has five arguments of these types; they live as long
    // as the node.
    let argument = |index: usize| unsafe { *found.kernelParams.add(index) };
    let long = |index| driver!(argument(index).cast::<u64>().read_unaligned());
    let short = |index| driver!(argument(index).cast::<u32>().read_unaligned());
    Ok((
        found.func,
        Axpb {
            x: long(0),
            y: long(1),
            a: short(2),
            b: short(3),
            n: short(4),
        },
    ))
}

pub(crate) fn update(
    exec: CUgraphExec,
    graph: CUgraph,
) -> (CUresult, sys::CUgraphExecUpdateResult) {
    let mut info = sys::CUgraphExecUpdateResultInfo {
        result: sys::CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR,
        errorNode: null_mut(),
        errorFromNode: null_mut(),
    };
    let code = driver!(sys::cuGraphExecUpdate_v2(exec, graph, &mut info));
    (code, info.result)
}

pub(crate) fn destroy_graph(graph: CUgraph) -> Outcome<()> {
    code(driver!(sys::cuGraphDestroy(graph)))
}

pub(crate) fn destroy_exec(exec: CUgraphExec) -> Outcome<()> {
    code(driver!(sys::cuGraphExecDestroy(exec)))
}
