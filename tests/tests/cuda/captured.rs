//! Streams that another framework captures, as XLA does for its command buffers.
#![allow(unsafe_code, reason = "borrowing is a promise, which these tests keep")]

use std::ops::Range;
use std::sync::Arc;

use callbox::call::{CallOptions, CallSite, DeviceBuffer, DeviceLeaf, DeviceQueue};
use callbox::cuda::{CudaDevice, CudaModule, CudaPreparedCall, CudaQueue, CudaTarget};
use callbox::{Attribute, Result, StatusCode};
use callbox_cuda_stand_in::Leaks;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaGraph, CudaSlice, CudaStream, DevicePtr};

use super::rig::{self, MODES};

const CAPTURES: [CUstreamCaptureMode; 3] = [
    CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
    CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
    CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
];

/// A stream of another framework on the device with this number.
fn stream(ordinal: usize) -> Arc<CudaStream> {
    let context = CudaContext::new(ordinal).unwrap();
    // SAFETY: the test uses one stream only.
    unsafe { context.disable_event_tracking() };
    context.new_stream().unwrap()
}

fn end(stream: &Arc<CudaStream>) -> CudaGraph {
    let graph = stream.end_capture(CUgraphInstantiate_flags(0));
    graph.unwrap().expect("a graph")
}

fn queue_on(device: &Arc<CudaDevice>, stream: &CudaStream) -> CudaQueue {
    // SAFETY: the tests keep the stream for longer than the queue.
    unsafe { device.queue_on_captured(stream.cu_stream()) }.unwrap()
}

/// Memory of another framework, which the tests keep for longer than its uses.
fn borrow<T>(device: &CudaDevice, stream: &CudaStream, slice: &CudaSlice<T>) -> DeviceBuffer {
    let (address, _) = slice.device_ptr(stream);
    let size = slice.len() * size_of::<T>();
    // SAFETY: the slice has this many bytes, and outlives the buffer.
    unsafe { device.borrow_memory(address, size) }.unwrap()
}

fn leaf(buffer: &DeviceBuffer) -> DeviceLeaf {
    DeviceLeaf {
        buffer: Arc::clone(buffer),
        is_known: true,
    }
}

/// A call of a target with one operand and one result of this shape.
fn prepared(
    module: &Arc<CudaModule>,
    target: &str,
    device: &Arc<CudaDevice>,
    shape: &str,
    attributes: &[(&str, Attribute)],
) -> CudaPreparedCall {
    let shape: callbox::Shape = shape.parse().unwrap();
    let attributes = attributes.iter().cloned();
    let attributes = attributes.map(|(name, value)| (name.to_owned(), value));
    let site = CallSite::new(target, vec![shape.clone()], shape);
    let site = site.with_attributes(attributes.collect());
    module.prepare_call(device, site).unwrap()
}

/// `add_n`, which adds 4.
fn add_4(device: &Arc<CudaDevice>) -> CudaPreparedCall {
    let n = ("n", Attribute::scalar(4.0_f32));
    prepared(&rig::kernels("add_n"), "add_n", device, "f32[3]", &[n])
}

fn enqueue(
    call: &CudaPreparedCall,
    queue: &mut CudaQueue,
    from: &DeviceBuffer,
    to: &DeviceBuffer,
) -> Result<()> {
    let (operand, result) = (Arc::clone(from), Arc::clone(to));
    call.enqueue(&CallOptions::default(), queue, &[operand], &[result])
}

#[test]
fn kernels_become_part_of_another_frameworks_graph() {
    let (_guard, stand_in) = rig::alone();
    for (mode, capture) in MODES.into_iter().flat_map(|m| CAPTURES.map(|c| (m, c))) {
        stand_in.set_mode(mode);
        let stream = stream(1);
        let x = stream.clone_htod(&[1.0_f32, 2.0, 3.0]).unwrap();
        let y = stream.alloc_zeros::<f32>(3).unwrap();
        stream.begin_capture(capture).unwrap();
        // No device is open, and no kernel is loaded.
        // SAFETY: the stream is alive.
        let device = unsafe { CudaDevice::of_stream(stream.cu_stream()) }.unwrap();
        assert_eq!(device.ordinal(), 1);
        let call = add_4(&device);
        let mut queue = queue_on(&device, &stream);
        let (from, to) = (borrow(&device, &stream, &x), borrow(&device, &stream, &y));
        enqueue(&call, &mut queue, &from, &to).unwrap();
        // The result is copied back, so that each launch adds 4 to the previous result.
        queue.copy(&to, &from).unwrap();
        drop((queue, call, from, to));
        let graph = end(&stream);
        assert_eq!(stream.clone_dtoh(&x).unwrap(), [1.0, 2.0, 3.0]);
        graph.launch().unwrap();
        graph.launch().unwrap();
        assert_eq!(stream.clone_dtoh(&y).unwrap(), [9.0, 10.0, 11.0]);
        assert_eq!(stream.clone_dtoh(&x).unwrap(), [9.0, 10.0, 11.0]);
        drop((graph, device, x, y, stream));
        assert_eq!(stand_in.leaks(), Leaks::NONE, "{mode:?}, {capture:?}");
    }
}

#[test]
fn a_stream_that_is_not_captured_is_as_any_other() {
    let (_guard, _) = rig::alone();
    let stream = stream(0);
    // SAFETY: the stream is alive.
    let device = unsafe { CudaDevice::of_stream(stream.cu_stream()) }.unwrap();
    let mut queue = queue_on(&device, &stream);
    let from = queue.upload(&[1, 2, 3, 4]).unwrap();
    let to = queue.allocate(4).unwrap();
    let call = prepared(&rig::copying(), "copy", &device, "u8[4]", &[]);
    enqueue(&call, &mut queue, &from, &to).unwrap();
    assert_eq!(queue.download(&[to]).unwrap(), [[1, 2, 3, 4]]);
}

#[test]
fn arrays_and_their_parts_are_filled_in_a_graph_too() {
    let (_guard, stand_in) = rig::alone();
    for mode in MODES {
        for is_captured in [false, true] {
            stand_in.set_mode(mode);
            let stream = stream(0);
            let x = stream.clone_htod(&[1_u32, 2, 3, 4]).unwrap();
            let device = CudaDevice::open(0).unwrap();
            if is_captured {
                stream.begin_capture(CAPTURES[0]).unwrap();
            }
            let mut queue = queue_on(&device, &stream);
            let whole = borrow(&device, &stream, &x);
            let part = |range| device.part_of_borrowed(&whole, range);
            queue.fill(&part(0..5).unwrap(), 0xFF).unwrap();
            queue.fill_u32(&part(8..16).unwrap(), 7).unwrap();
            queue.fill(&part(16..16).unwrap(), 1).unwrap();
            for (range, says) in [
                (
                    12..17,
                    "expected bytes of the 16 that were borrowed, found 12..17",
                ),
                (Range { start: 9, end: 8 }, "found 9..8"),
            ] {
                let refused = part(range).unwrap_err();
                assert!(refused.message().contains(says), "{refused}");
            }
            for odd in [part(1..5).unwrap(), part(0..6).unwrap()] {
                let refused = queue.fill_u32(&odd, 7).unwrap_err();
                assert_eq!(refused.code(), StatusCode::InvalidArgument, "{refused}");
            }
            drop((queue, whole));
            let graph = is_captured.then(|| end(&stream));
            if let Some(graph) = &graph {
                assert_eq!(stream.clone_dtoh(&x).unwrap(), [1, 2, 3, 4]);
                graph.launch().unwrap();
            }
            assert_eq!(stream.clone_dtoh(&x).unwrap(), [u32::MAX, 0xFF, 7, 7]);
            drop((graph, device, x, stream));
            assert_eq!(stand_in.leaks(), Leaks::NONE, "{mode:?}");
        }
    }
}

#[test]
fn memory_that_was_not_borrowed_has_no_parts() {
    let (_guard, _) = rig::alone();
    let (device, other) = (CudaDevice::open(0).unwrap(), CudaDevice::open(1).unwrap());
    let stream = stream(0);
    let mut queue = queue_on(&device, &stream);
    let own = queue.allocate(8).unwrap();
    let x = stream.alloc_zeros::<u8>(8).unwrap();
    let there = borrow(&device, &stream, &x);
    for refused in [
        device.part_of_borrowed(&own, 0..4).unwrap_err(),
        other.part_of_borrowed(&there, 0..4).unwrap_err(),
    ] {
        assert!(
            refused.message().contains("found other memory"),
            "{refused}"
        );
    }
}

/// A target `odd` that declares `command_buffer_compatible`, and does this.
fn odd(
    work: impl Fn(&mut CudaQueue, &DeviceBuffer) -> Result<()> + Send + Sync + 'static,
) -> Arc<CudaModule> {
    let target = CudaTarget::new("odd", move |call| {
        assert!(call.is_capturing());
        let to = Arc::clone(call.results()[0].memory());
        work(call.queue(), &to)
    });
    let target = target.declaring(|s| s.traits = vec!["command_buffer_compatible".to_owned()]);
    CudaModule::from_targets([target]).unwrap()
}

#[test]
fn operations_that_a_borrowed_capture_cannot_include_are_refused() {
    let (_guard, stand_in) = rig::alone();
    let device = CudaDevice::open(0).unwrap();
    let stream = stream(0);
    let x = stream.clone_htod(&[1.0_f32, 2.0, 3.0]).unwrap();
    let y = stream.alloc_zeros::<f32>(3).unwrap();
    let (from, to) = (borrow(&device, &stream, &x), borrow(&device, &stream, &y));
    let mut before = queue_on(&device, &stream);
    let own = before.upload(&[0; 12]).unwrap();
    let attributes = [
        ("kib", Attribute::scalar(1_u32)),
        ("fails", Attribute::scalar(false)),
    ];
    let typed = rig::kernels("typed_ffi");
    let has_scratch = prepared(&typed, "scratch", &device, "f32[3]", &attributes);
    let of = |name, module: Arc<CudaModule>| prepared(&module, name, &device, "f32[3]", &[]);
    let elsewhere = Arc::clone(&own);
    let calls = [
        (
            of("copy", rig::copying()),
            "target \"copy\" cannot be captured in a CUDA graph: it does not have the trait \"command_buffer_compatible\"",
        ),
        (
            has_scratch,
            "target \"scratch\" takes 1036 bytes of scratch memory, which is not possible while another framework captures this stream",
        ),
        (
            of("odd", odd(|queue, _| queue.allocate(64).map(drop))),
            "an allocation of 64 bytes is not possible while another framework captures",
        ),
        (
            of("odd", odd(|queue, _| queue.upload(&[1, 2]).map(drop))),
            "an allocation of 2 bytes is not possible",
        ),
        (
            of(
                "odd",
                odd(|queue, to| {
                    let to = vec![Arc::clone(to)];
                    queue.compute(Arc::new(|_, _, _| Ok(())), &to, &to)
                }),
            ),
            "work of the host is not possible",
        ),
        (
            of(
                "odd",
                odd(|queue, to| queue.download(&[Arc::clone(to)]).map(drop)),
            ),
            "a data-dependent branch cannot be captured in a CUDA graph",
        ),
        (
            of("odd", odd(move |queue, to| queue.copy(&elsewhere, to))),
            "the use of memory of a queue is not possible",
        ),
    ];
    let good = add_4(&device);
    stream.begin_capture(CAPTURES[1]).unwrap();
    let mut queue = queue_on(&device, &stream);
    stand_in.clear_calls();
    for (call, says) in &calls {
        let refused = enqueue(call, &mut queue, &from, &to).unwrap_err();
        assert_eq!(refused.code(), StatusCode::FailedPrecondition, "{refused}");
        assert!(refused.message().contains(says), "{refused}");
    }
    let refused = enqueue(&good, &mut queue, &leaf(&own).buffer, &to).unwrap_err();
    assert!(refused.message().contains("memory of a queue"), "{refused}");
    // SAFETY: the stream is alive.
    let refused = unsafe { device.queue_on(stream.cu_stream()) }.unwrap_err();
    assert!(
        refused
            .message()
            .contains("is being captured by another framework"),
        "{refused}"
    );
    // No event was recorded, nothing was waited for, and the capture goes on.
    let calls = stand_in.calls();
    let touching = ["Event", "Synchronize", "Launch", "Alloc", "Memcpy"];
    let touched = calls
        .iter()
        .find(|call| touching.iter().any(|part| call.contains(part)));
    assert_eq!(touched, None, "{calls:?}");
    enqueue(&good, &mut queue, &from, &to).unwrap();
    drop(queue);
    let graph = end(&stream);
    graph.launch().unwrap();
    assert_eq!(stream.clone_dtoh(&y).unwrap(), [5.0, 6.0, 7.0]);
}

#[test]
fn an_operand_that_is_the_result_needs_no_copy() {
    let (_guard, stand_in) = rig::alone();
    let device = CudaDevice::open(0).unwrap();
    let stream = stream(0);
    let x = stream.clone_htod(&[1_u8, 2, 3, 4]).unwrap();
    let buffer = borrow(&device, &stream, &x);
    stand_in.clear_calls();
    queue_on(&device, &stream).copy(&buffer, &buffer).unwrap();
    let calls = stand_in.calls();
    assert!(
        !calls.iter().any(|call| call.contains("Memcpy")),
        "{calls:?}"
    );
    assert_eq!(stream.clone_dtoh(&x).unwrap(), [1, 2, 3, 4]);
}

#[test]
fn no_stream_has_no_device() {
    let (_guard, _) = rig::alone();
    let _device = CudaDevice::open(0).unwrap();
    let nothing = std::ptr::without_provenance_mut(0xdead_0000);
    // SAFETY: the stand-in looks handles up in a table, and dereferences none.
    let refused = unsafe { CudaDevice::of_stream(nothing) }.unwrap_err();
    assert_eq!(refused.code(), StatusCode::InvalidArgument);
    assert!(
        refused
            .message()
            .contains("asking for a stream's device: cuStreamIsCapturing failed"),
        "{refused}"
    );
}
