//! The Rust types that hold one element of an array.

use core::fmt;

use crate::abi::Plain;
use crate::{Bf16, C64, C128, ElementType, F16};

/// A Rust type that holds one element of an array: [`f32`], [`f64`], [`F16`], [`Bf16`], [`C64`],
/// [`C128`], the integers, and [`Pred`].
///
/// Elements of other types are available as bytes: [`AnyOperand::bytes`](crate::AnyOperand::bytes).
///
/// ```
/// use callbox_guest::{Element, ElementType};
///
/// fn bytes<T: Element>(elements: &[T]) -> (ElementType, usize) {
///     (T::TYPE, size_of_val(elements))
/// }
///
/// assert_eq!(bytes(&[1.0_f32, 2.0]), (ElementType::F32, 8));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a type of element",
    label = "expected f32, f64, an integer of 8 to 64 bits, or `F16`, `Bf16`, `C64`, `C128` or `Pred` of callbox_guest"
)]
pub trait Element: Plain + PartialEq + fmt::Debug {
    /// The element type that this Rust type represents.
    const TYPE: ElementType;
}

macro_rules! elements {
    ($($type:ty: $variant:ident,)*) => {
        $(impl Element for $type { const TYPE: ElementType = ElementType::$variant; })*
    };
}

elements! {
    i8: S8, i16: S16, i32: S32, i64: S64,
    u8: U8, u16: U16, u32: U32, u64: U64,
    f32: F32, f64: F64, Pred: Pred,
    F16: F16, Bf16: Bf16, C64: C64, C128: C128,
}

/// An element of a PRED array: a boolean in one byte.
///
/// [`bool`] does not serve, because a caller's bytes may be other than 0 and 1. Every byte but 0 is
/// true.
///
/// ```
/// use callbox_guest::{Operand, Pred, ResultBuffer, target};
///
/// #[target(elementwise)]
/// fn not(x: &Operand<Pred>, y: &mut ResultBuffer<Pred>) {
///     for (y, x) in y.iter_mut().zip(x.iter()) {
///         *y = Pred::from(!x.get());
///     }
/// }
/// ```
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct Pred(u8);

impl Pred {
    /// Returns the boolean.
    ///
    /// ```
    /// use callbox_guest::Pred;
    ///
    /// assert!(Pred::from(true).get());
    /// ```
    #[must_use]
    pub const fn get(self) -> bool {
        self.0 != 0
    }
}

impl From<bool> for Pred {
    fn from(value: bool) -> Self {
        Self(u8::from(value))
    }
}

impl From<Pred> for bool {
    fn from(value: Pred) -> Self {
        value.get()
    }
}

impl PartialEq for Pred {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for Pred {}

impl fmt::Debug for Pred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_byte_but_zero_is_true() {
        assert!(!Pred(0).get());
        assert!(Pred(1).get() && Pred(255).get());
        assert_eq!(Pred(255), Pred::from(true));
    }
}
