//! Elements of operands and results by position: `x[3]`, `x[2..]` and `x[[i, j]]`.

use core::ops::{
    Index, IndexMut, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive,
};

use crate::operand::ANY_RANK;
use crate::shape::{Dimensions, Shape};
use crate::{Element, InPlace, Operand, ResultBuffer};

/// What stands in brackets after an [`Operand`], a [`ResultBuffer`] or an [`InPlace`]:
///
/// | position | gives |
/// | --- | --- |
/// | `x[3]`, `x[2..]` | the elements at these places of memory, as of a slice |
/// | `x[[i, j]]` | the element at this index of a matrix; `x[[i]]` and `x[[i, j, k]]` likewise |
///
/// An index is checked for each dimension, and follows the layout. In the hot loop of a large array
/// a row at a time is faster: `x.chunks_exact(columns)`.
///
/// ```
/// use callbox_guest::{Operand, ResultBuffer, target};
///
/// #[target(pure)]
/// fn transposed(
///     #[dimensions(m, n)] x: &Operand<f32>,
///     #[dimensions(n, m)] y: &mut ResultBuffer<f32>,
/// ) {
///     let [m, n] = x.dims();
///     for i in 0..m {
///         for j in 0..n {
///             y[[j, i]] = x[[i, j]];
///         }
///     }
/// }
/// # let mut call = callbox_guest::native::Call::new();
/// # call.operand(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]).result::<f32>(&[3, 2]);
/// # assert_eq!(call.run::<transposed>(), Ok(()));
/// # assert_eq!(call.result_elements::<f32>(0), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
/// ```
///
/// The number of indices must be the rank of the type, if that has one:
///
/// ```compile_fail,E0080
/// # use callbox_guest::Operand;
/// fn corner(x: &Operand<f32, 3>) -> f32 {
///     x[[0, 0]]
/// }
/// # corner(&Operand::new(&[], &[0, 0, 0]).unwrap());
/// ```
///
/// # Panics
/// An index that is out of bounds, and an array of another rank, fail the call with ABORTED.
pub trait Position<T>: sealed::Sealed {
    /// An element, or a slice of them.
    type Output: ?Sized;

    #[doc(hidden)]
    fn of<'a, const RANK: usize>(self, elements: &'a [T], shape: Shape<'_>) -> &'a Self::Output;

    #[doc(hidden)]
    fn of_mut<'a, const RANK: usize>(
        self,
        elements: &'a mut [T],
        shape: Shape<'_>,
    ) -> &'a mut Self::Output;
}

mod sealed {
    pub trait Sealed {}
}

impl<const N: usize> sealed::Sealed for [usize; N] {}

impl<T, const N: usize> Position<T> for [usize; N] {
    type Output = T;

    #[inline(always)]
    #[track_caller]
    fn of<'a, const RANK: usize>(self, elements: &'a [T], shape: Shape<'_>) -> &'a T {
        const { expect_rank(RANK, N) };
        &elements[offset(self, shape)]
    }

    #[inline(always)]
    #[track_caller]
    fn of_mut<'a, const RANK: usize>(self, elements: &'a mut [T], shape: Shape<'_>) -> &'a mut T {
        const { expect_rank(RANK, N) };
        &mut elements[offset(self, shape)]
    }
}

macro_rules! positions_of_slices {
    ($($position:ty => $output:ty),*) => {$(
        impl sealed::Sealed for $position {}

        impl<T> Position<T> for $position {
            type Output = $output;

            #[inline(always)]
            #[track_caller]
            fn of<'a, const RANK: usize>(self, elements: &'a [T], _: Shape<'_>) -> &'a $output {
                &elements[self]
            }

            #[inline(always)]
            #[track_caller]
            fn of_mut<'a, const RANK: usize>(
                self,
                elements: &'a mut [T],
                _: Shape<'_>,
            ) -> &'a mut $output {
                &mut elements[self]
            }
        }
    )*};
}

positions_of_slices!(
    usize => T,
    Range<usize> => [T],
    RangeFrom<usize> => [T],
    RangeFull => [T],
    RangeInclusive<usize> => [T],
    RangeTo<usize> => [T],
    RangeToInclusive<usize> => [T]
);

macro_rules! indexed {
    ($($buffer:ident),*) => {$(
        impl<T: Element, P: Position<T>, const RANK: usize> Index<P> for $buffer<'_, T, RANK> {
            type Output = P::Output;

            #[inline(always)]
            #[track_caller]
            fn index(&self, position: P) -> &P::Output {
                let shape = self.shape();
                position.of::<RANK>(self, shape)
            }
        }
    )*};
}

macro_rules! indexed_mut {
    ($($buffer:ident),*) => {$(
        impl<T: Element, P: Position<T>, const RANK: usize> IndexMut<P> for $buffer<'_, T, RANK> {
            #[inline(always)]
            #[track_caller]
            fn index_mut(&mut self, position: P) -> &mut P::Output {
                let shape = self.shape();
                position.of_mut::<RANK>(self, shape)
            }
        }
    )*};
}

indexed!(Operand, ResultBuffer, InPlace);
indexed_mut!(ResultBuffer, InPlace);

/// Checks the length of an index or of a list of dimensions against the rank of a buffer's type.
pub(crate) const fn expect_rank(rank: usize, length: usize) {
    assert!(
        rank == ANY_RANK || rank == length,
        "the number of indices or dimensions must be the rank of the type"
    );
}

/// Returns the place in memory of the element at this index.
#[inline(always)]
#[track_caller]
fn offset<const N: usize>(index: [usize; N], shape: Shape<'_>) -> usize {
    let (Ok(dimensions), Ok(order)) = (
        <&[i64; N]>::try_from(shape.dimensions()),
        <&[i64; N]>::try_from(shape.minor_to_major()),
    ) else {
        shape.wrong_rank(N);
    };
    let mut is_inside = true;
    let mut is_row_major = true;
    let mut offset = 0_usize;
    let sizes = dimensions.iter().zip(order);
    for (i, (&at, (&size, &dimension))) in index.iter().zip(sizes).enumerate() {
        is_inside &= (at as u64) < size as u64;
        // The last number follows from the others.
        is_row_major &= i + 1 == N || dimension == (N - 1 - i) as i64;
        offset = offset.wrapping_mul(size as usize).wrapping_add(at);
    }
    if !is_inside {
        // A copy: the index itself stays in registers.
        out_of_bounds(&{ index }, shape);
    }
    if is_row_major {
        offset
    } else {
        offset_in_layout(&{ index }, shape)
    }
}

/// Returns the place of the element at this index, which is inside, in an array of any layout.
#[cold]
fn offset_in_layout(index: &[usize], shape: Shape<'_>) -> usize {
    let (mut offset, mut stride) = (0_usize, 1_usize);
    for &dimension in shape.minor_to_major() {
        let dimension = dimension as usize;
        offset = offset.wrapping_add(index[dimension].wrapping_mul(stride));
        stride = stride.wrapping_mul(shape.dimensions()[dimension] as usize);
    }
    offset
}

#[cold]
#[track_caller]
#[allow(
    clippy::panic,
    reason = "an index out of bounds is the kernel's bug, as in a slice"
)]
fn out_of_bounds(index: &[usize], shape: Shape<'_>) -> ! {
    panic!(
        "expected an index inside of the dimensions {}, found {index:?}",
        Dimensions(shape.dimensions())
    )
}
