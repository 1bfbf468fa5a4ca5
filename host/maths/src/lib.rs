//! Mathematics on arrays that a callbox host lends to its WebAssembly guests.
//!
//! The functions are safe, run on the calling thread, and use the widest vectors that the processor
//! has. They know nothing of WebAssembly: `callbox-wasm` checks a guest's ranges and calls them on
//! slices of its memory.
//!
//! # Example
//!
//! ```
//! use std::convert::Infallible;
//!
//! // Called between two pieces of a long computation: an error stops it.
//! let mut pause = || Ok::<(), Infallible>(());
//! let x = [1.0_f32, 2.0, 3.0, 0.0, 0.0, 0.0];
//! let mut y = [0.0; 6];
//! callbox_maths::softmax_rows(Some(&x), 3, &mut y, &mut pause)?;
//! assert!((y[0] + y[1] + y[2] - 1.0).abs() < 1e-6);
//! assert_eq!(y[3], y[4]);
//! # Ok::<(), Infallible>(())
//! ```
//!
//! # Decisions
//!
//! - Elementwise functions, conversions and functions of rows give the same bits on every machine.
//!   Each is one piece of code without fused multiplication, in a fixed order, which the compiler
//!   makes into vectors of each width (`simd`). Only [`gemm()`] has a faster form whose bits depend
//!   on the processor ([`Arithmetic`]). Elementwise functions of F64 are those of the crate `libm`.
//! - A NaN in a result is the canonical one (`0x7fc00000` in F32), except in
//!   [`Arithmetic::Fastest`].
//! - A long call is cut into pieces of well below a millisecond. Between two pieces it calls the
//!   closure `pause`, which can stop it by an error. The results are then partly written.
//! - Accuracy is given in units in the last place (ULP) of the exact result, and tested against
//!   functions in F64, or in twice its digits.
//!
//! # Features
//!
//! None.
//!
//! # Where to go next
//!
//! - The feature `maths` of `callbox-wasm` lends these functions to guests.
//! - `callbox_guest::maths` calls them in a kernel, and `wit/maths/callbox-maths.wit` specifies
//!   them.

pub mod convert;
pub mod elementwise;
pub mod fft;
pub mod folds;
pub mod gemm;
pub mod nearest;
pub mod norm;
pub mod rows;
mod simd;
pub mod sort;

pub use callbox_abi::{Convertible, Elementwise, Order, Reduction, Transform};

pub use elementwise::{map, map_in_place};
pub use gemm::{Arithmetic, Gemm, gemm, gemm_of};
pub use norm::{rms_norm_rows, rms_norm_rows_gradient};
pub use rows::{dot_rows, reduce_rows, softmax_rows};
pub use sort::argsort_rows;

/// The most elements of a piece of elementwise work.
pub(crate) const PIECE: usize = 4096;

/// The canonical NaN for any NaN, and any other number as it is.
#[inline(always)]
pub(crate) fn canonical(x: f32) -> f32 {
    f32::from_bits(if x.is_nan() { 0x7fc0_0000 } else { x.to_bits() })
}
