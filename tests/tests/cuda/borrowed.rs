//! Streams and memory of another framework, such as XLA.
#![allow(
    unsafe_code,
    reason = "borrowing is a promise, which these tests keep, or break on purpose where it is checked"
)]

use std::sync::Arc;

use callbox::StatusCode;
use callbox::call::{CallOptions, CallSite, DeviceQueue};
use callbox::cuda::CudaDevice;
use callbox_cuda_stand_in::Leaks;
use cudarc::driver::{CudaContext, DevicePtr};

use super::rig::{self, MODES};

#[test]
fn a_call_on_a_borrowed_stream_is_ordered_with_its_work() {
    let (_guard, stand_in) = rig::alone();
    for mode in MODES {
        stand_in.set_mode(mode);
        let context = CudaContext::new(0).unwrap();
        // SAFETY: the test uses one stream only.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().unwrap();
        let from = stream.clone_htod(&[1_u8, 2, 3, 4]).unwrap();
        let to = stream.alloc_zeros::<u8>(4).unwrap();
        let device = CudaDevice::open(0).unwrap();
        // SAFETY: the stream outlives the queue.
        let mut queue = unsafe { device.queue_on(stream.cu_stream()) }.unwrap();
        // SAFETY: the slices outlive the buffers.
        let (operand, result) = unsafe {
            let borrow = |address| device.borrow_memory(address, 4).unwrap();
            (
                borrow(from.device_ptr(&stream).0),
                borrow(to.device_ptr(&stream).0),
            )
        };
        let shape: callbox::Shape = "u8[4]".parse().unwrap();
        let site = CallSite::new("copy", vec![shape.clone()], shape);
        let call = rig::copying().prepare_call(&device, site).unwrap();
        call.enqueue(&CallOptions::default(), &mut queue, &[operand], &[result])
            .unwrap();
        assert_eq!(stream.clone_dtoh(&to).unwrap(), [1, 2, 3, 4]);
        drop((queue, call, device, from, to, stream, context));
        assert_eq!(stand_in.leaks(), Leaks::NONE, "{mode:?}");
    }
}

#[test]
fn the_hosts_memory_and_another_devices_are_refused() {
    let (_guard, _) = rig::alone();
    let device = CudaDevice::open(0).unwrap();
    let other = CudaDevice::open(1).unwrap();
    let on_host = [0_u8; 64];
    // SAFETY: the handle or the memory is not used.
    let refused = unsafe { device.borrow_memory(on_host.as_ptr() as u64, 64) }.unwrap_err();
    assert_eq!(refused.code(), StatusCode::InvalidArgument);
    assert!(
        refused.message().contains("the host's own memory"),
        "{refused}"
    );
    let stream = CudaContext::new(1).unwrap().new_stream().unwrap();
    // SAFETY: the stream is alive.
    let refused = unsafe { device.queue_on(stream.cu_stream()) }.unwrap_err();
    assert_eq!(refused.code(), StatusCode::InvalidArgument, "{refused}");
    // SAFETY: the stream outlives the queue.
    let mut queue = unsafe { other.queue_on(stream.cu_stream()) }.unwrap();
    let there = queue.allocate(64).unwrap();
    // SAFETY: the handle or the memory is not used.
    let refused = unsafe { device.borrow_memory(there.address(), 64) }.unwrap_err();
    assert!(
        refused.message().contains("an address of device 1"),
        "{refused}"
    );
    drop(Arc::clone(&there));
}
