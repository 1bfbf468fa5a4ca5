//! Less common calls: launches with a configuration, attributes, queries of a capture, copies
//! between devices.
#![allow(unsafe_code, reason = "calls the driver API")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::c_void;
use std::ptr::null_mut;

use crate::rig;
use crate::rig::code;
use cudarc::driver::sys::{self, CUfunction_attribute, CUresult, CUstream};

#[test]
fn a_launch_by_configuration_is_a_launch_and_shared_memory_goes_as_far_as_the_attribute_says() {
    let (_guard, _stand_in) = rig::alone();
    rig::init().unwrap();
    rig::enter(0).unwrap();
    let stream = rig::stream().unwrap();
    let module = rig::load(rig::PTX).unwrap();
    let count = rig::function(module, "count").unwrap();
    let config = |shared: u32, attributes: u32| sys::CUlaunchConfig {
        gridDimX: 3,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 10,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: shared,
        hStream: stream,
        attrs: null_mut(),
        numAttrs: attributes,
    };
    // SAFETY: the configuration outlives the call, and `count` has no parameters.
    let launch =
        |config| code(unsafe { sys::cuLaunchKernelEx(&config, count, null_mut(), null_mut()) });
    let allow = |bytes| {
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the stand-in looks the handle up.
        code(unsafe { sys::cuFuncSetAttribute(count, attribute, bytes) })
    };
    let bad = Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    assert_eq!(launch(config(100 << 10, 0)), bad);
    assert_eq!(allow(228 << 10), bad, "more than the device has");
    assert_eq!(allow(100 << 10), Ok(()));
    assert_eq!(launch(config(100 << 10, 0)), Ok(()));
    assert_eq!(
        launch(config(0, 1)),
        Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
    );
    let (counter, _) = rig::global(module, "counter").unwrap();
    assert_eq!(rig::download(counter, 1, stream), Ok(vec![7 + 30]));
    let mut threads = 0;
    let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
    // SAFETY: `threads` is valid for the result.
    code(unsafe { sys::cuFuncGetAttribute(&mut threads, attribute, count) }).unwrap();
    assert_eq!(threads, 1024);
}

#[test]
fn several_attributes_of_an_address_are_told_at_once_and_of_unknown_ones_zeros() {
    let (_guard, _stand_in) = rig::alone();
    rig::init().unwrap();
    let context = rig::enter(0).unwrap();
    let x = rig::alloc(40).unwrap();
    let host = 5u32;
    for (address, expected) in [
        (x + 8, (2u32, x, 40usize, context as usize)),
        ((&raw const host) as u64, (0, 0, 0, 0)),
    ] {
        let mut attributes = [
            sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
            sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE,
            sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_CONTEXT,
        ];
        let (mut kind, mut start, mut size, mut of) = (9u32, 9u64, 9usize, 9usize);
        let mut places: [*mut c_void; 4] = [
            (&raw mut kind).cast(),
            (&raw mut start).cast(),
            (&raw mut size).cast(),
            (&raw mut of).cast(),
        ];
        // SAFETY: there are four attributes, and four places of their types.
        code(unsafe {
            sys::cuPointerGetAttributes(4, attributes.as_mut_ptr(), places.as_mut_ptr(), address)
        })
        .unwrap();
        assert_eq!((kind, start, size, of), expected);
    }
}

/// Returns a stream's context.
fn context_of(stream: CUstream) -> sys::CUcontext {
    let mut context = null_mut();
    // SAFETY: `context` is valid for the result.
    code(unsafe { sys::cuStreamGetCtx(stream, &mut context) }).unwrap();
    context
}

#[test]
fn copies_go_between_devices_only_when_told_to() {
    let (_guard, stand_in) = rig::alone();
    assert!(stand_in.set_devices(2));
    rig::init().unwrap();
    let zero = rig::enter(0).unwrap();
    let (stream_0, from) = (rig::stream().unwrap(), rig::alloc(4).unwrap());
    rig::set_words(from, 11, 1, stream_0).unwrap();
    let one = rig::enter(1).unwrap();
    let (stream_1, to) = (rig::stream().unwrap(), rig::alloc(4).unwrap());
    assert_eq!(
        (
            context_of(stream_0),
            context_of(stream_1),
            context_of(null_mut())
        ),
        (zero, one, one)
    );
    assert_eq!(
        rig::copy(to, from, 4, stream_1),
        Err(CUresult::CUDA_ERROR_INVALID_VALUE)
    );
    // SAFETY: the stand-in looks up handles and device addresses.
    code(unsafe { sys::cuMemcpyPeerAsync(to, one, from, zero, 4, stream_1) }).unwrap();
    assert_eq!(rig::download(to, 1, stream_1), Ok(vec![11]));
    // Destroying a context frees its memory.
    rig::set_current(one).unwrap();
    rig::leave(0).unwrap();
    assert_eq!(
        rig::memory_type(from),
        Err(CUresult::CUDA_ERROR_INVALID_VALUE)
    );
    assert_eq!(rig::memory_type(to), Ok(2));
}

#[test]
fn a_capture_says_how_it_stands() {
    let (_guard, _stand_in) = rig::alone();
    rig::init().unwrap();
    rig::enter(0).unwrap();
    let (stream, x) = (rig::stream().unwrap(), rig::alloc(4).unwrap());
    rig::begin(stream, rig::THREAD_LOCAL).unwrap();
    rig::set_words(x, 1, 1, stream).unwrap();
    rig::set_words(x, 2, 1, stream).unwrap();
    let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let (mut id, mut graph, mut last, mut edges, mut count) =
        (0, null_mut(), std::ptr::null(), std::ptr::null(), 9);
    // SAFETY: each pointer is valid for its result.
    code(unsafe {
        sys::cuStreamGetCaptureInfo_v3(
            stream,
            &mut status,
            &mut id,
            &mut graph,
            &mut last,
            &mut edges,
            &mut count,
        )
    })
    .unwrap();
    assert_eq!(
        status,
        sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE
    );
    assert!(id > 0);
    assert_eq!(
        rig::destroy_graph(graph),
        Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        "it belongs to its capture"
    );
    let nodes = rig::nodes(graph).unwrap();
    // SAFETY: the driver reports one element, which stays valid until the next call about this
    // capture.
    assert_eq!((nodes.len(), count, unsafe { *last }), (2, 1, nodes[1]));
    assert_eq!(rig::end(stream), Ok(graph));
}

#[test]
fn bytes_are_filled_and_words_only_where_they_are_aligned() {
    let (_guard, _stand_in) = rig::alone();
    rig::init().unwrap();
    rig::enter(0).unwrap();
    let (stream, x) = (rig::stream().unwrap(), rig::alloc(200_004).unwrap());
    // SAFETY: the stand-in looks up device addresses and handles.
    unsafe {
        code(sys::cuMemsetD8Async(x + 1, 0xAB, 200_000, stream)).unwrap();
        assert_eq!(
            code(sys::cuMemsetD32Async(x + 2, 0, 1, stream)),
            Err(CUresult::CUDA_ERROR_INVALID_VALUE)
        );
        assert_eq!(
            code(sys::cuMemsetD8Async(x + 5, 0, 200_000, stream)),
            Err(CUresult::CUDA_ERROR_INVALID_VALUE)
        );
    }
    let mut expected = vec![0xABu8; 200_001];
    expected[0] = 0xCD;
    expected.extend([0xCD; 3]);
    let found: Vec<u8> = rig::download(x, 50_001, stream)
        .unwrap()
        .into_iter()
        .flat_map(u32::to_le_bytes)
        .collect();
    assert_eq!(found, expected);
}
