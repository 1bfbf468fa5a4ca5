//! The handler of the platform Host.
#![allow(
    unsafe_code,
    reason = "is called by XLA with pointers, and hands its address out"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

use callbox::{ArrayShape, ElementType, Status};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::abi::{CallFrame, Error, Handler};
use super::frame::Frame;
use super::slots::{self, Known, Said};
use crate::buffers::{Place, Places};
use crate::registry;
use crate::site::{Ready, fill_with_status};

/// Arrays of a call that need no allocation to be listed.
const INLINE: usize = 16;

/// Calls the target that the frame's attributes say.
///
/// # Safety
/// XLA's C API: `frame` is a call frame, which stays as it is for the call.
pub(super) unsafe extern "C" fn host(frame: *mut CallFrame) -> *mut Error {
    // SAFETY: as XLA promises.
    unsafe { handle(frame, 0, execute) }
}

/// What all handlers have in common: the answer for XLA's question for metadata, errors as XLA has them, and that a panic goes no further.
///
/// # Safety
/// As for [`host`].
pub(super) unsafe fn handle(
    frame: *mut CallFrame,
    traits: u32,
    execute: fn(Frame<'_>) -> callbox::Result<()>,
) -> *mut Error {
    // SAFETY: as the caller promises.
    let Some(frame) = (unsafe { Frame::new(frame) }) else {
        return ptr::null_mut();
    };
    if frame.answer_metadata(traits) {
        return ptr::null_mut();
    }
    let outcome = guarded(|| match frame.is_execute() {
        true => execute(frame),
        false => Err(Status::unimplemented(
            "expected the stage execute, found another",
        )),
    });
    match outcome {
        Ok(()) => ptr::null_mut(),
        Err(status) => frame.error(&status),
    }
}

fn execute(frame: Frame<'_>) -> callbox::Result<()> {
    match guarded(|| slots::with(frame, |known, ready| call(frame, known, ready))) {
        Ok(()) => Ok(()),
        Err(failure) => as_status(frame, failure),
    }
}

#[inline]
fn call(frame: Frame<'_>, known: &Known<Ready>, ready: &Ready) -> callbox::Result<()> {
    let sizes = (&*known.operand_sizes, &*known.result_sizes);
    with_places(frame, sizes, |places| match ready.has_status() {
        false => ready.call(None, places),
        true => {
            ready.call_with_status(places);
            Ok(())
        }
    })
}

/// Where a frame's operands and results lie, which have these sizes.
#[inline]
fn with_places(
    frame: Frame<'_>,
    (operand_sizes, result_sizes): (&[usize], &[usize]),
    call: impl FnOnce(&mut Places<'_>) -> callbox::Result<()>,
) -> callbox::Result<()> {
    let (operands, results) = (frame.operands()?, frame.results()?);
    let mut inline = [Place::EMPTY; INLINE];
    let mut many;
    let count = operands.len() + results.len();
    let places = match inline.get_mut(..count) {
        Some(places) => places,
        None => {
            many = vec![Place::EMPTY; count];
            many.as_mut_slice()
        }
    };
    let (from, to) = places.split_at_mut(operands.len());
    operands.places(operand_sizes, from);
    results.places(result_sizes, to);
    // SAFETY: XLA's buffers are as large as their shapes say and are the call's own while it runs; operand and result may be one.
    call(&mut unsafe { Places::new(from, to) })
}

/// What came before the call failed, or callbox itself: for a program that wants failures as results it is one, too.
#[cold]
fn as_status(frame: Frame<'_>, failure: Status) -> callbox::Result<()> {
    let Ok(said) = Said::of(frame) else {
        return Err(failure);
    };
    if !said.call.status {
        return Err(failure);
    }
    let (operands, results) = (frame.operands()?.shapes()?, frame.results()?.shapes()?);
    let Some((status, own)) = results.split_last() else {
        return Err(failure);
    };
    if status.element_type() != ElementType::S32 {
        return Err(failure);
    }
    if let Ok(module) = registry::find(&said.module) {
        module.stats().count(0, 0, &Err(failure.clone()));
    }
    let sizes = |shapes: &[ArrayShape]| -> Vec<usize> {
        shapes.iter().map(ArrayShape::byte_size).collect()
    };
    with_places(frame, (&sizes(&operands), &sizes(&results)), |places| {
        let is_pred = own.iter().map(|shape| shape.element_type().is_pred());
        fill_with_status(places, is_pred, &failure);
        Ok(())
    })
}

/// Has a panic go no further.
fn guarded<T>(work: impl FnOnce() -> callbox::Result<T>) -> callbox::Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        // Dropping it could panic again.
        std::mem::forget(payload);
        Err(Status::internal(
            "callbox panicked; the call was broken off",
        ))
    })
}

/// A handler as Python hands it to XLA.
pub(super) fn capsule(py: Python<'_>, handler: Handler) -> PyResult<Bound<'_, PyCapsule>> {
    let pointer = NonNull::new(handler as *mut std::ffi::c_void);
    let pointer = pointer.ok_or_else(|| pyo3::exceptions::PySystemError::new_err("no handler"))?;
    // SAFETY: it is a function, which is there for as long as the process.
    unsafe { PyCapsule::new_with_pointer(py, pointer, c"xla._CUSTOM_CALL_TARGET") }
}
