//! Ends the process when a run hangs, and names the run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// The timeout of a run: the longest deadline of the engines, the time of deleters, and slack for a
/// busy machine.
const MOST: Duration = Duration::from_secs(60);

/// The interval between checks.
const PERIOD: Duration = Duration::from_millis(500);

/// The exit code of a process in which a run hung.
const HUNG: i32 = 86;

type Runs = Mutex<HashMap<ThreadId, (Instant, String)>>;

/// Tracks each thread's run and its start.
#[derive(Debug)]
pub struct Watchdog {
    runs: Arc<Runs>,
}

impl Watchdog {
    /// Starts watching. Its thread ends when the watchdog is dropped.
    #[must_use]
    pub fn start() -> Self {
        let runs = Arc::<Runs>::default();
        let watched = Arc::downgrade(&runs);
        thread::spawn(move || {
            while let Some(runs) = watched.upgrade() {
                if let Some(run) = overdue(&runs, MOST) {
                    eprintln!("hangs: {run}");
                    std::process::exit(HUNG);
                }
                drop(runs);
                thread::sleep(PERIOD);
            }
        });
        Self { runs }
    }

    /// Records that this thread begins a run.
    pub fn begin(&self, name: String) {
        let run = (Instant::now(), name);
        locked(&self.runs).insert(thread::current().id(), run);
    }

    /// Records that this thread's run has ended.
    pub fn end(&self) {
        locked(&self.runs).remove(&thread::current().id());
    }
}

fn locked(runs: &Runs) -> std::sync::MutexGuard<'_, HashMap<ThreadId, (Instant, String)>> {
    runs.lock().unwrap_or_else(PoisonError::into_inner)
}

fn overdue(runs: &Runs, most: Duration) -> Option<String> {
    let runs = locked(runs);
    let mut overdue = runs.values().filter(|(begun, _)| begun.elapsed() > most);
    overdue.next().map(|(_, name)| name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_too_long_is_named() {
        let watchdog = Watchdog::start();
        assert_eq!(overdue(&watchdog.runs, Duration::ZERO), None);
        watchdog.begin("a run".to_owned());
        thread::sleep(Duration::from_millis(2));
        assert_eq!(overdue(&watchdog.runs, MOST), None);
        let most = Duration::from_millis(1);
        assert_eq!(overdue(&watchdog.runs, most).unwrap(), "a run");
        watchdog.end();
        assert_eq!(overdue(&watchdog.runs, Duration::ZERO), None);
    }
}
