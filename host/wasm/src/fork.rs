//! Detects forks: an engine does not outlive one.
//!
//! Threads do not survive in a forked child, and without the ticker's thread nothing interrupts a
//! guest. A call of an engine from before the fork therefore fails. libc tells the child of the
//! fork (`pthread_atfork`), because asking the kernel for the process id costs more than a call.
//!
//! An engine of the child's own would wait for ever where a thread of its parent held a lock that
//! all engines have in common. Threads hold none while the process forks ([`forks_later`]), or have
//! one for each process ([`PerProcess`]).

#![allow(
    unsafe_code,
    reason = "only handlers that libc calls can notice a fork"
)]

use std::cell::Cell;
use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Once, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The number of forks between the first process that watched for them and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

static HAS_ENGINES: AtomicBool = AtomicBool::new(false);

static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Identifies this process among its forks.
#[inline]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Whether this process is a fork of one that made an engine.
pub(crate) fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}

/// A value of each process: a forked child makes its own.
///
/// Threads of the parent do not exist in the child, and one of them may hold a lock for ever. What
/// a lock is for in the child is therefore a value of its own. The values of the parents stay as
/// they were.
pub struct PerProcess<T> {
    generation: u32,
    value: T,
    of_child: OnceLock<Box<Self>>,
}

impl<T> PerProcess<T> {
    /// A value of the first process, as that of a `static`.
    pub const fn of_first(value: T) -> Self {
        Self {
            generation: 0,
            value,
            of_child: OnceLock::new(),
        }
    }

    /// A value of this process.
    pub fn new(value: T) -> Self {
        Self {
            generation: generation(),
            ..Self::of_first(value)
        }
    }

    /// The value of this process, or the default one if it has none.
    #[inline]
    pub fn get(&self) -> &T
    where
        T: Default,
    {
        if self.generation == generation() {
            return &self.value;
        }
        match self.get_or_make(|| Ok::<T, Infallible>(T::default())) {
            Ok(value) => value,
        }
    }

    /// The value of this process. Makes it if there is none.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn get_or_make<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        match self.find() {
            Ok(value) => Ok(value),
            Err(last) => {
                // Others wait for an initializer that runs, also in a child that is forked
                // meanwhile. This one takes no time.
                let made = Box::new(Self::new(make()?));
                Ok(&last.of_child.get_or_init(|| made).value)
            }
        }
    }

    /// The value of this process, if it has one.
    #[inline]
    pub fn of_this_process(&self) -> Option<&T> {
        self.find().ok()
    }

    /// The value of this process, or the last one of its parents, behind which its own belongs.
    #[inline]
    fn find(&self) -> Result<&T, &Self> {
        let mut known = self;
        while known.generation != generation() {
            known = known.of_child.get().ok_or(known)?;
        }
        Ok(&known.value)
    }
}

impl<T> fmt::Debug for PerProcess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerProcess")
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

/// Tells children that are forked from now on that this process makes engines.
pub(crate) fn watch() {
    HAS_ENGINES.store(true, Ordering::Relaxed);
    watch_forks();
}

/// Has a [`PerProcess`] notice forks from now on. The first engine does so, and the first module
/// that is read.
pub fn watch_forks() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        #[cfg(unix)]
        // SAFETY: `pthread_atfork` requires handlers that are never unloaded, as functions of this
        // program are, and of the last one that it is async-signal-safe: it uses atomics and wakes
        // threads by a system call. If registering fails, forks go unnoticed: deadlines then do not
        // hold in children, and they may wait for ever.
        let _ = unsafe { libc::pthread_atfork(Some(before), Some(after), Some(in_child)) };
    });
}

/// Shared by those who take locks of wasmtime's that all engines have in common, and exclusive
/// while the process forks.
static FORKS: RwLock<()> = RwLock::new(());

thread_local! {
    /// Held by a thread that forks, and then by that of the child.
    static FORKING: Cell<Option<RwLockWriteGuard<'static, ()>>> = const { Cell::new(None) };
}

/// Keeps the process from forking until the value is dropped. What is done until then takes little
/// time, and does not fork.
pub(crate) fn forks_later() -> RwLockReadGuard<'static, ()> {
    FORKS.read().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(unix)]
extern "C" fn before() {
    let forking = FORKS.write().unwrap_or_else(PoisonError::into_inner);
    // A thread that is ending has no state, and a child of it has what luck leaves it.
    let _ = FORKING.try_with(|held| held.set(Some(forking)));
}

#[cfg(unix)]
extern "C" fn after() {
    let _ = FORKING.try_with(Cell::take);
}

#[cfg(unix)]
extern "C" fn in_child() {
    after();
    GENERATION.fetch_add(1, Ordering::Relaxed);
    IS_CHILD.fetch_or(HAS_ENGINES.load(Ordering::Relaxed), Ordering::Relaxed);
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::sync::atomic::AtomicBool;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn no_lock_is_held_while_the_process_forks() {
        watch_forks();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let _forks_later = forks_later();
                    thread::sleep(Duration::from_millis(2));
                }
            });
            for _ in 0..20 {
                // SAFETY: the child takes no lock but the one that is tested, and ends by `_exit`.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    let code = i32::from(FORKS.try_write().is_err());
                    // SAFETY: it runs nothing of this process.
                    unsafe { libc::_exit(code) };
                }
                let mut status = -1;
                // SAFETY: the place of the status is there for the whole call.
                let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
                assert_eq!((ended, status), (child, 0));
                drop(forks_later());
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}
