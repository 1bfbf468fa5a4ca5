//! Operands, which a target reads.

use alloc::string::String;
use core::fmt;
use core::ops::Deref;

use crate::abi::{self, Array};
use crate::decode::{Decoder, TargetParameter};
use crate::description::{Role, Signature};
use crate::index;
use crate::shape::{Dimensions, Shape};
use crate::text::text;
use crate::{Element, ElementType, Failure};

/// The rank of an [`Operand`], [`ResultBuffer`](crate::ResultBuffer) or [`InPlace`](crate::InPlace)
/// that accepts any rank.
///
/// ```
/// use callbox_guest::{ANY_RANK, Operand};
///
/// let x: Operand<f32, ANY_RANK> = Operand::new(&[1.0, 2.0], &[1, 2])?;
/// assert_eq!(x.dimensions(), [1, 2]);
/// # Ok::<(), callbox_guest::Failure>(())
/// ```
pub const ANY_RANK: usize = usize::MAX;

/// A slice of an operand's elements of type `T`, with rank `RANK` if it is given.
///
/// A target with a parameter `x: &Operand<f32, 1>` is called only with an F32 operand of rank 1
/// there. The elements are in the order of the operand's layout, which is row-major unless the
/// program sets another.
///
/// The elements never change during a call: an operand whose memory a result shares
/// (`output_to_operand_aliasing`) is copied first. [`InPlace`](crate::InPlace) saves the copy.
///
/// ```
/// use callbox_guest::Operand;
///
/// let x = Operand::<f32, 2>::new(&[1.0, 2.0, 3.0, 4.0], &[2, 2])?;
/// let [rows, columns] = x.dims();
/// assert_eq!((rows, columns), (2, 2));
/// assert_eq!(x[[1, 0]], 3.0);
/// assert_eq!(x.iter().sum::<f32>(), 10.0);
/// # Ok::<(), callbox_guest::Failure>(())
/// ```
pub struct Operand<'a, T: Element, const RANK: usize = ANY_RANK> {
    elements: &'a [T],
    shape: Shape<'a>,
}

impl<'a, T: Element, const RANK: usize> Operand<'a, T, RANK> {
    /// Returns an operand in row-major order, for a test that calls a target's function.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the dimensions do not have this rank, or their product is not the number
    /// of elements.
    ///
    /// ```
    /// use callbox_guest::Operand;
    ///
    /// let x = Operand::<f32, 2>::new(&[1.0, 2.0], &[1, 2])?;
    /// assert_eq!(x[[0, 1]], 2.0);
    /// assert!(Operand::<f32, 1>::new(&[1.0, 2.0], &[1, 2]).is_err());
    /// # Ok::<(), callbox_guest::Failure>(())
    /// ```
    pub fn new(elements: &'a [T], dimensions: &'a [i64]) -> Result<Self, Failure> {
        let shape = row_major::<RANK>(elements.len(), dimensions)?;
        Ok(Self { elements, shape })
    }

    /// Returns the dimensions and the layout.
    ///
    /// ```
    /// use callbox_guest::Operand;
    ///
    /// let x = Operand::<f32, 2>::new(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3])?;
    /// assert_eq!(x.shape().minor_to_major(), [1, 0]);
    /// # Ok::<(), callbox_guest::Failure>(())
    /// ```
    #[must_use]
    pub const fn shape(&self) -> Shape<'a> {
        self.shape
    }

    /// Returns the dimensions. None is negative, and their product is the number of elements.
    ///
    /// ```
    /// use callbox_guest::Operand;
    ///
    /// let x = Operand::<f32, 2>::new(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3])?;
    /// assert_eq!(x.dimensions(), [2, 3]);
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
    /// use callbox_guest::Operand;
    ///
    /// let x = Operand::<f32, 2>::new(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3])?;
    /// let [rows, columns] = x.dims();
    /// assert_eq!(x.len(), rows * columns);
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

impl<T: Element> Operand<'_, T, 0> {
    /// Returns the only element of an array of rank 0.
    ///
    /// ```
    /// use callbox_guest::Operand;
    ///
    /// let scale = Operand::<f32, 0>::new(&[3.0], &[])?;
    /// assert_eq!(scale.value(), 3.0);
    /// # Ok::<(), callbox_guest::Failure>(())
    /// ```
    #[must_use]
    pub fn value(&self) -> T {
        self.elements[0]
    }
}

impl<T: Element, const RANK: usize> Deref for Operand<'_, T, RANK> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.elements
    }
}

impl<T: Element, const RANK: usize> fmt::Debug for Operand<'_, T, RANK> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?} ", T::TYPE, self.shape)?;
        self.elements.fmt(f)
    }
}

impl<'a, T: Element, const RANK: usize> TargetParameter<'a> for Operand<'a, T, RANK> {
    const ROLE: Role = Role::Operand(signature::<T, RANK>());

    #[inline]
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, String> {
        let (array, data) = decoder.buffers.next_operand().ok_or_else(missing)?;
        check::<T, RANK>(&array)?;
        let elements = abi::elements(data).ok_or_else(misaligned::<T>)?;
        let shape = Shape::new(array.dimensions, array.minor_to_major);
        check_count(elements.len(), shape)?;
        Ok(Self { elements, shape })
    }
}

/// An operand of any element type and rank, of a target or of a function that the target calls
/// ([`FunctionRef`](crate::FunctionRef)).
///
/// ```
/// use callbox_guest::{AnyOperand, ElementType};
///
/// let x = AnyOperand::new(&[1_i32, 2], &[2])?;
/// assert_eq!(x.element_type(), ElementType::S32);
/// assert_eq!(x.as_typed::<i32>()?[1], 2);
/// assert!(x.as_typed::<f32>().is_err());
/// # Ok::<(), callbox_guest::Failure>(())
/// ```
#[derive(Clone, Copy)]
pub struct AnyOperand<'a> {
    element_type: ElementType,
    bytes: &'a [u8],
    shape: Shape<'a>,
}

impl<'a> AnyOperand<'a> {
    /// Returns an operand in row-major order.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the product of the dimensions is not the number of elements.
    ///
    /// ```
    /// use callbox_guest::AnyOperand;
    ///
    /// let x = AnyOperand::new(&[1_i32, 2], &[1, 2])?;
    /// assert_eq!(x.dimensions(), [1, 2]);
    /// assert!(AnyOperand::new(&[1_i32, 2], &[3]).is_err());
    /// # Ok::<(), callbox_guest::Failure>(())
    /// ```
    pub fn new<T: Element>(elements: &'a [T], dimensions: &'a [i64]) -> Result<Self, Failure> {
        let operand = Operand::<T>::new(elements, dimensions)?;
        Ok(Self::from(&operand))
    }

    /// Returns the type of the elements.
    ///
    /// ```
    /// use callbox_guest::AnyOperand;
    ///
    /// let x = AnyOperand::new(&[1_i32, 2], &[1, 2])?;
    /// assert!(x.element_type().is_integral());
    /// # Ok::<(), callbox_guest::Failure>(())
    /// ```
    #[must_use]
    pub const fn element_type(&self) -> ElementType {
        self.element_type
    }

    /// Returns the dimensions and the layout.
    ///
    /// ```
    /// use callbox_guest::AnyOperand;
    ///
    /// let x = AnyOperand::new(&[1_i32, 2], &[1, 2])?;
    /// assert!(x.shape().is_row_major());
    /// # Ok::<(), callbox_guest::Failure>(())
    /// ```
    #[must_use]
    pub const fn shape(&self) -> Shape<'a> {
        self.shape
    }

    /// Returns the dimensions. None is negative.
    ///
    /// ```
    /// use callbox_guest::AnyOperand;
    ///
    /// let x = AnyOperand::new(&[1_i32, 2], &[1, 2])?;
    /// assert_eq!(x.dimensions(), [1, 2]);
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
    /// use callbox_guest::AnyOperand;
    ///
    /// let x = AnyOperand::new(&[1_i32, 2], &[1, 2])?;
    /// let [rows, columns] = x.dims();
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
    /// use callbox_guest::AnyOperand;
    ///
    /// let x = AnyOperand::new(&[1_i32, 2], &[1, 2])?;
    /// assert_eq!(x.bytes(), [1, 0, 0, 0, 2, 0, 0, 0]);
    /// # Ok::<(), callbox_guest::Failure>(())
    /// ```
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Casts to an operand with elements of type `T`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the elements have another type.
    ///
    /// ```
    /// use callbox_guest::AnyOperand;
    ///
    /// let x = AnyOperand::new(&[1_i32, 2], &[1, 2])?;
    /// assert_eq!(*x.as_typed::<i32>()?, [1, 2]);
    /// assert!(x.as_typed::<f32>().is_err());
    /// # Ok::<(), callbox_guest::Failure>(())
    /// ```
    pub fn as_typed<T: Element>(&self) -> Result<Operand<'a, T>, Failure> {
        let elements = typed_bytes::<T>(self.element_type)
            .and_then(|()| abi::elements(self.bytes).ok_or_else(misaligned::<T>))
            .map_err(Failure::invalid_argument)?;
        Ok(Operand {
            elements,
            shape: self.shape,
        })
    }
}

impl fmt::Debug for AnyOperand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.element_type, self.shape)
    }
}

impl<'a, T: Element, const RANK: usize> From<&Operand<'a, T, RANK>> for AnyOperand<'a> {
    fn from(operand: &Operand<'a, T, RANK>) -> Self {
        Self {
            element_type: T::TYPE,
            bytes: abi::bytes(operand.elements),
            shape: operand.shape,
        }
    }
}

impl<'a> From<&AnyOperand<'a>> for AnyOperand<'a> {
    fn from(operand: &AnyOperand<'a>) -> Self {
        *operand
    }
}

impl<'a> TargetParameter<'a> for AnyOperand<'a> {
    const ROLE: Role = Role::Operand(ANY);

    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, String> {
        let (array, bytes) = decoder.buffers.next_operand().ok_or_else(missing)?;
        any(array, bytes)
    }
}

/// Returns an operand, or another array that is only read.
pub(crate) fn any<'a>(array: Array<'a>, bytes: &'a [u8]) -> Result<AnyOperand<'a>, String> {
    Ok(AnyOperand {
        element_type: known(array.element_type)?,
        bytes,
        shape: Shape::new(array.dimensions, array.minor_to_major),
    })
}

/// The signature of a buffer of any type and rank.
pub(crate) const ANY: Signature = Signature {
    element_type: None,
    rank: None,
};

/// Returns the signature of a buffer with this type and rank.
pub(crate) const fn signature<T: Element, const RANK: usize>() -> Signature {
    Signature {
        element_type: Some(T::TYPE),
        rank: if RANK == ANY_RANK { None } else { Some(RANK) },
    }
}

/// Checks a buffer's element type, then its rank, as XLA does.
#[inline]
pub(crate) fn check<T: Element, const RANK: usize>(array: &Array<'_>) -> Result<(), String> {
    if array.element_type != T::TYPE as u8 {
        return Err(wrong_type(T::TYPE.upper_name(), array.element_type));
    }
    if RANK != ANY_RANK && array.dimensions.len() != RANK {
        return Err(wrong_rank(RANK, array.dimensions.len()));
    }
    Ok(())
}

/// Checks that an element type is `T`'s.
pub(crate) fn typed_bytes<T: Element>(found: ElementType) -> Result<(), String> {
    if found == T::TYPE {
        Ok(())
    } else {
        Err(wrong_type(T::TYPE.upper_name(), found as u8))
    }
}

/// Returns the element type with this number.
pub(crate) fn known(number: u8) -> Result<ElementType, String> {
    ElementType::from_number(number).ok_or_else(|| wrong_type("an array's", number))
}

/// Returns a row-major shape of this rank with this number of elements.
pub(crate) fn row_major<const RANK: usize>(
    count: usize,
    dimensions: &[i64],
) -> Result<Shape<'_>, Failure> {
    if RANK != ANY_RANK && dimensions.len() != RANK {
        return Err(Failure::invalid_argument(wrong_rank(
            RANK,
            dimensions.len(),
        )));
    }
    Shape::row_major(dimensions, count).ok_or_else(|| {
        Failure::invalid_argument(text![
            "wrong number of elements: expected as many as dimensions ",
            Dimensions(dimensions),
            " have, found ",
            count
        ])
    })
}

/// Checks that a view of rank 0 has its element.
#[inline]
pub(crate) fn check_count(count: usize, shape: Shape<'_>) -> Result<(), String> {
    if count == 0 && shape.rank() == 0 {
        return Err(text!["Wrong buffer size: expected 1 element but got 0"]);
    }
    Ok(())
}

#[cold]
pub(crate) fn missing() -> String {
    text!["Missing buffer"]
}

#[cold]
pub(crate) fn misaligned<T: Element>() -> String {
    text![
        "Misaligned buffer: expected an address that ",
        align_of::<T>(),
        " divides"
    ]
}

#[cold]
pub(crate) fn wrong_type(expected: &str, found: u8) -> String {
    let found = ElementType::from_number(found).map_or("INVALID", ElementType::upper_name);
    text![
        "Wrong buffer dtype: expected ",
        expected,
        " but got ",
        found
    ]
}

#[cold]
fn wrong_rank(expected: usize, found: usize) -> String {
    text!["Wrong buffer rank: expected ", expected, " but got ", found]
}
