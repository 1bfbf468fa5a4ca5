//! The elementwise functions, and what all functions share.

use std::ops::Range;

use callbox_abi::Elementwise;
use callbox_maths::elementwise;
use wasmtime::Caller;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use callbox_core::values::{Result, Status};

use crate::address_space::Room;
use crate::claim::{Claim, Extent};
use crate::failure::invalid;
use crate::import::{self, charge};
use crate::interrupt::Interrupted;
use crate::memory::GuestMemory;
use crate::state::GuestState;

#[cfg(target_endian = "big")]
compile_error!("the feature `maths` needs a little-endian machine: elements are computed in place");

/// The fuel of an elementwise function for each element.
pub(super) const FUEL_OF_ELEMENT: u64 = 16;

/// The fuel of a row besides its elements'.
pub(super) const FUEL_OF_ROW: u64 = 64;

/// An array in the guest's memory.
#[derive(Clone, Copy)]
pub(super) struct Array {
    pub(super) what: &'static str,
    offset: Claim<u32>,
    /// The number of elements: any 32-bit number until the range is checked.
    pub(super) count: usize,
}

impl Array {
    pub(super) fn new(what: &'static str, offset: Claim<u32>, count: Claim<u32>) -> Self {
        let count = count.to_check();
        Self {
            what,
            offset,
            count,
        }
    }

    /// The range of elements of type `T`.
    pub(super) fn range<T>(&self, memory: &GuestMemory<'_>) -> Result<Range<usize>> {
        self.range_of(size_of::<T>(), memory)
    }

    /// The range of elements of this size.
    pub(super) fn range_of(&self, size: usize, memory: &GuestMemory<'_>) -> Result<Range<usize>> {
        // A saturated size is out of bounds of every memory.
        let bytes = self.count.saturating_mul(size);
        memory.array(self.what, self.offset, bytes, size)
    }

    /// The array of elements of this size, if its count is that of its bytes.
    pub(super) fn of_bytes(self, size: usize) -> Result<Self> {
        if !self.count.is_multiple_of(size) {
            return Err(invalid(format!(
                "expected {} in elements of {size} bytes, found {} bytes",
                self.what, self.count
            )));
        }
        let count = self.count / size;
        Ok(Self { count, ..self })
    }

    /// The number of rows of `columns` elements.
    pub(super) fn rows(&self, columns: usize) -> Option<usize> {
        match columns {
            0 => (self.count == 0).then_some(0),
            _ if self.count.is_multiple_of(columns) => Some(self.count / columns),
            _ => None,
        }
    }

    /// The columns, if the array has this number of rows.
    pub(super) fn columns(&self, rows: usize) -> Result<usize> {
        self.rows(rows).ok_or_else(|| {
            invalid(format!(
                "expected {} in {rows} rows of the same length, found {} elements",
                self.what, self.count
            ))
        })
    }

    pub(super) fn check_as_long_as(&self, other: &Self) -> Result<()> {
        if self.count == other.count {
            return Ok(());
        }
        Err(invalid(format!(
            "expected {} to be as long as {}, found {} and {} elements",
            self.what, other.what, self.count, other.count
        )))
    }
}

/// The elements of a result, and of its operands.
pub(super) struct Arrays<'a, T, const N: usize> {
    pub(super) result: &'a mut [T],
    pub(super) operands: [&'a [T]; N],
}

/// Separates a result from operands whose ranges are aligned for their elements.
pub(super) fn arrays<'a, T: FromBytes + IntoBytes + Immutable + KnownLayout, const N: usize>(
    memory: &'a mut GuestMemory<'_>,
    (what, result): (&str, Range<usize>),
    operands: [(&str, Range<usize>); N],
) -> Result<Arrays<'a, T, N>> {
    let ([result], operands) = memory
        .results_and_operands([result], operands)
        .ok_or_else(|| overlap(what))?;
    let mut found = [&[][..]; N];
    for (found, bytes) in found.iter_mut().zip(operands) {
        *found = elements(bytes)?;
    }
    Ok(Arrays {
        result: elements_mut(result)?,
        operands: found,
    })
}

pub(super) fn overlap(what: &str) -> Status {
    invalid(format!(
        "expected {what} apart from all operands, found an overlap"
    ))
}

/// The elements of an operand whose range is aligned for them.
pub(super) fn elements<T: FromBytes + Immutable + KnownLayout>(bytes: &[u8]) -> Result<&[T]> {
    // An operand without elements can have any address.
    if bytes.is_empty() {
        return Ok(&[]);
    }
    <[T]>::ref_from_bytes(bytes).map_err(|_| unaligned())
}

/// The elements of a result whose range is aligned for them.
pub(super) fn elements_mut<T: FromBytes + IntoBytes + KnownLayout>(
    bytes: &mut [u8],
) -> Result<&mut [T]> {
    if bytes.is_empty() {
        return Ok(&mut []);
    }
    <[T]>::mut_from_bytes(bytes).map_err(|_| unaligned())
}

/// A memory begins at a page, so that offsets are aligned as addresses are.
fn unaligned() -> Status {
    Status::internal("a guest's memory is not aligned")
}

/// The most bytes of the host's memory that a product or a sort takes.
pub(super) const BYTES_OF_WORK: u64 = 4 << 20;

/// Claims bytes of the host's memory for what a function computes, until the room is dropped.
///
/// # Errors
/// RESOURCE_EXHAUSTED, under a limit that leaves too little.
pub(super) fn room(caller: &Caller<'_, GuestState>, bytes: u64, what: &str) -> Result<Room> {
    caller
        .data()
        .shared
        .address_space
        .claim_for_work(bytes, what)
}

/// Borrows the memory and the instance's interruption.
pub(super) fn borrow<'c>(
    caller: &'c mut Caller<'_, GuestState>,
    what: &str,
) -> Result<(
    GuestMemory<'c>,
    impl FnMut() -> Result<(), Interrupted> + 'c,
)> {
    let memory = import::linear_memory(caller, what)?;
    let (memory, state) = memory.borrow_with_state(caller);
    Ok((memory, || state.interrupt.check()))
}

/// A type of elements, and what messages call its function and its arrays.
pub(super) trait Element:
    elementwise::Element + FromBytes + IntoBytes + Immutable + KnownLayout
{
    const NAMES: [&str; 3];
}

impl Element for f32 {
    const NAMES: [&str; 3] = ["map", "map's x", "map's y"];
}

impl Element for f64 {
    const NAMES: [&str; 3] = ["map-f64", "map-f64's x", "map-f64's y"];
}

pub(super) fn map<T: Element>(
    caller: &mut Caller<'_, GuestState>,
    [function, x, x_length, y, y_length]: [Claim<u32>; 5],
) -> wasmtime::Result<()> {
    let [name, x_name, y_name] = T::NAMES;
    let function = function
        .check(Elementwise::from_number)
        .map_err(|number| invalid(format!("{name}: expected a function to 7, found {number}")))?;
    let x = Array::new(x_name, x, x_length);
    let y = Array::new(y_name, y, y_length);
    y.check_as_long_as(&x)?;
    charge(caller, FUEL_OF_ELEMENT * y.count as u64)?;
    let (mut memory, mut pause) = borrow(caller, name)?;
    let (x_range, y_range) = (x.range::<T>(&memory)?, y.range::<T>(&memory)?);
    if x_range == y_range {
        let arrays = arrays::<T, 0>(&mut memory, (y.what, y_range), [])?;
        callbox_maths::map_in_place(function, arrays.result, &mut pause)?;
    } else {
        let arrays = arrays::<T, 1>(&mut memory, (y.what, y_range), [(x.what, x_range)])?;
        callbox_maths::map(function, arrays.operands[0], arrays.result, &mut pause)?;
    }
    Ok(())
}
