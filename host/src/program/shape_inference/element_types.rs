//! Which element types operations take.

use crate::values::{ArrayShape, ElementType, Result, Status};

/// The kinds of element types that an operation has a meaning for. Their widths do not matter: what a type of 4 bits gives is computed
/// in a wider type and rounded once, or of an integer the low bits are kept. A token is no element of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Domain {
    /// Every array.
    Any,
    /// All that has an order: not complex numbers.
    Ordered,
    /// All but PRED.
    Number,
    /// Integers and real floating-point numbers.
    Real,
    /// What has a sign: not PRED, not unsigned integers.
    Signed,
    /// Integers.
    Integral,
    /// PRED and integers: what has bits.
    Bits,
    /// Real floating-point numbers.
    Floating,
    /// Floating-point numbers, real or complex.
    FloatingOrComplex,
}

impl Domain {
    /// Checks that an operation of this domain has a meaning for the array's elements.
    ///
    /// # Errors
    /// INVALID_ARGUMENT.
    pub(super) fn check(self, shape: &ArrayShape) -> Result<()> {
        match self.contains(shape.element_type()) {
            true => Ok(()),
            false => Err(Status::invalid_argument(format!(
                "expected elements that are {}, found {shape}",
                self.text()
            ))),
        }
    }

    const fn contains(self, t: ElementType) -> bool {
        match self {
            Self::Any => true,
            Self::Ordered => !t.is_complex(),
            Self::Number => !t.is_pred(),
            Self::Real => t.is_integral() || t.is_floating(),
            Self::Signed => t.is_signed_integral() || t.is_floating() || t.is_complex(),
            Self::Integral => t.is_integral(),
            Self::Bits => t.is_pred() || t.is_integral(),
            Self::Floating => t.is_floating(),
            Self::FloatingOrComplex => t.is_floating() || t.is_complex(),
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Any => "of any type",
            Self::Ordered => "pred, integral or floating",
            Self::Number => "integral, floating or complex",
            Self::Real => "integral or floating",
            Self::Signed => "signed integral, floating or complex",
            Self::Integral => "integral",
            Self::Bits => "pred or integral",
            Self::Floating => "floating",
            Self::FloatingOrComplex => "floating or complex",
        }
    }
}

/// What is said of an operation that XLA has on elements of this type and callbox has not.
pub(super) fn unsupported(operation: &str, element_type: ElementType) -> Status {
    Status::unimplemented(format!("{operation} on {element_type} is not supported"))
}

/// The type of a complex number's parts.
pub(super) const fn component(element_type: ElementType) -> ElementType {
    match element_type {
        ElementType::C64 => ElementType::F32,
        ElementType::C128 => ElementType::F64,
        real => real,
    }
}
