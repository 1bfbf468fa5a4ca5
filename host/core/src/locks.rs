//! The one way in which callbox locks a mutex.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, poisoned or not.
///
/// The mutexes of callbox guard data that is consistent between any two statements, so that a panic
/// while one is locked leaves nothing half done.
#[inline]
pub fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
