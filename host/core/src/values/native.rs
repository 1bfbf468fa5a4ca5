//! The Rust types of elements.

use half::{bf16, f16};
use num_complex::Complex;

use super::ElementType;

mod sealed {
    /// Keeps [`NativeType`](super::NativeType) to the types of this module.
    pub trait Sealed {}
}

/// A Rust type whose values are the elements of one element type.
pub trait NativeType:
    Copy + PartialEq + std::fmt::Debug + Send + Sync + 'static + sealed::Sealed
{
    /// The element type.
    const ELEMENT_TYPE: ElementType;

    /// Reads an element from its little-endian bytes, as many as the element type is wide.
    #[doc(hidden)]
    fn read(bytes: &[u8]) -> Self;

    /// Writes an element as little-endian bytes, as many as the element type is wide.
    #[doc(hidden)]
    fn write(self, bytes: &mut [u8]);
}

macro_rules! numbers {
    ($($native:ty => $element_type:ident;)*) => {$(
        impl sealed::Sealed for $native {}
        impl NativeType for $native {
            const ELEMENT_TYPE: ElementType = ElementType::$element_type;

            #[inline]
            fn read(bytes: &[u8]) -> Self {
                let mut array = [0; size_of::<Self>()];
                array.copy_from_slice(bytes);
                Self::from_le_bytes(array)
            }

            #[inline]
            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}

numbers! {
    i8 => S8;
    i16 => S16;
    i32 => S32;
    i64 => S64;
    u8 => U8;
    u16 => U16;
    u32 => U32;
    u64 => U64;
    f16 => F16;
    bf16 => Bf16;
    f32 => F32;
    f64 => F64;
}

impl sealed::Sealed for bool {}
impl NativeType for bool {
    const ELEMENT_TYPE: ElementType = ElementType::Pred;

    /// A target may have written any byte. As in XLA's generated code, all but 0 are true.
    #[inline]
    fn read(bytes: &[u8]) -> Self {
        bytes[0] != 0
    }

    #[inline]
    fn write(self, bytes: &mut [u8]) {
        bytes[0] = u8::from(self);
    }
}

macro_rules! complex {
    ($($part:ty => $element_type:ident;)*) => {$(
        impl sealed::Sealed for Complex<$part> {}
        impl NativeType for Complex<$part> {
            const ELEMENT_TYPE: ElementType = ElementType::$element_type;

            #[inline]
            fn read(bytes: &[u8]) -> Self {
                let (re, im) = bytes.split_at(size_of::<$part>());
                Self::new(<$part>::read(re), <$part>::read(im))
            }

            #[inline]
            fn write(self, bytes: &mut [u8]) {
                let (re, im) = bytes.split_at_mut(size_of::<$part>());
                self.re.write(re);
                self.im.write(im);
            }
        }
    )*};
}

complex! {
    f32 => C64;
    f64 => C128;
}
