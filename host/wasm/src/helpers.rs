//! The threads that help with calls: a pool that all engines of the process share.

use std::sync::{Arc, OnceLock};

use callbox_core::call::{ThreadPool, Threads, processors};

use crate::fork;

/// The pool, with a thread for each processor but one. `None` in a forked child: threads do not
/// survive a fork, and their lock may be held for ever.
pub(crate) fn of_this_process() -> Option<Arc<dyn Threads>> {
    static POOL: OnceLock<Arc<ThreadPool>> = OnceLock::new();
    if fork::is_child() {
        return None;
    }
    let pool = POOL.get_or_init(|| Arc::new(ThreadPool::new(processors() - 1)));
    Some(Arc::clone(pool) as Arc<dyn Threads>)
}
