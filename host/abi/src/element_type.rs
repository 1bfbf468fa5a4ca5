//! Element types, with XLA's names, numbers and sizes.

use core::fmt;
use core::str::FromStr;

use crate::UnknownName;
use crate::numbers::numbered;

/// Declares the element types from one table: number, name in shapes, name in messages, bits.
macro_rules! element_types {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $lower:literal, $upper:literal, $bits:literal;)*) => {
        numbered! {
            /// The type of an array's elements: XLA's `PrimitiveType` (xla/xla_data.proto) less
            /// `INVALID`, `TUPLE` and `OPAQUE_TYPE`, which no array has.
            pub enum ElementType from u8, named by lower_name {
                $($(#[$doc])* $variant = $number, $lower;)*
            }
        }

        impl ElementType {
            /// The name in XLA's messages and in a module's metadata, such as `F32`.
            #[must_use]
            pub const fn upper_name(self) -> &'static str {
                match self { $(Self::$variant => $upper,)* }
            }

            /// The width of one element in bits: 0 for a token, less than 8 for the types that XLA
            /// can pack.
            #[must_use]
            pub const fn bit_width(self) -> u32 {
                match self { $(Self::$variant => $bits,)* }
            }
        }
    };
}

element_types! {
    /// A boolean in one byte: 0 or 1.
    Pred = 1, "pred", "PRED", 8;
    /// A signed 8-bit integer.
    S8 = 2, "s8", "S8", 8;
    /// A signed 16-bit integer.
    S16 = 3, "s16", "S16", 16;
    /// A signed 32-bit integer.
    S32 = 4, "s32", "S32", 32;
    /// A signed 64-bit integer.
    S64 = 5, "s64", "S64", 64;
    /// An unsigned 8-bit integer.
    U8 = 6, "u8", "U8", 8;
    /// An unsigned 16-bit integer.
    U16 = 7, "u16", "U16", 16;
    /// An unsigned 32-bit integer.
    U32 = 8, "u32", "U32", 32;
    /// An unsigned 64-bit integer.
    U64 = 9, "u64", "U64", 64;
    /// IEEE 754 binary16.
    F16 = 10, "f16", "F16", 16;
    /// IEEE 754 binary32.
    F32 = 11, "f32", "F32", 32;
    /// IEEE 754 binary64.
    F64 = 12, "f64", "F64", 64;
    /// A complex number of two F32: the real part first.
    C64 = 15, "c64", "C64", 64;
    /// The upper half of an F32: 8 exponent bits, 7 mantissa bits.
    Bf16 = 16, "bf16", "BF16", 16;
    /// A token, which orders side effects and has no bytes.
    Token = 17, "token", "TOKEN", 0;
    /// A complex number of two F64: the real part first.
    C128 = 18, "c128", "C128", 128;
    /// 5 exponent bits, 2 mantissa bits, infinities and NaNs.
    F8e5m2 = 19, "f8e5m2", "F8E5M2", 8;
    /// 4 exponent bits, 3 mantissa bits, no infinities.
    F8e4m3fn = 20, "f8e4m3fn", "F8E4M3FN", 8;
    /// A signed 4-bit integer.
    S4 = 21, "s4", "S4", 4;
    /// An unsigned 4-bit integer.
    U4 = 22, "u4", "U4", 4;
    /// 4 exponent bits with bias 11, 3 mantissa bits, no infinities, no negative zero.
    F8e4m3b11fnuz = 23, "f8e4m3b11fnuz", "F8E4M3B11FNUZ", 8;
    /// 5 exponent bits, 2 mantissa bits, no infinities, no negative zero.
    F8e5m2fnuz = 24, "f8e5m2fnuz", "F8E5M2FNUZ", 8;
    /// 4 exponent bits, 3 mantissa bits, no infinities, no negative zero.
    F8e4m3fnuz = 25, "f8e4m3fnuz", "F8E4M3FNUZ", 8;
    /// A signed 2-bit integer.
    S2 = 26, "s2", "S2", 2;
    /// An unsigned 2-bit integer.
    U2 = 27, "u2", "U2", 2;
    /// 4 exponent bits, 3 mantissa bits, infinities and NaNs.
    F8e4m3 = 28, "f8e4m3", "F8E4M3", 8;
    /// 3 exponent bits, 4 mantissa bits, infinities and NaNs.
    F8e3m4 = 29, "f8e3m4", "F8E3M4", 8;
    /// A signed 1-bit integer.
    S1 = 30, "s1", "S1", 1;
    /// An unsigned 1-bit integer.
    U1 = 31, "u1", "U1", 1;
    /// 2 exponent bits, 1 mantissa bit, neither infinities nor NaNs.
    F4e2m1fn = 32, "f4e2m1fn", "F4E2M1FN", 4;
    /// 8 exponent bits and nothing else: a power of two, or NaN.
    F8e8m0fnu = 33, "f8e8m0fnu", "F8E8M0FNU", 8;
}

impl ElementType {
    /// The element type with this name in either case, `f32` or `F32`, or `None` for any other
    /// text.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|t| t.lower_name().eq_ignore_ascii_case(name))
    }

    /// The size of one element in memory, in bytes: 0 for a token, and 1 for the types narrower
    /// than a byte, which callbox holds unpacked as XLA:CPU does.
    #[must_use]
    pub const fn byte_width(self) -> usize {
        self.bit_width().div_ceil(8) as usize
    }

    /// Whether the type is PRED.
    #[must_use]
    pub const fn is_pred(self) -> bool {
        matches!(self, Self::Pred)
    }

    /// Whether the type is an integer of any width, signed or not. PRED is not an integer.
    #[must_use]
    pub const fn is_integral(self) -> bool {
        self.is_signed_integral() || self.is_unsigned_integral()
    }

    /// Whether the type is a signed integer.
    #[must_use]
    pub const fn is_signed_integral(self) -> bool {
        use ElementType::{S1, S2, S4, S8, S16, S32, S64};
        matches!(self, S1 | S2 | S4 | S8 | S16 | S32 | S64)
    }

    /// Whether the type is an unsigned integer.
    #[must_use]
    pub const fn is_unsigned_integral(self) -> bool {
        use ElementType::{U1, U2, U4, U8, U16, U32, U64};
        matches!(self, U1 | U2 | U4 | U8 | U16 | U32 | U64)
    }

    /// Whether the type is a complex number.
    #[must_use]
    pub const fn is_complex(self) -> bool {
        matches!(self, Self::C64 | Self::C128)
    }

    /// Whether the type is a real floating-point number of any width.
    #[must_use]
    pub const fn is_floating(self) -> bool {
        !(self.is_pred() || self.is_integral() || self.is_complex() || matches!(self, Self::Token))
    }
}

impl FromStr for ElementType {
    type Err = UnknownName;

    /// Parses a name in either case: `f32`, `F32`.
    fn from_str(text: &str) -> Result<Self, UnknownName> {
        Self::from_name(text).ok_or_else(|| UnknownName::new("an element type such as f32", text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_unique_and_read_back() {
        for (i, t) in ElementType::ALL.into_iter().enumerate() {
            assert_eq!(ElementType::from_number(t.number()), Some(t));
            assert_eq!(ElementType::from_name(t.lower_name()), Some(t));
            assert_eq!(ElementType::from_name(t.upper_name()), Some(t));
            assert!(t.lower_name().eq_ignore_ascii_case(t.upper_name()));
            assert!(i == 0 || ElementType::ALL[i - 1].number() < t.number());
        }
        for unused in [0, 13, 14, 34, 255] {
            assert_eq!(ElementType::from_number(unused), None);
        }
    }

    #[test]
    fn every_type_is_of_one_kind() {
        for t in ElementType::ALL {
            let kinds = [
                t.is_pred(),
                t.is_integral(),
                t.is_complex(),
                t.is_floating(),
                t == ElementType::Token,
            ];
            assert_eq!(kinds.iter().filter(|&&kind| kind).count(), 1, "{t}");
        }
    }

    /// XLA's `ShapeUtil::ByteSizeOfPrimitiveType` and XLA_FFI's `ByteWidth`.
    #[test]
    fn byte_widths_are_xlas() {
        let widths = [
            ("pred", 1),
            ("s4", 1),
            ("u1", 1),
            ("f4e2m1fn", 1),
            ("bf16", 2),
            ("c64", 8),
            ("c128", 16),
            ("token", 0),
        ];
        for (name, width) in widths {
            let found = ElementType::from_name(name).map(ElementType::byte_width);
            assert_eq!(found, Some(width), "{name}");
        }
    }
}
