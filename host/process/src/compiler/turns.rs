//! Which of the modules that are compiled at one time may run.
//!
//! A call of a guest competes with their processes for the processors, so that there must be few
//! that run, however many there are. The rest is stopped by signals. A lower priority alone does
//! not do: it is either too high for many processes beside one call, or too low for one beside many
//! calls, and a process without privileges cannot get back the priority that it had.
//!
//! Jobs that have used less than the quantum have their turns first, one busy thread for each
//! processor, half of the time those that have used least, so that a small module is loaded about
//! as fast as alone, and half of it those that came first. One of the others runs beside them.
//! Without such jobs the others take turns, half of the time in the order of what they used, or at
//! least will use if they are as others of their size, so that a module of moderate size overtakes
//! larger ones, and half of it in the order of the parts of their time in which they ran, so that
//! none waits for ever. What a job used counts for more the more it exceeds what others of its size
//! use: most of those that do by far are bombs. Such a job still comes before those that made
//! themselves large so as not to pass for one.

use std::time::Duration;

use super::jobs::QUANTUM;

/// The processor time for which a job that is new keeps its turn: some looks.
const FIRST_TURN: Duration = Duration::from_millis(25);

/// How long one of the two orders lasts, and the least processor time of a turn.
const PERIOD: Duration = Duration::from_millis(100);

/// The most threads that run, for each processor. At the lower priority of old jobs they get as
/// much as one thread of a guest.
const THREADS_PER_PROCESSOR: usize = 2;

/// What a job has used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    pub(super) number: u64,
    /// The processor time of all attempts, and of this one.
    pub(super) all: Duration,
    pub(super) now: Duration,
    /// The processor time that modules of this size take.
    pub(super) usual: Duration,
    /// The time on the clock since this attempt began.
    pub(super) age: Duration,
    /// The threads that it keeps busy while it may run.
    pub(super) busy: usize,
}

impl Use {
    /// What the job has used, or will, times the square of what it exceeds that by.
    fn rank(&self) -> Duration {
        let usual = self.usual.max(QUANTUM);
        let excess = self.all.as_secs_f64() / usual.as_secs_f64();
        let rank = self.all.max(usual).as_secs_f64() * excess.max(1.0).powi(2);
        Duration::try_from_secs_f64(rank).unwrap_or(Duration::MAX)
    }
}

/// The numbers of the jobs that run now on a machine with this many processors.
pub(super) fn running(jobs: Vec<Use>, processors: usize) -> Vec<u64> {
    let oldest = jobs.iter().map(|job| job.age).max().unwrap_or_default();
    let (mut young, mut old): (Vec<_>, Vec<_>) =
        jobs.into_iter().partition(|job| job.all < QUANTUM);
    if (oldest.as_millis() / PERIOD.as_millis()).is_multiple_of(2) {
        // Those that used about as much run one after the other.
        old.sort_by_key(|job| {
            let turns = job.rank().as_millis() / PERIOD.as_millis();
            (turns, job.number)
        });
        young.sort_by_key(|job| (job.all.as_millis() / FIRST_TURN.as_millis(), job.number));
    } else {
        let part = |job: &Use| job.now.as_secs_f64() / job.age.as_secs_f64().max(f64::MIN_POSITIVE);
        old.sort_by(|a, b| part(a).total_cmp(&part(b)));
        young.sort_by_key(|job| job.number);
    }
    let most = if young.is_empty() {
        THREADS_PER_PROCESSOR * processors
    } else {
        0
    };
    let mut running = fitting(&young, processors);
    running.extend(fitting(&old, most));
    running
}

/// The numbers of the jobs that fit into this many threads. The first one does in any case.
fn fitting(jobs: &[Use], most: usize) -> Vec<u64> {
    let mut threads = 0;
    let fit = jobs.iter().enumerate().filter(|(place, job)| {
        // A job that has just begun is busy.
        let busy = job.busy.max(1);
        let fits = *place == 0 || threads + busy <= most;
        threads += if fits { busy } else { 0 };
        fits
    });
    fit.map(|(_, job)| job.number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn job(number: u64, used: Duration, age: Duration) -> Use {
        Use {
            number,
            all: used,
            now: used,
            usual: Duration::ZERO,
            age,
            busy: 2,
        }
    }

    /// The jobs that run when this time has passed.
    fn running_at(jobs: &[Use], later: Duration) -> Vec<u64> {
        let mut jobs = jobs.to_vec();
        for job in &mut jobs {
            job.age += later;
        }
        let mut running = running(jobs, 2);
        running.sort_unstable();
        running
    }

    #[test]
    fn few_of_the_old_jobs_run() {
        let old = [4, 3, 2, 1].map(|used| job(used, used as u32 * SECOND, 9 * SECOND));
        // Those that used least, in either order.
        assert_eq!(running_at(&old, Duration::ZERO), [1, 2]);
        assert_eq!(running_at(&old, PERIOD), [1, 2]);
        let mut new = [5, 6, 7].map(|number| job(number, QUANTUM / 2, SECOND));
        let jobs = [&old[..], &new[..]].concat();
        assert_eq!(running_at(&jobs, Duration::ZERO), [1, 5]);
        // One that begins has the next turn.
        new[1].busy = 1;
        new[2].busy = 0;
        new[2].all = Duration::ZERO;
        let jobs = [&old[..], &new[..]].concat();
        assert_eq!(running_at(&jobs, Duration::ZERO), [1, 6, 7]);
        // So has one that came first, at times.
        new[0].busy = 1;
        let jobs = [&old[..], &new[..]].concat();
        assert_eq!(running_at(&jobs, Duration::ZERO), [1, 5, 7]);
        assert_eq!(running_at(&jobs, PERIOD), [1, 5, 6]);
    }

    #[test]
    fn jobs_that_use_more_than_others_of_their_size_come_last() {
        let mut jobs = [3, 2, 1].map(|used| job(used, used as u32 * SECOND, 9 * SECOND));
        for job in &mut jobs {
            job.usual = 3 * SECOND;
        }
        jobs[2].usual = SECOND / 2;
        assert_eq!(running_at(&jobs, Duration::ZERO), [2, 3]);
        assert_eq!(running_at(&jobs, PERIOD), [1, 2]);
        // But not after those that pretend to be large.
        jobs[0].usual = 9 * SECOND;
        jobs[1].usual = 9 * SECOND;
        assert_eq!(running_at(&jobs, Duration::ZERO), [1, 2]);
    }

    #[test]
    fn a_small_module_overtakes_larger_ones() {
        let mut jobs = [1, 2, 3].map(|number| job(number, SECOND, 2 * SECOND));
        jobs[0].usual = 2 * SECOND;
        jobs[1].usual = 2 * SECOND;
        jobs[2].usual = SECOND;
        assert_eq!(running_at(&jobs, Duration::ZERO), [1, 3]);
        // Until it has used as much as those will.
        jobs[2].all = 2 * SECOND;
        assert_eq!(running_at(&jobs, Duration::ZERO), [1, 2]);
    }

    #[test]
    fn a_job_that_ran_little_of_its_time_has_its_turn() {
        let jobs = [
            job(1, SECOND, 2 * SECOND),
            job(2, SECOND, 2 * SECOND),
            job(3, 2 * SECOND, 9 * SECOND),
        ];
        assert_eq!(running_at(&jobs, Duration::ZERO), [1, 2]);
        assert_eq!(running_at(&jobs, PERIOD), [1, 3]);
    }

    #[test]
    fn a_turn_lasts_a_while() {
        let used = [205, 215, 200].map(Duration::from_millis);
        let mut jobs = [0, 1, 2].map(|number| job(number, used[number as usize], 2 * SECOND));
        for job in &mut jobs {
            job.usual = used[2];
        }
        assert_eq!(running_at(&jobs, Duration::ZERO), [0, 1]);
    }

    #[test]
    fn jobs_with_one_busy_thread_leave_room_for_more() {
        let mut jobs = [1, 2, 3, 4, 5].map(|number| job(number, SECOND, 2 * SECOND));
        for job in &mut jobs {
            job.busy = 1;
        }
        assert_eq!(running_at(&jobs, Duration::ZERO), [1, 2, 3, 4]);
        // The first one runs in any case, and one that does not fit keeps no other from running.
        jobs[0].busy = 3;
        jobs[1].busy = 2;
        assert_eq!(running_at(&jobs, Duration::ZERO), [1, 3]);
        jobs[0].busy = 9;
        assert_eq!(running_at(&jobs, Duration::ZERO), [1]);
    }
}
