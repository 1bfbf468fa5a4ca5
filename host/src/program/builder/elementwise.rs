//! Operations element by element.

use super::{Op, ProgramBuilder};
use crate::program::{BinaryOperation, Comparison, ComparisonOrder, Opcode, UnaryOperation};
use crate::values::{ElementType, Result, Shape};

/// Gives operations methods of their own, from one table.
macro_rules! shorthands {
    (
        unary { $($unary:ident = $unary_operation:ident,)* }
        binary { $($binary:ident = $binary_operation:ident,)* }
    ) => {
        impl ProgramBuilder {
            $(
                #[doc = concat!("[`UnaryOperation::", stringify!($unary_operation), "`].")]
                ///
                /// # Errors
                /// See [`ProgramBuilder`].
                pub fn $unary(&mut self, x: Op) -> Result<Op> {
                    self.unary(UnaryOperation::$unary_operation, x)
                }
            )*
            $(
                #[doc = concat!("[`BinaryOperation::", stringify!($binary_operation), "`].")]
                ///
                /// # Errors
                /// See [`ProgramBuilder`].
                pub fn $binary(&mut self, x: Op, y: Op) -> Result<Op> {
                    self.binary(BinaryOperation::$binary_operation, x, y)
                }
            )*
        }
    };
}

shorthands! {
    unary {
        abs = Abs,
        cbrt = Cbrt,
        ceil = Ceil,
        count_leading_zeros = CountLeadingZeros,
        cosine = Cosine,
        erf = Erf,
        exponential = Exponential,
        exponential_minus_one = ExponentialMinusOne,
        floor = Floor,
        imag = Imag,
        is_finite = IsFinite,
        log = Log,
        log_plus_one = LogPlusOne,
        logistic = Logistic,
        negate = Negate,
        not = Not,
        population_count = PopulationCount,
        real = Real,
        round_nearest_afz = RoundNearestAfz,
        round_nearest_even = RoundNearestEven,
        rsqrt = Rsqrt,
        sign = Sign,
        sine = Sine,
        sqrt = Sqrt,
        tan = Tan,
        tanh = Tanh,
    }
    binary {
        add = Add,
        and = And,
        atan2 = Atan2,
        complex = Complex,
        divide = Divide,
        maximum = Maximum,
        minimum = Minimum,
        multiply = Multiply,
        or = Or,
        power = Power,
        remainder = Remainder,
        shift_left = ShiftLeft,
        shift_right_arithmetic = ShiftRightArithmetic,
        shift_right_logical = ShiftRightLogical,
        subtract = Subtract,
        xor = Xor,
    }
}

impl ProgramBuilder {
    /// An operation on each element.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn unary(&mut self, operation: UnaryOperation, x: Op) -> Result<Op> {
        self.instruction(Opcode::Unary(operation), &[x], None)
    }

    /// An operation on each two elements, of operands of one shape.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn binary(&mut self, operation: BinaryOperation, x: Op, y: Op) -> Result<Op> {
        self.instruction(Opcode::Binary(operation), &[x, y], None)
    }

    /// Compares each two elements, of operands of one shape: an array of PRED. Integers and PRED have one order, whichever is asked for.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn compare(
        &mut self,
        comparison: Comparison,
        order: ComparisonOrder,
        x: Op,
        y: Op,
    ) -> Result<Op> {
        let order = match self.shape(x) {
            // Said by one name, so that programs that do the same are equal.
            Ok(Shape::Array(array)) if is_of_one_order(array.element_type()) => {
                ComparisonOrder::Partial
            }
            _ => order,
        };
        self.instruction(Opcode::Compare(comparison, order), &[x, y], None)
    }

    /// `on_true` where `predicate` is true and `on_false` where not. A scalar predicate chooses the whole, which may then be a
    /// tuple.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn select(&mut self, predicate: Op, on_true: Op, on_false: Op) -> Result<Op> {
        self.instruction(Opcode::Select, &[predicate, on_true, on_false], None)
    }

    /// Each element of `x`, held between `min` and `max`, which have its shape or are scalars.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn clamp(&mut self, min: Op, x: Op, max: Op) -> Result<Op> {
        self.instruction(Opcode::Clamp, &[min, x, max], None)
    }

    /// Each element, rounded to this many bits of exponent (1 at least) and mantissa.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn reduce_precision(
        &mut self,
        x: Op,
        exponent_bits: u32,
        mantissa_bits: u32,
    ) -> Result<Op> {
        let opcode = Opcode::ReducePrecision {
            exponent_bits,
            mantissa_bits,
        };
        self.instruction(opcode, &[x], None)
    }

    /// Converts each element to another type.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn convert(&mut self, x: Op, element_type: ElementType) -> Result<Op> {
        self.instruction(Opcode::Convert, &[x], Some(&Shape::scalar(element_type)))
    }

    /// Reads the elements' bytes as another type. A narrower type gives a last dimension, a wider one takes it.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn bitcast_convert(&mut self, x: Op, element_type: ElementType) -> Result<Op> {
        let declared = Shape::scalar(element_type);
        self.instruction(Opcode::BitcastConvert, &[x], Some(&declared))
    }
}

fn is_of_one_order(element_type: ElementType) -> bool {
    element_type.is_integral() || element_type.is_pred()
}
