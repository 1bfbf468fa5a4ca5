//! What threads of this process are about to map.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use callbox_core::locks::locked;

use super::Claimant;
use super::limits::{Bytes, LIMITS};
use crate::fork::PerProcess;
use crate::processor_time;

/// The processor time after which a thread has mapped what it claimed. It takes some 20 us.
const MAPPED: Duration = Duration::from_micros(200);

/// Address space that counts as taken until this is dropped.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Room {
    /// The number of the claim, if there is one.
    claim: Option<u64>,
}

impl Room {
    pub(super) fn new(claims: &mut Vec<Claim>, claimant: Claimant, bytes: Bytes) -> Self {
        if bytes == [0; LIMITS.len()] {
            return Self::default();
        }
        // No number comes again: a claim may be gone before its room is given back.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        claims.push(Claim {
            number,
            bytes,
            lasts: claimant == Claimant::Work,
            thread: fs::read_link("/proc/thread-self")
                .ok()
                .and_then(|link| link.to_str().map(str::to_owned)),
            used: processor_time::of_this_thread().unwrap_or_default(),
        });
        Self {
            claim: Some(number),
        }
    }

    /// Says that everything is mapped.
    #[inline]
    pub(crate) fn is_mapped(&mut self) {
        if self.claim.is_some() {
            self.give_back();
        }
    }

    #[cold]
    fn give_back(&mut self) {
        if let Some(number) = self.claim.take() {
            ledger().retain(|claim| claim.number != number);
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.is_mapped();
    }
}

/// What a thread is about to map.
pub(super) struct Claim {
    number: u64,
    pub(super) bytes: Bytes,
    /// Whether it counts until it is given back.
    lasts: bool,
    /// The thread's folder in `/proc`.
    thread: Option<String>,
    /// The processor time of the thread until then.
    used: Duration,
}

impl Claim {
    /// Whether the thread has run on since, or has ended.
    #[allow(
        clippy::disallowed_methods,
        reason = "`/proc` is where the kernel tells of threads"
    )]
    pub(super) fn is_mapped(&self) -> bool {
        if self.lasts {
            return false;
        }
        let Some(thread) = &self.thread else {
            return true;
        };
        let times = fs::read_to_string(format!("/proc/{thread}/schedstat")).ok();
        let nanoseconds = times.and_then(|times| times.split(' ').next()?.parse().ok());
        let used = nanoseconds.map(Duration::from_nanos);
        used.is_none_or(|used| used >= self.used + MAPPED)
    }
}

/// The claims of this process.
pub(super) fn ledger() -> MutexGuard<'static, Vec<Claim>> {
    static LEDGERS: PerProcess<Mutex<Vec<Claim>>> = PerProcess::of_first(Mutex::new(Vec::new()));
    locked(LEDGERS.get())
}

#[cfg(test)]
mod tests {
    use super::{Claimant, Room};

    /// Otherwise the owner of a claim that is gone would give back another one.
    #[test]
    fn no_number_comes_again() {
        let mut claims = Vec::new();
        let first = Room::new(&mut claims, Claimant::Guest, [1, 0]);
        claims.clear();
        let second = Room::new(&mut claims, Claimant::Guest, [1, 0]);
        assert_ne!(first.claim, second.claim);
    }
}
