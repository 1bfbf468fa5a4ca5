//! The thread that stops launches whose time is over.
//!
//! It sleeps while none runs, and looks at all of them each tick otherwise.

use std::sync::{Arc, Condvar, Mutex, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use callbox_core::locks::locked;
use callbox_core::values::{Blame, Result, Status, StatusCode};

use super::Running;

/// The time between two looks at the running launches.
const TICK: Duration = Duration::from_millis(1);

static WATCHED: Mutex<Vec<Weak<Running>>> = Mutex::new(Vec::new());
static CHANGED: Condvar = Condvar::new();

/// Watches a launch until it is over or dropped.
///
/// # Errors
/// RESOURCE_EXHAUSTED if no thread can be started.
pub(super) fn watch(running: &Arc<Running>) -> Result<()> {
    static THREAD: OnceLock<Result<()>> = OnceLock::new();
    THREAD
        .get_or_init(|| {
            let thread = thread::Builder::new().name("callbox-cuda-watcher".to_owned());
            thread.spawn(run).map(drop).map_err(|error| {
                let message = format!("starting the thread that stops fenced kernels: {error}");
                Status::new(StatusCode::ResourceExhausted, Blame::Host, message)
            })
        })
        .clone()?;
    locked(&WATCHED).push(Arc::downgrade(running));
    CHANGED.notify_one();
    Ok(())
}

fn run() {
    loop {
        let mut watched = locked(&WATCHED);
        while watched.is_empty() {
            watched = CHANGED
                .wait(watched)
                .unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        let found: Vec<_> = std::mem::take(&mut *watched);
        drop(watched);
        let now = Instant::now();
        let look = |one: &Weak<Running>| one.upgrade().is_some_and(|running| running.look(now));
        let still: Vec<_> = found.into_iter().filter(look).collect();
        locked(&WATCHED).extend(still);
        thread::sleep(TICK);
    }
}
