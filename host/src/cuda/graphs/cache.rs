//! Which call site has which graph.

use std::any::Any;
use std::sync::{Arc, Mutex, Weak};

use super::{Launchable, Site, no_function};
use crate::call::Stage;
use crate::cuda::call::CudaCall;
use crate::values::{Result, Status};

/// What tells graphs apart: the device and the call site.
#[derive(Clone, Debug)]
pub(super) struct Key {
    device: u64,
    site: u64,
    /// There as long as the call site's executable is.
    alive: Weak<dyn Any + Send + Sync>,
}

impl Key {
    pub(super) fn new(call: &CudaCall<'_>) -> Result<Self> {
        let state = call.states[Stage::Instantiate as usize].as_ref();
        let state = state.ok_or_else(no_function)?;
        let site = state.downcast_ref::<Site>().ok_or_else(no_function)?;
        Ok(Self {
            device: call.device().id(),
            site: site.id,
            alive: Arc::downgrade(state),
        })
    }

    fn is_same(&self, other: &Self) -> bool {
        (self.device, self.site) == (other.device, other.site)
    }
}

/// What there is for a call site.
#[derive(Debug, Default)]
pub(super) enum Place {
    /// It has not run.
    #[default]
    New,
    /// It ran eagerly, and took memory of these sizes.
    Seen { sizes: Vec<usize> },
    /// It has a graph.
    Graph(Box<Launchable>),
    /// It can have none, and runs eagerly.
    Uncapturable,
    /// It can have none, and fails.
    Refused(Status),
}

/// Places, the one that was used last at the end.
#[derive(Debug, Default)]
pub(super) struct Cache {
    places: Vec<(Key, Arc<Mutex<Place>>)>,
}

impl Cache {
    /// A call site's place, and those that made way for it: those of executables that are gone go without a word.
    pub(super) fn place(
        &mut self,
        key: &Key,
        most: usize,
    ) -> (Arc<Mutex<Place>>, Vec<Arc<Mutex<Place>>>) {
        self.places.retain(|(k, _)| k.alive.strong_count() > 0);
        let known = self.places.iter().position(|(k, _)| k.is_same(key));
        let entry = match known {
            Some(position) => self.places.remove(position),
            None => (key.clone(), Arc::default()),
        };
        let place = Arc::clone(&entry.1);
        self.places.push(entry);
        let too_many = self.places.len().saturating_sub(most.max(1));
        let evicted = self.places.drain(..too_many);
        (place, evicted.map(|(_, place)| place).collect())
    }

    /// Takes out all that nobody is using.
    pub(super) fn evict_idle(&mut self) -> Vec<Arc<Mutex<Place>>> {
        let (used, idle) = std::mem::take(&mut self.places)
            .into_iter()
            .partition(|(_, place)| Arc::strong_count(place) > 1);
        self.places = used;
        let idle: Vec<(Key, Arc<Mutex<Place>>)> = idle;
        idle.into_iter().map(|(_, place)| place).collect()
    }
}
