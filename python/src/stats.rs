//! Counts calls, by host, module and target.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    /// The calls that also ran as wasm, and those whose results differed.
    shadowed: AtomicU64,
    differing: AtomicU64,
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

/// The counters of a target of all hosts.
#[derive(Default)]
pub(crate) struct Total {
    /// The sum of the counters that nothing else holds any more.
    past: Counts,
    stats: Vec<Arc<Stats>>,
}

/// The counters of the process, which never fall: Prometheus takes a fall for a restart.
static TOTALS: Mutex<BTreeMap<Counted, Total>> = Mutex::new(BTreeMap::new());

/// A sum of counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    calls: u64,
    time: Duration,
    bytes_in: u64,
    bytes_out: u64,
    failures: [u64; StatusCode::ALL.len()],
    shadowed: u64,
    differing: u64,
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

    /// Counts a call that also ran as wasm.
    #[cold]
    pub(crate) fn count_shadow(&self, is_different: bool) {
        self.shadowed.fetch_add(1, Ordering::Relaxed);
        self.differing
            .fetch_add(u64::from(is_different), Ordering::Relaxed);
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
    /// The counters of a target.
    pub(crate) fn of(&self, target: Counted) -> Arc<Stats> {
        // First, because it is held while the process forks.
        let mut totals = totals();
        let mut targets = lock(&self.0);
        if let Some(known) = targets.get(&target) {
            return Arc::clone(known);
        }
        let stats = Arc::<Stats>::default();
        targets.insert(target.clone(), Arc::clone(&stats));
        // Seldom enough that it costs little for each target.
        if totals.len().is_power_of_two() {
            totals.retain(|_, total| !total.is_forgotten());
        }
        let total = totals.entry(target).or_default();
        total.is_forgotten();
        total.stats.push(Arc::clone(&stats));
        stats
    }

    /// The sum over all targets.
    pub(crate) fn total(&self) -> Counts {
        let mut total = Counts::default();
        lock(&self.0).values().for_each(|stats| total.add(stats));
        total
    }
}

impl Total {
    /// Adds the counters of hosts that no longer exist to `past`. Returns whether there were no
    /// calls, and no host has the target.
    fn is_forgotten(&mut self) -> bool {
        let past = &mut self.past;
        self.stats.retain(|stats| {
            // Nothing else can hold them again: the only copy is this one.
            let is_held = Arc::strong_count(stats) > 1;
            if !is_held {
                past.add(stats);
            }
            is_held
        });
        self.stats.is_empty() && self.past == Counts::default()
    }

    fn counts(&self) -> Counts {
        let mut counts = self.past.clone();
        self.stats.iter().for_each(|stats| counts.add(stats));
        counts
    }
}

pub(crate) fn totals() -> MutexGuard<'static, BTreeMap<Counted, Total>> {
    lock(&TOTALS)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Counts {
    fn add(&mut self, stats: &Stats) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.calls += of(&stats.calls);
        self.time += Duration::from_nanos(of(&stats.nanoseconds));
        self.bytes_in += of(&stats.bytes_in);
        self.bytes_out += of(&stats.bytes_out);
        self.shadowed += of(&stats.shadowed);
        self.differing += of(&stats.differing);
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
        if self.shadowed > 0 {
            dict.set_item("shadowed", self.shadowed)?;
            dict.set_item("differing", self.differing)?;
        }
        Ok(dict)
    }
}

/// The counters of every target that this process has called, by module and name.
#[pyfunction]
pub(crate) fn target_stats(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let all: Vec<_> = {
        let mut totals = totals();
        totals.retain(|_, total| !total.is_forgotten());
        let counts = |(target, total): (&Counted, &Total)| (target.clone(), total.counts());
        totals.iter().map(counts).collect()
    };
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
