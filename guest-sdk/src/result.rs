//! Results, which a target writes.

use alloc::string::String;
use core::fmt;
use core::ops::{Deref, DerefMut};

use crate::abi;
use crate::decode::{Decoder, TargetParameter};
use crate::description::Role;
use crate::index;
use crate::operand::{self, ANY_RANK};
use crate::shape::{Dimensions, Shape};
use crate::text::text;
use crate::{Element, ElementType, Failure};

/// A writable slice of a result's elements of type `T`, with rank `RANK` if it is given.
///
/// The program chooses the dimensions; a target that needs certain ones checks them with
/// [`expect_dimensions`]. The elements' initial values are unspecified, and reading them is
/// allowed. The caller receives the elements only if the call succeeds.
///
/// [`expect_dimensions`]: Self::expect_dimensions
///
/// ```
/// use callbox_guest::{Failure, Operand, ResultBuffer, native::Call, target};
///
/// #[target]
/// fn total(x: &Operand<f32>, y: &mut ResultBuffer<f32, 0>) -> Result<(), Failure> {
///     y.expect_dimensions(&[])?;
///     y.set(x.iter().sum());
///     Ok(())
/// }
///
/// let mut call = Call::new();
/// call.operand(&[1.0_f32, 2.0], &[2]).result::<f32>(&[]);
/// assert_eq!(call.run::<total>(), Ok(()));
/// assert_eq!(call.result_elements::<f32>(0), [3.0]);
/// ```
pub struct ResultBuffer<'a, T: Element, const RANK: usize = ANY_RANK> {
    elements: &'a mut [T],
    shape: Shape<'a>,
}

impl<'a, T: Element, const RANK: usize> ResultBuffer<'a, T, RANK> {
    /// Returns a result in row-major order, for a test that calls a target's function.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the dimensions do not have this rank, or their product is not the number
    /// of elements.
    ///
    /// ```
    /// use callbox_guest::ResultBuffer;
    ///
    /// let mut elements = [0.0; 2];
    /// let mut y = ResultBuffer::<f32, 2>::new(&mut elements, &[1, 2])?;
    /// y[[0, 1]] = 3.0;
    /// assert_eq!(elements, [0.0, 3.0]);
    /// # Ok::<(), callbox_guest::Failure>(())
    /// ```
    pub fn new(elements: &'a mut [T], dimensions: &'a [i64]) -> Result<Self, Failure> {
        let shape = operand::row_major::<RANK>(elements.len(), dimensions)?;
        Ok(Self { elements, shape })
    }

    /// Returns the dimensions and the layout.
    ///
    /// ```
    /// use callbox_guest::ResultBuffer;
    ///
    /// let mut elements = [0.0; 6];
    /// let y = ResultBuffer::<f32, 2>::new(&mut elements, &[2, 3])?;
    /// assert_eq!(y.shape().rank(), 2);
    /// # Ok::<(), callbox_guest::Failure>(())
    /// ```
    #[must_use]
    pub const fn shape(&self) -> Shape<'a> {
        self.shape
    }

    /// Returns the dimensions. None is negative, and their product is the number of elements.
    ///
    /// ```
    /// use callbox_guest::ResultBuffer;
    ///
    /// let mut elements = [0.0; 6];
    /// let y = ResultBuffer::<f32, 2>::new(&mut elements, &[2, 3])?;
    /// assert_eq!(y.dimensions(), [2, 3]);
    /// # Ok::<(), callbox_guest::Failure>(())
    /// ```
    #[must_use]
    pub const fn dimensions(&self) -> &'a [i64] {
        self.shape.dimensions()
    }

    /// Returns the dimensions as an array: `let [rows, columns] = x.dims();`.
    ///
    /// # Panics
    /// If the rank is not `N`. That is an error of the compiler where the type has a rank.
    ///
    /// ```
    /// use callbox_guest::ResultBuffer;
    ///
    /// let mut elements = [0.0; 6];
    /// let y = ResultBuffer::<f32, 2>::new(&mut elements, &[2, 3])?;
    /// let [rows, columns] = y.dims();
    /// assert_eq!((rows, columns), (2, 3));
    /// # Ok::<(), callbox_guest::Failure>(())
    /// ```
    #[must_use]
    #[inline]
    #[track_caller]
    pub fn dims<const N: usize>(&self) -> [usize; N] {
        const { index::expect_rank(RANK, N) };
        self.shape().dims()
    }

    /// Checks that the result has the dimensions that the target computes.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the dimensions differ.
    ///
    /// ```
    /// use callbox_guest::ResultBuffer;
    ///
    /// let mut elements = [0.0; 6];
    /// let y = ResultBuffer::<f32, 2>::new(&mut elements, &[2, 3])?;
    /// y.expect_dimensions(&[2, 3])?;
    /// assert!(y.expect_dimensions(&[3, 2]).is_err());
    /// # Ok::<(), callbox_guest::Failure>(())
    /// ```
    pub fn expect_dimensions(&self, expected: &[i64]) -> Result<(), Failure> {
        if self.dimensions() == expected {
            Ok(())
        } else {
            Err(wrong_dimensions(expected, self.dimensions()))
        }
    }
}

impl<T: Element> ResultBuffer<'_, T, 0> {
    /// Sets the only element of an array of rank 0.
    ///
    /// ```
    /// use callbox_guest::ResultBuffer;
    ///
    /// let mut element = [0.0];
    /// ResultBuffer::<f32, 0>::new(&mut element, &[])?.set(3.0);
    /// assert_eq!(element, [3.0]);
    /// # Ok::<(), callbox_guest::Failure>(())
    /// ```
    pub fn set(&mut self, value: T) {
        self.elements[0] = value;
    }
}

impl<T: Element, const RANK: usize> Deref for ResultBuffer<'_, T, RANK> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.elements
    }
}

impl<T: Element, const RANK: usize> DerefMut for ResultBuffer<'_, T, RANK> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.elements
    }
}

impl<T: Element, const RANK: usize> fmt::Debug for ResultBuffer<'_, T, RANK> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?} ", T::TYPE, self.shape)?;
        self.elements.fmt(f)
    }
}

impl<'a, T: Element, const RANK: usize> TargetParameter<'a> for ResultBuffer<'a, T, RANK> {
    const ROLE: Role = Role::Result(operand::signature::<T, RANK>());

    #[inline]
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, String> {
        let (array, data) = decoder.buffers.next_result().ok_or_else(operand::missing)?;
        operand::check::<T, RANK>(&array)?;
        let elements = abi::elements_mut(data).ok_or_else(operand::misaligned::<T>)?;
        let shape = Shape::new(array.dimensions, array.minor_to_major);
        operand::check_count(elements.len(), shape)?;
        Ok(Self { elements, shape })
    }
}

/// A result of any element type and rank, of a target or of a function that the target calls
/// ([`FunctionRef`](crate::FunctionRef)).
///
/// ```
/// use callbox_guest::AnyResult;
///
/// let mut elements = [0.0_f32; 2];
/// let mut y = AnyResult::new(&mut elements, &[2])?;
/// y.as_typed::<f32>()?[1] = 1.0;
/// assert_eq!(elements, [0.0, 1.0]);
/// # Ok::<(), callbox_guest::Failure>(())
/// ```
pub struct AnyResult<'a> {
    element_type: ElementType,
    bytes: &'a mut [u8],
    shape: Shape<'a>,
}

impl<'a> AnyResult<'a> {
    /// Returns a result in row-major order.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the product of the dimensions is not the number of elements.
    ///
    /// ```
    /// use callbox_guest::AnyResult;
    ///
    /// let mut elements = [0_i32; 2];
    /// let mut y = AnyResult::new(&mut elements, &[1, 2])?;
    /// y.as_typed::<i32>()?.fill(7);
    /// assert_eq!(elements, [7, 7]);
    /// # Ok::<(), callbox_guest::Failure>(())
    /// ```
    pub fn new<T: Element>(elements: &'a mut [T], dimensions: &'a [i64]) -> Result<Self, Failure> {
        let shape = operand::row_major::<ANY_RANK>(elements.len(), dimensions)?;
        Ok(Self {
            element_type: T::TYPE,
            bytes: abi::bytes_mut(elements),
            shape,
        })
    }

    /// Returns the type of the elements.
    ///
    /// ```
    /// use callbox_guest::{AnyResult, ElementType};
    ///
    /// let mut elements = [0_i32; 2];
    /// let y = AnyResult::new(&mut elements, &[1, 2])?;
    /// assert_eq!(y.element_type(), ElementType::S32);
    /// # Ok::<(), callbox_guest::Failure>(())
    /// ```
    #[must_use]
    pub const fn element_type(&self) -> ElementType {
        self.element_type
    }

    /// Returns the dimensions and the layout.
    ///
    /// ```
    /// use callbox_guest::AnyResult;
    ///
    /// let mut elements = [0_i32; 2];
    /// let y = AnyResult::new(&mut elements, &[1, 2])?;
    /// assert!(y.shape().is_row_major());
    /// # Ok::<(), callbox_guest::Failure>(())
    /// ```
    #[must_use]
    pub const fn shape(&self) -> Shape<'a> {
        self.shape
    }

    /// Returns the dimensions. None is negative.
    ///
    /// ```
    /// use callbox_guest::AnyResult;
    ///
    /// let mut elements = [0_i32; 2];
    /// let y = AnyResult::new(&mut elements, &[1, 2])?;
    /// assert_eq!(y.dimensions(), [1, 2]);
    /// # Ok::<(), callbox_guest::Failure>(())
    /// ```
    #[must_use]
    pub const fn dimensions(&self) -> &'a [i64] {
        self.shape.dimensions()
    }

    /// Returns the dimensions as an array: `let [rows, columns] = x.dims();`.
    ///
    /// # Panics
    /// If the rank is not `N`.
    ///
    /// ```
    /// use callbox_guest::AnyResult;
    ///
    /// let mut elements = [0_i32; 2];
    /// let y = AnyResult::new(&mut elements, &[1, 2])?;
    /// let [rows, columns] = y.dims();
    /// assert_eq!((rows, columns), (1, 2));
    /// # Ok::<(), callbox_guest::Failure>(())
    /// ```
    #[must_use]
    #[inline]
    #[track_caller]
    pub fn dims<const N: usize>(&self) -> [usize; N] {
        self.shape.dims()
    }

    /// Returns the elements, little-endian. An element of a type narrower than a byte takes one
    /// byte; a token has no elements.
    ///
    /// ```
    /// use callbox_guest::AnyResult;
    ///
    /// let mut elements = [0_i32; 2];
    /// let mut y = AnyResult::new(&mut elements, &[1, 2])?;
    /// y.bytes_mut()[4] = 7;
    /// assert_eq!(elements, [0, 7]);
    /// # Ok::<(), callbox_guest::Failure>(())
    /// ```
    #[must_use]
    pub const fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes
    }

    /// Casts to a result with elements of type `T`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the elements have another type.
    ///
    /// ```
    /// use callbox_guest::AnyResult;
    ///
    /// let mut elements = [0_i32; 2];
    /// let mut y = AnyResult::new(&mut elements, &[1, 2])?;
    /// assert!(y.as_typed::<f32>().is_err());
    /// y.as_typed::<i32>()?[1] = 7;
    /// assert_eq!(elements, [0, 7]);
    /// # Ok::<(), callbox_guest::Failure>(())
    /// ```
    pub fn as_typed<T: Element>(&mut self) -> Result<ResultBuffer<'_, T>, Failure> {
        operand::typed_bytes::<T>(self.element_type).map_err(Failure::invalid_argument)?;
        let elements = abi::elements_mut(self.bytes)
            .ok_or_else(|| Failure::invalid_argument(operand::misaligned::<T>()))?;
        Ok(ResultBuffer {
            elements,
            shape: self.shape,
        })
    }
}

impl fmt::Debug for AnyResult<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.element_type, self.shape)
    }
}

impl<'b, T: Element, const RANK: usize> From<&'b mut ResultBuffer<'_, T, RANK>> for AnyResult<'b> {
    fn from(result: &'b mut ResultBuffer<'_, T, RANK>) -> Self {
        Self {
            element_type: T::TYPE,
            shape: result.shape,
            bytes: abi::bytes_mut(result.elements),
        }
    }
}

impl<'b> From<&'b mut AnyResult<'_>> for AnyResult<'b> {
    fn from(result: &'b mut AnyResult<'_>) -> Self {
        Self {
            element_type: result.element_type,
            shape: result.shape,
            bytes: result.bytes,
        }
    }
}

impl<'a> TargetParameter<'a> for AnyResult<'a> {
    const ROLE: Role = Role::Result(operand::ANY);

    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, String> {
        let (array, bytes) = decoder.buffers.next_result().ok_or_else(operand::missing)?;
        Ok(Self {
            element_type: operand::known(array.element_type)?,
            bytes,
            shape: Shape::new(array.dimensions, array.minor_to_major),
        })
    }
}

/// An operand and a result of the same type and dimensions in one slice. It holds the operand's
/// elements, which the target overwrites with the result's.
///
/// The parameter takes the target's next operand and next result. If the program lets the two share
/// memory (`output_to_operand_aliasing`), nothing is copied; otherwise the operand is copied into
/// the result before the call.
///
/// ```
/// use callbox_guest::{InPlace, target};
///
/// /// Negates every element.
/// #[target(pure)]
/// fn negate(x: &mut InPlace<f32>) {
///     x.iter_mut().for_each(|x| *x = -*x);
/// }
/// ```
pub struct InPlace<'a, T: Element, const RANK: usize = ANY_RANK>(ResultBuffer<'a, T, RANK>);

impl<'a, T: Element, const RANK: usize> InPlace<'a, T, RANK> {
    /// Returns elements in row-major order, for a test that calls a target's function.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the dimensions do not have this rank, or their product is not the number
    /// of elements.
    ///
    /// ```
    /// use callbox_guest::InPlace;
    ///
    /// let mut elements = [1.0_f32, 2.0];
    /// let mut x = InPlace::<f32>::new(&mut elements, &[2])?;
    /// x.iter_mut().for_each(|x| *x *= 2.0);
    /// assert_eq!(elements, [2.0, 4.0]);
    /// # Ok::<(), callbox_guest::Failure>(())
    /// ```
    pub fn new(elements: &'a mut [T], dimensions: &'a [i64]) -> Result<Self, Failure> {
        ResultBuffer::new(elements, dimensions).map(Self)
    }

    /// Returns the dimensions and the layout of the result.
    ///
    /// ```
    /// use callbox_guest::InPlace;
    ///
    /// let mut elements = [1.0_f32, 2.0];
    /// let x = InPlace::<f32, 2>::new(&mut elements, &[1, 2])?;
    /// assert_eq!(x.shape().rank(), 2);
    /// # Ok::<(), callbox_guest::Failure>(())
    /// ```
    #[must_use]
    pub const fn shape(&self) -> Shape<'a> {
        self.0.shape
    }

    /// Returns the dimensions. None is negative, and their product is the number of elements.
    ///
    /// ```
    /// use callbox_guest::InPlace;
    ///
    /// let mut elements = [1.0_f32, 2.0];
    /// let x = InPlace::<f32, 2>::new(&mut elements, &[1, 2])?;
    /// assert_eq!(x.dimensions(), [1, 2]);
    /// # Ok::<(), callbox_guest::Failure>(())
    /// ```
    #[must_use]
    pub const fn dimensions(&self) -> &'a [i64] {
        self.0.shape.dimensions()
    }

    /// Returns the dimensions as an array: `let [rows, columns] = x.dims();`.
    ///
    /// # Panics
    /// If the rank is not `N`. That is an error of the compiler where the type has a rank.
    ///
    /// ```
    /// use callbox_guest::InPlace;
    ///
    /// let mut elements = [1.0_f32, 2.0];
    /// let x = InPlace::<f32, 2>::new(&mut elements, &[1, 2])?;
    /// let [rows, columns] = x.dims();
    /// assert_eq!((rows, columns), (1, 2));
    /// # Ok::<(), callbox_guest::Failure>(())
    /// ```
    #[must_use]
    #[inline]
    #[track_caller]
    pub fn dims<const N: usize>(&self) -> [usize; N] {
        const { index::expect_rank(RANK, N) };
        self.shape().dims()
    }
}

impl<T: Element, const RANK: usize> Deref for InPlace<'_, T, RANK> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T: Element, const RANK: usize> DerefMut for InPlace<'_, T, RANK> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

impl<T: Element, const RANK: usize> fmt::Debug for InPlace<'_, T, RANK> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'a, T: Element, const RANK: usize> TargetParameter<'a> for InPlace<'a, T, RANK> {
    const ROLE: Role = Role::InPlace(operand::signature::<T, RANK>());

    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, String> {
        let pair = decoder
            .buffers
            .next_in_place()
            .ok_or_else(operand::missing)?;
        operand::check::<T, RANK>(&pair.operand)?;
        operand::check::<T, RANK>(&pair.result)?;
        if pair.operand.dimensions != pair.result.dimensions {
            return Err(wrong_dimensions_text(
                pair.operand.dimensions,
                pair.result.dimensions,
            ));
        }
        if let Some(source) = pair.source {
            if source.len() != pair.data.len() {
                return Err(text![
                    "Wrong buffer size: expected ",
                    source.len(),
                    " bytes but got ",
                    pair.data.len()
                ]);
            }
            pair.data.copy_from_slice(source);
        }
        let elements = abi::elements_mut(pair.data).ok_or_else(operand::misaligned::<T>)?;
        let shape = Shape::new(pair.result.dimensions, pair.result.minor_to_major);
        operand::check_count(elements.len(), shape)?;
        Ok(Self(ResultBuffer { elements, shape }))
    }
}

#[cold]
fn wrong_dimensions(expected: &[i64], found: &[i64]) -> Failure {
    Failure::invalid_argument(wrong_dimensions_text(expected, found))
}

#[cold]
fn wrong_dimensions_text(expected: &[i64], found: &[i64]) -> String {
    text![
        "Wrong result dimensions: expected ",
        Dimensions(expected),
        " but got ",
        Dimensions(found)
    ]
}
