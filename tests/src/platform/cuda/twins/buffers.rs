//! Twins of `guests/typed_ffi/src/buffers.rs`: any number of operands, and the records of operands.

use callbox::cuda::{CudaCall, CudaTarget};
use callbox::{ElementType, Result};

use super::results::{compute, copy, expect_dimensions, floats, give, operands, write_floats};
use super::twin;
use super::words::invalid_argument;

pub(super) fn twins() -> Vec<(&'static str, CudaTarget)> {
    vec![
        twin("sum_remaining", sum_remaining),
        twin("copy_remaining", |call| {
            let (from, to) = (call.operands().len(), call.results().len());
            for number in 0..to {
                if number >= from {
                    return Err(invalid_argument("Index out of range"));
                }
                copy(call, number, number)?;
            }
            Ok(())
        }),
        twin("describe", describe),
    ]
}

fn sum_remaining(call: &mut CudaCall<'_>) -> Result<()> {
    let found = call.results()[0].shape().dimensions().to_vec();
    for operand in call.operands() {
        let shape = operand.shape();
        if shape.element_type() != ElementType::F32 {
            return Err(invalid_argument(format!(
                "Wrong buffer dtype: expected F32 but got {}",
                shape.element_type().upper_name()
            )));
        }
        expect_dimensions(shape.dimensions(), &found)?;
    }
    let terms = operands(call);
    compute(call, &terms, 0, |terms, sum| {
        let mut total = vec![0.0; sum.len() / 4];
        for (number, term) in terms.iter().enumerate() {
            for (total, x) in total.iter_mut().zip(floats(term)) {
                *total = if number == 0 { x } else { *total + x };
            }
        }
        write_floats(sum, total.into_iter());
        Ok(())
    })
}

fn describe(call: &mut CudaCall<'_>) -> Result<()> {
    let operands = call.operands();
    let (shape, size) = (operands[0].shape(), operands[0].memory().size());
    let mut said = vec![shape.element_type() as i64, shape.rank() as i64];
    said.extend(shape.dimensions().iter().map(|&size| size as i64));
    let layout = shape.layout_or_default();
    said.extend(layout.minor_to_major().iter().map(|&d| d as i64));
    said.push(size as i64);
    give(call, 0, &said)
}
