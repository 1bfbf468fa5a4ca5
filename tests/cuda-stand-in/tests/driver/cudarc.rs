//! The stand-in through cudarc's safe API.
#![allow(
    unsafe_code,
    reason = "cudarc's launches and borrowed streams are unsafe"
)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::rig;
use callbox_cuda_stand_in::{Leaks, Mode};
use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg, sys};
use cudarc::nvrtc::Ptx;

#[test]
fn a_kernel_runs_on_a_borrowed_stream_with_raw_pointers_and_exact_results() {
    let (_guard, stand_in) = rig::alone();
    for mode in [Mode::Eager, Mode::Lazy] {
        stand_in.set_mode(mode);
        let context = CudaContext::new(0).unwrap();
        // SAFETY: no slice of this test is used on two streams at a time.
        unsafe { context.disable_event_tracking() };
        let owner = context.new_stream().unwrap();
        // SAFETY: `owner` outlives the stream.
        let stream = unsafe { context.wrap_borrowed_stream(owner.cu_stream()) };
        let function = context
            .load_module(Ptx::from_src(rig::PTX))
            .unwrap()
            .load_function("axpb")
            .unwrap();

        let x: Vec<u32> = (0..1000).collect();
        let from = stream.clone_htod(&x).unwrap();
        // SAFETY: the kernel fills the memory.
        let to = unsafe { stream.alloc::<u32>(1000) }.unwrap();
        let (from_address, to_address) = (address(&from, &stream), address(&to, &stream));
        let (a, b, n) = (3u32, 5u32, 1000u32);
        let mut builder = stream.launch_builder(&function);
        builder
            .arg(&from_address)
            .arg(&to_address)
            .arg(&a)
            .arg(&b)
            .arg(&n);
        let shape = LaunchConfig {
            grid_dim: (16, 1, 1),
            block_dim: (64, 1, 1),
            shared_mem_bytes: 0,
        };
        // SAFETY: both buffers have 1000 elements.
        unsafe { builder.launch(shape) }.unwrap();
        let y = stream.clone_dtoh(&to).unwrap();
        let expected: Vec<u32> = (0..1000).map(|value| 3 * value + 5).collect();
        assert_eq!(y, expected, "{mode:?}");
    }
    assert_eq!(stand_in.leaks(), Leaks::NONE);
}

fn address(slice: &cudarc::driver::CudaSlice<u32>, stream: &cudarc::driver::CudaStream) -> u64 {
    cudarc::driver::DevicePtr::device_ptr(slice, stream).0
}

#[test]
fn the_device_says_what_it_is_and_what_it_was_set_to_be() {
    let (_guard, stand_in) = rig::alone();
    assert!(stand_in.set_devices(3));
    stand_in.set_compute_capability(8, 6);
    stand_in.set_memory(2, 1 << 20);
    stand_in.set_driver_version(12090);
    assert_eq!(CudaContext::device_count().unwrap(), 3);
    assert!(
        !stand_in.set_devices(1),
        "after cuInit the devices are what they are"
    );
    let context = CudaContext::new(2).unwrap();
    assert_eq!(context.name().unwrap(), "callbox stand-in (not a GPU)");
    assert_eq!(context.compute_capability().unwrap(), (8, 6));
    assert_eq!(context.total_mem().unwrap(), 1 << 20);
    assert_eq!(context.mem_get_info().unwrap(), (1 << 20, 1 << 20));
    let mut version = 0;
    // SAFETY: `version` is valid for the result.
    rig::code(unsafe { sys::cuDriverGetVersion(&mut version) }).unwrap();
    assert_eq!(version, 12090);
    assert_eq!(
        CudaContext::new(3).unwrap_err().0,
        sys::CUresult::CUDA_ERROR_INVALID_DEVICE
    );
}

#[test]
fn without_devices_there_is_nothing_to_initialise() {
    let (_guard, stand_in) = rig::alone();
    assert_eq!(
        rig::alloc(4),
        Err(sys::CUresult::CUDA_ERROR_NOT_INITIALIZED)
    );
    assert!(stand_in.set_devices(0));
    let error = CudaContext::new(0).unwrap_err();
    assert_eq!(error.0, sys::CUresult::CUDA_ERROR_NO_DEVICE);
    assert_eq!(error.error_name().unwrap(), c"CUDA_ERROR_NO_DEVICE");
    assert_eq!(
        error.error_string().unwrap(),
        c"no CUDA-capable device is detected"
    );
}

#[test]
fn cudarc_captures_and_replays_a_graph() {
    let (_guard, stand_in) = rig::alone();
    stand_in.set_mode(Mode::Lazy);
    {
        let context = CudaContext::new(0).unwrap();
        // SAFETY: the test uses a single stream.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().unwrap();
        let mut x = stream.clone_htod(&[1u32, 2, 3, 4]).unwrap();
        let y = stream.alloc_zeros::<u32>(4).unwrap();
        stream.begin_capture(rig::THREAD_LOCAL).unwrap();
        stream.memcpy_dtod(&y, &mut x).unwrap();
        let graph = stream
            .end_capture(sys::CUgraphInstantiate_flags(0))
            .unwrap()
            .unwrap();
        graph.upload().unwrap();
        assert_eq!(
            stream.clone_dtoh(&x).unwrap(),
            [1, 2, 3, 4],
            "captured, not run"
        );
        graph.launch().unwrap();
        assert_eq!(stream.clone_dtoh(&x).unwrap(), [0; 4]);
    }
    assert_eq!(stand_in.leaks(), Leaks::NONE);
}
