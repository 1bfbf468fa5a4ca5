//! The calls of a batch's elements.

use std::ops::Range;

use super::report::{Failed, is_over};
use super::{Batch, Element};
use crate::call::buffers::{Parts, Transfer, View, total_bytes};
use crate::call::prepared::{BufferExecution, DirectCalls};
use crate::call::sharing::{Sharing, begin_alone};
use crate::call::{CallBuffers, CallOptions};
use crate::values::{Result, Status};

/// Handles the failure of an element, and returns whether others are to be called.
type ElementFailed<'a, T> = dyn FnMut(&mut T, usize, Status) -> Result<bool> + 'a;

/// The most elements whose failures are kept until all threads have done their part.
const WINDOW: usize = 1024;

impl Batch {
    /// Calls the target for each element until one fails, within a deadline at an instant.
    ///
    /// # Errors
    /// The failure of the first element that fails.
    pub(in crate::call) fn call<C: DirectCalls, B: CallBuffers>(
        &self,
        calls: &C,
        options: &CallOptions,
        sharing: Option<Sharing<'_>>,
        buffers: &mut B,
    ) -> Result<()> {
        let mut failed = |_: &mut B, _, status| Err(status);
        self.call_windows(calls, options, sharing, buffers, true, &mut failed)
    }

    /// Calls the target for each element, and goes on after a failure unless `failed` ends the
    /// call.
    pub(in crate::call) fn call_each<C: DirectCalls, B: CallBuffers>(
        &self,
        calls: &C,
        options: &CallOptions,
        sharing: Option<Sharing<'_>>,
        buffers: &mut B,
        failed: &mut Failed<'_, B>,
    ) -> Result<()> {
        self.call_windows(calls, options, sharing, buffers, false, failed)
    }

    /// Calls the target for each element: first on the calling thread, and then, if that takes
    /// long, window by window on several.
    fn call_windows<C: DirectCalls, B: CallBuffers>(
        &self,
        calls: &C,
        options: &CallOptions,
        sharing: Option<Sharing<'_>>,
        buffers: &mut B,
        ends_at_failure: bool,
        failed: &mut Failed<'_, B>,
    ) -> Result<()> {
        self.check(buffers)?;
        let mut failed = |buffers: &mut B, number: usize, status: Status| {
            self.report(options, number, status, |elements, status| {
                failed(buffers, elements, status)
            })
        };
        let (mut run, mut next) = (None, 0);
        if let Some(sharing) = sharing {
            next = begin_alone(
                sharing.threads,
                0..self.count,
                total_bytes(buffers),
                |elements| {
                    self.call_range(calls, options, &mut run, elements, buffers, &mut failed)
                },
            )?;
            while next < self.count {
                let window = if ends_at_failure { usize::MAX } else { WINDOW };
                let end = self.count.min(next.saturating_add(window));
                if end - next >= 2 {
                    // Each thread has an instance of its own, this one too.
                    drop(run.take());
                }
                let shared =
                    self.share(sharing, calls, options, next..end, buffers, ends_at_failure);
                let failures = match shared {
                    None => break,
                    Some(Ok(failures)) => failures,
                    // The others go on, by themselves.
                    Some(Err(status)) => {
                        if !failed(buffers, next, status)? {
                            return Ok(());
                        }
                        next += 1;
                        break;
                    }
                };
                for (number, status) in failures {
                    if !failed(buffers, number, status)? {
                        return Ok(());
                    }
                }
                next = end;
            }
        }
        let rest = next..self.count;
        self.call_range(calls, options, &mut run, rest, buffers, &mut failed)?;
        Ok(())
    }

    /// Calls the target for a range of elements on several threads. Returns the failures in order,
    /// or `None` if the calling thread must do it alone.
    fn share<C: DirectCalls, B: CallBuffers>(
        &self,
        sharing: Sharing<'_>,
        calls: &C,
        options: &CallOptions,
        elements: Range<usize>,
        buffers: &mut B,
        ends_at_failure: bool,
    ) -> Option<Result<Vec<(usize, Status)>>> {
        if elements.len() < 2 {
            return None;
        }
        let shared = buffers.shared()?;
        let called = sharing.call(
            calls,
            options,
            elements,
            ends_at_failure,
            |worker, elements| {
                let mut run = worker.run.take();
                let mut failed = |_: &mut View<'_>, number, status: Status| {
                    let is_over = is_over(&status, &worker.options);
                    Ok(worker.fail(number, status) && !is_over)
                };
                let view = &mut View(&*shared);
                let options = &worker.options;
                let called = self.call_range(calls, options, &mut run, elements, view, &mut failed);
                worker.run = run;
                called == Ok(true)
            },
        );
        Some(called)
    }

    /// Calls the target for a range of elements in the current run, or begins one. Returns whether
    /// others are to be called.
    fn call_range<'c, C: DirectCalls, T: Transfer>(
        &self,
        calls: &'c C,
        options: &CallOptions,
        run: &mut Option<C::Run<'c>>,
        elements: Range<usize>,
        buffers: &mut T,
        failed: &mut ElementFailed<'_, T>,
    ) -> Result<bool> {
        let mut position = self.position(elements.start);
        for number in elements {
            let mut element = Parts {
                operands: &self.operands,
                results: &self.results,
                at: Element {
                    number,
                    position: &position,
                },
                whole: buffers,
            };
            if let Err(status) = call_element(calls, options, run, &mut element) {
                // The next element begins another execution.
                if run.as_mut().is_some_and(BufferExecution::has_broken) {
                    *run = None;
                }
                if !failed(buffers, number, status)? {
                    return Ok(false);
                }
            }
            self.advance(&mut position);
        }
        Ok(true)
    }
}

/// Calls the target in the current run, or begins one.
fn call_element<'a, C: DirectCalls, B: CallBuffers>(
    calls: &'a C,
    options: &CallOptions,
    run: &mut Option<C::Run<'a>>,
    element: &mut B,
) -> Result<()> {
    if calls.isolates(0) {
        return calls.call_alone(0, options, element);
    }
    let run = match run {
        Some(run) => run,
        none => none.insert(calls.begin_run(options)?),
    };
    run.call_buffers(0, element)
}
