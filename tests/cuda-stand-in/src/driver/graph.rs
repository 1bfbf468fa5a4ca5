//! Graphs.

use cudarc::driver::sys::{
    CUDA_KERNEL_NODE_PARAMS, CUgraphExecUpdateResult, CUgraphExecUpdateResultInfo, CUresult,
};

use super::foreign::{Array, Out};
use super::launch::{KernelNodeParams, check_place, prepare};
use super::run::enqueue;
use super::{Guard, Needs, call};
use crate::ptx::Shape;
use crate::state::graph::{Exec, Graph, Node};
use crate::state::stream::{Launch, NodeWork, Work};

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphCreate(graph: Out<usize>, flags: u32) -> CUresult {
    call("cuGraphCreate", Needs::Context, |mut guard| {
        if flags != 0 || graph.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let context = guard.current()?;
        let handle = guard.graphs.insert(Graph {
            context,
            nodes: Vec::new(),
        });
        graph.put(handle)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphDestroy(graph: usize) -> CUresult {
    call("cuGraphDestroy", Needs::Release, |mut guard| {
        // A graph under construction belongs to its capture.
        if guard
            .captures
            .values()
            .any(|capture| capture.graph == graph)
        {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        guard.graphs.remove(graph).map(drop).map_err(invalid)
    })
}

/// Maps errors about graph handles to CUDA_ERROR_INVALID_VALUE, as the driver does.
const fn invalid(_: CUresult) -> CUresult {
    CUresult::CUDA_ERROR_INVALID_VALUE
}

/// CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH, which has no effect here, and
/// _USE_NODE_PRIORITY.
const INSTANTIATE_FLAGS: u64 = 1 | 8;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphInstantiateWithFlags(
    exec: Out<usize>,
    graph: usize,
    flags: u64,
) -> CUresult {
    call(
        "cuGraphInstantiateWithFlags",
        Needs::Context,
        |mut guard| {
            let found = guard.graphs.get(graph).map_err(invalid)?;
            if flags & !INSTANTIATE_FLAGS != 0
                || exec.is_null()
                || guard
                    .captures
                    .values()
                    .any(|capture| capture.graph == graph)
            {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
            let made = Exec {
                context: found.context,
                nodes: found.nodes.clone(),
                last: None,
            };
            let handle = guard.execs.insert(made);
            exec.put(handle)
        },
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphExecDestroy(exec: usize) -> CUresult {
    call("cuGraphExecDestroy", Needs::Release, |mut guard| {
        guard.execs.remove(exec).map(drop).map_err(invalid)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphUpload(exec: usize, stream: usize) -> CUresult {
    call("cuGraphUpload", Needs::Context, |mut guard| {
        let stream = guard.stream(stream)?;
        let found = guard.execs.get(exec).map_err(invalid)?;
        if found.context != guard.streams.get(stream)?.context {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        guard.check_not_capturing(stream)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphLaunch(exec: usize, stream: usize) -> CUresult {
    call("cuGraphLaunch", Needs::Context, |mut guard| {
        let stream = guard.stream(stream)?;
        let context = guard.streams.get(stream)?.context;
        let found = guard.execs.get(exec).map_err(invalid)?;
        if found.context != context {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        let last = found.last;
        let work: Vec<NodeWork> = found.nodes.iter().map(|node| node.work.clone()).collect();
        for work in &work {
            if let NodeWork::Kernel(launch) = work {
                check_place(launch, context)?;
            }
        }
        guard.check_not_capturing(stream)?;
        guard.check_implicit(stream)?;
        // "Each launch is ordered behind both any previous work in hStream and any previous
        // launches of hGraphExec."
        if let Some((other, position)) = last
            && other != stream
        {
            let wait = Work::Wait {
                stream: other,
                position,
            };
            guard = enqueue(guard, stream, wait)?;
        }
        // The nodes are in topological order.
        for work in work {
            guard = enqueue(guard, stream, Work::Node(work))?;
        }
        let end = guard.streams.get(stream)?.tail();
        if let Ok(found) = guard.execs.get_mut(exec) {
            found.last = Some((stream, end));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphGetNodes(
    graph: usize,
    nodes: Array<usize>,
    count: Out<usize>,
) -> CUresult {
    call("cuGraphGetNodes", Needs::Context, |guard| {
        let handles: Vec<usize> = guard
            .graphs
            .get(graph)
            .map_err(invalid)?
            .nodes
            .iter()
            .map(|node| node.handle)
            .collect();
        count.replace(|room| {
            if nodes.is_null() {
                return Ok(handles.len());
            }
            // Entries past the last node are set to null.
            let filled: Vec<usize> = handles
                .iter()
                .copied()
                .chain(std::iter::repeat(0))
                .take(room)
                .collect();
            nodes.write(&filled);
            Ok(room.min(handles.len()))
        })
    })
}

fn with_node<T>(
    guard: &mut Guard,
    handle: usize,
    access: impl FnOnce(&mut Node) -> Result<T, CUresult>,
) -> Result<T, CUresult> {
    let mut nodes = guard.graphs.values_mut().flat_map(|graph| &mut graph.nodes);
    let node = nodes
        .find(|node| node.handle == handle)
        .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    access(node)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphNodeGetType(node: usize, kind: Out<u32>) -> CUresult {
    call("cuGraphNodeGetType", Needs::Context, |mut guard| {
        with_node(&mut guard, node, |node| {
            kind.put(node.work.node_type() as u32)
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphKernelNodeGetParams_v2(
    node: usize,
    place: Out<CUDA_KERNEL_NODE_PARAMS>,
) -> CUresult {
    call(
        "cuGraphKernelNodeGetParams_v2",
        Needs::Context,
        |mut guard| {
            let offsets = with_node(&mut guard, node, |node| match &node.work {
                NodeWork::Kernel(launch) => Ok(offsets(launch)),
                _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            })?;
            with_node(&mut guard, node, |node| {
                let Node {
                    work: NodeWork::Kernel(launch),
                    pointers,
                    ..
                } = node
                else {
                    return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
                };
                let block = launch.parameters.as_ptr().expose_provenance();
                *pointers = offsets.iter().map(|offset| block + offset).collect();
                let Shape {
                    grid,
                    block,
                    shared_bytes,
                } = launch.shape;
                place.put(CUDA_KERNEL_NODE_PARAMS {
                    func: std::ptr::without_provenance_mut(launch.function),
                    gridDimX: grid[0],
                    gridDimY: grid[1],
                    gridDimZ: grid[2],
                    blockDimX: block[0],
                    blockDimY: block[1],
                    blockDimZ: block[2],
                    sharedMemBytes: shared_bytes,
                    kernelParams: pointers.as_mut_ptr().cast(),
                    extra: std::ptr::null_mut(),
                    kern: std::ptr::null_mut(),
                    ctx: std::ptr::without_provenance_mut(launch.module.context),
                })
            })
        },
    )
}

fn offsets(launch: &Launch) -> Vec<usize> {
    let entry = launch.module.module.entry(&launch.name);
    entry
        .map(|entry| {
            entry
                .parameters()
                .iter()
                .map(|(offset, _)| *offset)
                .collect()
        })
        .unwrap_or_default()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphExecKernelNodeSetParams_v2(
    exec: usize,
    node: usize,
    parameters: Array<KernelNodeParams>,
) -> CUresult {
    call(
        "cuGraphExecKernelNodeSetParams_v2",
        Needs::Context,
        |mut guard| {
            let bad = CUresult::CUDA_ERROR_INVALID_VALUE;
            let given = parameters
                .read(1)
                .and_then(|read| read.first().copied())
                .ok_or(bad)?;
            let context = guard.execs.get(exec).map_err(invalid)?.context;
            if given.kernel != 0 || given.context != 0 && given.context != context {
                return Err(bad);
            }
            let shape = Shape {
                grid: given.grid,
                block: given.block,
                shared_bytes: given.shared_bytes,
            };
            let launch = prepare(&guard, given.function, shape, given.parameters, given.extra)?;
            check_place(&launch, context)?;
            let found = guard
                .execs
                .get_mut(exec)?
                .nodes
                .iter_mut()
                .find(|found| found.handle == node)
                .ok_or(bad)?;
            if !matches!(found.work, NodeWork::Kernel(_)) {
                return Err(bad);
            }
            found.work = NodeWork::Kernel(launch);
            Ok(())
        },
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphExecUpdate_v2(
    exec: usize,
    graph: usize,
    place: Out<CUgraphExecUpdateResultInfo>,
) -> CUresult {
    call("cuGraphExecUpdate_v2", Needs::Context, |mut guard| {
        let found = guard.graphs.get(graph).map_err(invalid)?;
        let compared = guard.execs.get(exec).map_err(invalid)?.compare(found);
        let nodes = found.nodes.clone();
        let (result, node) = compared
            .err()
            .unwrap_or((CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_SUCCESS, None));
        place.put(CUgraphExecUpdateResultInfo {
            result,
            errorNode: std::ptr::without_provenance_mut(node.unwrap_or(0)),
            errorFromNode: std::ptr::null_mut(),
        })?;
        compared.map_err(|_| CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)?;
        // The executable graph's nodes keep their handles.
        for (have, want) in guard.execs.get_mut(exec)?.nodes.iter_mut().zip(nodes) {
            have.work = want.work;
        }
        Ok(())
    })
}
