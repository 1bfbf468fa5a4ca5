//! The element types that elementwise operations take.

use callbox_core::values::{ArrayShape, ElementType, Result};

/// The kinds of element types for which an operation is defined.
///
/// Widths do not matter: narrow types are computed in a wider one and rounded once, and integers
/// keep their low bits. No domain contains tokens, which are not elements of arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Domain {
    /// Every type.
    Any,
    /// Types with an order: all but complex numbers.
    Ordered,
    /// All but PRED.
    Number,
    /// Integers and real floating-point numbers.
    Real,
    /// Types with a sign: all but PRED and unsigned integers.
    Signed,
    /// Integers.
    Integral,
    /// PRED and integers.
    Bits,
    /// Real floating-point numbers.
    Floating,
    /// Real and complex floating-point numbers.
    FloatingOrComplex,
}

impl Domain {
    /// Checks that the domain contains the array's element type.
    ///
    /// # Errors
    /// INVALID_ARGUMENT.
    pub(crate) fn check(self, shape: &ArrayShape) -> Result<()> {
        let t = shape.element_type();
        let (contains, kinds) = match self {
            Self::Any => (true, "of any type"),
            Self::Ordered => (!t.is_complex(), "pred, integral or floating"),
            Self::Number => (!t.is_pred(), "integral, floating or complex"),
            Self::Real => (is_real(t), "integral or floating"),
            Self::Signed => (is_signed(t), "signed integral, floating or complex"),
            Self::Integral => (t.is_integral(), "integral"),
            Self::Bits => (t.is_pred() || t.is_integral(), "pred or integral"),
            Self::Floating => (t.is_floating(), "floating"),
            Self::FloatingOrComplex => (t.is_floating() || t.is_complex(), "floating or complex"),
        };
        ensure!(
            contains,
            "expected elements that are {kinds}, found {shape}"
        );
        Ok(())
    }
}

fn is_real(t: ElementType) -> bool {
    t.is_integral() || t.is_floating()
}

fn is_signed(t: ElementType) -> bool {
    t.is_signed_integral() || t.is_floating() || t.is_complex()
}
