//! Results of twins: bytes that are known at the call, and bytes that the host computes when the
//! stream reaches them.

use std::sync::Arc;

use callbox::call::{DeviceBuffer, DeviceQueue};
use callbox::cuda::CudaCall;
use callbox::{ArrayShape, Literal, NativeType, Result, Status};

use super::words::invalid_argument;

/// Uploads a result.
pub(super) fn give_bytes(call: &mut CudaCall<'_>, number: usize, bytes: &[u8]) -> Result<()> {
    let result = result(call, number)?;
    if bytes.is_empty() {
        return Ok(());
    }
    let uploaded = call.queue().upload(bytes)?;
    call.queue().copy(&uploaded, &result)
}

/// Uploads a result of numbers in one dimension.
pub(super) fn give<T: NativeType>(
    call: &mut CudaCall<'_>,
    number: usize,
    elements: &[T],
) -> Result<()> {
    let found = call.results()[number].shape().dimensions().to_vec();
    expect_dimensions(&[elements.len()], &found)?;
    let literal = Literal::array(&[elements.len()], elements)?;
    give_bytes(call, number, literal.bytes().unwrap_or_default())
}

/// Uploads a result of one number.
pub(super) fn give_one<T: NativeType>(
    call: &mut CudaCall<'_>,
    number: usize,
    value: T,
) -> Result<()> {
    let literal = Literal::scalar(value);
    give_bytes(call, number, literal.bytes().unwrap_or_default())
}

/// # Errors
/// INVALID_ARGUMENT, with the guest SDK's message.
pub(super) fn expect_dimensions(expected: &[usize], found: &[usize]) -> Result<()> {
    if expected == found {
        Ok(())
    } else {
        Err(invalid_argument(format!(
            "Wrong result dimensions: expected {expected:?} but got {found:?}"
        )))
    }
}

/// Copies an operand to a result of the same type and dimensions.
pub(super) fn copy(call: &mut CudaCall<'_>, operand: usize, result: usize) -> Result<()> {
    let (from, to) = (call.operands()[operand], call.results()[result]);
    expect_alike(from.shape(), to.shape())?;
    if to.memory().size() == 0 {
        return Ok(());
    }
    call.queue().copy(from.memory(), to.memory())
}

/// # Errors
/// INVALID_ARGUMENT if the result has another type or other dimensions.
pub(super) fn expect_alike(from: &ArrayShape, to: &ArrayShape) -> Result<()> {
    let facts = |shape: &ArrayShape| (shape.element_type(), shape.dimensions().to_vec());
    if facts(from) == facts(to) {
        Ok(())
    } else {
        Err(invalid_argument(format!(
            "expected a result like the operand {from}, found {to}"
        )))
    }
}

/// Computes a result from operands when the stream reaches it.
pub(super) fn compute(
    call: &mut CudaCall<'_>,
    inputs: &[DeviceBuffer],
    result_number: usize,
    work: impl Fn(&[&[u8]], &mut [u8]) -> Result<()> + Send + Sync + 'static,
) -> Result<()> {
    let output = result(call, result_number)?;
    call.queue().compute(
        Arc::new(move |_, inputs, outputs| match outputs {
            [output] => work(inputs, output),
            _ => Err(Status::internal("expected one output")),
        }),
        inputs,
        &[output],
    )
}

/// The memory of all operands.
pub(super) fn operands(call: &CudaCall<'_>) -> Vec<DeviceBuffer> {
    call.operands()
        .iter()
        .map(|operand| Arc::clone(operand.memory()))
        .collect()
}

/// The memory of a result.
pub(super) fn result(call: &CudaCall<'_>, number: usize) -> Result<DeviceBuffer> {
    let results = call.results();
    let result = results.get(number);
    result
        .map(|result| Arc::clone(result.memory()))
        .ok_or_else(|| Status::internal(format!("expected a result of number {number}")))
}

/// An array's numbers.
pub(super) fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> + '_ {
    let words = bytes.as_chunks::<4>().0.iter();
    words.map(|word| f32::from_le_bytes(*word))
}

/// Overwrites an array with numbers, up to the shorter of both.
pub(super) fn write_floats(bytes: &mut [u8], values: impl Iterator<Item = f32>) {
    let words = bytes.as_chunks_mut::<4>().0.iter_mut();
    for (word, value) in words.zip(values) {
        *word = value.to_le_bytes();
    }
}
