//! The work of verifying a kernel, counted where it can grow faster than the text.

use std::cell::Cell;

/// The steps that are left of [`Limits::work`](super::Limits::work).
pub(crate) struct Work(Cell<Option<u64>>);

impl Work {
    pub(crate) fn new(steps: u64) -> Self {
        Self(Cell::new(Some(steps)))
    }

    /// Takes steps. `None` if fewer were left, now or before.
    pub(crate) fn spend(&self, steps: usize) -> Option<()> {
        let left = self.0.get().and_then(|left| left.checked_sub(steps as u64));
        self.0.set(left);
        left.map(|_| ())
    }

    /// Whether a part of the verifier got fewer steps than it asked for.
    pub(crate) fn is_spent(&self) -> bool {
        self.0.get().is_none()
    }
}
