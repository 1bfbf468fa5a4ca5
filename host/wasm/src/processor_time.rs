//! Processor times, which tell what a module costs on a machine that others use as well.

use std::time::Duration;

/// A module is too slow only if it has used one in this many parts of its limit: a module that
/// takes less is not blamed for what other work took.
pub(crate) const LEAST_SHARE: u32 = 4;

/// The processor time in the text of a file `stat` in `/proc`.
#[doc(hidden)]
#[must_use]
pub fn processor_time(stat: &str) -> Option<Duration> {
    /// The kernel's unit of time in `/proc`: a hundredth of a second.
    const TICK: Duration = Duration::from_millis(10);
    // The third field follows the name, which may contain any character.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(14 - 3);
    let mut ticks = || fields.next()?.parse::<u32>().ok();
    Some(TICK * (ticks()? + ticks()?))
}

/// The processor time of the calling thread. `None` if the system does not tell.
#[cfg(unix)]
pub(crate) fn of_this_thread() -> Option<Duration> {
    use rustix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::ThreadCPUTime).try_into().ok()
}

#[cfg(not(unix))]
pub(crate) fn of_this_thread() -> Option<Duration> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_of_the_user_and_of_the_kernel() {
        let stat = "7 (a) b) 1 (c) S 1 2 3 4 5 6 7 8 9 10 150 50 11 12 20 0 1 0";
        assert_eq!(processor_time(stat), Some(Duration::from_secs(2)));
        assert_eq!(processor_time("7 (a) S 1 2"), None);
        assert_eq!(processor_time(""), None);
    }
}
