//! Counts calls, by host, module and target.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use callbox::{Blame, Status, StatusCode};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// The counters of one target, which only grow.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    calls: AtomicU64,
    nanoseconds: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    /// By the number of the status code.
    failures: [AtomicU64; StatusCode::ALL.len()],
}

/// What a target is counted as.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Counted {
    /// The name of the file.
    pub(crate) module: String,
    pub(crate) sha256: String,
    pub(crate) target: String,
    pub(crate) platform: &'static str,
}

/// The counters of a host's targets. They stay when a module is closed.
#[derive(Debug, Default)]
pub(crate) struct HostStats(Mutex<BTreeMap<Counted, Arc<Stats>>>);

/// A sum of counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    calls: u64,
    time: Duration,
    bytes_in: u64,
    bytes_out: u64,
    failures: [u64; StatusCode::ALL.len()],
}

impl Stats {
    /// Counts a call that began at `start`. The result bytes of a failed call are not counted.
    #[inline]
    pub(crate) fn count(
        &self,
        start: Instant,
        bytes_in: usize,
        bytes_out: usize,
        outcome: &callbox::Result<()>,
    ) {
        let time = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(time, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.bytes_in.fetch_add(bytes_in as u64, Ordering::Relaxed);
        match outcome {
            Ok(()) => {
                self.bytes_out
                    .fetch_add(bytes_out as u64, Ordering::Relaxed);
            }
            Err(status) => self.count_failures(status, 1),
        }
    }

    /// Counts a call that failed before its target ran, unless its caller is to blame: then nothing
    /// of the guest ran.
    #[cold]
    pub(crate) fn count_unprepared(&self, start: Instant, failure: &Status) {
        if failure.blame() != Blame::Caller {
            self.count(start, 0, 0, &Err(failure.clone()));
        }
    }

    /// Counts the failure of this many batch elements.
    #[cold]
    pub(crate) fn count_failures(&self, status: &Status, elements: usize) {
        if let Some(count) = self.failures.get(usize::from(status.code().number())) {
            count.fetch_add(elements as u64, Ordering::Relaxed);
        }
    }
}

impl HostStats {
    /// New counters, which [`stats`] shows as long as the host exists.
    pub(crate) fn new() -> Arc<Self> {
        let stats = Arc::<Self>::default();
        let mut hosts = hosts();
        hosts.retain(|host| host.strong_count() > 0);
        hosts.push(Arc::downgrade(&stats));
        stats
    }

    /// The counters of a target.
    pub(crate) fn of(&self, target: Counted) -> Arc<Stats> {
        let mut targets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(targets.entry(target).or_default())
    }

    /// The sum over all targets.
    pub(crate) fn total(&self) -> Counts {
        let mut total = Counts::default();
        let targets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        targets.values().for_each(|stats| total.add(stats));
        total
    }
}

fn hosts() -> std::sync::MutexGuard<'static, Vec<Weak<HostStats>>> {
    static HOSTS: Mutex<Vec<Weak<HostStats>>> = Mutex::new(Vec::new());
    HOSTS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Counts {
    fn add(&mut self, stats: &Stats) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.calls += of(&stats.calls);
        self.time += Duration::from_nanos(of(&stats.nanoseconds));
        self.bytes_in += of(&stats.bytes_in);
        self.bytes_out += of(&stats.bytes_out);
        for (sum, count) in self.failures.iter_mut().zip(&stats.failures) {
            *sum += of(count);
        }
    }

    /// The counters as a dict, of one target also with its time.
    pub(crate) fn to_dict<'py>(
        &self,
        py: Python<'py>,
        with_time: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("calls", self.calls)?;
        if with_time {
            dict.set_item("seconds", self.time.as_secs_f64())?;
        }
        dict.set_item("bytes_in", self.bytes_in)?;
        dict.set_item("bytes_out", self.bytes_out)?;
        let failures = PyDict::new(py);
        for (code, count) in StatusCode::ALL.iter().zip(&self.failures) {
            if *count > 0 {
                failures.set_item(code.name(), count)?;
            }
        }
        dict.set_item("failures", failures)?;
        Ok(dict)
    }
}

/// The counters of every target that the hosts of this process have loaded, by module and name.
#[pyfunction]
pub(crate) fn target_stats(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let mut all: BTreeMap<Counted, Counts> = BTreeMap::new();
    let known: Vec<_> = hosts().iter().filter_map(Weak::upgrade).collect();
    for host in known {
        let targets = host.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (target, stats) in &*targets {
            all.entry(target.clone()).or_default().add(stats);
        }
    }
    let list = PyList::empty(py);
    for (target, counts) in all {
        let dict = counts.to_dict(py, true)?;
        dict.set_item("module", target.module)?;
        dict.set_item("sha256", target.sha256)?;
        dict.set_item("target", target.target)?;
        dict.set_item("platform", target.platform)?;
        list.append(dict)?;
    }
    Ok(list)
}
