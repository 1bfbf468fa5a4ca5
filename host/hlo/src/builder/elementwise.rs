//! Elementwise operations.

use super::{Op, ProgramBuilder};
use crate::instruction::elementwise_operations;
use crate::{BinaryOperation, Comparison, ComparisonOrder, Opcode, UnaryOperation};
use callbox_core::values::{ArrayShape, ElementType, Result, Shape};

macro_rules! define_methods {
    (
        unary { $($(#[$_unary_doc:meta])* $unary:ident = $_u:literal, $unary_method:ident, $_ud:ident;)* }
        binary { $($(#[$_binary_doc:meta])* $binary:ident = $_b:literal, $binary_method:ident, $_bd:ident;)* }
    ) => {
        impl ProgramBuilder {
            $(
                #[doc = concat!("[`UnaryOperation::", stringify!($unary), "`].")]
                ///
                /// # Errors
                /// See [`ProgramBuilder`].
                pub fn $unary_method(&mut self, x: Op) -> Result<Op> {
                    self.unary(UnaryOperation::$unary, x)
                }
            )*
            $(
                #[doc = concat!("[`BinaryOperation::", stringify!($binary), "`].")]
                ///
                /// # Errors
                /// See [`ProgramBuilder`].
                pub fn $binary_method(&mut self, x: Op, y: Op) -> Result<Op> {
                    self.binary(BinaryOperation::$binary, x, y)
                }
            )*
        }
    };
}

elementwise_operations!(define_methods);

impl ProgramBuilder {
    /// Applies an operation to each element.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn unary(&mut self, operation: UnaryOperation, x: Op) -> Result<Op> {
        self.instruction(Opcode::Unary(operation), &[x], None)
    }

    /// Applies an operation to each pair of elements. Both operands have the same shape.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn binary(&mut self, operation: BinaryOperation, x: Op, y: Op) -> Result<Op> {
        self.instruction(Opcode::Binary(operation), &[x, y], None)
    }

    /// Compares each pair of elements; gives PRED. Both operands have the same shape.
    ///
    /// Integers and PRED have one order, and `order` does not matter for them.
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
        let array = self.shape(x).ok().and_then(Shape::as_array);
        let element_type = array.map(ArrayShape::element_type);
        // Equivalent programs compare as equal.
        let order = if element_type.is_some_and(|t| t.is_integral() || t.is_pred()) {
            ComparisonOrder::Partial
        } else {
            order
        };
        self.instruction(Opcode::Compare(comparison, order), &[x, y], None)
    }

    /// `on_true` where `predicate` is true, `on_false` elsewhere.
    ///
    /// A scalar predicate selects one of them as a whole, which may then be a tuple.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn select(&mut self, predicate: Op, on_true: Op, on_false: Op) -> Result<Op> {
        self.instruction(Opcode::Select, &[predicate, on_true, on_false], None)
    }

    /// Limits each element of `x` to the range from `min` to `max`, which have its shape or are
    /// scalars.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn clamp(&mut self, min: Op, x: Op, max: Op) -> Result<Op> {
        self.instruction(Opcode::Clamp, &[min, x, max], None)
    }

    /// Rounds each element to these numbers of bits of exponent (at least 1) and mantissa.
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

    /// Reinterprets the elements' bytes as another type. A narrower type adds a last dimension, a
    /// wider one removes it.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn bitcast_convert(&mut self, x: Op, element_type: ElementType) -> Result<Op> {
        let declared = Shape::scalar(element_type);
        self.instruction(Opcode::BitcastConvert, &[x], Some(&declared))
    }
}
