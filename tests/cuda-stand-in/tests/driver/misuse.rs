//! Invalid modules, launches, addresses and handles, which the driver rejects.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::rig;
use cudarc::driver::sys::CUresult;

#[test]
fn modules_are_refused_with_the_reason() {
    let (_guard, stand_in) = rig::alone();
    stand_in.set_compute_capability(7, 5);
    rig::init().unwrap();
    rig::enter(0).unwrap();
    let module = rig::load(rig::PTX).unwrap();
    assert_eq!(
        rig::function(module, "nothing"),
        Err(CUresult::CUDA_ERROR_NOT_FOUND)
    );
    assert_eq!(
        rig::global(module, "nothing"),
        Err(CUresult::CUDA_ERROR_NOT_FOUND)
    );
    let axpb = rig::function(module, "axpb").unwrap();
    assert_eq!(
        rig::function(module, "axpb"),
        Ok(axpb),
        "one function has one handle"
    );
    let parameters: Vec<_> = (0..)
        .map_while(|index| rig::parameter(axpb, index).ok())
        .collect();
    assert_eq!(parameters, [(0, 8), (8, 8), (16, 4), (20, 4), (24, 4)]);
    assert_eq!(
        rig::parameter(axpb, 5),
        Err(CUresult::CUDA_ERROR_INVALID_VALUE)
    );

    let newer = rig::PTX.replace("sm_75", "sm_90");
    assert_eq!(rig::load(&newer), Err(CUresult::CUDA_ERROR_INVALID_PTX));
    assert!(
        stand_in.last_fault().contains("sm_90"),
        "{}",
        stand_in.last_fault()
    );
    let wrong = rig::PTX.replace("trap;", "nonsense;");
    let line = wrong
        .lines()
        .position(|line| line.contains("nonsense"))
        .unwrap()
        + 1;
    let (code, log) = rig::load_log(&wrong);
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_PTX);
    assert!(log.contains(&format!("line {line}")), "{log}");
    for machine_code in [&b"\x7fELF\x02\x01\x01\0"[..], b"\x50\xED\x55\xBA\x01\0"] {
        assert_eq!(
            rig::load_bytes(machine_code),
            Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU)
        );
    }
    assert!(
        stand_in.last_fault().contains("machine code"),
        "{}",
        stand_in.last_fault()
    );
    assert_eq!(
        rig::load_bytes(b"\0"),
        Err(CUresult::CUDA_ERROR_INVALID_IMAGE)
    );
    assert_eq!(
        rig::load_bytes(b"\xff\xfe\0"),
        Err(CUresult::CUDA_ERROR_INVALID_PTX)
    );
}

#[test]
fn launches_beyond_the_limits_are_refused() {
    let (_guard, _stand_in) = rig::alone();
    rig::init().unwrap();
    rig::enter(0).unwrap();
    let stream = rig::stream().unwrap();
    let module = rig::load(rig::PTX).unwrap();
    let count = rig::function(module, "count").unwrap();
    let bad = Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    for (grid, block, shared) in [
        ([0, 1, 1], [1, 1, 1], 0),
        ([1, 1, 1], [1, 0, 1], 0),
        ([1 << 31, 1, 1], [1, 1, 1], 0),
        ([1, 65536, 1], [1, 1, 1], 0),
        ([1, 1, 65536], [1, 1, 1], 0),
        ([1, 1, 1], [1025, 1, 1], 0),
        ([1, 1, 1], [32, 33, 1], 0),
        ([1, 1, 1], [1, 1, 65], 0),
        ([1, 1, 1], [1, 1, 1], (48 << 10) + 1),
    ] {
        assert_eq!(
            rig::launch(count, grid, block, shared, stream),
            bad,
            "{grid:?} {block:?} {shared}"
        );
    }
    rig::launch(count, [1, 1, 2], [2, 2, 64], 48 << 10, stream).unwrap();
    let (counter, _) = rig::global(module, "counter").unwrap();
    assert_eq!(rig::download(counter, 1, stream).unwrap(), [7 + 512]);
    let axpb = rig::function(module, "axpb").unwrap();
    assert_eq!(rig::launch_without_arguments(axpb, stream), bad);
}

#[test]
fn misuse_gives_codes() {
    let (_guard, stand_in) = rig::alone();
    rig::init().unwrap();
    assert_eq!(
        rig::set_current(std::ptr::without_provenance_mut(64)),
        Err(CUresult::CUDA_ERROR_INVALID_CONTEXT)
    );
    let context = rig::enter(0).unwrap();
    let (stream, event) = (rig::stream().unwrap(), rig::event().unwrap());
    for code in rig::null_calls() {
        assert_eq!(code, CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let made_up = std::ptr::without_provenance_mut::<u8>(64);
    let bad = Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    assert_eq!(rig::synchronise(made_up.cast()), bad);
    assert_eq!(
        rig::synchronise(event.cast()),
        bad,
        "an event is not a stream"
    );
    assert_eq!(rig::destroy_event(stream.cast()), bad);
    assert_eq!(rig::unload(made_up.cast()), bad);
    rig::destroy_event(event).unwrap();
    assert_eq!(rig::destroy_event(event), bad, "twice");
    let x = rig::alloc(4).unwrap();
    assert_eq!(
        rig::upload(x, &[1, 2], stream),
        Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        "behind the end"
    );
    assert_eq!(
        rig::upload(x + 4, &[1], stream),
        Err(CUresult::CUDA_ERROR_INVALID_VALUE)
    );
    assert_eq!(
        rig::free(x + 1),
        Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        "not where it begins"
    );
    assert_eq!(
        rig::copy_any(x, 0x7_0000_0000 + (1 << 39), 4, stream),
        Err(CUresult::CUDA_ERROR_INVALID_VALUE)
    );
    assert_eq!(
        rig::destroy_graph(made_up.cast()),
        Err(CUresult::CUDA_ERROR_INVALID_VALUE)
    );
    rig::leave(0).unwrap();
    assert_eq!(rig::leave(0), Err(CUresult::CUDA_ERROR_INVALID_CONTEXT));
    assert_eq!(
        rig::alloc(4),
        Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED)
    );
    assert_eq!(
        rig::set_current(context),
        Err(CUresult::CUDA_ERROR_INVALID_CONTEXT)
    );
    assert!(stand_in.count_calls() > 20);
    stand_in.clear_calls();
    assert_eq!(stand_in.calls(), Vec::<String>::new());
}
