//! Normalisation of rows by their root mean square, and its gradient.

use callbox_maths::norm::Forward;
use wasmtime::{Caller, Linker};

use callbox_core::values::Result;

use super::functions::{
    Array, FUEL_OF_ELEMENT, FUEL_OF_ROW, arrays, borrow, elements, elements_mut, overlap,
};
use crate::claim::WithFloat;
use crate::failure::invalid;
use crate::import::{charge, define_computation};
use crate::state::GuestState;

/// Defines the functions.
///
/// # Errors
/// wasmtime's, if the linker has an import of one of the names.
pub(super) fn define(linker: &mut Linker<GuestState>, module: &str) -> wasmtime::Result<()> {
    define_computation(linker, module, "rms-norm-rows", rms_norm_rows)?;
    define_computation(linker, module, "rms-norm-rows-gradient", gradient)
}

/// The number of rows of `x`, which are as long as `weight`.
fn rows(x: &Array, weight: &Array) -> Result<usize> {
    x.rows(weight.count).ok_or_else(|| {
        invalid(format!(
            "expected {} in rows as long as {}, found {} and {} elements",
            x.what, weight.what, x.count, weight.count
        ))
    })
}

fn fuel(x: &Array, weight: &Array) -> Result<u64> {
    let rows = rows(x, weight)? as u64;
    Ok(FUEL_OF_ELEMENT * (x.count + weight.count) as u64 + FUEL_OF_ROW * rows)
}

fn rms_norm_rows(
    caller: &mut Caller<'_, GuestState>,
    WithFloat([x, x_length, weight, weight_length, y, y_length], eps): WithFloat<6>,
) -> wasmtime::Result<()> {
    let x = Array::new("rms-norm-rows' x", x, x_length);
    let weight = Array::new("rms-norm-rows' weight", weight, weight_length);
    let y = Array::new("rms-norm-rows' y", y, y_length);
    y.check_as_long_as(&x)?;
    charge(caller, fuel(&x, &weight)?)?;
    let (mut memory, mut pause) = borrow(caller, "rms-norm-rows")?;
    let operands = [
        (x.what, x.range::<f32>(&memory)?),
        (weight.what, weight.range::<f32>(&memory)?),
    ];
    let y_range = y.range::<f32>(&memory)?;
    let arrays = arrays::<f32, 2>(&mut memory, (y.what, y_range), operands)?;
    let [x, weight] = arrays.operands;
    callbox_maths::rms_norm_rows(x, weight, eps, arrays.result, &mut pause)?;
    Ok(())
}

fn gradient(
    caller: &mut Caller<'_, GuestState>,
    WithFloat(arrays, eps): WithFloat<10>,
) -> wasmtime::Result<()> {
    let [
        x,
        x_length,
        weight,
        weight_length,
        dy,
        dy_length,
        dx,
        dx_length,
        dweight,
        dweight_length,
    ] = arrays;
    let x = Array::new("rms-norm-rows-gradient's x", x, x_length);
    let weight = Array::new("rms-norm-rows-gradient's weight", weight, weight_length);
    let dy = Array::new("rms-norm-rows-gradient's dy", dy, dy_length);
    let dx = Array::new("rms-norm-rows-gradient's dx", dx, dx_length);
    let dweight = Array::new("rms-norm-rows-gradient's dweight", dweight, dweight_length);
    dy.check_as_long_as(&x)?;
    dx.check_as_long_as(&x)?;
    dweight.check_as_long_as(&weight)?;
    charge(caller, 2 * fuel(&x, &weight)?)?;
    let (mut memory, mut pause) = borrow(caller, "rms-norm-rows-gradient")?;
    let operands = [
        (x.what, x.range::<f32>(&memory)?),
        (weight.what, weight.range::<f32>(&memory)?),
        (dy.what, dy.range::<f32>(&memory)?),
    ];
    let results = [dx.range::<f32>(&memory)?, dweight.range::<f64>(&memory)?];
    let (results, operands) = memory
        .results_and_operands(results, operands)
        .ok_or_else(|| overlap("rms-norm-rows-gradient's dx and dweight"))?;
    let ([x, weight, dy], [dx, dweight]) = (operands, results);
    let forward = Forward {
        x: elements(x)?,
        weight: elements(weight)?,
        eps,
    };
    let (dx, dweight) = (elements_mut(dx)?, elements_mut(dweight)?);
    callbox_maths::rms_norm_rows_gradient(forward, elements(dy)?, dx, dweight, &mut pause)?;
    Ok(())
}
