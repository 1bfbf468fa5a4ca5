//! HLO's names of operations and of their enumerated attributes, in both directions.

use std::fmt;

use super::{BinaryOperation, Comparison, FusionKind, Opcode, Schedule, UnaryOperation};

/// Gives an enumeration its names from one table. The `match` sees to it that the table lacks none.
macro_rules! names {
    ($($enumeration:ident { $($variant:ident = $name:literal,)* })*) => {$(
        impl $enumeration {
            /// All of them, in the order of their declaration.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name in HLO text.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The one that HLO text calls by this name, if there is one.
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

names! {
    UnaryOperation {
        Abs = "abs",
        Cbrt = "cbrt",
        Ceil = "ceil",
        CountLeadingZeros = "count-leading-zeros",
        Cosine = "cosine",
        Erf = "erf",
        Exponential = "exponential",
        ExponentialMinusOne = "exponential-minus-one",
        Floor = "floor",
        Imag = "imag",
        IsFinite = "is-finite",
        Log = "log",
        LogPlusOne = "log-plus-one",
        Logistic = "logistic",
        Negate = "negate",
        Not = "not",
        PopulationCount = "popcnt",
        Real = "real",
        RoundNearestAfz = "round-nearest-afz",
        RoundNearestEven = "round-nearest-even",
        Rsqrt = "rsqrt",
        Sign = "sign",
        Sine = "sine",
        Sqrt = "sqrt",
        Tan = "tan",
        Tanh = "tanh",
    }
    BinaryOperation {
        Add = "add",
        And = "and",
        Atan2 = "atan2",
        Complex = "complex",
        Divide = "divide",
        Maximum = "maximum",
        Minimum = "minimum",
        Multiply = "multiply",
        Or = "or",
        Power = "power",
        Remainder = "remainder",
        ShiftLeft = "shift-left",
        ShiftRightArithmetic = "shift-right-arithmetic",
        ShiftRightLogical = "shift-right-logical",
        Subtract = "subtract",
        Xor = "xor",
    }
    Comparison {
        Eq = "EQ",
        Ne = "NE",
        Ge = "GE",
        Gt = "GT",
        Le = "LE",
        Lt = "LT",
    }
    FusionKind {
        Loop = "kLoop",
        Input = "kInput",
        Output = "kOutput",
        Custom = "kCustom",
    }
    Schedule {
        None = "SCHEDULE_NONE",
        Latest = "SCHEDULE_LATEST",
        Earliest = "SCHEDULE_EARLIEST",
    }
}

impl Opcode {
    /// The opcode in HLO text: `custom-call`, `add`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Parameter(_) => "parameter",
            Self::Constant(_) => "constant",
            Self::Tuple => "tuple",
            Self::GetTupleElement(_) => "get-tuple-element",
            Self::AfterAll => "after-all",
            Self::OptimizationBarrier => "opt-barrier",
            Self::CustomCall(_) => "custom-call",
            Self::Call(_) => "call",
            Self::Fusion(..) => "fusion",
            Self::While { .. } => "while",
            Self::Conditional(_) => "conditional",
            Self::Unary(operation) => operation.name(),
            Self::Binary(operation) => operation.name(),
            Self::Compare(..) => "compare",
            Self::Select => "select",
            Self::Clamp => "clamp",
            Self::ReducePrecision { .. } => "reduce-precision",
            Self::Convert => "convert",
            Self::BitcastConvert => "bitcast-convert",
            Self::Bitcast => "bitcast",
            Self::Iota(_) => "iota",
            Self::Broadcast(_) => "broadcast",
            Self::Reshape => "reshape",
            Self::Transpose(_) => "transpose",
            Self::Reverse(_) => "reverse",
            Self::Copy => "copy",
            Self::Slice(_) => "slice",
            Self::DynamicSlice(_) => "dynamic-slice",
            Self::DynamicUpdateSlice => "dynamic-update-slice",
            Self::Concatenate(_) => "concatenate",
            Self::Pad(_) => "pad",
            Self::Reduce { .. } => "reduce",
            Self::Map(_) => "map",
            Self::Dot(_) => "dot",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names that differ from their variant's beyond case and hyphens, as xla/hlo/ir/hlo_opcode.h has them.
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
            assert_eq!(
                BinaryOperation::from_name(operation.name()),
                Some(operation)
            );
        }
        assert_eq!(Comparison::from_name("eq"), None);
        assert_eq!(
            Schedule::from_name("SCHEDULE_LATEST"),
            Some(Schedule::Latest)
        );
        assert_eq!(FusionKind::from_name("kLoop"), Some(FusionKind::Loop));
    }
}
