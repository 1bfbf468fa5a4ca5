//! Detects forks: an engine does not outlive one.
//!
//! Threads do not survive in a forked child, and without the ticker's thread nothing interrupts a
//! guest. A call of an engine from before the fork therefore fails. libc tells the child of the
//! fork (`pthread_atfork`), because asking the kernel for the process id costs more than a call.

#![allow(
    unsafe_code,
    reason = "only a handler that libc calls in the child can notice a fork"
)]

use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Once, OnceLock};

/// The number of forks between the first process that made an engine and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Identifies this process among its forks.
#[inline]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Whether this process is a fork of one that made an engine.
pub(crate) fn is_child() -> bool {
    generation() != 0
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
    /// A value of the process that makes the first engine, as that of a `static`.
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

    /// The value of this process, or that of the last parent that has one.
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

/// Counts forks from now on.
pub(crate) fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        #[cfg(unix)]
        // SAFETY: `pthread_atfork` requires a handler that is async-signal-safe and never unloaded.
        // `in_child` only adds to an atomic, and is a function of this program. If registering
        // fails, forks go unnoticed: deadlines then do not hold in children, nothing else changes.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

#[cfg(unix)]
extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}
