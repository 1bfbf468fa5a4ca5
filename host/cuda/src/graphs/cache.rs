//! The graphs of call sites.

use std::any::Any;
use std::sync::{Arc, Mutex, Weak};

use callbox_core::call::Stage;
use callbox_core::values::{Result, Status};

use super::{GraphSite, Launchable, no_function};
use crate::call::CudaCall;

/// The key of a graph: the device and the call site.
#[derive(Clone, Debug)]
pub(super) struct GraphKey {
    device: u64,
    site: u64,
    /// Alive for as long as the call site's executable is.
    alive: Weak<dyn Any + Send + Sync>,
}

impl GraphKey {
    pub(super) fn new(call: &CudaCall<'_>) -> Result<Self> {
        let state = call.states[Stage::Instantiate as usize].as_ref();
        let state = state.ok_or_else(no_function)?;
        let site = state.downcast_ref::<GraphSite>().ok_or_else(no_function)?;
        Ok(Self {
            device: call.device().id(),
            site: site.id,
            alive: Arc::downgrade(state),
        })
    }
}

/// The state of a call site.
#[derive(Debug, Default)]
pub(super) enum GraphState {
    /// The function has not run.
    #[default]
    New,
    /// The function ran eagerly, and allocated memory of these sizes.
    Seen { sizes: Vec<usize> },
    /// The function has a graph.
    Graph(Box<Launchable>),
    /// The function cannot be captured, and runs eagerly.
    Uncapturable,
    /// The function cannot be captured, and fails.
    Refused(Status),
}

/// The state of a call site, shared with the calls that use it.
pub(super) type GraphEntry = Arc<Mutex<GraphState>>;

/// The entries of all call sites, the most recently used last.
#[derive(Debug, Default)]
pub(super) struct GraphCache {
    entries: Vec<(GraphKey, GraphEntry)>,
}

impl GraphCache {
    /// The entry of a call site, and those that are evicted for it. Entries whose executable has
    /// been dropped are removed.
    pub(super) fn entry(&mut self, key: &GraphKey, most: usize) -> (GraphEntry, Vec<GraphEntry>) {
        self.entries.retain(|(k, _)| k.alive.strong_count() > 0);
        let is_same = |(k, _): &(GraphKey, _)| (k.device, k.site) == (key.device, key.site);
        let entry = match self.entries.iter().position(is_same) {
            Some(position) => self.entries.remove(position),
            None => (key.clone(), Arc::default()),
        };
        let found = Arc::clone(&entry.1);
        self.entries.push(entry);
        let too_many = self.entries.len().saturating_sub(most.max(1));
        let evicted = self.entries.drain(..too_many);
        (found, evicted.map(|(_, entry)| entry).collect())
    }

    /// Removes the entries that no call uses.
    pub(super) fn evict_idle(&mut self) -> Vec<GraphEntry> {
        let is_idle = |(_, entry): &mut (GraphKey, GraphEntry)| Arc::strong_count(entry) == 1;
        let idle = self.entries.extract_if(.., is_idle);
        idle.map(|(_, entry)| entry).collect()
    }
}
