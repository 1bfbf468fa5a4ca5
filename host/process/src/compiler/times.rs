//! The processor times of a child, which tell what its module costs on a machine that others use as
//! well.

use std::collections::BTreeMap;
use std::fs;
use std::process::{self, Child};
use std::time::Duration;

use callbox_wasm::processor_time;

/// A module is too slow if its compilation takes one in this many parts of the limit with the
/// machine to itself.
///
/// Two times bound from below what the work takes on any machine: the time of the busiest thread,
/// and the time of all threads divided by their number. A compilation is serial, then parallel with
/// a thread that ends last, then serial: it takes at most three times as long as the larger of the
/// two. It may have waited for a quarter of the limit, which leaves a quarter.
pub(super) const LEAST_SHARE: u32 = 4;

/// The processor times of a process's threads, by thread.
pub(super) type ThreadTimes = BTreeMap<String, Duration>;

/// Whether a machine on which threads used this much shows too little of a module's costs to blame
/// it for being late after `time`.
pub(super) fn shows_little(used: &[Duration], time: Duration) -> bool {
    // Without `/proc`, the limit decides.
    least_time(used).is_some_and(|least| least < time / LEAST_SHARE)
}

/// How long a machine needs at least for the work of these threads, of which one waits for the
/// others. `None` without threads.
fn least_time(used: &[Duration]) -> Option<Duration> {
    let parallel = u32::try_from(used.len().saturating_sub(1)).unwrap_or(u32::MAX);
    let shared = used.iter().sum::<Duration>() / parallel.max(1);
    used.iter().max().map(|busiest| shared.max(*busiest))
}

/// The processor times of the threads of a process, and how many of them are ready to run. `None`
/// if `/proc` does not tell.
#[allow(
    clippy::disallowed_methods,
    reason = "`/proc` is the kernel's interface to processes, and this one is a child"
)]
pub(super) fn thread_times(child: &Child) -> Option<(ThreadTimes, usize)> {
    if !shows_children() {
        return None;
    }
    let threads = fs::read_dir(format!("/proc/{}/task", child.id())).ok()?;
    let mut ready = 0;
    let times = threads.map(|thread| {
        let name = thread.ok()?.file_name().into_string().ok()?;
        let stat = proc_file(child.id(), &format!("task/{name}/stat"))?;
        ready += usize::from(is_ready(&stat));
        Some((name, processor_time(&stat)?))
    });
    let times = times.collect::<Option<_>>()?;
    Some((times, ready))
}

/// Whether a process is ready to run, waits for a disk, or is stopped, rather than waiting for
/// something to happen. `false` if `/proc` does not tell.
pub(super) fn waits_for_processor(child: &Child) -> bool {
    proc_file(child.id(), "stat").is_some_and(|stat| is_ready(&stat))
}

/// The same, from the text of a file `stat` in `/proc`.
fn is_ready(stat: &str) -> bool {
    let state = stat.rsplit_once(") ").map(|(_, fields)| fields);
    state.is_some_and(|state| state.starts_with(['R', 'D', 'T']))
}

#[allow(
    clippy::disallowed_methods,
    reason = "`/proc` is the kernel's interface to processes and memory"
)]
pub(super) fn machine_file(name: &str) -> Option<String> {
    let text = fs::read(format!("/proc/{name}")).ok()?;
    // The name of a process may have been cut within a character.
    Some(String::from_utf8_lossy(&text).into_owned())
}

pub(super) fn proc_file(process: u32, name: &str) -> Option<String> {
    shows_children().then(|| machine_file(&format!("{process}/{name}")))?
}

/// Whether `/proc` numbers processes as this one does. In another PID namespace, the number of a
/// child is that of another process.
fn shows_children() -> bool {
    let own = fs::read_link("/proc/self");
    own.is_ok_and(|own| own.as_os_str() == process::id().to_string().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_sleeps_does_not_wait_for_a_processor() {
        for (stat, expected) in [
            ("7 (a) S) R 1 2", true),
            ("7 (a) D 1 2", true),
            ("7 (a) T 1 2", true),
            ("7 (R) S 1 2", false),
            ("7 (a) Z 1 2", false),
            ("", false),
        ] {
            assert_eq!(is_ready(stat), expected, "{stat}");
        }
    }

    #[test]
    fn a_machine_needs_the_time_of_the_busiest_thread_or_the_share_of_each() {
        let seconds = |used: &[u64]| {
            let used: Vec<_> = used.iter().copied().map(Duration::from_secs).collect();
            least_time(&used).map(|least| least.as_secs())
        };
        assert_eq!(seconds(&[]), None);
        assert_eq!(seconds(&[3]), Some(3));
        // One large function, on one of two threads.
        assert_eq!(seconds(&[1, 9, 0]), Some(9));
        // Many small functions, on three.
        assert_eq!(seconds(&[6, 4, 4, 4]), Some(6));
        assert_eq!(seconds(&[0, 4, 4, 4]), Some(4));
    }
}
