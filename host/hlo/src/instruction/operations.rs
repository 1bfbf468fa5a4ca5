//! HLO's enumerations with their names, and the table of elementwise operations.

use std::fmt;

use super::domain::Domain;

/// Passes the table of elementwise operations to the macro `$receiver`.
///
/// A row holds all that the operations do not share: the variant, the name in HLO text, the
/// builder's method, and the element types that the operation takes.
macro_rules! elementwise_operations {
    ($receiver:ident) => {
        $receiver! {
            unary {
                /// The magnitude, which is real for complex numbers too.
                Abs = "abs", abs, Signed;
                Cbrt = "cbrt", cbrt, Floating;
                Ceil = "ceil", ceil, Floating;
                CountLeadingZeros = "count-leading-zeros", count_leading_zeros, Integral;
                Cosine = "cosine", cosine, FloatingOrComplex;
                Erf = "erf", erf, Floating;
                Exponential = "exponential", exponential, FloatingOrComplex;
                ExponentialMinusOne =
                    "exponential-minus-one", exponential_minus_one, FloatingOrComplex;
                Floor = "floor", floor, Floating;
                Imag = "imag", imag, FloatingOrComplex;
                IsFinite = "is-finite", is_finite, Floating;
                Log = "log", log, FloatingOrComplex;
                LogPlusOne = "log-plus-one", log_plus_one, FloatingOrComplex;
                Logistic = "logistic", logistic, FloatingOrComplex;
                Negate = "negate", negate, Number;
                Not = "not", not, Bits;
                PopulationCount = "popcnt", population_count, Integral;
                Real = "real", real, FloatingOrComplex;
                /// Rounds half away from zero.
                RoundNearestAfz = "round-nearest-afz", round_nearest_afz, Floating;
                /// Rounds half to even.
                RoundNearestEven = "round-nearest-even", round_nearest_even, Floating;
                Rsqrt = "rsqrt", rsqrt, FloatingOrComplex;
                Sign = "sign", sign, Signed;
                Sine = "sine", sine, FloatingOrComplex;
                Sqrt = "sqrt", sqrt, FloatingOrComplex;
                Tan = "tan", tan, FloatingOrComplex;
                Tanh = "tanh", tanh, FloatingOrComplex;
            }
            binary {
                /// For PRED: or.
                Add = "add", add, Any;
                And = "and", and, Bits;
                Atan2 = "atan2", atan2, FloatingOrComplex;
                /// A complex number from its real and imaginary parts.
                Complex = "complex", complex, Floating;
                /// An integer divided by 0 is -1 (all ones); the smallest divided by -1 is itself.
                Divide = "divide", divide, Number;
                /// NaN if either operand is NaN.
                Maximum = "maximum", maximum, Ordered;
                /// NaN if either operand is NaN.
                Minimum = "minimum", minimum, Ordered;
                /// For PRED: and.
                Multiply = "multiply", multiply, Any;
                Or = "or", or, Bits;
                Power = "power", power, Number;
                /// Has the sign of the dividend. For integers, the remainder by 0 is the
                /// dividend, and the smallest by -1 gives 0.
                Remainder = "remainder", remainder, Real;
                /// 0 if the amount is negative or at least the width.
                ShiftLeft = "shift-left", shift_left, Integral;
                /// Copies of the sign if the amount is negative or at least the width.
                ShiftRightArithmetic =
                    "shift-right-arithmetic", shift_right_arithmetic, Integral;
                /// 0 if the amount is negative or at least the width.
                ShiftRightLogical = "shift-right-logical", shift_right_logical, Integral;
                Subtract = "subtract", subtract, Number;
                Xor = "xor", xor, Bits;
            }
        }
    };
}
pub(crate) use elementwise_operations;

/// Defines enumerations whose variants have names in HLO text.
macro_rules! named {
    ($(
        $(#[$attribute:meta])*
        $enumeration:ident { $($(#[$variant_attribute:meta])* $variant:ident = $name:literal,)* }
    )*) => {$(
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $enumeration {
            $(
                #[doc = concat!("`", $name, "`.")]
                $(#[$variant_attribute])*
                $variant,
            )*
        }

        impl $enumeration {
            /// All variants, in the order of their declaration.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name in HLO text.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The variant with this name in HLO text.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.name() == name)
            }
        }

        impl fmt::Display for $enumeration {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    )*};
}

macro_rules! define_operations {
    (
        unary { $($(#[$unary_doc:meta])* $unary:ident = $unary_name:literal, $_u:ident, $unary_domain:ident;)* }
        binary { $($(#[$binary_doc:meta])* $binary:ident = $binary_name:literal, $_b:ident, $binary_domain:ident;)* }
    ) => {
        named! {
            /// An operation on one element. See XLA's operation semantics.
            UnaryOperation { $($(#[$unary_doc])* $unary = $unary_name,)* }
            /// An operation on two elements. See XLA's operation semantics.
            BinaryOperation { $($(#[$binary_doc])* $binary = $binary_name,)* }
        }

        impl UnaryOperation {
            /// The element types that the operation takes, as in XLA's `InferUnaryOpShape`.
            pub(crate) const fn domain(self) -> Domain {
                match self { $(Self::$unary => Domain::$unary_domain,)* }
            }
        }

        impl BinaryOperation {
            /// The element types that the operation takes, as in XLA's `InferBinaryOpShape`.
            ///
            /// Where XLA checks nothing (the remainder of complex numbers, shifts of
            /// floating-point numbers), the domain is that of XLA's backends.
            pub(crate) const fn domain(self) -> Domain {
                match self { $(Self::$binary => Domain::$binary_domain,)* }
            }
        }
    };
}

elementwise_operations!(define_operations);

named! {
    /// How two elements are compared.
    Comparison {
        Eq = "EQ",
        Ne = "NE",
        Ge = "GE",
        Gt = "GT",
        Le = "LE",
        Lt = "LT",
    }

    /// The kind of a fusion in XLA. callbox runs every fusion as a call.
    FusionKind {
        Loop = "kLoop",
        Input = "kInput",
        Output = "kOutput",
        Custom = "kCustom",
    }

    /// The kind of a Fourier transform.
    FftKind {
        /// From complex numbers to complex numbers.
        Forward = "FFT",
        /// The inverse of `FFT`, divided by the number of elements.
        Inverse = "IFFT",
        /// From real numbers to the first half of the complex spectrum.
        RealForward = "RFFT",
        /// The inverse of `RFFT`.
        RealInverse = "IRFFT",
    }

    /// What a triangular solve does with its matrix first.
    Transposition {
        None = "NO_TRANSPOSE",
        Transpose = "TRANSPOSE",
        /// The conjugate of the transpose.
        Adjoint = "ADJOINT",
    }

    /// The algorithm of a random bit generator.
    RandomAlgorithm {
        /// XLA:CPU's, which is `rng_philox`.
        Default = "rng_default",
        ThreeFry = "rng_three_fry",
        Philox = "rng_philox",
    }

    /// When a custom call runs, within the order that its operands allow: XLA's
    /// `CustomCallSchedule`.
    #[derive(Default)]
    Schedule {
        /// No preference.
        #[default]
        None = "SCHEDULE_NONE",
        /// As late as possible.
        Latest = "SCHEDULE_LATEST",
        /// As early as possible.
        Earliest = "SCHEDULE_EARLIEST",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Opcode;

    /// Checks names that differ from their variants by more than case and hyphens, against
    /// xla/hlo/ir/hlo_opcode.h.
    #[test]
    fn names_are_hlos() {
        assert_eq!(UnaryOperation::PopulationCount.name(), "popcnt");
        assert_eq!(Opcode::OptimizationBarrier.name(), "opt-barrier");
        assert_eq!(Opcode::Unary(UnaryOperation::IsFinite).name(), "is-finite");
        assert_eq!(Opcode::Binary(BinaryOperation::Xor).name(), "xor");
        assert_eq!(Comparison::Ge.to_string(), "GE");
    }

    #[test]
    fn names_read_back_and_are_unique() {
        for &operation in UnaryOperation::ALL {
            assert_eq!(UnaryOperation::from_name(operation.name()), Some(operation));
            assert_eq!(BinaryOperation::from_name(operation.name()), None);
        }
        for &operation in BinaryOperation::ALL {
            let read = BinaryOperation::from_name(operation.name());
            assert_eq!(read, Some(operation));
        }
        assert_eq!(Comparison::from_name("eq"), None);
        let latest = Schedule::from_name("SCHEDULE_LATEST");
        assert_eq!(latest, Some(Schedule::Latest));
        assert_eq!(FusionKind::from_name("kLoop"), Some(FusionKind::Loop));
    }
}
