//! Failures as results of calls with `on_error="status"`.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use callbox::call::CallBuffers;
use callbox::{ArrayShape, ElementType, Status, StatusCode};

use super::Shapes;
use crate::buffers::RawArrays;

/// Fills the results of a failed call, and its last result with the status code.
pub(crate) fn fill_with_status(
    arrays: &mut RawArrays<'_>,
    is_pred: impl ExactSizeIterator<Item = bool>,
    failure: &Status,
) {
    note_failure(failure);
    let status = is_pred.len();
    for (result, is_pred) in is_pred.enumerate() {
        arrays.fill(result, 0, arrays.result_size(result), poison(is_pred));
    }
    let elements = arrays.result_size(status) / size_of::<i32>();
    fill_code(arrays, status, 0..elements, failure);
}

/// Writes the status code of these elements to the result `status`.
pub(super) fn fill_code(
    arrays: &mut RawArrays<'_>,
    status: usize,
    elements: Range<usize>,
    failure: &Status,
) {
    // A write compares its result with all operands.
    const MOST_AT_ONCE: usize = 16 << 10;
    let code = i32::from(failure.code().number()).to_le_bytes();
    let codes = code.repeat(elements.len().min(MOST_AT_ONCE));
    for first in elements.clone().step_by(MOST_AT_ONCE) {
        let count = MOST_AT_ONCE.min(elements.end - first);
        arrays.write(status, first * code.len(), &codes[..count * code.len()]);
    }
}

/// The byte that fills the results of failed calls.
pub(crate) const fn poison(is_pred: bool) -> u8 {
    if is_pred { 1 } else { 0xFF }
}

/// Checks that the last result can hold a status for each element of the batch.
pub(crate) fn check_status(
    status: &ArrayShape,
    shapes: &Shapes,
    batch: usize,
) -> callbox::Result<()> {
    let batch_of = |shape: &ArrayShape| shape.dimensions()[..batch].to_vec();
    // Without results the operands determine the batch. Those of size 1 are broadcast.
    let operands = || shapes.operands.iter().map(batch_of);
    let largest = |one: Vec<usize>, other: Vec<usize>| {
        let pairs = one.into_iter().zip(other);
        pairs.map(|(a, b)| if a == 1 { b } else { a }).collect()
    };
    let dimensions = match shapes.results.first() {
        Some(result) => batch_of(result),
        None => operands().reduce(largest).unwrap_or_default(),
    };
    let is_right = status.element_type() == ElementType::S32 && status.dimensions() == dimensions;
    if is_right {
        Ok(())
    } else {
        Err(Status::invalid_argument(format!(
            "expected the status to be s32{dimensions:?}, found {status}"
        )))
    }
}

pub(crate) fn no_status() -> Status {
    Status::invalid_argument("expected a result for the status, found no results")
}

/// The last failure with each status code, for calls with `on_error="status"`.
static LAST_FAILURES: Mutex<LastFailures> = Mutex::new([const { None }; StatusCode::ALL.len()]);

type LastFailures = [Option<Status>; StatusCode::ALL.len()];

pub(crate) fn last_failures() -> MutexGuard<'static, LastFailures> {
    LAST_FAILURES.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn note_failure(failure: &Status) {
    if let Some(last) = last_failures().get_mut(usize::from(failure.code().number())) {
        *last = Some(failure.clone());
    }
}

/// This process's last failure with this code under `on_error="status"`.
pub(crate) fn last_failure(code: StatusCode) -> Option<Status> {
    let last = last_failures();
    last.get(usize::from(code.number())).cloned().flatten()
}
