//! Recent failures to compile. Modules that were to blame are refused without another attempt. Of
//! those that other work kept from compiling, the time is remembered that they used.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use callbox_core::locks::locked;
use callbox_core::values::{Blame, Result, Status, StatusCode};

/// The most modules that are remembered. The oldest one is forgotten first.
const MOST: usize = 256;

/// Failures by the SHA-256 of the file, with the moment at which each is forgotten.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<HashMap<[u8; 32], (Failure, Instant)>>);

#[derive(Debug)]
enum Failure {
    /// Another attempt would be as costly and would fail again.
    Final(Status),
    /// Another attempt may succeed. Those so far used this much processor time.
    Used(Duration),
}

impl Refusals {
    /// The processor time that recent attempts used in vain. Fails with the status of the last
    /// attempt, if it is remembered.
    pub(crate) fn check(&self, digest: &[u8; 32]) -> Result<Duration> {
        let mut failures = self.locked();
        match failures.get(digest) {
            Some((failure, until)) if Instant::now() < *until => match failure {
                Failure::Final(status) => Err(status.clone()),
                Failure::Used(time) => Ok(*time),
            },
            Some(_) => {
                failures.remove(digest);
                Ok(Duration::ZERO)
            }
            None => Ok(Duration::ZERO),
        }
    }

    /// Remembers a failure for `time`, if another attempt would be as costly and would fail again.
    pub(crate) fn remember(&self, digest: [u8; 32], status: &Status, time: Option<Duration>) {
        let is_costly = matches!(
            status.code(),
            StatusCode::DeadlineExceeded | StatusCode::ResourceExhausted | StatusCode::Internal
        );
        let is_final = status.blame() == Blame::Guest && !status.recoverable();
        if is_costly && is_final {
            self.insert(digest, Failure::Final(status.clone()), time);
        }
    }

    /// Remembers for `time` that attempts used this much processor time, and may yet succeed.
    pub(crate) fn remember_time(&self, digest: [u8; 32], used: Duration, time: Option<Duration>) {
        self.insert(digest, Failure::Used(used), time);
    }

    fn insert(&self, digest: [u8; 32], failure: Failure, time: Option<Duration>) {
        let now = Instant::now();
        let Some(until) = time.and_then(|time| now.checked_add(time)) else {
            return;
        };
        let mut failures = self.locked();
        if failures.len() >= MOST {
            failures.retain(|_, (_, until)| now < *until);
        }
        if failures.len() >= MOST {
            let oldest = failures.iter().min_by_key(|(_, (_, until))| *until);
            if let Some(oldest) = oldest.map(|(digest, _)| *digest) {
                failures.remove(&oldest);
            }
        }
        failures.insert(digest, (failure, until));
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<[u8; 32], (Failure, Instant)>> {
        locked(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Option<Duration> = Some(Duration::from_secs(3600));

    fn digest(number: usize) -> [u8; 32] {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&(number as u64).to_le_bytes());
        digest
    }

    fn failure(code: StatusCode, blame: Blame) -> Status {
        Status::new(code, blame, "slow")
    }

    #[test]
    fn only_costly_failures_of_guests_are_remembered() {
        let deadline = failure(StatusCode::DeadlineExceeded, Blame::Guest);
        for (status, is_remembered) in [
            (deadline.clone(), true),
            (failure(StatusCode::ResourceExhausted, Blame::Guest), true),
            (failure(StatusCode::Internal, Blame::Guest), true),
            (failure(StatusCode::InvalidArgument, Blame::Guest), false),
            (failure(StatusCode::ResourceExhausted, Blame::Caller), false),
            (deadline.with_recoverable(true), false),
        ] {
            let refusals = Refusals::default();
            refusals.remember(digest(1), &status, LONG);
            assert_eq!(
                refusals.check(&digest(1)).is_err(),
                is_remembered,
                "{status}"
            );
            assert!(refusals.check(&digest(2)).is_ok());
        }
    }

    #[test]
    fn the_time_of_attempts_is_remembered_until_one_is_final() {
        let refusals = Refusals::default();
        let second = Duration::from_secs(1);
        assert_eq!(refusals.check(&digest(1)), Ok(Duration::ZERO));
        refusals.remember_time(digest(1), second, LONG);
        refusals.remember_time(digest(2), second, Some(Duration::ZERO));
        assert_eq!(refusals.check(&digest(1)), Ok(second));
        assert_eq!(refusals.check(&digest(2)), Ok(Duration::ZERO));
        let slow = failure(StatusCode::DeadlineExceeded, Blame::Guest);
        refusals.remember(digest(1), &slow, LONG);
        assert_eq!(refusals.check(&digest(1)), Err(slow));
    }

    #[test]
    fn refusals_expire_and_are_bounded() {
        let refusals = Refusals::default();
        let status = failure(StatusCode::DeadlineExceeded, Blame::Guest);
        refusals.remember(digest(0), &status, None);
        refusals.remember(digest(1), &status, Some(Duration::ZERO));
        assert!(refusals.check(&digest(0)).is_ok());
        assert!(refusals.check(&digest(1)).is_ok());
        for number in 0..=MOST {
            refusals.remember(digest(number), &status, LONG);
        }
        assert_eq!(refusals.locked().len(), MOST);
        assert!(refusals.check(&digest(0)).is_ok());
        assert!(refusals.check(&digest(MOST)).is_err());
    }
}
