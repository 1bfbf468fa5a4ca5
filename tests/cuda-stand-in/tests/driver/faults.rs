//! Failures: injected ones, kernels' faults, exhausted memory, and misuse by callers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::rig;
use crate::rig::Axpb;
use callbox_cuda_stand_in::{Leaks, Mode};
use cudarc::driver::sys::CUresult;

const STICKY: [CUresult; 2] = [
    CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
    CUresult::CUDA_ERROR_LAUNCH_FAILED,
];
const PASSING: [CUresult; 2] = [
    CUresult::CUDA_ERROR_OUT_OF_MEMORY,
    CUresult::CUDA_ERROR_UNKNOWN,
];

/// Doubles some numbers, and releases everything it acquired in any case.
fn scenario() -> rig::Outcome<Vec<u32>> {
    rig::init()?;
    if let Err(code) = rig::enter(0) {
        let _ = rig::leave(0);
        return Err(code);
    }
    let outcome = in_context();
    let left = rig::leave(0);
    let doubled = outcome?;
    left.map(|()| doubled)
}

fn in_context() -> rig::Outcome<Vec<u32>> {
    let stream = rig::stream()?;
    let x = rig::alloc_async(40, stream);
    let module = rig::load(rig::PTX);
    let outcome = x.and_then(|x| {
        let axpb = rig::function(module?, "axpb")?;
        rig::upload(x, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], stream)?;
        Axpb {
            x,
            y: x,
            a: 2,
            b: 0,
            n: 10,
        }
        .launch(axpb, stream)?;
        rig::download(x, 10, stream)
    });
    let given_back = [
        x.and_then(|x| rig::free_async(x, stream)),
        module.and_then(rig::unload),
        rig::destroy_stream(stream),
    ];
    let outcome = outcome?;
    given_back
        .into_iter()
        .collect::<rig::Outcome<()>>()
        .map(|()| outcome)
}

const DOUBLED: [u32; 10] = [2, 4, 6, 8, 10, 12, 14, 16, 18, 20];

#[test]
fn each_call_of_a_scenario_can_be_made_to_fail_and_nothing_leaks() {
    let (_guard, stand_in) = rig::alone();
    assert_eq!(scenario().unwrap(), DOUBLED);
    let calls = stand_in.calls();
    assert_eq!(calls.first().map(String::as_str), Some("cuInit"));
    assert!(calls.iter().any(|call| call == "cuLaunchKernel"));
    for code in STICKY.into_iter().chain(PASSING) {
        for (n, name) in (1..).zip(&calls) {
            stand_in.reset();
            stand_in.fail_nth(n, code);
            assert_eq!(scenario(), Err(code), "{name} failing with {code:?}");
            assert!(
                stand_in.last_fault().contains(name),
                "{}",
                stand_in.last_fault()
            );
            assert_eq!(
                stand_in.leaks(),
                Leaks::NONE,
                "{name} failing with {code:?}"
            );
            assert_eq!(
                scenario().unwrap(),
                DOUBLED,
                "after {name} failed with {code:?}"
            );
        }
    }
}

#[test]
fn a_kernels_fault_is_told_by_the_next_call_and_every_later_one() {
    let (_guard, stand_in) = rig::alone();
    for mode in [Mode::Eager, Mode::Lazy] {
        stand_in.set_mode(mode);
        rig::init().unwrap();
        rig::enter(0).unwrap();
        let (stream, other) = (rig::stream().unwrap(), rig::stream().unwrap());
        let module = rig::load(rig::PTX).unwrap();
        let axpb = rig::function(module, "axpb").unwrap();
        let x = rig::alloc(400).unwrap();
        // The 101st number is past the end.
        assert_eq!(
            Axpb {
                x,
                y: x,
                a: 1,
                b: 0,
                n: 101
            }
            .launch(axpb, stream),
            Ok(()),
            "{mode:?}"
        );
        let illegal = Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        assert_eq!(rig::synchronise(stream), illegal, "{mode:?}");
        assert_eq!(rig::synchronise(other), illegal);
        assert_eq!(rig::synchronise_context(), illegal);
        assert_eq!(rig::alloc(4).map(drop), illegal);
        assert_eq!(rig::free(x), illegal);
        assert_eq!(rig::unload(module), illegal);
        let fault = stand_in.last_fault();
        assert!(fault.contains(&format!("{:#x}", x + 400)), "{fault}");
        // The first error is the one that is reported.
        rig::reset_device(0).unwrap();
        assert_eq!(
            rig::synchronise_context(),
            Ok(()),
            "a reset context is well again"
        );
        assert_eq!(
            rig::synchronise(stream),
            Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
            "and empty"
        );
        rig::leave(0).unwrap();
        assert_eq!(stand_in.leaks(), Leaks::NONE);
        assert_eq!(scenario().unwrap(), DOUBLED);
    }
}

#[test]
fn trap_is_an_illegal_instruction() {
    let (_guard, _stand_in) = rig::alone();
    rig::init().unwrap();
    rig::enter(0).unwrap();
    let stream = rig::stream().unwrap();
    let stop = rig::function(rig::load(rig::PTX).unwrap(), "stop").unwrap();
    rig::launch(stop, [1, 1, 1], [1, 1, 1], 0, stream).unwrap();
    assert_eq!(
        rig::synchronise(stream),
        Err(CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION)
    );
}

#[test]
fn memory_that_was_freed_is_gone() {
    let (_guard, stand_in) = rig::alone();
    stand_in.set_mode(Mode::Lazy);
    rig::init().unwrap();
    rig::enter(0).unwrap();
    let stream = rig::stream().unwrap();
    let x = rig::alloc(4).unwrap();
    rig::free(x).unwrap();
    assert_eq!(
        rig::free(x),
        Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        "twice"
    );
    assert_eq!(
        rig::set_words(x, 1, 1, stream),
        Err(CUresult::CUDA_ERROR_INVALID_VALUE)
    );
    let axpb = rig::function(rig::load(rig::PTX).unwrap(), "axpb").unwrap();
    let y = rig::alloc(4).unwrap();
    rig::free_async(y, stream).unwrap();
    assert_eq!(
        rig::free_async(y, stream),
        Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        "twice, before the stream came to it"
    );
    Axpb {
        x: y,
        y,
        a: 1,
        b: 0,
        n: 1,
    }
    .launch(axpb, stream)
    .unwrap();
    assert_eq!(
        rig::synchronise(stream),
        Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS)
    );
}

#[test]
fn a_device_has_as_much_memory_as_it_was_given() {
    let (_guard, stand_in) = rig::alone();
    stand_in.set_memory(0, 1000);
    rig::init().unwrap();
    rig::enter(0).unwrap();
    let stream = rig::stream().unwrap();
    let x = rig::alloc(600).unwrap();
    assert_eq!(rig::memory_info(), Ok((400, 1000)));
    assert_eq!(rig::alloc(401), Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
    assert_eq!(
        rig::alloc_async(401, stream),
        Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
    );
    let y = rig::alloc_async(400, stream).unwrap();
    rig::free(x).unwrap();
    rig::free_async(y, stream).unwrap();
    assert_eq!(rig::memory_info(), Ok((1000, 1000)));
    let module = rig::load(rig::PTX).unwrap();
    assert_eq!(
        rig::memory_info(),
        Ok((996, 1000)),
        "a module's variables lie there too"
    );
    rig::unload(module).unwrap();
    assert_eq!(rig::memory_info(), Ok((1000, 1000)));
    assert_eq!(rig::alloc(0), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
    assert_eq!(
        rig::alloc(usize::MAX),
        Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
    );
}

#[test]
fn what_is_not_given_back_is_counted() {
    let (_guard, stand_in) = rig::alone();
    rig::init().unwrap();
    rig::enter(0).unwrap();
    let stream = rig::stream().unwrap();
    rig::event().unwrap();
    rig::load(rig::PTX).unwrap();
    rig::pin(1).unwrap();
    let x = rig::alloc(4).unwrap();
    rig::alloc_async(4, stream).unwrap();
    rig::begin(stream, rig::THREAD_LOCAL).unwrap();
    rig::set_words(x, 1, 1, stream).unwrap();
    rig::instantiate(rig::end(stream).unwrap()).unwrap();
    let expected = Leaks {
        allocations: 2,
        pinned: 1,
        modules: 1,
        events: 1,
        streams: 1,
        graphs: 1,
        graph_execs: 1,
    };
    assert_eq!(stand_in.leaks(), expected);
    rig::leave(0).unwrap();
    assert_eq!(
        stand_in.leaks(),
        expected,
        "they are leaked also if they go with their context"
    );
}

#[test]
fn devices_do_not_see_each_others_streams_kernels_and_memory() {
    let (_guard, stand_in) = rig::alone();
    assert!(stand_in.set_devices(2));
    rig::init().unwrap();
    let zero = rig::enter(0).unwrap();
    let (stream_0, x_0) = (rig::stream().unwrap(), rig::alloc(4).unwrap());
    rig::enter(1).unwrap();
    let (stream_1, x_1, event_1) = (
        rig::stream().unwrap(),
        rig::alloc(4).unwrap(),
        rig::event().unwrap(),
    );
    let axpb_1 = rig::function(rig::load(rig::PTX).unwrap(), "axpb").unwrap();
    assert_eq!(
        Axpb {
            x: x_1,
            y: x_1,
            a: 1,
            b: 0,
            n: 1
        }
        .launch(axpb_1, stream_0),
        Err(CUresult::CUDA_ERROR_INVALID_HANDLE)
    );
    assert_eq!(
        rig::record(event_1, stream_0),
        Err(CUresult::CUDA_ERROR_INVALID_HANDLE)
    );
    assert_eq!(
        rig::copy(x_1, x_0, 4, stream_1),
        Err(CUresult::CUDA_ERROR_INVALID_VALUE)
    );
    // A stream may wait for another device's event.
    rig::record(event_1, stream_1).unwrap();
    rig::wait(stream_0, event_1).unwrap();
    Axpb {
        x: x_0,
        y: x_1,
        a: 1,
        b: 0,
        n: 1,
    }
    .launch(axpb_1, stream_1)
    .unwrap();
    assert_eq!(
        rig::synchronise(stream_1),
        Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS)
    );
    assert!(
        stand_in.last_fault().contains("another device's"),
        "{}",
        stand_in.last_fault()
    );
    rig::set_current(zero).unwrap();
    assert_eq!(
        rig::synchronise(stream_0),
        Ok(()),
        "the other device is well"
    );
}
