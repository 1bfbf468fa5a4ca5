//! Handles: unique, recognisable numbers that encode their kind.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use cudarc::driver::sys::CUresult;

/// The kind of object of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Context = 1,
    Stream,
    Event,
    Module,
    Function,
    Graph,
    Node,
    Exec,
}

/// Upper bits that are not a valid address on supported machines, so that dereferencing a handle
/// crashes at once.
const MARK: usize = 0x0ca1_0000_0000_0000;

/// Returns a handle that was never used in this process.
pub(crate) fn fresh(kind: Kind) -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    MARK | (kind as usize) << 40 | NEXT.fetch_add(1, Ordering::Relaxed) << 4
}

/// The live objects of one kind, by handle.
#[derive(Debug)]
pub(crate) struct Table<T> {
    kind: Kind,
    things: BTreeMap<usize, T>,
}

impl<T> Table<T> {
    pub(crate) const fn new(kind: Kind) -> Table<T> {
        Table {
            kind,
            things: BTreeMap::new(),
        }
    }

    pub(crate) fn insert(&mut self, thing: T) -> usize {
        let handle = fresh(self.kind);
        self.things.insert(handle, thing);
        handle
    }

    pub(crate) fn get(&self, handle: usize) -> Result<&T, CUresult> {
        self.things
            .get(&handle)
            .ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    pub(crate) fn get_mut(&mut self, handle: usize) -> Result<&mut T, CUresult> {
        self.things
            .get_mut(&handle)
            .ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    pub(crate) fn remove(&mut self, handle: usize) -> Result<T, CUresult> {
        self.things
            .remove(&handle)
            .ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.things.iter().map(|(handle, thing)| (*handle, thing))
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.things.values_mut()
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.things.retain(|_, thing| keep(thing));
    }

    pub(crate) fn count(&self, counts: impl Fn(&T) -> bool) -> u64 {
        self.things
            .values()
            .map(|thing| u64::from(counts(thing)))
            .sum()
    }
}
