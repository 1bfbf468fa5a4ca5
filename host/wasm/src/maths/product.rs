//! Products of matrices: the function `gemm`.

use std::ops::Range;

use callbox_maths::gemm::{Arithmetic, Bf16, F16, Format, Gemm, Operand, Strides, Target};
use wasmtime::Caller;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use callbox_core::values::{Result, Status};

use super::functions::{BYTES_OF_WORK, borrow, elements, elements_mut, overlap, room};
use crate::claim::{Claim, Extent};
use crate::failure::invalid;
use crate::frame::abi::{Number, matrices, product};
use crate::import::{charge, memory};
use crate::interrupt::Interrupted;
use crate::memory::GuestMemory;
use crate::state::GuestState;

/// The name of the record in messages.
const RECORD: &str = "gemm's record";

/// The record `matrices`.
struct Matrices {
    what: &'static str,
    offset: Claim<u32>,
    bytes: usize,
    strides: Strides,
    /// The batch, the rows and the columns.
    sizes: [usize; 3],
}

/// The record `product`, whose numbers are read once.
struct Product {
    a: Matrices,
    b: Matrices,
    c: Matrices,
    sizes: Gemm,
    number: Number,
    alpha: f64,
    beta: f64,
}

/// A type of the elements of a result.
trait Rounded: FromBytes + IntoBytes + KnownLayout {
    /// Rounds a factor to this type.
    fn rounded(factor: f64) -> Self;
}

macro_rules! rounded {
    ($($type:ty),*) => {$(
        impl Rounded for $type {
            fn rounded(factor: f64) -> Self {
                factor as Self
            }
        }
    )*};
}

rounded!(f32, f64, i32);

/// Serves `gemm`.
pub(super) fn gemm(
    caller: &mut Caller<'_, GuestState>,
    [record]: [Claim<u32>; 1],
) -> wasmtime::Result<()> {
    let arithmetic = if caller.data().shared.policy.deterministic {
        Arithmetic::Portable
    } else {
        Arithmetic::Fastest
    };
    let product = read(&memory(caller, RECORD)?, record, arithmetic)?;
    charge(caller, product.fuel())?;
    let _room = room(caller, BYTES_OF_WORK, "gemm")?;
    let (mut memory, mut pause) = borrow(caller, "gemm")?;
    match product.number {
        Number::F32 => multiply::<f32>(&product, &mut memory, &mut pause),
        Number::F64 => multiply::<f64>(&product, &mut memory, &mut pause),
        Number::F16 => multiply::<F16>(&product, &mut memory, &mut pause),
        Number::Bf16 => multiply::<Bf16>(&product, &mut memory, &mut pause),
        Number::S8 => multiply::<i8>(&product, &mut memory, &mut pause),
    }
}

/// The type of the elements of a product's matrices.
fn number(memory: &GuestMemory<'_>, record: Claim<u32>) -> Result<Number> {
    let number = memory.read(RECORD, record.plus(product::NUMBER), 1)?[0];
    Number::from_number(number).ok_or_else(|| {
        invalid(format!(
            "gemm: expected the number of an element type to 4, found {number}"
        ))
    })
}

fn read(memory: &GuestMemory<'_>, record: Claim<u32>, arithmetic: Arithmetic) -> Result<Product> {
    if !record.to_check().is_multiple_of(product::ALIGNMENT) {
        return Err(invalid(format!(
            "expected {RECORD} at a multiple of {} bytes, found it at {record}",
            product::ALIGNMENT
        )));
    }
    memory.check(RECORD, record, product::SIZE)?;
    let word = |field| memory.read_u32(RECORD, record.plus(field));
    let size = |field| word(field).map(Extent::to_check);
    let factor = |field| -> Result<f64> {
        let (low, high) = (word(field)?.opaque(), word(field + 4)?.opaque());
        Ok(f64::from_bits(u64::from(high) << 32 | u64::from(low)))
    };
    let number = number(memory, record)?;
    let (batch, rows) = (size(product::BATCH)?, size(product::ROWS)?);
    let (columns, depth) = (size(product::COLUMNS)?, size(product::DEPTH)?);
    let matrices = |what, field: usize, sizes| -> Result<Matrices> {
        Ok(Matrices {
            what,
            offset: word(field + matrices::DATA)?,
            bytes: size(field + matrices::DATA + 4)?,
            strides: Strides {
                batch: size(field + matrices::BATCH_STRIDE)?,
                row: size(field + matrices::ROW_STRIDE)?,
                column: size(field + matrices::COLUMN_STRIDE)?,
            },
            sizes,
        })
    };
    Ok(Product {
        a: matrices("gemm's a", product::A, [batch, rows, depth])?,
        b: matrices("gemm's b", product::B, [batch, depth, columns])?,
        c: matrices("gemm's c", product::C, [batch, rows, columns])?,
        sizes: Gemm {
            batch,
            rows,
            columns,
            depth,
            arithmetic,
        },
        number,
        alpha: factor(product::ALPHA)?,
        beta: factor(product::BETA)?,
    })
}

impl Product {
    /// A unit for each multiplication, and one for each element of the result.
    fn fuel(&self) -> u64 {
        let Gemm {
            batch,
            rows,
            columns,
            depth,
            ..
        } = self.sizes;
        [rows, columns, depth.saturating_add(1)]
            .into_iter()
            .fold(batch as u64, |fuel, size| fuel.saturating_mul(size as u64))
    }
}

impl Matrices {
    fn range<T>(&self, memory: &GuestMemory<'_>) -> Result<(&'static str, Range<usize>)> {
        if !self.bytes.is_multiple_of(size_of::<T>()) {
            return Err(invalid(format!(
                "expected {} to have whole elements of {} bytes, found {} bytes",
                self.what,
                size_of::<T>(),
                self.bytes
            )));
        }
        let range = memory.array(self.what, self.offset, self.bytes, size_of::<T>())?;
        Ok((self.what, range))
    }

    fn misfit(&self, misfit: &callbox_maths::gemm::Misfit) -> Status {
        invalid(format!("{}: {misfit}", self.what))
    }
}

fn multiply<F: Format<Stored: FromBytes + Immutable + KnownLayout, Sum: Rounded>>(
    product: &Product,
    memory: &mut GuestMemory<'_>,
    pause: &mut dyn FnMut() -> Result<(), Interrupted>,
) -> wasmtime::Result<()> {
    let Product { a, b, c, .. } = product;
    let operands = [a.range::<F::Stored>(memory)?, b.range::<F::Stored>(memory)?];
    let (what, result) = c.range::<F::Sum>(memory)?;
    let ([result], [a_bytes, b_bytes]) = memory
        .results_and_operands([result], operands)
        .ok_or_else(|| overlap(what))?;
    let result = elements_mut(result)?;
    let operand = |of: &Matrices, bytes| -> Result<_> {
        let made = Operand::new(elements(bytes)?, of.strides, of.sizes);
        made.map_err(|misfit| of.misfit(&misfit))
    };
    callbox_maths::gemm_of::<F, _>(
        product.sizes,
        F::Sum::rounded(product.alpha),
        operand(a, a_bytes)?,
        operand(b, b_bytes)?,
        F::Sum::rounded(product.beta),
        Target::new(result, c.strides, c.sizes).map_err(|misfit| c.misfit(&misfit))?,
        pause,
    )?;
    Ok(())
}
