//! The watches of an engine.

use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use callbox_core::locks::locked;
use callbox_core::values::Result;

use super::Watch;
use crate::address_space;
use crate::failure::caller_exhausted;

/// All watches of an engine: as many as the most concurrent instances so far.
pub(crate) struct Watches {
    origin: Instant,
    /// The ticker holds this lock during a visit.
    all: Mutex<Vec<Arc<Watch>>>,
    /// Watches that no instance has.
    free: Mutex<Vec<Arc<Watch>>>,
}

/// The watch of an instance, which returns to the engine at the end.
pub(crate) struct Lease {
    watches: Arc<Watches>,
    watch: Arc<Watch>,
}

impl Watches {
    pub(crate) fn new() -> Self {
        Self {
            origin: Instant::now(),
            all: Mutex::default(),
            free: Mutex::default(),
        }
    }

    /// Leases the watch that was returned last, or a new one.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED, blamed on the caller, if there is no address space left for another.
    pub(crate) fn lease(self: &Arc<Self>, engine: &wasmtime::Engine) -> Result<Lease> {
        let free = locked(&self.free).pop();
        let watch = match free {
            Some(watch) => watch,
            None => self.add(engine)?,
        };
        Ok(Lease {
            watches: Arc::clone(self),
            watch,
        })
    }

    fn add(&self, engine: &wasmtime::Engine) -> Result<Arc<Watch>> {
        let mut all = locked(&self.all);
        let watch = Watch::new(engine, all.len(), self.origin).map_err(|error| {
            let advice = address_space::advice();
            caller_exhausted(format!(
                "no room for the stop word of one more instance: {error:#}; {advice}"
            ))
        })?;
        let watch = Arc::new(watch);
        all.push(Arc::clone(&watch));
        Ok(watch)
    }

    /// Stops every guest that is over. Returns whether any guest was running.
    pub(crate) fn tick(&self) -> bool {
        let all = locked(&self.all);
        all.iter().fold(false, |any, watch| watch.tick() | any)
    }
}

impl Deref for Lease {
    type Target = Watch;

    #[inline]
    fn deref(&self) -> &Watch {
        &self.watch
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // After a panic in the host, the watch is still armed.
        self.watch.disarm();
        self.watch.set_token(None);
        locked(&self.watches.free).push(Arc::clone(&self.watch));
    }
}
