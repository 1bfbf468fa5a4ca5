//! Conversions among the types of elements.

use callbox_abi::Convertible;
use callbox_maths::convert::{self, Source, Target};
use wasmtime::Caller;

use callbox_core::values::Result;

use super::functions::{Array, FUEL_OF_ELEMENT, borrow, elements, elements_mut, overlap};
use crate::claim::Claim;
use crate::failure::invalid;
use crate::import::charge;
use crate::state::GuestState;

/// The type with this number.
fn known(what: &str, number: Claim<u32>) -> Result<Convertible> {
    number
        .check(Convertible::from_number)
        .map_err(|number| invalid(format!("expected {what} of a type to 3, found {number}")))
}

/// The size of an element.
const fn size(ty: Convertible) -> usize {
    match ty {
        Convertible::F32 => 4,
        Convertible::F16 | Convertible::Bf16 => 2,
        Convertible::S8 => 1,
    }
}

pub(super) fn convert(
    caller: &mut Caller<'_, GuestState>,
    [source, x, x_length, target, y, y_length]: [Claim<u32>; 6],
) -> wasmtime::Result<()> {
    let (x_type, y_type) = (known("convert's x", source)?, known("convert's y", target)?);
    let x = Array::new("convert's x", x, x_length).of_bytes(size(x_type))?;
    let y = Array::new("convert's y", y, y_length).of_bytes(size(y_type))?;
    y.check_as_long_as(&x)?;
    charge(caller, FUEL_OF_ELEMENT * y.count as u64)?;
    let (mut memory, mut pause) = borrow(caller, "convert")?;
    let x_range = x.range_of(size(x_type), &memory)?;
    let y_range = y.range_of(size(y_type), &memory)?;
    let ([y_bytes], [x_bytes]) = memory
        .results_and_operands([y_range], [(x.what, x_range)])
        .ok_or_else(|| overlap(y.what))?;
    let source = match x_type {
        Convertible::F32 => Source::F32(elements(x_bytes)?),
        Convertible::F16 => Source::F16(elements(x_bytes)?),
        Convertible::Bf16 => Source::Bf16(elements(x_bytes)?),
        Convertible::S8 => Source::S8(elements(x_bytes)?),
    };
    let target = match y_type {
        Convertible::F32 => Target::F32(elements_mut(y_bytes)?),
        Convertible::F16 => Target::F16(elements_mut(y_bytes)?),
        Convertible::Bf16 => Target::Bf16(elements_mut(y_bytes)?),
        Convertible::S8 => Target::S8(elements_mut(y_bytes)?),
    };
    convert::convert(source, target, &mut pause)?;
    Ok(())
}
