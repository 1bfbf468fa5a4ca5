//! Takes instances back on background threads: runs the deleters of their state, and frees large
//! memories.
//!
//! The caller who drops an instance waits for neither. Deleters are guest code and may run on, and
//! the operating system takes some 40 ms to free a gigabyte of dirty memory. Until an instance is
//! freed, it counts as in use: a call that finds no room for an instance waits for it, and hurries
//! the deleters. Nothing waits for the threads at the end of the process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use callbox_core::call::CancelToken;
use callbox_core::locks::locked;

use crate::places::Turn;
use crate::pool::Pools;
use crate::quota::Together;
use crate::search::Search;

/// The smallest memory that is freed in the background. Less takes a fraction of a millisecond.
pub(crate) const LARGE: usize = 8 << 20;

/// The most instances whose deleters wait to run. Any further one is freed without running its
/// deleters, so that a guest cannot pile up instances by deleters that run on.
const MOST_DELETERS: usize = 16;

/// The time that a call without room for an instance waits for a deleter that runs before it stops
/// all. Others may take the place that becomes free, so that a call may wait many times.
const PATIENCE: Duration = Duration::from_millis(2);

/// The interval at which a call that waits for room checks its cancel token and its turn.
const LOOK: Duration = Duration::from_millis(1);

/// The interval at which a call that waits for an instance that helps looks for an idle one again.
/// Those that have not done their part after [`PATIENCE`] are stopped.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

static FREED: AtomicU64 = AtomicU64::new(0);

/// Work on an instance. Dropping the job frees the instance.
type Job = Box<dyn FnOnce() + Send>;

/// What a call waits for: its turn, if it has one, and room that counts towards this, or any.
type Wanted<'a> = (Option<&'a Turn>, Option<&'a Arc<Together>>);

/// An engine's background threads, each started on first use.
///
/// Deleters have a thread of their own, so that memories are freed while a deleter runs on.
pub(crate) struct Discarder {
    memories: Lane,
    deleters: Lane,
    progress: Arc<Progress>,
    /// Stops the deleters that are waiting or running. Replaced when it is used.
    hurry: Mutex<CancelToken>,
}

/// Marks an instance whose thread helps with a call. Another call that needs the instance waits
/// until the helper has done its part, as it does for an instance that is being dropped, or stops
/// it.
pub(crate) struct Helping {
    progress: Arc<Progress>,
    helper: Helper,
}

/// A thread that helps.
#[derive(Clone)]
struct Helper {
    /// Stops it.
    token: CancelToken,
    /// What its instance's memory counts towards.
    together: Arc<Together>,
}

impl Helping {
    /// Whether a call waits for its room.
    pub(crate) fn is_awaited(&self) -> bool {
        locked(&self.progress.counts).is_awaited(&self.helper.together)
    }
}

impl Drop for Helping {
    fn drop(&mut self) {
        let mut counts = locked(&self.progress.counts);
        let own = &self.helper.token;
        counts.helping.retain(|helper| !helper.token.is_same(own));
        counts.done += 1;
        self.progress.changed.notify_all();
    }
}

/// Marks the eviction of an instance.
struct Evicting<'a> {
    progress: &'a Progress,
    has_evicted: bool,
}

impl Drop for Evicting<'_> {
    fn drop(&mut self) {
        let mut counts = locked(&self.progress.counts);
        counts.evicting -= 1;
        counts.done += u64::from(self.has_evicted);
        self.progress.changed.notify_all();
    }
}

/// Marks the time of deleters that run.
struct Deleting<'a>(&'a Progress);

impl<'a> Deleting<'a> {
    fn begin(progress: &'a Progress) -> Self {
        locked(&progress.counts).deleting = Some(Instant::now());
        Self(progress)
    }
}

impl Drop for Deleting<'_> {
    fn drop(&mut self) {
        locked(&self.0.counts).deleting = None;
    }
}

/// One thread and its queue, which the limits on instances bound.
struct Lane {
    name: &'static str,
    queue: OnceLock<Option<Sender<Job>>>,
    waiting: Arc<Mutex<usize>>,
}

#[derive(Default)]
struct Progress {
    counts: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Default)]
struct Counts {
    /// The instances that are being taken back, and the number of those that were.
    freeing: usize,
    freed: u64,
    /// The threads that evict an idle instance.
    evicting: usize,
    helping: Vec<Helper>,
    /// How often there may have become room: an instance was taken back or evicted, or a thread
    /// that helped has done its part.
    done: u64,
    /// The calls that wait for an instance or for memory, each with what that counts towards if
    /// other room does not help it.
    waiting: Vec<Option<Arc<Together>>>,
    /// When the deleters began that run.
    deleting: Option<Instant>,
}

impl Counts {
    /// Whether an instance's memory is about to be freed.
    fn is_freeing(&self) -> bool {
        self.freeing > 0 || self.evicting > 0
    }

    /// Whether a call waits for room that counts towards this.
    fn is_awaited(&self, together: &Arc<Together>) -> bool {
        let mut waiting = self.waiting.iter();
        waiting.any(|own| own.as_ref().is_none_or(|own| Arc::ptr_eq(own, together)))
    }
}

impl Default for Discarder {
    fn default() -> Self {
        Self {
            memories: Lane::new("callbox-discard"),
            deleters: Lane::new("callbox-deleters"),
            progress: Arc::default(),
            hurry: Mutex::default(),
        }
    }
}

impl Discarder {
    /// Drops a value with a large memory in the background.
    pub(crate) fn free(&self, garbage: impl Send + 'static) {
        self.memories
            .enqueue(&self.progress, Box::new(move || drop(garbage)));
    }

    /// Runs deleters in the background. If too many are waiting, drops these there without running
    /// them. The token stops them when their instance is needed.
    pub(crate) fn run_deleters(&self, deleters: impl FnOnce(CancelToken) + Send + 'static) {
        if *locked(&self.deleters.waiting) >= MOST_DELETERS {
            return self.free(deleters);
        }
        let token = locked(&self.hurry).clone();
        let progress = Arc::clone(&self.progress);
        let job = move || {
            let _deleting = Deleting::begin(&progress);
            deleters(token);
        };
        self.deleters.enqueue(&self.progress, Box::new(job));
    }

    /// Leaks the queues in a forked child, where another thread may have held their locks.
    pub(crate) fn forget(&mut self) {
        std::mem::forget(std::mem::take(self));
    }

    /// Stops all deleters that are waiting or running.
    pub(crate) fn hurry(&self) {
        std::mem::take(&mut *locked(&self.hurry)).cancel();
    }

    /// Counts an instance that helps with a call until the value is dropped. The token stops it.
    pub(crate) fn helping(&self, token: CancelToken, together: Arc<Together>) -> Helping {
        let helper = Helper { token, together };
        locked(&self.progress.counts).helping.push(helper.clone());
        Helping {
            progress: Arc::clone(&self.progress),
            helper,
        }
    }

    /// Whether a thread helps with an instance whose memory counts towards this.
    pub(crate) fn has_helper(&self, together: &Arc<Together>) -> bool {
        let counts = locked(&self.progress.counts);
        let mut helpers = counts.helping.iter();
        helpers.any(|helper| Arc::ptr_eq(together, &helper.together))
    }

    /// Stops the threads that help, or those whose memory counts together.
    fn stop_helping(&self, together: Option<&Arc<Together>>) {
        let counts = locked(&self.progress.counts);
        for helper in &counts.helping {
            if together.is_none_or(|together| Arc::ptr_eq(together, &helper.together)) {
                helper.token.cancel();
            }
        }
    }

    /// Says that a call waits for memory that counts towards `together`, until the value is
    /// dropped.
    pub(crate) fn call_waits(&self, together: &Arc<Together>) -> WaitingCall<'_> {
        self.progress.call_waits(Some(together))
    }

    /// Whether a call waits for room that counts towards this.
    pub(crate) fn is_awaited(&self, together: &Arc<Together>) -> bool {
        locked(&self.progress.counts).is_awaited(together)
    }

    /// How often there may have become room so far: an instance was taken back or evicted, or a
    /// thread that helped has done its part.
    pub(crate) fn done(&self) -> u64 {
        locked(&self.progress.counts).done
    }

    /// The number of instances taken back so far.
    pub(crate) fn freed(&self) -> u64 {
        locked(&self.progress.counts).freed
    }

    /// The number of instances that will have been taken back once those are freed that are being
    /// taken back now. `None` if there are none.
    pub(crate) fn freed_with_all(&self) -> Option<u64> {
        let counts = locked(&self.progress.counts);
        let freeing = counts.freeing as u64;
        (freeing > 0).then(|| counts.freed + freeing)
    }

    /// Begins a search for room. Evicts first if those that are being taken back are awaited by as
    /// many other calls.
    pub(crate) fn search(&self) -> Search {
        let counts = locked(&self.progress.counts);
        Search::new(counts.freeing <= counts.waiting.len())
    }

    /// Evicts an idle instance of these pools by `evict`, which returns whether there was one. It
    /// counts as being taken back before it is taken from its pool: others that look for room do
    /// not miss it.
    pub(crate) fn evict(&self, pools: &Pools, evict: impl FnOnce() -> bool) -> bool {
        if !pools.has_idle() {
            return false;
        }
        locked(&self.progress.counts).evicting += 1;
        let mut evicting = Evicting {
            progress: &self.progress,
            has_evicted: false,
        };
        evicting.has_evicted = evict();
        evicting.has_evicted
    }

    /// Waits until all instances are freed that are being taken back now, at most until `deadline`
    /// or until the caller cancels.
    pub(crate) fn wait_for_all(&self, deadline: Instant, cancel: Option<&CancelToken>) {
        let Some(all) = self.freed_with_all() else {
            return;
        };
        let mut done = self.done();
        while self.freed() < all && self.wait_for_freed(done, (None, None), deadline, cancel) {
            done = self.done();
        }
    }

    /// Waits until more than `seen` instances were taken back, until the call has its place, or
    /// until it is time to look for an idle instance again: on a busy machine one that helps may do
    /// so for long. Returns false if none is waiting, at `deadline`, or once the caller cancels.
    pub(crate) fn wait(
        &self,
        seen: u64,
        wanted: Wanted<'_>,
        deadline: Instant,
        cancel: Option<&CancelToken>,
    ) -> bool {
        let may_help = |counts: &Counts| counts.is_freeing() || !counts.helping.is_empty();
        let now = Instant::now();
        let wait = |most| self.wait_while(may_help, seen, wanted, deadline.min(now + most), cancel);
        let goes_on = || {
            let is_cancelled = cancel.is_some_and(CancelToken::is_cancelled);
            !is_cancelled && Instant::now() < deadline && may_help(&locked(&self.progress.counts))
        };
        if wait(PATIENCE) {
            return true;
        }
        if !goes_on() {
            return false;
        }
        self.stop_helping(wanted.1);
        wait(LOOK_AGAIN) || goes_on()
    }

    /// Waits like [`wait`](Self::wait), but for no instance that helps: its memory is not freed.
    pub(crate) fn wait_for_freed(
        &self,
        seen: u64,
        wanted: Wanted<'_>,
        deadline: Instant,
        cancel: Option<&CancelToken>,
    ) -> bool {
        self.wait_while(Counts::is_freeing, seen, wanted, deadline, cancel)
    }

    fn wait_while(
        &self,
        may_help: impl Fn(&Counts) -> bool,
        seen: u64,
        (turn, together): Wanted<'_>,
        deadline: Instant,
        cancel: Option<&CancelToken>,
    ) -> bool {
        let _waiting = self.progress.call_waits(together);
        let begun = Instant::now();
        let patience = PATIENCE.min(deadline.saturating_duration_since(begun) / 2);
        let mut has_hurried = false;
        loop {
            let now = Instant::now();
            let is_waiting = self
                .progress
                .wait(&may_help, seen, deadline.min(now + LOOK));
            if let Some(outcome) = is_waiting {
                return outcome;
            }
            // It may be that of an instance that was not taken back here.
            if turn.is_some_and(Turn::has_place) {
                return true;
            }
            let is_cancelled = cancel.is_some_and(CancelToken::is_cancelled);
            if is_cancelled || Instant::now() >= deadline {
                return false;
            }
            // On a busy machine the thread may not have begun.
            let deleting = locked(&self.progress.counts).deleting;
            let runs_on = deleting.is_some_and(|at| at.max(begun).elapsed() >= patience);
            if runs_on && !has_hurried {
                has_hurried = true;
                self.hurry();
            }
        }
    }
}

impl Lane {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            queue: OnceLock::new(),
            waiting: Arc::default(),
        }
    }

    /// Runs a job on the thread. Drops it here if the process can start no thread.
    fn enqueue(&self, progress: &Arc<Progress>, job: Job) {
        let queue = self.queue.get_or_init(|| self.start(progress));
        let Some(queue) = queue else {
            return;
        };
        *locked(&self.waiting) += 1;
        locked(&progress.counts).freeing += 1;
        if queue.send(job).is_err() {
            // The thread ended, so that `send` dropped the job here.
            self.note_done(progress);
        }
    }

    /// Starts the thread, which ends with the engine. It is not joined: the engine may be dropped
    /// on this very thread, along with its last instance.
    fn start(&self, progress: &Arc<Progress>) -> Option<Sender<Job>> {
        let (sender, receiver) = mpsc::channel::<Job>();
        let (progress, waiting) = (Arc::clone(progress), Arc::clone(&self.waiting));
        let work = move || {
            for job in receiver {
                // The log's sink may panic in a deleter. The panic ends this instance alone.
                let _ = catch_unwind(AssertUnwindSafe(job));
                *locked(&waiting) -= 1;
                note_freed(&progress);
            }
        };
        // Without a thread, the caller drops every job itself.
        let thread = thread::Builder::new().name(self.name.to_owned());
        thread.spawn(work).ok().map(|_| sender)
    }

    fn note_done(&self, progress: &Progress) {
        *locked(&self.waiting) -= 1;
        note_freed(progress);
    }
}

/// The number of instances that all engines have taken back so far.
pub(crate) fn freed() -> u64 {
    FREED.load(Ordering::Acquire)
}

fn note_freed(progress: &Progress) {
    FREED.fetch_add(1, Ordering::Release);
    let mut counts = locked(&progress.counts);
    counts.freeing -= 1;
    counts.freed += 1;
    counts.done += 1;
    progress.changed.notify_all();
}

/// A call that waits for an instance or for memory.
pub(crate) struct WaitingCall<'a> {
    progress: &'a Progress,
    together: Option<Arc<Together>>,
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        let own = self.together.as_ref().map(Arc::as_ptr);
        let waiting = &mut locked(&self.progress.counts).waiting;
        let mut each = waiting.iter();
        if let Some(at) = each.position(|call| call.as_ref().map(Arc::as_ptr) == own) {
            waiting.swap_remove(at);
        }
    }
}

impl Progress {
    /// Counts a call that waits until the value is dropped.
    fn call_waits(&self, together: Option<&Arc<Together>>) -> WaitingCall<'_> {
        let together = together.cloned();
        locked(&self.counts).waiting.push(together.clone());
        WaitingCall {
            progress: self,
            together,
        }
    }

    /// Waits until more than `seen` jobs are done, or until `deadline`. Returns whether there is
    /// room, or `None` if waiting longer may help.
    fn wait(
        &self,
        may_help: impl Fn(&Counts) -> bool,
        seen: u64,
        deadline: Instant,
    ) -> Option<bool> {
        let counts = locked(&self.counts);
        let left = deadline.saturating_duration_since(Instant::now());
        let (counts, _) = self
            .changed
            .wait_timeout_while(counts, left, |counts| {
                counts.done <= seen && may_help(counts)
            })
            .unwrap_or_else(PoisonError::into_inner);
        if counts.done > seen {
            Some(true)
        } else if may_help(&counts) {
            None
        } else {
            Some(false)
        }
    }
}

#[cfg(test)]
mod tests;
