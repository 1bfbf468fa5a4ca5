//! Which call site has which graph.

use std::sync::{Arc, Mutex};

use super::Launchable;
use crate::cuda::call::CudaCall;

/// What tells graphs apart: the device, the call site, and the function in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    device: u64,
    /// Where the call site is, for as long as its executable is there, and what it says: another may come to lie in the same place.
    site: usize,
    text: String,
}

impl Key {
    pub(super) fn new(call: &CudaCall<'_>) -> Self {
        let site = call.site();
        Self {
            device: call.device().id(),
            site: std::ptr::from_ref(site) as usize,
            text: format!(
                "{} {:?} {} {:?}",
                site.name, site.operands, site.result, site.functions
            ),
        }
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
    /// It can have none.
    Uncapturable,
}

/// Places, the one that was used last at the end.
#[derive(Debug, Default)]
pub(super) struct Cache {
    places: Vec<(Key, Arc<Mutex<Place>>)>,
}

impl Cache {
    /// A call site's place, and those that made way for it.
    pub(super) fn place(
        &mut self,
        key: &Key,
        most: usize,
    ) -> (Arc<Mutex<Place>>, Vec<Arc<Mutex<Place>>>) {
        let known = self.places.iter().position(|(k, _)| k == key);
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
