//! Memory that idle call sites give back.
//!
//! A call site keeps its instances, whose memory holds the arrays of a call, so that the next call
//! finds them ready. One thread of the process looks for call sites without a call for some time,
//! and drops them, those with the earliest calls first, while the call sites of a host keep more
//! than its limit. The next call prepares its call site again. A forked child has no such thread.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use callbox::{Blame, Status, StatusCode};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::exit;
use crate::module::{Loaded, ModuleCore, SiteKey};

/// The shortest time between two looks.
const SHORTEST: Duration = Duration::from_millis(10);

/// What idle call sites of a host may keep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Idle {
    /// None: they keep everything.
    after: Option<Duration>,
    bytes: usize,
}

impl Idle {
    /// # Errors
    /// ValueError if the time is not a time.
    pub(crate) fn new(seconds: Option<f64>, bytes: usize) -> PyResult<Self> {
        let after = seconds.map(|seconds| {
            Duration::try_from_secs_f64(seconds).map_err(|_| {
                PyValueError::new_err(format!(
                    "expected idle_seconds to be a number of seconds or None, found {seconds}"
                ))
            })
        });
        Ok(Self {
            after: after.transpose()?,
            bytes,
        })
    }
}

/// The modules whose call sites the thread looks at, each with the time of its host.
static WATCHED: Mutex<Vec<(Weak<ModuleCore>, Duration)>> = Mutex::new(Vec::new());

/// Tells the thread of a new module, which may have a shorter time.
static NEW: Condvar = Condvar::new();

/// The process that has the thread. 0: none yet.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Has the thread look at the call sites of a module.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn watch(module: &Arc<ModuleCore>) -> callbox::Result<()> {
    let Some(after) = module.host().idle.after else {
        return Ok(());
    };
    let own = std::process::id();
    let started = PROCESS.compare_exchange(0, own, Ordering::SeqCst, Ordering::SeqCst);
    if started.is_err_and(|process| process != own) {
        // The thread of the parent may hold the lock forever.
        return Ok(());
    }
    let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    watched.retain(|(module, _)| module.strong_count() > 0);
    watched.push((Arc::downgrade(module), after));
    drop(watched);
    NEW.notify_all();
    if started.is_ok() {
        let thread = thread::Builder::new().name("callbox-idle".to_owned());
        if let Err(error) = thread.spawn(look) {
            PROCESS.store(0, Ordering::SeqCst);
            return Err(Status::new(
                StatusCode::ResourceExhausted,
                Blame::Host,
                format!("cannot start the thread that frees idle memory: {error}"),
            ));
        }
    }
    Ok(())
}

fn look() {
    let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut last = Instant::now();
    loop {
        watched.retain(|(module, _)| module.strong_count() > 0);
        let Some(shortest) = watched.iter().map(|(_, after)| *after).min() else {
            watched = NEW.wait(watched).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let pause = (shortest / 2).max(SHORTEST);
        let waited = NEW.wait_timeout(watched, pause.saturating_sub(last.elapsed()));
        watched = waited.unwrap_or_else(PoisonError::into_inner).0;
        // New modules wake the thread, and do not put a look off.
        if last.elapsed() >= pause {
            let modules: Vec<_> = watched.iter().filter_map(|(m, _)| m.upgrade()).collect();
            drop(watched);
            free(modules, Instant::now());
            watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
            last = Instant::now();
        }
    }
}

/// Frees the memory of call sites that are idle at the time `now`.
fn free(modules: Vec<Arc<ModuleCore>>, now: Instant) {
    // By value: a module that was dropped meanwhile is freed here.
    let mut hosts: HashMap<_, Vec<_>> = HashMap::new();
    for module in &modules {
        let of_host = hosts.entry(Arc::as_ptr(module.host())).or_default();
        let loaded = module.loaded_here();
        of_host.extend(loaded.map(|loaded| (module.host().idle, loaded)));
    }
    for loaded in hosts.into_values() {
        free_of_host(&loaded, now);
    }
}

fn free_of_host(modules: &[(Idle, Arc<Loaded>)], now: Instant) {
    let mut idle: Vec<(Instant, &Loaded, SiteKey)> = Vec::new();
    for (limit, loaded) in modules {
        let Some(before) = limit.after.and_then(|after| now.checked_sub(after)) else {
            continue;
        };
        let found = loaded.idle(before, now).into_iter();
        idle.extend(found.map(|(seen, key)| (seen, &**loaded, key)));
    }
    idle.sort_by_key(|(seen, _, _)| *seen);
    let mut kept: usize = modules.iter().map(|(_, loaded)| loaded.kept_bytes()).sum();
    let most = modules.first().map_or(usize::MAX, |(limit, _)| limit.bytes);
    let before = kept;
    for (_, loaded, key) in idle {
        if kept <= most {
            break;
        }
        kept = kept.saturating_sub(loaded.drop_idle(&key));
    }
    if kept < before {
        exit::attached(|py| {
            for (_, loaded) in modules {
                loaded.forget_dropped(py);
            }
        });
    }
}
