//! Graphs: replayed, with replaced kernel arguments, and updated to other graphs.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::rig;
use crate::rig::Axpb;
use callbox_cuda_stand_in::{Leaks, Mode};
use cudarc::driver::sys::{
    CUgraphExecUpdateResult, CUgraphNodeType, CUresult, CUstream, CUstreamCaptureStatus,
};

const N: u32 = 100;
const BYTES: usize = N as usize * 4;

fn numbers() -> Vec<u32> {
    (0..N).collect()
}

#[test]
fn a_captured_kernel_is_replayed_and_its_arguments_are_replaced() {
    let (_guard, stand_in) = rig::alone();
    for mode in [Mode::Eager, Mode::Lazy] {
        stand_in.set_mode(mode);
        rig::init().unwrap();
        rig::enter(0).unwrap();
        let stream = rig::stream().unwrap();
        let module = rig::load(rig::PTX).unwrap();
        let axpb = rig::function(module, "axpb").unwrap();
        let (x, y, z) = (
            rig::alloc(BYTES).unwrap(),
            rig::alloc(BYTES).unwrap(),
            rig::alloc(BYTES).unwrap(),
        );
        rig::upload(x, &numbers(), stream).unwrap();
        rig::set_words(y, 0, N as usize, stream).unwrap();
        rig::begin(stream, rig::THREAD_LOCAL).unwrap();
        assert_eq!(
            rig::capture_status(stream),
            Ok(CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE)
        );
        Axpb {
            x,
            y,
            a: 2,
            b: 1,
            n: N,
        }
        .launch(axpb, stream)
        .unwrap();
        rig::copy(z, y, BYTES, stream).unwrap();
        let graph = rig::end(stream).unwrap();
        assert_eq!(
            rig::capture_status(stream),
            Ok(CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
        );
        assert_eq!(
            rig::download(y, N as usize, stream).unwrap(),
            vec![0; N as usize],
            "captured, not run"
        );

        let nodes = rig::nodes(graph).unwrap();
        let types: Vec<_> = nodes
            .iter()
            .map(|node| rig::node_type(*node).unwrap())
            .collect();
        assert_eq!(
            types,
            [
                CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL,
                CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMCPY
            ]
        );
        let (function, arguments) = rig::node_arguments(nodes[0]).unwrap();
        assert_eq!(
            (
                function,
                arguments.x,
                arguments.y,
                arguments.a,
                arguments.b,
                arguments.n
            ),
            (axpb, x, y, 2, 1, N)
        );

        let exec = rig::instantiate(graph).unwrap();
        rig::launch_graph(exec, stream).unwrap();
        let expected: Vec<u32> = (0..N).map(|value| 2 * value + 1).collect();
        assert_eq!(rig::download(z, N as usize, stream).unwrap(), expected);

        // A launch keeps the arguments that it had at that time.
        rig::launch_graph(exec, stream).unwrap();
        Axpb {
            x,
            y,
            a: 5,
            b: 0,
            n: 10,
        }
        .update(exec, nodes[0], axpb)
        .unwrap();
        assert_eq!(rig::download(z, N as usize, stream).unwrap(), expected);
        rig::launch_graph(exec, stream).unwrap();
        let updated: Vec<u32> = (0..N)
            .map(|value| if value < 10 { 5 * value } else { 2 * value + 1 })
            .collect();
        assert_eq!(rig::download(z, N as usize, stream).unwrap(), updated);
        assert_eq!(
            Axpb {
                x,
                y,
                a: 5,
                b: 0,
                n: 10
            }
            .update(exec, nodes[1], axpb),
            Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            "a copy is no kernel"
        );

        rig::destroy_graph(graph).unwrap();
        rig::launch_graph(exec, stream).unwrap();
        rig::destroy_exec(exec).unwrap();
        rig::unload(module).unwrap();
        for address in [x, y, z] {
            rig::free(address).unwrap();
        }
        rig::destroy_stream(stream).unwrap();
        rig::leave(0).unwrap();
        assert_eq!(stand_in.leaks(), Leaks::NONE);
    }
}

/// Captures the work of `body`, which uses two kernels' memory.
fn captured(stream: CUstream, body: impl FnOnce()) -> cudarc::driver::sys::CUgraph {
    rig::begin(stream, rig::THREAD_LOCAL).unwrap();
    body();
    rig::end(stream).unwrap()
}

#[test]
fn an_executable_graph_takes_over_a_graph_of_the_same_form_and_no_other() {
    let (_guard, _stand_in) = rig::alone();
    rig::init().unwrap();
    rig::enter(0).unwrap();
    let stream = rig::stream().unwrap();
    let module = rig::load(rig::PTX).unwrap();
    let (axpb, stop) = (
        rig::function(module, "axpb").unwrap(),
        rig::function(module, "stop").unwrap(),
    );
    let (x, y) = (rig::alloc(BYTES).unwrap(), rig::alloc(BYTES).unwrap());
    rig::upload(x, &numbers(), stream).unwrap();
    let axpb_with = |a: u32| {
        move || {
            Axpb {
                x,
                y,
                a,
                b: 0,
                n: N,
            }
            .launch(axpb, stream)
            .unwrap()
        }
    };
    let exec = rig::instantiate(captured(stream, axpb_with(1))).unwrap();

    let same = captured(stream, axpb_with(7));
    assert_eq!(
        rig::update(exec, same),
        (
            CUresult::CUDA_SUCCESS,
            CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_SUCCESS
        )
    );
    rig::launch_graph(exec, stream).unwrap();
    let expected: Vec<u32> = (0..N).map(|value| 7 * value).collect();
    assert_eq!(rig::download(y, N as usize, stream).unwrap(), expected);

    let longer = captured(stream, || {
        axpb_with(8)();
        axpb_with(8)();
    });
    let other_kernel = captured(stream, || {
        rig::launch(stop, [1, 1, 1], [1, 1, 1], 0, stream).unwrap()
    });
    let other_type = captured(stream, || rig::set_words(y, 0, 1, stream).unwrap());
    for (graph, why) in [
        (
            longer,
            CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED,
        ),
        (
            other_kernel,
            CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED,
        ),
        (
            other_type,
            CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED,
        ),
    ] {
        assert_eq!(
            rig::update(exec, graph),
            (CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, why)
        );
    }
    rig::launch_graph(exec, stream).unwrap();
    assert_eq!(
        rig::download(y, N as usize, stream).unwrap(),
        expected,
        "what was refused changed nothing"
    );

    rig::unload(module).unwrap();
    assert_eq!(
        rig::launch_graph(exec, stream),
        Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
        "its kernel is gone"
    );
}
