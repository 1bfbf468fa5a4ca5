//! The call sites of a module that are ready to be called, by their keys.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use sha2::{Digest, Sha256};

use crate::site::{Kept, Passage, Ready, Shapes, to_hex};

/// The maximum number of call sites of a module. The oldest are dropped first, so that calls with
/// ever new shapes or attributes do not fill the memory.
const MOST_SITES: usize = 1024;

/// The maximum size of the memory, attribute texts and shapes of a module's other call sites when
/// one is added. The oldest are dropped first.
const MOST_BYTES: usize = 512 << 20;

/// The maximum length of a text in a key. A longer one is replaced by its digest.
const LONG: usize = 4 << 10;

/// The call sites that are ready to be called.
#[derive(Default)]
pub(super) struct Sites {
    ready: HashMap<SiteKey, Arc<Ready>>,
    /// When [`Sites::idle`] saw last that a call site had been called.
    seen: HashMap<SiteKey, Instant>,
    /// The newest call site of each family, the last one to be dropped.
    newest: HashMap<Arc<FamilyKey>, Arc<Ready>>,
    /// Oldest first.
    order: VecDeque<SiteKey>,
    /// The memory between calls by its address, with the number of call sites that share it.
    kept: HashMap<usize, (Arc<Kept>, usize)>,
    site_bytes: usize,
}

/// A call site that was dropped.
pub(super) struct Dropped {
    ready: Arc<Ready>,
    /// The memory, attribute texts and shapes that no other call site has.
    pub(super) bytes: usize,
}

impl Sites {
    /// Returns a call site, or another one of its family.
    pub(super) fn find(&self, key: &SiteKey) -> Found {
        match self.ready.get(key) {
            Some(ready) => Found::Same(Arc::clone(ready)),
            None => Found::Relative(self.newest.get(&key.family).cloned()),
        }
    }

    /// Keeps a call site, and returns it or the one that another thread has made meanwhile.
    ///
    /// The second value holds the dropped call sites, which the caller drops outside of the lock:
    /// that takes time.
    pub(super) fn keep(
        &mut self,
        key: SiteKey,
        ready: Arc<Ready>,
    ) -> (Arc<Ready>, Vec<Arc<Ready>>) {
        if let Some(known) = self.ready.get(&key) {
            return (Arc::clone(known), vec![ready]);
        }
        let kept = self.kept.entry(Arc::as_ptr(ready.kept()).addr());
        kept.or_insert_with(|| (Arc::clone(ready.kept()), 0)).1 += 1;
        self.site_bytes += ready.site_bytes();
        let mut gone = Vec::new();
        let mut others = self.bytes().saturating_sub(ready.kept().bytes());
        while self.order.len() >= MOST_SITES || others > MOST_BYTES {
            let Some(oldest) = self.order.pop_front() else {
                break;
            };
            if let Some(dropped) = self.remove(&oldest) {
                others = others.saturating_sub(dropped.bytes);
                gone.push(dropped.ready);
            }
        }
        self.order.push_back(key.clone());
        gone.extend(
            self.newest
                .insert(Arc::clone(&key.family), Arc::clone(&ready)),
        );
        self.ready.insert(key, Arc::clone(&ready));
        (ready, gone)
    }

    /// The call sites that have not been called since `before`, with the time of the last call.
    ///
    /// A call is noticed by the first look after it, at the time `now`.
    pub(super) fn idle(&mut self, before: Instant, now: Instant) -> Vec<(Instant, SiteKey)> {
        let mut idle = Vec::new();
        for (key, ready) in &self.ready {
            let seen = self.seen.entry(key.clone()).or_insert(now);
            if ready.take_used() {
                *seen = now;
            } else if *seen <= before {
                idle.push((*seen, key.clone()));
            }
        }
        idle
    }

    /// The size of the memory, attribute texts and shapes together.
    pub(super) fn bytes(&self) -> usize {
        let kept = self.kept.values().map(|(kept, _)| kept.bytes());
        kept.fold(self.site_bytes, usize::saturating_add)
    }

    /// Drops a call site, unless it was called since [`Sites::idle`] looked.
    pub(super) fn drop_idle(&mut self, key: &SiteKey) -> Option<Dropped> {
        if self.ready.get(key)?.take_used() {
            return None;
        }
        self.order.retain(|kept| kept != key);
        self.remove(key)
    }

    /// Removes a call site, and its memory if no other one has it.
    fn remove(&mut self, key: &SiteKey) -> Option<Dropped> {
        let ready = self.ready.remove(key)?;
        self.seen.remove(key);
        let mut bytes = ready.site_bytes();
        self.site_bytes -= bytes;
        if let Entry::Occupied(mut kept) = self.kept.entry(Arc::as_ptr(ready.kept()).addr()) {
            kept.get_mut().1 -= 1;
            if kept.get().1 == 0 {
                bytes = bytes.saturating_add(kept.remove().0.bytes());
            }
        }
        if let Entry::Occupied(newest) = self.newest.entry(Arc::clone(&key.family))
            && Arc::ptr_eq(newest.get(), &ready)
        {
            newest.remove();
        }
        Some(Dropped { ready, bytes })
    }
}

/// The result of looking up a call site.
pub(super) enum Found {
    /// The call site itself.
    Same(Arc<Ready>),
    /// A call site that differs in its attributes alone, if there is one.
    Relative(Option<Arc<Ready>>),
}

/// A text as part of a key: the text itself, or its digest if it is long.
pub(crate) fn key_part(text: &str) -> String {
    if text.len() > LONG {
        format!("sha256 {}", to_hex(&Sha256::digest(text)))
    } else {
        text.to_owned()
    }
}

/// The key of a call site within its module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SiteKey {
    pub(crate) family: Arc<FamilyKey>,
    /// The attributes in MLIR's syntax, or their digest.
    pub(crate) attributes: String,
}

/// The key of the call sites that differ in their attributes alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FamilyKey {
    pub(crate) target: usize,
    /// The call's text in JSON.
    pub(crate) call: String,
    /// The element types and dimensions of the operands, then of the results.
    pub(crate) arrays: Vec<(u8, Vec<usize>)>,
    pub(crate) passage: Passage,
}

impl FamilyKey {
    pub(crate) fn arrays(shapes: &Shapes) -> Vec<(u8, Vec<usize>)> {
        let all = shapes.operands.iter().chain(&shapes.results);
        all.map(|shape| (shape.element_type().number(), shape.dimensions().to_vec()))
            .collect()
    }
}
