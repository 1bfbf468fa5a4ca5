//! Instances that were broken off give their memory back on a thread of its own, if it is large.
//!
//! That takes the operating system some 40 ms for each gigabyte that was written to, which whoever stopped a call should not wait for. What is
//! not given back yet counts as taken: a call that finds no place waits for it.

use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Instant;

/// Bytes of memory from which an instance is worth it. Less takes a fraction of a millisecond.
const LARGE: usize = 8 << 20;

/// How many instances may be under way. Who has more gives them back itself, so that broken calls cannot run ahead of it.
const MOST_WAITING: usize = 4;

/// Something that takes long to drop.
type Load = Box<dyn Send>;

/// The way to an engine's thread that drops things. It is started when it is first needed.
#[derive(Default)]
pub(super) struct Discarder {
    queue: OnceLock<Option<Sender<Load>>>,
    progress: Arc<Progress>,
}

#[derive(Default)]
struct Progress {
    counts: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Default)]
struct Counts {
    waiting: usize,
    done: u64,
}

impl Discarder {
    /// Drops something with `size` bytes of memory: here, or if that takes long, soon.
    pub(super) fn take_if_large(&self, size: usize, load: impl Send + 'static) {
        match size >= LARGE {
            true => self.take(load),
            false => drop(load),
        }
    }

    fn take(&self, load: impl Send + 'static) {
        let queue = self.queue.get_or_init(|| start(&self.progress));
        let Some(queue) = queue else {
            return;
        };
        let mut counts = self.progress.lock();
        if counts.waiting >= MOST_WAITING {
            drop(counts);
            drop(load);
            return;
        }
        counts.waiting += 1;
        drop(counts);
        if queue.send(Box::new(load)).is_err() {
            // The thread ended: what came back was dropped here.
            self.progress.note_done();
        }
    }

    /// How many things were dropped so far.
    pub(super) fn done(&self) -> u64 {
        self.progress.lock().done
    }

    /// Waits until more than `seen` things were dropped. False if there is nothing to wait for, or not until `deadline`.
    pub(super) fn wait(&self, seen: u64, deadline: Instant) -> bool {
        let counts = self.progress.lock();
        let left = deadline.saturating_duration_since(Instant::now());
        let (counts, _) = self
            .progress
            .changed
            .wait_timeout_while(counts, left, |counts| {
                counts.done == seen && counts.waiting > 0
            })
            .unwrap_or_else(PoisonError::into_inner);
        counts.done != seen
    }
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_done(&self) {
        let mut counts = self.lock();
        counts.waiting -= 1;
        counts.done += 1;
        self.changed.notify_all();
    }
}

/// Starts the thread. It ends when the engine goes; nobody waits for it, because the engine may go on this very thread, with its last
/// instance.
fn start(progress: &Arc<Progress>) -> Option<Sender<Load>> {
    let (sender, receiver) = mpsc::channel::<Load>();
    let progress = Arc::clone(progress);
    let thread = thread::Builder::new().name("callbox-discard".to_owned());
    let work = move || {
        for load in receiver {
            drop(load);
            progress.note_done();
        }
    };
    // Without a thread, everything is dropped where it is.
    thread.spawn(work).ok().map(|_| sender)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Takes as long to drop as someone else decides.
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
    fn what_is_under_way_is_waited_for() {
        let discarder = Discarder::default();
        assert!(!discarder.wait(discarder.done(), later()));
        let (release, gate) = mpsc::channel();
        discarder.take(Slow(gate));
        let seen = discarder.done();
        assert!(!discarder.wait(seen, soon()));
        drop(release);
        assert!(discarder.wait(seen, later()));
        assert!(!discarder.wait(discarder.done(), later()));
        // What was done between an attempt and the wait for another counts.
        assert!(discarder.wait(seen, later()));
    }

    #[test]
    fn no_more_than_a_few_are_under_way() {
        let discarder = Discarder::default();
        let (releases, gates): (Vec<_>, Vec<_>) =
            (0..MOST_WAITING).map(|_| mpsc::channel()).unzip();
        for gate in gates {
            discarder.take(Slow(gate));
        }
        let (release, gate) = mpsc::channel();
        drop(release);
        // Dropped here: it would else wait behind the others.
        let (after, dropped) = mpsc::channel::<()>();
        discarder.take((Slow(gate), after));
        assert!(dropped.recv().is_err());
        assert_eq!(discarder.done(), 0);
        drop(releases);
        while discarder.done() < MOST_WAITING as u64 {
            discarder.wait(discarder.done(), later());
        }
    }
}
