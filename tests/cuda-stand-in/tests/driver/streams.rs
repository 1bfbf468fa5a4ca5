//! When work runs: lazy and eager mode, waits, polls, host functions, default streams, copies from
//! and to host memory.
#![allow(unsafe_code, reason = "host functions are C functions")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::c_void;
use std::sync::Mutex;

use crate::rig;
use crate::rig::Axpb;
use callbox_cuda_stand_in::{Leaks, Mode};
use cudarc::driver::sys::CUresult;

/// The contents of uninitialised memory.
const POISON: u32 = 0xCDCD_CDCD;
const N: u32 = 100;
const BYTES: usize = N as usize * 4;

fn numbers() -> Vec<u32> {
    (0..N).collect()
}

#[test]
fn in_lazy_mode_a_missing_wait_reads_poison_and_a_wait_is_kept() {
    let (_guard, stand_in) = rig::alone();
    stand_in.set_mode(Mode::Lazy);
    rig::init().unwrap();
    rig::enter(0).unwrap();
    let (producer, consumer) = (rig::stream().unwrap(), rig::stream().unwrap());
    let module = rig::load(rig::PTX).unwrap();
    let axpb = rig::function(module, "axpb").unwrap();
    for waits in [false, true] {
        let (x, y, z) = (
            rig::alloc(BYTES).unwrap(),
            rig::alloc(BYTES).unwrap(),
            rig::alloc(BYTES).unwrap(),
        );
        rig::upload(x, &numbers(), producer).unwrap();
        Axpb {
            x,
            y,
            a: 2,
            b: 1,
            n: N,
        }
        .launch(axpb, producer)
        .unwrap();
        let done = rig::event().unwrap();
        rig::record(done, producer).unwrap();
        if waits {
            rig::wait(consumer, done).unwrap();
        }
        Axpb {
            x: y,
            y: z,
            a: 1,
            b: 10,
            n: N,
        }
        .launch(axpb, consumer)
        .unwrap();
        let found = rig::download(z, N as usize, consumer).unwrap();
        let expected: Vec<u32> = (0..N)
            .map(|value| {
                if waits {
                    2 * value + 11
                } else {
                    POISON.wrapping_add(10)
                }
            })
            .collect();
        assert_eq!(found, expected, "waits: {waits}");
        rig::destroy_event(done).unwrap();
        for address in [x, y, z] {
            rig::free(address).unwrap();
        }
    }
    rig::unload(module).unwrap();
    rig::destroy_stream(producer).unwrap();
    rig::destroy_stream(consumer).unwrap();
    assert_eq!(stand_in.leaks(), Leaks::NONE);
    rig::leave(0).unwrap();
    assert_eq!(stand_in.leaks(), Leaks::NONE);
}

#[test]
fn a_long_chain_of_waits_between_two_streams_comes_to_its_end() {
    let (_guard, stand_in) = rig::alone();
    stand_in.set_mode(Mode::Lazy);
    rig::init().unwrap();
    rig::enter(0).unwrap();
    let streams = [rig::stream().unwrap(), rig::stream().unwrap()];
    let module = rig::load(rig::PTX).unwrap();
    let axpb = rig::function(module, "axpb").unwrap();
    let x = rig::alloc(4).unwrap();
    rig::upload(x, &[0], streams[0]).unwrap();
    let done = rig::event().unwrap();
    rig::record(done, streams[0]).unwrap();
    for step in 0..20_000 {
        let stream = streams[step % 2];
        rig::wait(stream, done).unwrap();
        Axpb {
            x,
            y: x,
            a: 1,
            b: 1,
            n: 1,
        }
        .launch(axpb, stream)
        .unwrap();
        rig::record(done, stream).unwrap();
    }
    rig::synchronise_event(done).unwrap();
    assert_eq!(rig::download(x, 1, streams[0]).unwrap(), [20_000]);
}

#[test]
fn pollers_see_work_unfinished_and_then_finished() {
    let (_guard, stand_in) = rig::alone();
    stand_in.set_mode(Mode::Lazy);
    rig::init().unwrap();
    rig::enter(0).unwrap();
    let stream = rig::stream().unwrap();
    let x = rig::alloc(4).unwrap();
    let (start, end) = (rig::event().unwrap(), rig::event().unwrap());
    assert_eq!(
        rig::query_event(start),
        Ok(()),
        "an event that was never recorded has nothing to wait for"
    );
    rig::record(start, stream).unwrap();
    rig::set_words(x, 9, 1, stream).unwrap();
    rig::record(end, stream).unwrap();
    assert_eq!(rig::query(stream), Err(CUresult::CUDA_ERROR_NOT_READY));
    assert_eq!(
        rig::elapsed(start, end),
        Err(CUresult::CUDA_ERROR_NOT_READY)
    );
    let polls = (0..100)
        .take_while(|_| rig::query_event(end) == Err(CUresult::CUDA_ERROR_NOT_READY))
        .count();
    assert!((1..10).contains(&polls), "{polls} polls");
    assert_eq!(rig::query(stream), Ok(()));
    assert!(rig::elapsed(start, end).unwrap() >= 0.0);
    assert_eq!(rig::download_now(x, 1).unwrap(), [9]);
}

static ORDER: Mutex<Vec<(usize, Option<u32>)>> = Mutex::new(Vec::new());

/// Records its number, and the value of `PLACE` at the time of the call.
unsafe extern "C" fn note(data: *mut c_void) {
    // SAFETY: the test enqueues it with a `Note` that lives until the stream is done.
    let note = unsafe { &*data.cast::<Note>() };
    // SAFETY: the pinned memory lives until the stream is done.
    let seen = note
        .look
        .map(|at| unsafe { (at as *const u32).read_volatile() });
    ORDER.lock().unwrap().push((note.number, seen));
}

struct Note {
    number: usize,
    look: Option<usize>,
}

#[test]
fn host_functions_are_called_in_the_streams_order() {
    let (_guard, stand_in) = rig::alone();
    for mode in [Mode::Lazy, Mode::Eager] {
        stand_in.set_mode(mode);
        ORDER.lock().unwrap().clear();
        rig::init().unwrap();
        rig::enter(0).unwrap();
        let stream = rig::stream().unwrap();
        let x = rig::alloc(4).unwrap();
        let pinned = rig::pin(1).unwrap();
        pinned.fill(1);
        let notes = [1, 2].map(|number| Note {
            number,
            look: Some(pinned.at as usize),
        });
        rig::host(stream, note, (&raw const notes[0]).cast_mut().cast()).unwrap();
        rig::set_words(x, 2, 1, stream).unwrap();
        rig::download_pinned(&pinned, x, stream).unwrap();
        rig::host(stream, note, (&raw const notes[1]).cast_mut().cast()).unwrap();
        assert_eq!(ORDER.lock().unwrap().is_empty(), mode == Mode::Lazy);
        rig::synchronise(stream).unwrap();
        assert_eq!(*ORDER.lock().unwrap(), [(1, Some(1)), (2, Some(2))]);
        pinned.unpin().unwrap();
        rig::leave(0).unwrap();
    }
}

unsafe extern "C" fn call_the_driver(data: *mut c_void) {
    let outcome = rig::alloc(4);
    // SAFETY: the test enqueues it with a place for the outcome.
    unsafe { *data.cast::<rig::Outcome<u64>>() = outcome };
}

#[test]
fn host_functions_must_not_call_the_driver() {
    let (_guard, _stand_in) = rig::alone();
    rig::init().unwrap();
    rig::enter(0).unwrap();
    let stream = rig::stream().unwrap();
    let mut outcome: rig::Outcome<u64> = Ok(0);
    rig::host(stream, call_the_driver, (&raw mut outcome).cast()).unwrap();
    rig::synchronise(stream).unwrap();
    assert_eq!(outcome, Err(CUresult::CUDA_ERROR_NOT_PERMITTED));
}

#[test]
fn pinned_memory_is_read_when_the_copy_runs_and_pageable_memory_when_it_is_enqueued() {
    let (_guard, stand_in) = rig::alone();
    stand_in.set_mode(Mode::Lazy);
    rig::init().unwrap();
    rig::enter(0).unwrap();
    let stream = rig::stream().unwrap();
    let (x, y) = (rig::alloc(4).unwrap(), rig::alloc(4).unwrap());
    let (pinned, back) = (rig::pin(1).unwrap(), rig::pin(1).unwrap());
    pinned.fill(1);
    back.fill(0);
    rig::upload_pinned(x, &pinned, stream).unwrap();
    let mut pageable = [1];
    rig::upload(y, &pageable, stream).unwrap();
    rig::download_pinned(&back, x, stream).unwrap();
    pinned.fill(2);
    pageable[0] = 2;
    assert_eq!(
        back.read(),
        [0],
        "the copy to pinned memory has not happened"
    );
    assert_eq!(
        rig::download(y, 1, stream).unwrap(),
        [1],
        "a copy to pageable memory is done when the call returns"
    );
    assert_eq!(back.read(), [2]);
    assert_eq!(pageable, [2]);
    pinned.unpin().unwrap();
    back.unpin().unwrap();
}

#[test]
fn addresses_say_what_they_are() {
    let (_guard, stand_in) = rig::alone();
    assert!(stand_in.set_devices(2));
    rig::init().unwrap();
    rig::enter(1).unwrap();
    let stream = rig::stream().unwrap();
    let x = rig::alloc(16).unwrap();
    let (from, to) = (rig::pin(4).unwrap(), rig::pin(4).unwrap());
    let mut pageable = [7u32; 4];
    let host = (&raw mut pageable) as u64;
    assert_eq!(
        (rig::memory_type(x + 15), rig::device_of(x)),
        (Ok(2), Ok(1))
    );
    assert_eq!(
        rig::memory_type(x + 16),
        Err(CUresult::CUDA_ERROR_INVALID_VALUE)
    );
    assert_eq!(rig::memory_type(from.at as u64), Ok(1));
    assert_eq!(
        rig::memory_type(host),
        Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        "memory that the driver does not know"
    );
    // The same call copies between any two kinds of memory.
    from.fill(5);
    rig::copy_any(x, from.at as u64, 16, stream).unwrap();
    rig::copy_any(to.at as u64, x, 16, stream).unwrap();
    rig::synchronise(stream).unwrap();
    assert_eq!(to.read(), [5; 4]);
    rig::copy_any(x, host, 16, stream).unwrap();
    assert_eq!(rig::download(x, 4, stream).unwrap(), [7; 4]);
    rig::set_words(x, 8, 4, stream).unwrap();
    rig::copy_any(host, x, 16, stream).unwrap();
    assert_eq!(pageable, [8; 4]);
    from.unpin().unwrap();
    to.unpin().unwrap();
}

#[test]
fn the_default_stream_waits_for_blocking_streams_and_not_for_others() {
    let (_guard, stand_in) = rig::alone();
    stand_in.set_mode(Mode::Lazy);
    rig::init().unwrap();
    rig::enter(0).unwrap();
    for (stream, expected) in [
        (rig::blocking_stream().unwrap(), 3),
        (rig::stream().unwrap(), POISON),
    ] {
        let x = rig::alloc(4).unwrap();
        rig::set_words(x, 3, 1, stream).unwrap();
        assert_eq!(rig::download_now(x, 1).unwrap(), [expected]);
        rig::synchronise(stream).unwrap();
        assert_eq!(rig::download_now(x, 1).unwrap(), [3]);
    }
    // Blocking streams wait for it as well.
    let (stream, x) = (rig::blocking_stream().unwrap(), rig::alloc(8).unwrap());
    rig::set_words(x, 4, 1, std::ptr::null_mut()).unwrap();
    rig::copy(x + 4, x, 4, stream).unwrap();
    assert_eq!(rig::download(x, 2, stream).unwrap(), [4, 4]);
}

#[test]
fn memory_of_a_stream_is_there_for_other_streams_once_they_have_waited() {
    let (_guard, stand_in) = rig::alone();
    stand_in.set_mode(Mode::Lazy);
    rig::init().unwrap();
    rig::enter(0).unwrap();
    let (one, two) = (rig::stream().unwrap(), rig::stream().unwrap());
    let ready = rig::event().unwrap();
    let x = rig::alloc_async(4, one).unwrap();
    rig::record(ready, one).unwrap();
    rig::wait(two, ready).unwrap();
    rig::set_words(x, 6, 1, two).unwrap();
    assert_eq!(rig::download(x, 1, two).unwrap(), [6]);
    rig::free_async(x, two).unwrap();
    let x = rig::alloc_async(4, one).unwrap();
    rig::set_words(x, 6, 1, two).unwrap();
    assert_eq!(
        rig::synchronise(two),
        Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS)
    );
    assert!(
        stand_in.last_fault().contains("the stream has not come to"),
        "{}",
        stand_in.last_fault()
    );
}

#[test]
fn a_destroyed_stream_still_does_its_work() {
    let (_guard, stand_in) = rig::alone();
    stand_in.set_mode(Mode::Lazy);
    rig::init().unwrap();
    rig::enter(0).unwrap();
    let (stream, x) = (rig::stream().unwrap(), rig::alloc(4).unwrap());
    rig::set_words(x, 2, 1, stream).unwrap();
    rig::destroy_stream(stream).unwrap();
    assert_eq!(
        rig::synchronise(stream),
        Err(CUresult::CUDA_ERROR_INVALID_HANDLE)
    );
    assert_eq!(stand_in.leaks().streams, 0);
    rig::synchronise_context().unwrap();
    assert_eq!(rig::download_now(x, 1).unwrap(), [2]);
}

#[test]
fn threads_share_a_stream() {
    let (_guard, stand_in) = rig::alone();
    for mode in [Mode::Eager, Mode::Lazy] {
        stand_in.set_mode(mode);
        rig::init().unwrap();
        let context = rig::enter(0).unwrap() as usize;
        let stream = rig::stream().unwrap();
        let module = rig::load(rig::PTX).unwrap();
        let (count, (counter, size)) = (
            rig::function(module, "count").unwrap(),
            rig::global(module, "counter").unwrap(),
        );
        assert_eq!(size, 4);
        let (stream_number, count_number) = (stream as usize, count as usize);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(move || {
                    rig::set_current(context as _).unwrap();
                    for _ in 0..50 {
                        rig::launch(
                            count_number as _,
                            [2, 1, 1],
                            [32, 1, 1],
                            0,
                            stream_number as _,
                        )
                        .unwrap();
                    }
                    rig::synchronise(stream_number as _).unwrap();
                });
            }
        });
        // The initial value is 7.
        assert_eq!(
            rig::download(counter, 1, stream).unwrap(),
            [7 + 4 * 50 * 64],
            "{mode:?}"
        );
        rig::leave(0).unwrap();
    }
}
