//! The order of the elements of rows, for F32 and F64.

use callbox_abi::Order;
use callbox_maths::sort::{self, Sortable};
use wasmtime::{Caller, Linker};
use zerocopy::{FromBytes, Immutable, KnownLayout};

use callbox_core::values::Result;

use super::functions::{
    Array, BYTES_OF_WORK, FUEL_OF_ELEMENT, FUEL_OF_ROW, borrow, elements, elements_mut, overlap,
    room,
};
use crate::claim::{Claim, Extent};
use crate::failure::invalid;
use crate::import::{charge, define_computation};
use crate::state::GuestState;

/// The fuel of an element.
const FUEL_OF_SORTED: u64 = 8 * FUEL_OF_ELEMENT;

/// A type of elements, and what messages call its function and its arrays.
trait Element: Sortable + FromBytes + Immutable + KnownLayout {
    const NAMES: [&str; 3];
}

impl Element for f32 {
    const NAMES: [&str; 3] = ["argsort-rows", "argsort-rows' x", "argsort-rows' positions"];
}

impl Element for f64 {
    const NAMES: [&str; 3] = [
        "argsort-rows-f64",
        "argsort-rows-f64's x",
        "argsort-rows-f64's positions",
    ];
}

/// Defines the functions.
///
/// # Errors
/// wasmtime's, if the linker has an import of one of the names.
pub(super) fn define(linker: &mut Linker<GuestState>, module: &str) -> wasmtime::Result<()> {
    define_computation(linker, module, f32::NAMES[0], argsort_rows::<f32>)?;
    define_computation(linker, module, f64::NAMES[0], argsort_rows::<f64>)
}

fn argsort_rows<T: Element>(
    caller: &mut Caller<'_, GuestState>,
    [order, x, x_length, columns, positions, length]: [Claim<u32>; 6],
) -> wasmtime::Result<()> {
    let [function, x_name, positions_name] = T::NAMES;
    let order = order.check(Order::from_number).map_err(|number| {
        invalid(format!(
            "{function}: expected an order to 1, found {number}"
        ))
    })?;
    let x = Array::new(x_name, x, x_length);
    let found = Array::new(positions_name, positions, length);
    let columns = columns.to_check();
    let (rows, kept) = rows_and_kept(function, &x, columns, &found)?;
    let fuel = FUEL_OF_SORTED * x.count as u64 + FUEL_OF_ROW * rows as u64;
    charge(caller, fuel)?;
    let _room = room(caller, BYTES_OF_WORK, function)?;
    let (mut memory, mut pause) = borrow(caller, function)?;
    let x_range = x.range::<T>(&memory)?;
    let range = found.range::<i32>(&memory)?;
    let ([positions], [x_bytes]) = memory
        .results_and_operands([range], [(x.what, x_range)])
        .ok_or_else(|| overlap(found.what))?;
    let (x, positions) = (elements::<T>(x_bytes)?, elements_mut(positions)?);
    sort::argsort_rows(order, x, columns, positions, kept, &mut pause)?;
    Ok(())
}

/// The number of rows of `columns` elements in `x`, and of the positions that each has.
fn rows_and_kept(
    function: &str,
    x: &Array,
    columns: usize,
    positions: &Array,
) -> Result<(usize, usize)> {
    let rows = x.rows(columns).ok_or_else(|| {
        let count = x.count;
        invalid(format!(
            "{function}: expected whole rows of {columns} elements, found {count} elements"
        ))
    })?;
    let kept = positions.columns(rows)?;
    if kept > columns {
        return Err(invalid(format!(
            "expected {} of at most {columns} elements of each row, found {kept}",
            positions.what
        )));
    }
    Ok((rows, kept))
}
