//! Idle instances of all engines of this process. Where a limit of the process leaves too little,
//! they give way to modules and new instances of any engine.

use std::sync::{Arc, Weak};
use std::time::Instant;

use callbox_core::call::CancelToken;

use crate::fork::PerProcess;
use crate::shared::EngineShared;

static ENGINES: PerProcess<Weak<EngineShared>> = PerProcess::new();

/// Lets an engine's idle instances give way.
pub(crate) fn register(engine: &Arc<EngineShared>) {
    let mut engines = ENGINES.lock();
    engines.retain(|engine| engine.strong_count() > 0);
    engines.push(Arc::downgrade(engine));
}

/// Discards an idle instance of any engine, and waits until its memory is free, at most until
/// `end`. Returns false if there is none.
pub(crate) fn evict_one(end: Instant, cancel: Option<&CancelToken>) -> bool {
    let engines = Vec::from_iter(ENGINES.lock().iter().filter_map(Weak::upgrade));
    engines.iter().any(|engine| {
        let seen = engine.discarder.done();
        let has_evicted = engine.pools.evict_one();
        if has_evicted {
            engine.discarder.wait_for_freed(seen, end, cancel);
        }
        has_evicted
    })
}
