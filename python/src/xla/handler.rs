//! The handler of the platform Host.
#![allow(
    unsafe_code,
    reason = "is called by XLA with pointers, and hands its address out"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

use callbox::{ArrayShape, CallOptions, ElementType, Status};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::abi::{CallFrame, Error, Handler};
use super::frame::{Arrays, Frame};
use super::packing::bytes_in_xla;
use super::slots::{self, CallAttributes, Found};
use crate::buffers::{RawArray, RawArrays};
use crate::failures;
use crate::interrupts::{self, LastOptions};
use crate::registry;
use crate::site::{Ready, fill_with_status};
use crate::stack::on_enough;

/// The number of arrays of a call that are listed without an allocation.
const INLINE: usize = 16;

/// Calls the target that the frame's attributes name.
///
/// # Safety
/// XLA's C API: `frame` is a call frame, unchanged during the call.
pub(super) unsafe extern "C" fn host(frame: *mut CallFrame) -> *mut Error {
    // SAFETY: XLA guarantees it.
    unsafe { handle(frame, 0, execute) }
}

/// Runs a handler: answers requests for metadata, converts errors, and catches panics.
///
/// # Safety
/// As for [`host`].
pub(super) unsafe fn handle(
    frame: *mut CallFrame,
    traits: u32,
    execute: fn(Frame<'_>) -> callbox::Result<()>,
) -> *mut Error {
    // SAFETY: the caller guarantees it.
    let Some(frame) = (unsafe { Frame::new(frame) }) else {
        return ptr::null_mut();
    };
    let checked = frame.check_api();
    if frame.answer_metadata(traits) {
        return ptr::null_mut();
    }
    let outcome = guarded(|| {
        checked?;
        if frame.is_execute() {
            execute(frame)
        } else {
            Err(Status::unimplemented(
                "callbox's handler only has the execute stage",
            ))
        }
    });
    match outcome {
        Ok(()) => ptr::null_mut(),
        Err(status) => {
            let names = CallAttributes::read(frame).map(|call| (call.module, call.target));
            failures::note(&status, names.ok());
            frame.error(&status)
        }
    }
}

fn execute(frame: Frame<'_>) -> callbox::Result<()> {
    // Attributes may nest, and XLA runs small programs on the caller's thread.
    on_enough(
        || match guarded(|| slots::with(frame, |found| call(frame, found))) {
            Ok(()) => Ok(()),
            Err(failure) => as_status(frame, failure),
        },
    )
}

#[inline]
fn call(frame: Frame<'_>, found: &Found<'_, Ready>) -> callbox::Result<()> {
    let ready = &found.ready;
    let options = found.within().unwrap_or(ready.options());
    let others = LastOptions::default();
    let last = match found.within() {
        None => &found.cached.last_options,
        Some(_) => &others,
    };
    let operands = (found.operands, &*found.cached.operand_sizes);
    let results = (found.results, &*found.cached.result_sizes);
    let run = frame.run();
    interrupts::cancellable(run, options, last, |options| {
        let call = |arrays: &mut RawArrays<'_>, options: &CallOptions| {
            if ready.has_status() {
                ready.call_with_status((run, found.begun()), Some(options), arrays);
                Ok(())
            } else {
                ready.call(Some(options), arrays)
            }
        };
        with_raw_arrays(operands, results, |arrays| match &found.cached.packing {
            None => call(arrays, options),
            Some(packing) => {
                // Unpacking takes from the call's time.
                let options = &options.from_now_on();
                packing.call(arrays, options, |arrays| call(arrays, options))
            }
        })
    })
}

/// Calls `call` with the memory of a frame's operands and results, which have these sizes in bytes.
#[inline]
fn with_raw_arrays(
    (operands, operand_sizes): (Arrays<'_>, &[usize]),
    (results, result_sizes): (Arrays<'_>, &[usize]),
    call: impl FnOnce(&mut RawArrays<'_>) -> callbox::Result<()>,
) -> callbox::Result<()> {
    let mut inline = [RawArray::EMPTY; INLINE];
    let mut many;
    let count = operands.len() + results.len();
    let arrays = match inline.get_mut(..count) {
        Some(arrays) => arrays,
        None => {
            many = vec![RawArray::EMPTY; count];
            many.as_mut_slice()
        }
    };
    let (from, to) = arrays.split_at_mut(operands.len());
    operands.write_raw(operand_sizes, from)?;
    results.write_raw(result_sizes, to)?;
    // SAFETY: XLA's buffers have the sizes of their shapes and belong to the call while it runs.
    // `RawArrays` permits an operand and a result to share memory.
    call(&mut unsafe { RawArrays::new(from, to) })
}

/// Writes a failure outside of the target as a status, if the program wants failures as results.
#[cold]
fn as_status(frame: Frame<'_>, failure: Status) -> callbox::Result<()> {
    let Ok(parsed) = CallAttributes::read(frame) else {
        return Err(failure);
    };
    if !parsed.call.status {
        return Err(failure);
    }
    let (from, to) = (frame.operands()?, frame.results()?);
    let (operands, results) = (from.shapes()?, to.shapes()?);
    let Some((status, own)) = results.split_last() else {
        return Err(failure);
    };
    if status.element_type() != ElementType::S32 {
        return Err(failure);
    }
    let sizes = |shapes: &[ArrayShape]| -> Vec<usize> { shapes.iter().map(bytes_in_xla).collect() };
    if parsed.call.declared {
        // The results may be too large to be filled. Without its module, nothing says so.
        let module = registry::find(&parsed.module)?;
        slots::check_declared(&parsed, &module, &operands, &results)?;
    }
    let (operand_sizes, result_sizes) = (sizes(&operands), sizes(&results));
    with_raw_arrays((from, &operand_sizes), (to, &result_sizes), |arrays| {
        let is_pred = own.iter().map(|shape| shape.element_type().is_pred());
        fill_with_status(arrays, is_pred, &failure);
        Ok(())
    })
}

/// Converts a panic to a status.
fn guarded<T>(work: impl FnOnce() -> callbox::Result<T>) -> callbox::Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        // Dropping the payload could panic again.
        std::mem::forget(payload);
        Err(Status::internal(
            "callbox panicked, which interrupted the call",
        ))
    })
}

/// The capsule by which Python passes a handler to XLA.
pub(super) fn capsule(py: Python<'_>, handler: Handler) -> PyResult<Bound<'_, PyCapsule>> {
    let pointer = NonNull::new(handler as *mut std::ffi::c_void);
    let pointer = pointer.ok_or_else(|| pyo3::exceptions::PySystemError::new_err("no handler"))?;
    // SAFETY: the pointer is a function, which is valid until the process ends.
    unsafe { PyCapsule::new_with_pointer(py, pointer, c"xla._CUSTOM_CALL_TARGET") }
}
