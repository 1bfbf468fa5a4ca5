//! Cuts large arrays of a call into pieces, for targets with the trait `elementwise` or `rows`.
//!
//! A small piece stays in a core's cache while it is copied in, computed and copied out. If a piece
//! fails, the results of other pieces have been written. A caller whose buffers must not change on
//! a failure has to restore them, or to pass its arrays as a whole.
//!
//! A row is what the target computes by itself: one element if the target is elementwise, and else
//! the dimensions that are declared after `..`.

mod rows;

use std::ops::Range;

use self::rows::{Cut, Part, Rows, cut_array, split};
use super::batch::{At, Batch, Failed, of_part};
use super::buffers::{Parts, Transfer, View, total_bytes};
use super::prepared::{BufferExecution, DirectCalls, DirectModule};
use super::sharing::{Sharing, begin_alone};
use super::signature::dimensions::{ELEMENTWISE, ROWS};
use super::{ApiVersion, CallBuffers, CallOptions, CallSite, Signature, Stage};
use crate::policy::{Isolation, Policy};
use crate::values::{ArrayShape, Result, Shape, Status};

/// How a caller's arrays are cut. The call site 0 is that of a piece.
#[derive(Debug)]
pub(super) struct Pieces {
    batch: Batch,
    operands: Box<[Part]>,
    results: Box<[Part]>,
    /// The number of rows of a piece.
    piece: usize,
    /// The number of rows of an element of the batch.
    inner: usize,
    /// The call site of the shorter last piece of the whole batch, if there is one.
    rest: Option<usize>,
    /// The call site of the shorter last piece of a batch element, if there is one.
    inner_rest: Option<usize>,
    /// The plural of a row, for messages.
    rows: &'static str,
}

impl Pieces {
    /// Plans how to cut the arrays of a batch of calls like `element`. Returns the call sites and
    /// the plan, or `None` if the arrays cannot be cut or are too small to be worth it.
    pub(super) fn plan<M: DirectModule>(
        module: &M,
        element: &CallSite,
        batch: &Batch,
        piece_bytes: usize,
    ) -> Option<(Vec<CallSite>, Self)> {
        let policy = module.policy()?;
        let targets = module.targets();
        let target = &targets[Signature::find(targets, &element.target)?];
        if !can_be_cut(policy, target, element) {
            return None;
        }
        let cut = Cut::of(target);
        let results = element.result.leaves();
        let (before, _) = split(results.first()?, cut.own(cut.result(0))?)?;
        let operand_parts = cut.operands(element, batch, before)?;
        let result_parts = cut.results(element, before)?;
        if !cut.is_elementwise && would_overwrite(element, &operand_parts) {
            return None;
        }

        let operands = element.operands.iter().flat_map(Shape::leaves);
        let parts = std::iter::zip(operands, &operand_parts);
        let parts = parts.chain(std::iter::zip(results.iter().copied(), &result_parts));
        let widest = parts.filter_map(row_bytes).max()?;
        let inner = before.iter().product();
        let total = batch.count.checked_mul(inner)?;
        let piece_bytes = worth(piece_bytes, &operand_parts, total.saturating_mul(widest));
        let piece = cut.rows_within(piece_bytes, widest);
        if total <= piece || total.saturating_mul(widest) <= piece_bytes {
            return None;
        }
        let site = |rows: usize| piece_site(element, &operand_parts, &result_parts, rows);
        let mut sites = vec![site(piece)?];
        let mut rest_of = |rows: usize| match rows % piece {
            0 => Some(None),
            rest => {
                sites.push(site(rest)?);
                Some(Some(sites.len() - 1))
            }
        };
        let rest = rest_of(total)?;
        let inner_rest = match batch.count {
            1 => rest,
            _ => rest_of(inner)?,
        };
        let pieces = Self {
            operands: operand_parts,
            results: result_parts,
            piece,
            inner,
            rest,
            inner_rest,
            batch: batch.clone(),
            rows: cut.rows_name(),
        };
        Some((sites, pieces))
    }

    /// Calls the target for all pieces, within a deadline at an instant.
    pub(super) fn call<C: DirectCalls, B: CallBuffers>(
        &self,
        calls: &C,
        options: &CallOptions,
        sharing: Option<Sharing<'_>>,
        buffers: &mut B,
    ) -> Result<()> {
        self.batch.check(buffers)?;
        let all = 0..self.batch.count * self.inner;
        let called = self.call_rows(calls, options, sharing, (&all, self.rest), buffers);
        called.map_err(|(piece, status)| match piece {
            Some(piece) => of_part(piece.start, status, options).context(self.describe(&piece)),
            None => status,
        })
    }

    /// Calls the target for the pieces of each batch element, one element after the other.
    pub(super) fn call_each<C: DirectCalls, B: CallBuffers>(
        &self,
        calls: &C,
        options: &CallOptions,
        sharing: Option<Sharing<'_>>,
        buffers: &mut B,
        failed: &mut Failed<'_, B>,
    ) -> Result<()> {
        self.batch.check(buffers)?;
        for number in 0..self.batch.count {
            let rows = number * self.inner..(number + 1) * self.inner;
            let rows = (&rows, self.inner_rest);
            let called = self.call_rows(calls, options, sharing, rows, buffers);
            let called = called.map_err(|(piece, status)| match piece {
                Some(piece) => of_part(piece.start, status, options),
                None => status,
            });
            if let Err(status) = called {
                let goes_on = self
                    .batch
                    .report(options, number, status, |elements, status| {
                        failed(buffers, elements, status)
                    })?;
                if !goes_on {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Calls the target for the pieces of a range of rows: first on the calling thread, and then,
    /// if that takes long, on several. `rest` is the call site of the last piece, if that is
    /// shorter.
    ///
    /// # Errors
    /// The failure of the first piece that failed, with its rows.
    fn call_rows<'c, C: DirectCalls + 'c, B: CallBuffers>(
        &self,
        calls: &'c C,
        options: &CallOptions,
        sharing: Option<Sharing<'_>>,
        (rows, rest): (&Range<usize>, Option<usize>),
        buffers: &mut B,
    ) -> Result<(), (Option<Range<usize>>, Status)> {
        let part = |pieces: Range<usize>| {
            let at = |piece: usize| rows.end.min(rows.start + piece * self.piece);
            at(pieces.start)..at(pieces.end)
        };
        let all = 0..rows.len().div_ceil(self.piece);
        let mut execution: Option<C::Run<'c>> = None;
        let alone = |execution: &mut Option<C::Run<'c>>, pieces, buffers: &mut B| {
            let execution = match execution {
                Some(execution) => execution,
                none => none.insert(calls.begin_run(options).map_err(|status| (None, status))?),
            };
            let called = self.run(execution, part(pieces), rest, buffers);
            called
                .map_err(|(first, status)| (Some(first..rows.end.min(first + self.piece)), status))
        };
        let mut next = 0;
        if let Some(sharing) = sharing {
            let elements = (self.batch.count * self.inner).max(1);
            let bytes = total_bytes(buffers) / elements * rows.len();
            next = begin_alone(sharing.threads, all.clone(), bytes, |pieces| {
                alone(&mut execution, pieces, buffers).map(|()| true)
            })?;
            if all.end - next > 1
                && let Some(shared) = buffers.shared()
            {
                // Each thread that shares the rest has an instance of its own, this one too.
                drop(execution.take());
                let left = next..all.end;
                let failures = sharing.call(calls, options, left, true, |worker, pieces| {
                    let rows_of_pieces = part(pieces);
                    let first = rows_of_pieces.start;
                    let called = match worker.run() {
                        Ok(run) => self.run(run, rows_of_pieces, rest, &mut View(&*shared)),
                        Err(status) => Err((first, status)),
                    };
                    match called {
                        Ok(()) => true,
                        Err((row, status)) => worker.fail((row - rows.start) / self.piece, status),
                    }
                });
                let failures = failures.map_err(|status| (None, status))?;
                return match failures.into_iter().next() {
                    None => Ok(()),
                    Some((piece, status)) => Err((Some(part(piece..piece + 1)), status)),
                };
            }
        }
        if next < all.end {
            alone(&mut execution, next..all.end, buffers)?;
        }
        Ok(())
    }

    /// Calls the target for the pieces of a range of rows.
    ///
    /// # Errors
    /// The first failure, with the first row of its piece.
    fn run<E: BufferExecution, T: Transfer>(
        &self,
        execution: &mut E,
        rows: Range<usize>,
        rest: Option<usize>,
        buffers: &mut T,
    ) -> Result<(), (usize, Status)> {
        let mut first = rows.start;
        while first < rows.end {
            let count = self.piece.min(rows.end - first);
            let site = match rest {
                Some(rest) if count < self.piece => rest,
                _ => 0,
            };
            let mut piece = Parts {
                operands: &self.operands,
                results: &self.results,
                at: Rows { first, count },
                whole: buffers,
            };
            let called = execution.call_buffers(site, &mut piece);
            called.map_err(|status| (first, status))?;
            first += count;
        }
        Ok(())
    }

    /// Describes the rows of a piece, for a message.
    fn describe(&self, piece: &Range<usize>) -> String {
        let last = piece.end.saturating_sub(1);
        if self.batch.sizes.is_empty() {
            return format!("{} {} to {last}", self.rows, piece.start);
        }
        let of = |row: usize| row / self.inner.max(1);
        let position = |row: usize| self.batch.position(of(row));
        let (from, to) = (position(piece.start), position(last));
        if from == to {
            format!("batch element {}", At(&from))
        } else {
            format!("batch elements {} to {}", At(&from), At(&to))
        }
    }
}

/// Whether the policy lets nothing depend on the number of calls and instances that one call of the
/// caller becomes.
pub(super) fn hides_calls(policy: &Policy) -> bool {
    !policy.check_pure && !policy.deterministic && policy.isolation == Isolation::Executable
}

/// Whether a target's calls can be cut: the target has rows and no stages, and the policy does not
/// make the number of calls observable.
fn can_be_cut(policy: &Policy, target: &Signature, site: &CallSite) -> bool {
    hides_calls(policy)
        && (target.has_trait(ELEMENTWISE) || target.has_trait(ROWS))
        && site.api_version == ApiVersion::TypedFfi
        && target.stages.iter().all(|stage| *stage == Stage::Execute)
        && target.check(site).is_ok()
}

/// Whether a result shares the memory of a whole operand, which the first piece would overwrite.
fn would_overwrite(element: &CallSite, operands: &[Part]) -> bool {
    let is_whole = |part: &Part| matches!(part, Part::Whole(size) if *size > 0);
    !element.aliasing.is_empty() && operands.iter().any(is_whole)
}

/// The bytes of a piece: `least`, or as many as the whole operands have, of `total`. What a kernel
/// does with those it does for each piece, such as to arrange a matrix for a product. At least four
/// pieces are left for threads.
fn worth(least: usize, operands: &[Part], total: usize) -> usize {
    let whole = operands.iter().map(|part| match part {
        Part::Whole(size) => *size,
        Part::Rows(_) => 0,
    });
    let whole = whole.fold(0, usize::saturating_add);
    whole.min(total / 4).max(least)
}

/// The bytes of a row of an array that is cut.
fn row_bytes((shape, part): (&ArrayShape, &Part)) -> Option<usize> {
    let Part::Rows(row) = part else { return None };
    let (_, row) = split(shape, row.own)?;
    Some(row.iter().product::<usize>() * shape.element_type().byte_width())
}

/// The call site of a piece of this many rows.
fn piece_site(
    site: &CallSite,
    operands: &[Part],
    results: &[Part],
    rows: usize,
) -> Option<CallSite> {
    let cut = |array: &ArrayShape, part: Option<&Part>| match part {
        Some(Part::Rows(row)) => cut_array(array, *row, rows),
        Some(Part::Whole(_)) | None => Ok(array.clone()),
    };
    let (mut operand_parts, mut result_parts) = (operands.iter(), results.iter());
    let mut operand = |array: &ArrayShape| cut(array, operand_parts.next());
    let operands = site.operands.iter();
    let operands = operands.map(|shape| shape.map_arrays(&mut operand));
    let mut result = |array: &ArrayShape| cut(array, result_parts.next());
    Some(CallSite {
        operands: operands.collect::<Result<_>>().ok()?,
        result: site.result.map_arrays(&mut result).ok()?,
        ..site.clone()
    })
}
