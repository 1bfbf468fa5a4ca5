//! The interface `maths`: its name, numbers and records, as `wit/maths/callbox-maths.wit` has them.

use core::fmt;
use core::mem::{align_of, size_of};

use crate::List;
use crate::numbers::numbered;

/// The name of the module that guests import mathematics from, up to the version number.
pub const MATHS_MODULE: &str = "callbox:ffi/maths@";

/// The version of the interface `maths`.
pub const MATHS_VERSION: &str = "1.0.0";

numbered! {
    /// A function of one number. Special values are those of C's functions. The errors are in units
    /// in the last place (ULP), the largest that the tests of `callbox-maths` allow.
    pub enum Elementwise from u32, named by name {
        /// `e^x`, within 1.1 ULP.
        Exp = 0, "exp";
        /// The natural logarithm, within 0.9 ULP. NaN for negative numbers.
        Log = 1, "log";
        /// The hyperbolic tangent, within 1.6 ULP.
        Tanh = 2, "tanh";
        /// The error function, within 1.2 ULP.
        Erf = 3, "erf";
        /// `1 / (1 + e^-x)`, within 2.6 ULP.
        Sigmoid = 4, "sigmoid";
        /// `1 / sqrt(x)`, within 1.5 ULP. NaN for negative numbers.
        Rsqrt = 5, "rsqrt";
        /// The sine of an angle in radians of any size, within 0.6 ULP.
        Sin = 6, "sin";
        /// The cosine of an angle in radians of any size, within 0.6 ULP.
        Cos = 7, "cos";
    }
}

numbered! {
    /// A function of a row.
    pub enum Reduction from u32, named by name {
        /// The sum; 0 for a row without elements.
        Sum = 0, "sum";
        /// The greatest element, or NaN if an element is NaN; minus infinity for a row without
        /// elements.
        Max = 1, "max";
        /// The square root of the mean of the squares; NaN for a row without elements.
        RootMeanSquare = 2, "root-mean-square";
    }
}

numbered! {
    /// The type of the elements of matrices that are multiplied.
    pub enum Number from u8, named by name {
        /// F32.
        F32 = 0, "f32";
        /// F64.
        F64 = 1, "f64";
        /// F16, with a result of F32.
        F16 = 2, "f16";
        /// BF16, with a result of F32.
        Bf16 = 3, "bf16";
        /// S8, with a result of S32.
        S8 = 4, "s8";
    }
}

numbered! {
    /// The type of the elements of a conversion.
    pub enum Convertible from u32, named by name {
        /// F32.
        F32 = 0, "f32";
        /// F16.
        F16 = 1, "f16";
        /// BF16.
        Bf16 = 2, "bf16";
        /// S8.
        S8 = 3, "s8";
    }
}

numbered! {
    /// A discrete Fourier transform.
    pub enum Transform from u32, named by name {
        /// From complex numbers to complex numbers.
        Forward = 0, "forward";
        /// The inverse of `forward`.
        Inverse = 1, "inverse";
        /// From real numbers to the first half of the complex ones.
        RealForward = 2, "real-forward";
        /// The inverse of `real-forward`.
        RealInverse = 3, "real-inverse";
    }
}

numbered! {
    /// An order of elements.
    pub enum Order from u32, named by name {
        /// The least element first.
        Ascending = 0, "ascending";
        /// The greatest element first.
        Descending = 1, "descending";
    }
}

/// The record `matrices`: a batch of matrices.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Matrices {
    /// The elements' bytes.
    pub data: List,
    /// The elements from a matrix to the next.
    pub batch_stride: u32,
    /// The elements from a row to the next.
    pub row_stride: u32,
    /// The elements from a column to the next.
    pub column_stride: u32,
}

/// The record `product`: a batch of products of matrices.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Product {
    /// The left operand.
    pub a: Matrices,
    /// The right operand.
    pub b: Matrices,
    /// The result.
    pub c: Matrices,
    /// The number of products.
    pub batch: u32,
    /// The rows of `a` and `c`.
    pub rows: u32,
    /// The columns of `b` and `c`.
    pub columns: u32,
    /// The columns of `a` and the rows of `b`.
    pub depth: u32,
    /// The number of a [`Number`].
    pub number: u8,
    /// Unused.
    pub padding: [u8; 3],
    /// The product is multiplied by this number.
    pub alpha: f64,
    /// The result's previous elements are multiplied by this number, and added.
    pub beta: f64,
}

const _: () = {
    assert!(size_of::<Matrices>() == 20 && align_of::<Matrices>() == 4);
    assert!(size_of::<Product>() == 96 && align_of::<Product>() == 8);
};
