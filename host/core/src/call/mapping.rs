//! Turns one call into several: one for each element of a batch, or for each piece of large arrays.
//!
//! A batch is a loop over a kernel that knows nothing of batches. JAX's other ways to map a call
//! (`broadcast_all` and `expand_dims` of `vmap`) pass arrays of another rank to the kernel, which
//! would then silently compute wrong values.

use std::time::Duration;

use super::batch::{Batch, Leaf};
use super::merging;
use super::pieces::Pieces;
use super::prepared::DirectModule;
use super::{CallOptions, CallSite, Deadline, Delays, Fuel};
use crate::policy::Policy;
use crate::values::Result;

/// How a caller's arrays become calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// The number of leading dimensions of each operand and result that are the batch.
    ///
    /// The target is called once for each element of the batch, in row-major order, with shapes
    /// without these dimensions. A target of the trait `batched` is called once for all elements,
    /// unless they share an operand that declares the dimension `batch`, or have a different one
    /// of those that do not. The batch's sizes are those of every result. Those of an operand
    /// are the same or 1: then all elements along that dimension share the operand. Without a
    /// result, the batch's sizes are those of the operands that are not 1.
    pub batch_dimensions: usize,
    /// The approximate number of bytes of an array that pass through the guest at a time.
    ///
    /// It applies to targets with the trait `elementwise`: the target is called for each piece,
    /// with arrays of dimensions `[1, ..., k]` of the same rank. The arena is no larger than the
    /// pieces, so that it fits into a cache, and arrays may exceed the guest's memory. An operand
    /// of rank 0 is passed whole. Arrays of a target with the trait `rows` are cut between their
    /// rows: where the target declares the dimensions `[.., n]` a piece has `[1, ..., k, n]`.
    /// Operands that declare no `..` are passed whole. A batch is cut as one array, unless elements
    /// share an operand: then each element is a call. Elements of rank 0 are calls as well, except
    /// where the target declares the dimensions `..`: then a piece is an array of rank 1.
    ///
    /// A failed call may have written part of the results. Arrays are not cut if the target has
    /// stages, nor under a policy that checks purity, isolates calls, or is deterministic.
    pub piece_bytes: Option<usize>,
}

/// The limits of a policy for the whole of a mapped call: its calls share the time and the fuel of
/// one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WholeCall {
    deadline: Option<Duration>,
    fuel: Option<u64>,
}

impl WholeCall {
    pub(super) fn new(policy: Option<&Policy>) -> Self {
        match policy {
            None => Self::default(),
            // In deterministic mode, fuel replaces the limit of time.
            Some(policy) if policy.deterministic => Self {
                deadline: None,
                fuel: Some(policy.limits.fuel),
            },
            Some(policy) => Self {
                deadline: policy.limits.deadline,
                fuel: None,
            },
        }
    }

    /// The options by which the caller, or else the limits, bound all calls from now on together.
    pub(super) fn bind(&self, options: &CallOptions) -> CallOptions {
        let deadline = options.deadline.or(self.deadline.map(Deadline::After));
        let options = CallOptions {
            deadline,
            fuel: options.fuel.clone().or(self.fuel.map(Fuel::new)),
            delays: Some(Delays::begin()),
            ..options.clone()
        };
        options.from_now_on()
    }
}

/// The calls that one call by the caller becomes.
#[derive(Debug)]
pub(super) enum Plan {
    /// The same call.
    Whole,
    /// A call for each element.
    Batch(Batch),
    /// One call for all elements, of this number.
    Merged(usize),
    /// A call for each piece.
    Pieces(Pieces),
}

/// Plans for a call site, with the call sites that each needs.
pub(super) struct Candidates {
    merged: Option<(CallSite, usize)>,
    pieces: Option<(Vec<CallSite>, Pieces)>,
    otherwise: (CallSite, Plan),
}

impl Plan {
    /// The plans that serve a call site under a mapping.
    pub(super) fn candidates<M: DirectModule>(
        module: &M,
        site: CallSite,
        mapping: &Mapping,
    ) -> Result<Candidates> {
        if *mapping == Mapping::default() {
            return Ok(Candidates {
                merged: None,
                pieces: None,
                otherwise: (site, Self::Whole),
            });
        }
        let split = Batch::split(&site, mapping.batch_dimensions);
        let (element, mut batch) = split.map_err(|status| status.context(site.label()))?;
        for &leaf in &site.scratch {
            if let Some(result) = batch.results.get_mut(leaf) {
                *result = Leaf::NONE;
            }
        }
        let pieces = mapping
            .piece_bytes
            .and_then(|piece_bytes| Pieces::plan(module, &element, &batch, piece_bytes));
        let merged = merging::merged(module.targets(), &element, &batch);
        let merged = merged.filter(|(site, _)| {
            let policy = module.policy();
            policy.is_none_or(|policy| merging::is_allowed(policy, site))
        });
        let otherwise = if mapping.batch_dimensions == 0 {
            (site, Self::Whole)
        } else {
            (element, Self::Batch(batch))
        };
        Ok(Candidates {
            merged,
            pieces,
            otherwise,
        })
    }
}

impl Candidates {
    /// Prepares the first plan whose call sites can be prepared, unless the call is over.
    pub(super) fn prepare<T>(
        self,
        is_over: impl Fn() -> bool,
        mut prepare: impl FnMut(Vec<CallSite>, Plan) -> Result<T>,
    ) -> Result<T> {
        // A target that cannot be called on pieces or on a whole batch, whatever it declares, is
        // called as if it did not declare it.
        let merged = self.merged;
        let merged = merged.map(|(site, count)| (vec![site], Plan::Merged(count)));
        let pieces = self.pieces;
        let pieces = pieces.map(|(sites, pieces)| (sites, Plan::Pieces(pieces)));
        for (sites, plan) in [merged, pieces].into_iter().flatten() {
            let prepared = prepare(sites, plan);
            if prepared.is_ok() || is_over() {
                return prepared;
            }
        }
        let (site, plan) = self.otherwise;
        prepare(vec![site], plan)
    }
}
