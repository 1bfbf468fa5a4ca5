//! Results by content: each is made once, however many threads ask for it, and those least recently asked for go first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::values::{Result, StatusCode};

/// What identifies a result: a digest of all that it depends on.
pub(super) type Key = [u8; 32];

#[derive(Debug)]
pub(super) struct Cache<T> {
    entries: Mutex<Entries<T>>,
    most: usize,
}

#[derive(Debug)]
struct Entries<T> {
    by_key: HashMap<Key, Entry<T>>,
    /// Counts what was asked for.
    clock: u64,
}

#[derive(Debug)]
struct Entry<T> {
    /// Filled by the first thread that asks; the others wait.
    made: Arc<OnceLock<Result<T>>>,
    /// When it was last asked for.
    asked: u64,
}

impl<T: Clone> Cache<T> {
    /// A cache of at most so many results.
    pub(super) fn new(most: usize) -> Self {
        let entries = Entries {
            by_key: HashMap::new(),
            clock: 0,
        };
        Self {
            entries: Mutex::new(entries),
            most,
        }
    }

    /// The result of this key, made if there is none. A failure is kept if it is the content's, and made anew if it can pass.
    pub(super) fn get(&self, key: Key, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let cell = self.cell(key);
        let result = cell.get_or_init(make).clone();
        if let Err(status) = &result
            && status.code() != StatusCode::InvalidArgument
        {
            let mut entries = self.lock();
            let is_same = |entry: &Entry<T>| Arc::ptr_eq(&entry.made, &cell);
            if entries.by_key.get(&key).is_some_and(is_same) {
                entries.by_key.remove(&key);
            }
        }
        result
    }

    fn cell(&self, key: Key) -> Arc<OnceLock<Result<T>>> {
        let mut entries = self.lock();
        entries.clock += 1;
        let asked = entries.clock;
        let entry = entries.by_key.entry(key).or_insert_with(|| Entry {
            made: Arc::default(),
            asked,
        });
        entry.asked = asked;
        let cell = entry.made.clone();
        if entries.by_key.len() > self.most {
            let oldest = entries.by_key.iter().min_by_key(|(_, entry)| entry.asked);
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                entries.by_key.remove(&oldest);
            }
        }
        cell
    }

    /// The entries are whole whenever the lock is free: a panic elsewhere does not spoil them.
    fn lock(&self) -> MutexGuard<'_, Entries<T>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
