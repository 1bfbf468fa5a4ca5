//! Fourier transforms of rows of F32 and F64.

use callbox_abi::Transform;
use callbox_maths::fft::Rows;
use callbox_maths::rows;
use wasmtime::{Caller, Linker};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::functions::{Array, FUEL_OF_ELEMENT, FUEL_OF_ROW, arrays, borrow, room};
use crate::claim::{Claim, Extent};
use crate::failure::invalid;
use crate::import::{charge, define_computation};
use crate::state::GuestState;

/// The arrays of as many elements as points that a transform takes: its roots of unity and buffers.
/// Some 5.5 are used.
const BUFFERS: usize = 6;

/// A type of elements, and what messages call its function and its arrays.
trait Element: rows::Element + FromBytes + IntoBytes + Immutable + KnownLayout {
    const NAMES: [&str; 3];
}

impl Element for f32 {
    const NAMES: [&str; 3] = ["fft-rows", "fft-rows' x", "fft-rows' y"];
}

impl Element for f64 {
    const NAMES: [&str; 3] = ["fft-rows-f64", "fft-rows-f64's x", "fft-rows-f64's y"];
}

/// Defines the functions.
///
/// # Errors
/// wasmtime's, if the linker has an import of one of the names.
pub(super) fn define(linker: &mut Linker<GuestState>, module: &str) -> wasmtime::Result<()> {
    define_computation(linker, module, f32::NAMES[0], fft_rows::<f32>)?;
    define_computation(linker, module, f64::NAMES[0], fft_rows::<f64>)
}

fn fft_rows<T: Element>(
    caller: &mut Caller<'_, GuestState>,
    [transform, x, x_length, points, y, y_length]: [Claim<u32>; 6],
) -> wasmtime::Result<()> {
    let [function, x_name, y_name] = T::NAMES;
    let transform = transform.check(Transform::from_number).map_err(|number| {
        invalid(format!(
            "{function}: expected a transform to 3, found {number}"
        ))
    })?;
    let points = points.to_check();
    let transforms = Rows::new(transform, points)
        .map_err(|too_long| invalid(format!("{function}: {too_long}")))?;
    let x = Array::new(x_name, x, x_length);
    let y = Array::new(y_name, y, y_length);
    let columns = transforms.columns_of_x();
    let rows = x.rows(columns).ok_or_else(|| {
        let count = x.count;
        invalid(format!(
            "{function}: expected whole rows of {columns} elements, found {count} elements"
        ))
    })?;
    let expected = rows * transforms.columns_of_y();
    if y.count != expected {
        let count = y.count;
        return Err(invalid(format!(
            "expected {y_name} of {expected} elements, found {count}"
        ))
        .into());
    }
    // The roots of unity cost as much as a row.
    let size = size_in_work(points as u64);
    let fuel_of_row = FUEL_OF_ROW + FUEL_OF_ELEMENT * size * u64::from(size.max(1).ilog2() + 1);
    charge(caller, (rows as u64 + 1) * fuel_of_row)?;
    let bytes = size * (BUFFERS * size_of::<T>()) as u64;
    let _room = room(caller, bytes, function)?;
    let (mut memory, mut pause) = borrow(caller, function)?;
    let (x_range, y_range) = (x.range::<T>(&memory)?, y.range::<T>(&memory)?);
    let arrays = arrays::<T, 1>(&mut memory, (y.what, y_range), [(x.what, x_range)])?;
    if rows == 0 {
        return Ok(());
    }
    transforms.transform(arrays.operands[0], arrays.result, &mut pause)?;
    Ok(())
}

/// The points that a transform of this length costs as much as: one with other prime factors than
/// 2, 3 and 5 becomes two of a power of two.
fn size_in_work(points: u64) -> u64 {
    let mut rest = points.max(1);
    for factor in [2, 3, 5] {
        while rest.is_multiple_of(factor) {
            rest /= factor;
        }
    }
    if rest == 1 {
        points
    } else {
        2 * (2 * points).next_power_of_two()
    }
}
