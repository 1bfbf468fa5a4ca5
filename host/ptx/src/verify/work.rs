//! The work of verifying kernels, counted where it can grow faster than the text.

use std::cell::Cell;

/// The steps of reading and printing an instruction or a variable.
const ITEM: u64 = 100;

/// The steps that verifying several kernels, or one for several launches, may take together. A step
/// takes some 30 ns.
#[derive(Debug)]
pub struct Budget {
    steps: u64,
    left: Cell<u64>,
}

impl Default for Budget {
    /// 400 million steps: some ten seconds. Kernels of a thousand instructions take some hundred
    /// thousand each.
    fn default() -> Self {
        Self::new(400_000_000)
    }
}

impl Budget {
    /// A budget of this many steps.
    pub fn new(steps: u64) -> Self {
        Self {
            steps,
            left: Cell::new(steps),
        }
    }

    /// Begins a kernel of this size in instructions and variables, which may take `most` steps
    /// beyond those of reading and printing it. The work is spent if no steps were left.
    pub(crate) fn begin(&self, size: usize, most: u64) -> Work<'_> {
        let had_some = self.left.get() > 0;
        self.spend(ITEM.saturating_mul(size as u64));
        let left = self.left.get();
        Work {
            left: Cell::new(had_some.then_some(most.min(left))),
            is_cut: left < most,
            budget: self,
        }
    }

    /// Whether no steps are left.
    pub fn is_spent(&self) -> bool {
        self.left.get() == 0
    }

    fn spend(&self, steps: u64) {
        self.left.set(self.left.get().saturating_sub(steps));
    }
}

/// The steps that are left of [`Limits::work`](super::Limits::work) and of a budget.
pub(crate) struct Work<'b> {
    left: Cell<Option<u64>>,
    /// Whether the budget had fewer steps left than the limit.
    is_cut: bool,
    budget: &'b Budget,
}

impl Work<'_> {
    /// Takes steps. `None` if fewer were left, now or before.
    pub(crate) fn spend(&self, steps: usize) -> Option<()> {
        let steps = steps as u64;
        let left = self.left.get()?.checked_sub(steps);
        self.left.set(left);
        self.budget.spend(steps);
        left.map(|_| ())
    }

    /// Takes steps of the budget alone, for work that a limit of its own bounds.
    pub(crate) fn spend_of_budget(&self, steps: u64) {
        self.budget.spend(steps);
    }

    /// The reason of a refusal for too much work, where the kernel's own limit is `limit`.
    pub(crate) fn reason(&self, limit: u64) -> String {
        let (whose, steps) = if self.is_cut {
            (" and what was verified before it", self.budget.steps)
        } else {
            ("", limit)
        };
        format!("verifying it{whose} takes more than {steps} steps (`work`)")
    }

    /// Whether a part of the verifier got fewer steps than it asked for.
    pub(crate) fn is_spent(&self) -> bool {
        self.left.get().is_none()
    }
}
