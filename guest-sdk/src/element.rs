//! Element types, and the Rust types that hold one element.

use core::fmt;

use crate::abi::Plain;
use crate::{Bf16, C64, C128, F16};

/// Declares the element types from one table, so that no list of them can lack one.
macro_rules! element_types {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal;)*) => {
        /// The type of an array's elements: XLA's `PrimitiveType`, name for name and number for number
        /// (xla/xla_data.proto), less those that no array has.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum ElementType { $($(#[$doc])* $variant = $number,)* }

        impl ElementType {
            /// All element types, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name in XLA's messages and in `callbox.targets`: `F32`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The element type with this number, if there is one.
            #[must_use]
            pub const fn from_number(number: u8) -> Option<Self> {
                match number { $($number => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

element_types! {
    /// A truth value in one byte.
    Pred = 1, "PRED";
    /// A signed 8-bit integer.
    S8 = 2, "S8";
    /// A signed 16-bit integer.
    S16 = 3, "S16";
    /// A signed 32-bit integer.
    S32 = 4, "S32";
    /// A signed 64-bit integer.
    S64 = 5, "S64";
    /// An unsigned 8-bit integer.
    U8 = 6, "U8";
    /// An unsigned 16-bit integer.
    U16 = 7, "U16";
    /// An unsigned 32-bit integer.
    U32 = 8, "U32";
    /// An unsigned 64-bit integer.
    U64 = 9, "U64";
    /// IEEE 754 binary16.
    F16 = 10, "F16";
    /// IEEE 754 binary32.
    F32 = 11, "F32";
    /// IEEE 754 binary64.
    F64 = 12, "F64";
    /// A complex number of two F32: the real part first.
    C64 = 15, "C64";
    /// The upper half of an F32.
    Bf16 = 16, "BF16";
    /// An order between effects; it has no bytes.
    Token = 17, "TOKEN";
    /// A complex number of two F64: the real part first.
    C128 = 18, "C128";
    /// 5 exponent bits, 2 mantissa bits.
    F8e5m2 = 19, "F8E5M2";
    /// 4 exponent bits, 3 mantissa bits, no infinities.
    F8e4m3fn = 20, "F8E4M3FN";
    /// A signed 4-bit integer in one byte.
    S4 = 21, "S4";
    /// An unsigned 4-bit integer in one byte.
    U4 = 22, "U4";
    /// 4 exponent bits with bias 11, 3 mantissa bits, no infinities, no negative zero.
    F8e4m3b11fnuz = 23, "F8E4M3B11FNUZ";
    /// 5 exponent bits, 2 mantissa bits, no infinities, no negative zero.
    F8e5m2fnuz = 24, "F8E5M2FNUZ";
    /// 4 exponent bits, 3 mantissa bits, no infinities, no negative zero.
    F8e4m3fnuz = 25, "F8E4M3FNUZ";
    /// A signed 2-bit integer in one byte.
    S2 = 26, "S2";
    /// An unsigned 2-bit integer in one byte.
    U2 = 27, "U2";
    /// 4 exponent bits, 3 mantissa bits, infinities and NaNs.
    F8e4m3 = 28, "F8E4M3";
    /// 3 exponent bits, 4 mantissa bits, infinities and NaNs.
    F8e3m4 = 29, "F8E3M4";
    /// A signed 1-bit integer in one byte.
    S1 = 30, "S1";
    /// An unsigned 1-bit integer in one byte.
    U1 = 31, "U1";
    /// 2 exponent bits, 1 mantissa bit, neither infinities nor NaNs.
    F4e2m1fn = 32, "F4E2M1FN";
    /// 8 exponent bits alone: a power of two, or NaN.
    F8e8m0fnu = 33, "F8E8M0FNU";
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust type that holds one element of an array: [`f32`], [`f64`], [`F16`], [`Bf16`], [`C64`], [`C128`], the integers, and
/// [`Pred`].
///
/// The other element types are within reach through [`AnyOperand::bytes`](crate::AnyOperand::bytes).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a type of element",
    label = "expected f32, f64, an integer of 8 to 64 bits, or `F16`, `Bf16`, `C64`, `C128` or `Pred` of callbox_guest"
)]
pub trait Element: Plain + PartialEq + fmt::Debug {
    /// The element type that this type stands for.
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

/// An element of a PRED array: a truth value in one byte.
///
/// It is not [`bool`], because a caller's bytes may be other than 0 and 1: any that is not 0 is true.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct Pred(u8);

impl Pred {
    /// The truth value.
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
    fn numbers_are_read_back_and_gaps_are_not() {
        for &t in ElementType::ALL {
            assert_eq!(ElementType::from_number(t as u8), Some(t));
        }
        for unused in [0, 13, 14, 34, 255] {
            assert_eq!(ElementType::from_number(unused), None);
        }
    }

    #[test]
    fn any_byte_but_zero_is_true() {
        assert!(!Pred(0).get());
        assert!(Pred(1).get() && Pred(255).get());
        assert_eq!(Pred(255), Pred::from(true));
    }
}
