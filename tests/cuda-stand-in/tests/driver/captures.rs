//! Captures: what they record, and what they forbid.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::rig;
use cudarc::driver::sys::{CUresult, CUstreamCaptureMode, CUstreamCaptureStatus};

#[test]
fn waiting_for_a_captured_event_pulls_a_stream_in_and_it_must_be_joined() {
    let (_guard, _stand_in) = rig::alone();
    rig::init().unwrap();
    rig::enter(0).unwrap();
    let (one, two) = (rig::stream().unwrap(), rig::stream().unwrap());
    let (fork, join) = (rig::event().unwrap(), rig::event().unwrap());
    let (x, y) = (rig::alloc(4).unwrap(), rig::alloc(4).unwrap());
    for joined in [true, false] {
        rig::begin(one, rig::THREAD_LOCAL).unwrap();
        rig::set_words(x, 1, 1, one).unwrap();
        rig::record(fork, one).unwrap();
        rig::wait(two, fork).unwrap();
        assert_eq!(
            rig::capture_status(two),
            Ok(CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE)
        );
        rig::copy(y, x, 4, two).unwrap();
        rig::record(join, two).unwrap();
        if joined {
            rig::wait(one, join).unwrap();
        }
        let ended = rig::end(one);
        assert_eq!(
            rig::capture_status(two),
            Ok(CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
        );
        if joined {
            let exec = rig::instantiate(ended.unwrap()).unwrap();
            rig::launch_graph(exec, one).unwrap();
            assert_eq!(rig::download(y, 1, one).unwrap(), [1]);
        } else {
            assert_eq!(
                ended.err(),
                Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
            );
        }
        assert_eq!(
            rig::query_event(fork),
            Err(CUresult::CUDA_ERROR_CAPTURED_EVENT)
        );
        assert_eq!(
            rig::wait(two, fork),
            Err(CUresult::CUDA_ERROR_CAPTURED_EVENT),
            "its capture is over"
        );
    }
}

#[test]
fn what_a_capture_forbids_fails_and_spoils_it() {
    let (_guard, stand_in) = rig::alone();
    rig::init().unwrap();
    rig::enter(0).unwrap();
    let (stream, other) = (rig::stream().unwrap(), rig::stream().unwrap());
    let (x, outside) = (rig::alloc(4).unwrap(), rig::event().unwrap());
    rig::record(outside, other).unwrap();
    let captured = rig::event().unwrap();
    type Call<'a> = &'a dyn Fn() -> Result<(), CUresult>;
    let calls: [(&str, Call<'_>, CUresult); 9] = [
        (
            "synchronise",
            &|| rig::synchronise(stream),
            CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        ),
        (
            "query",
            &|| rig::query(stream),
            CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        ),
        (
            "context",
            &rig::synchronise_context,
            CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        ),
        (
            "alloc",
            &|| rig::alloc(4).map(drop),
            CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        ),
        (
            "pin",
            &|| rig::pin(4).map(drop),
            CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        ),
        (
            "load",
            &|| rig::load(rig::PTX).map(drop),
            CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        ),
        (
            "alloc async",
            &|| rig::alloc_async(4, stream).map(drop),
            CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        ),
        (
            "outside event",
            &|| rig::wait(stream, outside),
            CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
        ),
        (
            "captured event",
            &|| rig::synchronise_event(captured),
            CUresult::CUDA_ERROR_CAPTURED_EVENT,
        ),
    ];
    for (name, call, code) in calls {
        rig::begin(stream, rig::GLOBAL).unwrap();
        rig::record(captured, stream).unwrap();
        assert_eq!(call(), Err(code), "{name}");
        assert_eq!(
            rig::capture_status(stream),
            Ok(CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED),
            "{name}"
        );
        let more = rig::set_words(x, 1, 1, stream);
        assert_eq!(
            more,
            Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
            "{name}"
        );
        assert_eq!(
            rig::end(stream).err(),
            Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
            "{name}"
        );
        assert_eq!(
            rig::synchronise(stream),
            Ok(()),
            "after {name} the stream is as it was"
        );
    }
    assert_eq!(stand_in.leaks().graphs, 0);
}

#[test]
fn modes_say_which_threads_a_capture_keeps_from_allocating() {
    let (_guard, _stand_in) = rig::alone();
    rig::init().unwrap();
    let context = rig::enter(0).unwrap() as usize;
    let stream = rig::stream().unwrap();
    let relaxed = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    let elsewhere = || {
        let thread = std::thread::spawn(move || {
            rig::set_current(context as _).unwrap();
            rig::alloc(4).map(drop)
        });
        thread.join().unwrap()
    };
    let no = Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    for (mode, other_thread, this_thread) in [
        (rig::GLOBAL, no, no),
        (rig::THREAD_LOCAL, Ok(()), no),
        (relaxed, Ok(()), Ok(())),
    ] {
        rig::begin(stream, mode).unwrap();
        assert_eq!(elsewhere(), other_thread, "{mode:?}");
        assert_eq!(rig::alloc(4).map(drop), this_thread, "{mode:?}");
        assert_eq!(
            rig::end(stream).map(drop),
            if this_thread.is_ok() {
                Ok(())
            } else {
                Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
            }
        );
    }
    // A thread can opt into unsafe calls.
    rig::begin(stream, rig::GLOBAL).unwrap();
    assert_eq!(rig::exchange_mode(relaxed), Ok(rig::GLOBAL));
    rig::alloc(4).unwrap();
    assert_eq!(rig::exchange_mode(rig::GLOBAL), Ok(relaxed));
    rig::end(stream).unwrap();
}

#[test]
fn a_capture_ends_where_it_began() {
    let (_guard, _stand_in) = rig::alone();
    rig::init().unwrap();
    let context = rig::enter(0).unwrap() as usize;
    let (stream, other, blocking) = (
        rig::stream().unwrap(),
        rig::stream().unwrap(),
        rig::blocking_stream().unwrap(),
    );
    assert_eq!(
        rig::end(stream).err(),
        Some(CUresult::CUDA_ERROR_ILLEGAL_STATE),
        "nothing was begun"
    );
    assert_eq!(
        rig::begin(std::ptr::null_mut(), rig::GLOBAL),
        Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    );
    rig::begin(stream, rig::THREAD_LOCAL).unwrap();
    assert_eq!(
        rig::begin(stream, rig::THREAD_LOCAL),
        Err(CUresult::CUDA_ERROR_ILLEGAL_STATE)
    );
    let number = stream as usize;
    let thread = std::thread::spawn(move || {
        rig::set_current(context as _).unwrap();
        rig::end(number as _).err()
    });
    assert_eq!(
        thread.join().unwrap(),
        Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
    );
    let event = rig::event().unwrap();
    rig::record(event, stream).unwrap();
    rig::wait(other, event).unwrap();
    assert_eq!(
        rig::end(other).err(),
        Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED)
    );
    assert_eq!(
        rig::end(stream).err(),
        Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
    );

    // Two captures cannot be joined, and the default stream cannot wait for one.
    rig::begin(stream, rig::THREAD_LOCAL).unwrap();
    rig::begin(blocking, rig::THREAD_LOCAL).unwrap();
    rig::record(event, stream).unwrap();
    assert_eq!(
        rig::wait(blocking, event),
        Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE)
    );
    rig::end(stream).unwrap_err();
    rig::end(blocking).unwrap_err();
    let x = rig::alloc(4).unwrap();
    rig::begin(blocking, rig::THREAD_LOCAL).unwrap();
    assert_eq!(
        rig::set_words(x, 1, 1, std::ptr::null_mut()),
        Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    );
    rig::end(blocking).unwrap_err();
}
