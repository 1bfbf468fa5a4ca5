//! Tests of what is taken back in the background.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::Cell;

use super::*;
use crate::places::Places;
use crate::search::Patience;

/// Blocks in `drop` until the test releases it.
struct Slow(mpsc::Receiver<()>);

impl Drop for Slow {
    fn drop(&mut self) {
        let _ = self.0.recv();
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(20)
}

fn later() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

#[test]
fn waits_for_queued_values() {
    let discarder = Discarder::default();
    assert!(!discarder.wait(discarder.done(), (None, None), later(), None));
    let (release, gate) = mpsc::channel();
    discarder.free(Slow(gate));
    let seen = discarder.done();
    assert!(!discarder.wait_for_freed(seen, (None, None), soon(), None));
    drop(release);
    assert!(discarder.wait(seen, (None, None), later(), None));
    assert!(!discarder.wait(discarder.done(), (None, None), later(), None));
    // A value that was dropped before the wait began counts.
    assert!(discarder.wait(seen, (None, None), later(), None));
}

/// The caller waits neither for memories nor for deleters, however many there are.
#[test]
fn nothing_is_dropped_on_the_callers_thread() {
    const COUNT: usize = 100;
    let discarder = Discarder::default();
    let (releases, gates): (Vec<_>, Vec<_>) = (0..2 * COUNT).map(|_| mpsc::channel()).unzip();
    let ran = Arc::new(Mutex::new(0));
    for (i, gate) in gates.into_iter().enumerate() {
        if i < COUNT {
            discarder.free(Slow(gate));
            continue;
        }
        let (slow, ran) = (Slow(gate), Arc::clone(&ran));
        discarder.run_deleters(move |_| {
            *locked(&ran) += 1;
            drop(slow);
        });
    }
    assert_eq!(discarder.done(), 0);
    drop(releases);
    while discarder.done() < 2 * COUNT as u64 {
        discarder.wait(discarder.done(), (None, None), later(), None);
    }
    assert_eq!(*locked(&ran), MOST_DELETERS);
}

/// An instance may give its place back without being taken back here, or become idle.
#[test]
fn a_wait_ends_when_the_call_has_its_place_or_should_look_again() {
    let discarder = Discarder::default();
    let (release, gate) = mpsc::channel();
    discarder.free(Slow(gate));
    let places = Arc::new(Places::default());
    let place = places.take(1).unwrap();
    let turn = places.take(1).unwrap_err();
    let seen = discarder.done();
    thread::scope(|scope| {
        scope.spawn(move || {
            thread::sleep(Duration::from_millis(10));
            drop(place);
        });
        assert!(discarder.wait_for_freed(seen, (Some(&turn), None), later(), None));
    });
    assert!(turn.has_place());
    drop(release);
    assert!(discarder.wait_for_freed(seen, (None, None), later(), None));
    let _helping = discarder.helping(CancelToken::new(), Arc::default());
    assert!(discarder.wait(discarder.done(), (None, None), later(), None));
}

/// Deleters that run on block neither memories nor a call that needs room.
/// Others wait for what is being freed.
#[test]
fn a_search_begins_with_what_no_other_call_waits_for() {
    let discarder = Discarder::default();
    let first = || {
        let found = Cell::new("");
        let find = |what| {
            found.set(what);
            true
        };
        assert!(discarder.search().next(|| find("idle"), || find("freed")));
        found.get()
    };
    assert_eq!(first(), "idle");
    let (release, slow) = mpsc::channel();
    discarder.free(Slow(slow));
    assert_eq!(first(), "freed");
    let _waiting = discarder.progress.call_waits(None);
    assert_eq!(first(), "idle");
    drop(release);
}

#[test]
fn a_thread_helps_beside_calls_that_wait_for_other_room() {
    let discarder = Discarder::default();
    let (own, other) = (Arc::default(), Arc::default());
    let helping = discarder.helping(CancelToken::new(), Arc::clone(&own));
    let waits_for_other = discarder.call_waits(&other);
    assert!(!helping.is_awaited() && discarder.is_awaited(&other));
    let waits_for_own = discarder.call_waits(&own);
    drop(waits_for_other);
    assert!(helping.is_awaited());
    drop(waits_for_own);
    assert!(!helping.is_awaited());
    let _waits_for_any = discarder.progress.call_waits(None);
    assert!(helping.is_awaited());
}

/// On a busy machine the thread that frees memory runs late.
#[test]
fn what_is_being_freed_when_the_time_is_over_is_waited_for() {
    let discarder = Discarder::default();
    let begun = Instant::now();
    let new = || Patience::new(Duration::from_millis(20), |most| begun + most);
    let (mut alone, mut patience) = (new(), new());
    assert!(!patience.is_over(&discarder, false));
    thread::sleep(Duration::from_millis(20));
    assert!(alone.is_over(&discarder, false));
    assert!(!alone.is_over(&discarder, true));
    let [(first, gate), (second, next)] = [(); 2].map(|()| mpsc::channel());
    discarder.free(Slow(gate));
    assert!(!patience.is_over(&discarder, false));
    assert!(patience.end(false) > begun + Duration::from_secs(1));
    // Those that follow are not.
    discarder.free(Slow(next));
    drop(first);
    assert!(discarder.wait(0, (None, None), later(), None));
    assert!(patience.is_over(&discarder, false));
    drop(second);
}

#[test]
fn deleters_are_stopped_when_there_is_no_room() {
    let discarder = Discarder::default();
    for _ in 0..2 {
        discarder.run_deleters(|token| {
            while !token.is_cancelled() {
                thread::sleep(LOOK);
            }
        });
    }
    let seen = discarder.done();
    discarder.free(());
    assert!(discarder.wait(seen, (None, None), later(), None));
    while discarder.done() < 3 {
        assert!(discarder.wait(discarder.done(), (None, None), later(), None));
    }
    // Later deleters are not stopped.
    let (sender, receiver) = mpsc::channel();
    discarder.run_deleters(move |token| sender.send(token.is_cancelled()).unwrap());
    assert_eq!(receiver.recv(), Ok(false));
}

#[test]
fn a_cancelled_call_does_not_wait() {
    let discarder = Discarder::default();
    let (release, gate) = mpsc::channel::<()>();
    discarder.free(Slow(gate));
    let cancel = CancelToken::new();
    cancel.cancel();
    assert!(!discarder.wait(discarder.done(), (None, None), later(), Some(&cancel)));
    drop(release);
}

#[test]
fn a_panic_does_not_end_the_thread() {
    let discarder = Discarder::default();
    discarder.run_deleters(|_| std::panic::resume_unwind(Box::new("the sink panics")));
    let (sender, receiver) = mpsc::channel();
    discarder.run_deleters(move |_| sender.send(()).unwrap());
    assert_eq!(receiver.recv(), Ok(()));
}
