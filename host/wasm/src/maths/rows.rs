//! The functions of rows, for F32 and F64.

use callbox_abi::Reduction;
use wasmtime::{Caller, Linker};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::functions::{Array, FUEL_OF_ELEMENT, FUEL_OF_ROW, arrays, borrow};
use crate::claim::{Claim, Extent};
use crate::failure::invalid;
use crate::import::{charge, define_computation};
use crate::state::GuestState;

/// A type of elements, and what messages call its functions and their arrays.
trait Element: callbox_maths::rows::Element + FromBytes + IntoBytes + Immutable + KnownLayout {
    const SOFTMAX: [&str; 3];
    const REDUCE: [&str; 3];
    const DOT: [&str; 4];
}

impl Element for f32 {
    const SOFTMAX: [&str; 3] = ["softmax-rows", "softmax-rows' x", "softmax-rows' y"];
    const REDUCE: [&str; 3] = ["reduce-rows", "reduce-rows' x", "reduce-rows' y"];
    const DOT: [&str; 4] = ["dot-rows", "dot-rows' a", "dot-rows' b", "dot-rows' y"];
}

impl Element for f64 {
    const SOFTMAX: [&str; 3] = [
        "softmax-rows-f64",
        "softmax-rows-f64's x",
        "softmax-rows-f64's y",
    ];
    const REDUCE: [&str; 3] = [
        "reduce-rows-f64",
        "reduce-rows-f64's x",
        "reduce-rows-f64's y",
    ];
    const DOT: [&str; 4] = [
        "dot-rows-f64",
        "dot-rows-f64's a",
        "dot-rows-f64's b",
        "dot-rows-f64's y",
    ];
}

/// Defines the functions.
///
/// # Errors
/// wasmtime's, if the linker has an import of one of the names.
pub(super) fn define(linker: &mut Linker<GuestState>, module: &str) -> wasmtime::Result<()> {
    define_for::<f32>(linker, module)?;
    define_for::<f64>(linker, module)
}

fn define_for<T: Element>(linker: &mut Linker<GuestState>, module: &str) -> wasmtime::Result<()> {
    let ([softmax, ..], [reduce, ..], [dot, ..]) = (T::SOFTMAX, T::REDUCE, T::DOT);
    define_computation(linker, module, softmax, softmax_rows::<T>)?;
    define_computation(linker, module, reduce, reduce_rows::<T>)?;
    define_computation(linker, module, dot, dot_rows::<T>)
}

fn softmax_rows<T: Element>(
    caller: &mut Caller<'_, GuestState>,
    [x, x_length, columns, y, y_length]: [Claim<u32>; 5],
) -> wasmtime::Result<()> {
    let [function, x_name, y_name] = T::SOFTMAX;
    let x = Array::new(x_name, x, x_length);
    let y = Array::new(y_name, y, y_length);
    y.check_as_long_as(&x)?;
    let columns = columns.to_check();
    let rows = x.rows(columns).ok_or_else(|| {
        let count = x.count;
        invalid(format!(
            "{function}: expected whole rows of {columns} elements, found {count} elements"
        ))
    })?;
    let fuel = 2 * FUEL_OF_ELEMENT * y.count as u64 + FUEL_OF_ROW * rows as u64;
    charge(caller, fuel)?;
    let (mut memory, mut pause) = borrow(caller, function)?;
    let (x_range, y_range) = (x.range::<T>(&memory)?, y.range::<T>(&memory)?);
    if x_range == y_range {
        let arrays = arrays::<T, 0>(&mut memory, (y.what, y_range), [])?;
        callbox_maths::softmax_rows(None, columns, arrays.result, &mut pause)?;
    } else {
        let arrays = arrays::<T, 1>(&mut memory, (y.what, y_range), [(x.what, x_range)])?;
        let x = Some(arrays.operands[0]);
        callbox_maths::softmax_rows(x, columns, arrays.result, &mut pause)?;
    }
    Ok(())
}

fn reduce_rows<T: Element>(
    caller: &mut Caller<'_, GuestState>,
    [reduction, x, x_length, y, y_length]: [Claim<u32>; 5],
) -> wasmtime::Result<()> {
    let [function, x_name, y_name] = T::REDUCE;
    let reduction = reduction.check(Reduction::from_number).map_err(|number| {
        invalid(format!(
            "{function}: expected a function to 2, found {number}"
        ))
    })?;
    let x = Array::new(x_name, x, x_length);
    let y = Array::new(y_name, y, y_length);
    let columns = x.columns(y.count)?;
    charge(caller, x.count as u64 + FUEL_OF_ROW * y.count as u64)?;
    let (mut memory, mut pause) = borrow(caller, function)?;
    let (x_range, y_range) = (x.range::<T>(&memory)?, y.range::<T>(&memory)?);
    let arrays = arrays::<T, 1>(&mut memory, (y.what, y_range), [(x.what, x_range)])?;
    let [x] = arrays.operands;
    callbox_maths::reduce_rows(reduction, x, columns, arrays.result, &mut pause)?;
    Ok(())
}

fn dot_rows<T: Element>(
    caller: &mut Caller<'_, GuestState>,
    [a, a_length, b, b_length, y, y_length]: [Claim<u32>; 6],
) -> wasmtime::Result<()> {
    let [function, a_name, b_name, y_name] = T::DOT;
    let a = Array::new(a_name, a, a_length);
    let b = Array::new(b_name, b, b_length);
    let y = Array::new(y_name, y, y_length);
    b.check_as_long_as(&a)?;
    let columns = a.columns(y.count)?;
    charge(caller, a.count as u64 + FUEL_OF_ROW * y.count as u64)?;
    let (mut memory, mut pause) = borrow(caller, function)?;
    let (a_range, b_range) = (a.range::<T>(&memory)?, b.range::<T>(&memory)?);
    let y_range = y.range::<T>(&memory)?;
    let operands = [(a.what, a_range), (b.what, b_range)];
    let arrays = arrays::<T, 2>(&mut memory, (y.what, y_range), operands)?;
    let [a, b] = arrays.operands;
    callbox_maths::dot_rows(a, b, columns, arrays.result, &mut pause)?;
    Ok(())
}
