//! Elementwise operations.

use super::{array, arrays, bare, exactly};
use crate::instruction::Domain;
use crate::{BinaryOperation, Comparison, ComparisonOrder, UnaryOperation};
use callbox_core::values::{ArrayShape, ElementType, Result, Shape, Status};

/// XLA's `InferUnaryOpShape`.
pub(super) fn unary(operation: UnaryOperation, operands: &[&Shape]) -> Result<Shape> {
    let [operand] = arrays(operands)?;
    operation.domain().check(operand)?;
    let element_type = match (operation, operand.element_type()) {
        (UnaryOperation::IsFinite, _) => ElementType::Pred,
        (UnaryOperation::Abs | UnaryOperation::Real | UnaryOperation::Imag, complex) => {
            component(complex)
        }
        (_, element_type) => element_type,
    };
    Shape::array(element_type, operand.dimensions())
}

/// XLA's `InferBinaryOpShape`, for operands of one shape: HLO has no implicit broadcasts.
pub(super) fn binary(operation: BinaryOperation, operands: &[&Shape]) -> Result<Shape> {
    let [lhs, rhs] = arrays(operands)?;
    check_same(lhs, rhs)?;
    operation.domain().check(lhs)?;
    let element_type = match (operation, lhs.element_type()) {
        (BinaryOperation::Complex, ElementType::F32) => ElementType::C64,
        (BinaryOperation::Complex, ElementType::F64) => ElementType::C128,
        (BinaryOperation::Complex, other) => return Err(unsupported(operation, other)),
        (BinaryOperation::Atan2, other) if other.is_complex() => {
            return Err(unsupported(operation, other));
        }
        (_, element_type) => element_type,
    };
    Shape::array(element_type, lhs.dimensions())
}

/// Complex numbers have no order: they take `EQ` and `NE` only.
pub(super) fn compare(
    comparison: Comparison,
    order: ComparisonOrder,
    operands: &[&Shape],
) -> Result<Shape> {
    let [lhs, rhs] = arrays(operands)?;
    check_same(lhs, rhs)?;
    let domain = match (comparison, order) {
        (Comparison::Eq | Comparison::Ne, ComparisonOrder::Partial) => Domain::Any,
        _ => Domain::Ordered,
    };
    domain.check(lhs)?;
    Shape::array(ElementType::Pred, lhs.dimensions())
}

/// XLA's `InferSelectShape`, and its former `tuple-select`: a scalar selects one of two tuples.
pub(super) fn select(operands: &[&Shape]) -> Result<Shape> {
    let [predicate, on_true, on_false] = exactly(operands)?;
    let Some(mask) = array(predicate).filter(|mask| mask.element_type().is_pred()) else {
        return Err(invalid!(
            "expected a predicate of pred elements, found {predicate}"
        ));
    };
    ensure!(
        on_true.is_compatible(on_false),
        "expected two values of the same shape, found {on_true} and {on_false}"
    );
    match array(on_true) {
        _ if mask.rank() == 0 => Ok(on_true.clone()),
        Some(values) if values.dimensions() == mask.dimensions() => Ok(bare(values)),
        _ => Err(invalid!(
            "expected a scalar predicate or one with the dimensions of {on_true}, found {predicate}"
        )),
    }
}

/// XLA's `InferClampShape`.
pub(super) fn clamp(operands: &[&Shape]) -> Result<Shape> {
    let [min, operand, max] = arrays(operands)?;
    Domain::Ordered.check(operand)?;
    for bound in [min, max] {
        let fits = bound.rank() == 0 || bound.dimensions() == operand.dimensions();
        ensure!(
            fits && bound.element_type() == operand.element_type(),
            "expected bounds that are {} scalars or {operand}, found {bound}",
            operand.element_type()
        );
    }
    Ok(bare(operand))
}

/// XLA's `InferReducePrecisionShape`. At least one exponent bit is needed to tell 0 from infinity.
pub(super) fn reduce_precision(exponent_bits: u32, operands: &[&Shape]) -> Result<Shape> {
    let [operand] = arrays(operands)?;
    Domain::Floating.check(operand)?;
    ensure!(
        exponent_bits > 0,
        "expected exponent_bits of at least 1, found 0"
    );
    Ok(bare(operand))
}

fn check_same(lhs: &ArrayShape, rhs: &ArrayShape) -> Result<()> {
    ensure!(
        lhs.is_compatible(rhs),
        "expected operands of the same shape, found {lhs} and {rhs}"
    );
    Ok(())
}

fn unsupported(operation: BinaryOperation, element_type: ElementType) -> Status {
    Status::unimplemented(format!("{operation} on {element_type} is not supported"))
}

/// The type of a complex number's parts. For real types, the type itself.
const fn component(element_type: ElementType) -> ElementType {
    match element_type {
        ElementType::C64 => ElementType::F32,
        ElementType::C128 => ElementType::F64,
        real => real,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, refused, refused_as};
    use crate::{BinaryOperation as B, Comparison as C, ComparisonOrder as O};
    use crate::{Opcode, UnaryOperation as U};
    use callbox_core::StatusCode::Unimplemented;

    #[test]
    fn unary_operations_keep_the_shape_and_mostly_the_type() {
        for (operation, operand, result) in [
            (U::Abs, "f32[2,3]", "f32[2,3]"),
            (U::Abs, "c64[2]", "f32[2]"),
            (U::Abs, "c128[]", "f64[]"),
            (U::Abs, "s8[0]", "s8[0]"),
            (U::Sign, "c64[2]", "c64[2]"),
            (U::Real, "c128[2]", "f64[2]"),
            (U::Imag, "c64[2]", "f32[2]"),
            (U::Real, "bf16[2]", "bf16[2]"),
            (U::IsFinite, "f16[2]", "pred[2]"),
            (U::Not, "pred[2]", "pred[2]"),
            (U::Not, "u64[2]", "u64[2]"),
            (U::Negate, "u8[2]", "u8[2]"),
            (U::CountLeadingZeros, "s64[2]", "s64[2]"),
            (U::PopulationCount, "u16[2]", "u16[2]"),
            (U::Sqrt, "c64[2]", "c64[2]"),
            (U::Tanh, "f64[2]{0}", "f64[2]"),
            (U::Erf, "f32[]", "f32[]"),
            (U::Negate, "s4[2]", "s4[2]"),
            (U::Not, "u1[2]", "u1[2]"),
            (U::IsFinite, "f4e2m1fn[2]", "pred[2]"),
            (U::Exponential, "f8e5m2[2]", "f8e5m2[2]"),
        ] {
            check(&Opcode::Unary(operation), &[operand], result);
        }
    }

    #[test]
    fn unary_operations_have_their_types() {
        for (operation, operand, kinds) in [
            (U::Abs, "u32[2]", "signed integral, floating or complex"),
            (U::Sign, "pred[2]", "signed integral, floating or complex"),
            (U::Negate, "pred[2]", "integral, floating or complex"),
            (U::Not, "f32[2]", "pred or integral"),
            (U::PopulationCount, "pred[2]", "integral"),
            (U::CountLeadingZeros, "f32[2]", "integral"),
            (U::Floor, "s32[2]", "floating"),
            (U::Cbrt, "c64[2]", "floating"),
            (U::Erf, "c64[2]", "floating"),
            (U::IsFinite, "c64[2]", "floating"),
            (U::Exponential, "s32[2]", "floating or complex"),
            (U::Real, "s32[2]", "floating or complex"),
        ] {
            let message = format!("expected elements that are {kinds}, found {operand}");
            refused(&Opcode::Unary(operation), &[operand], &message);
        }
        refused(
            &Opcode::Unary(U::Sine),
            &["(f32[2])"],
            "expected an array as operand 0, found (f32[2])",
        );
        refused(&Opcode::Unary(U::Sine), &[], "expected 1 operand, found 0");
    }

    #[test]
    fn binary_operations_take_one_shape() {
        for (operation, operand, result) in [
            (B::Add, "pred[2]", "pred[2]"),
            (B::Multiply, "c128[2]", "c128[2]"),
            (B::Maximum, "pred[]", "pred[]"),
            (B::Minimum, "bf16[2]", "bf16[2]"),
            (B::Divide, "c64[2]", "c64[2]"),
            (B::Power, "s32[2]", "s32[2]"),
            (B::Remainder, "f32[2]", "f32[2]"),
            (B::Atan2, "f64[2]", "f64[2]"),
            (B::Complex, "f32[2,3]", "c64[2,3]"),
            (B::Complex, "f64[]", "c128[]"),
            (B::ShiftLeft, "u8[2]", "u8[2]"),
            (B::Xor, "pred[2]", "pred[2]"),
            (B::And, "s64[2]", "s64[2]"),
            (B::Add, "f8e4m3fn[2]", "f8e4m3fn[2]"),
            (B::Xor, "u4[2]", "u4[2]"),
        ] {
            check(&Opcode::Binary(operation), &[operand, operand], result);
        }
        for (lhs, rhs) in [
            ("f32[2]", "f32[3]"),
            ("f32[2]", "f64[2]"),
            ("f32[2]", "f32[]"),
            ("f32[1,2]", "f32[2]"),
        ] {
            let message = format!("expected operands of the same shape, found {lhs} and {rhs}");
            refused(&Opcode::Binary(B::Add), &[lhs, rhs], &message);
        }
        refused(
            &Opcode::Binary(B::Add),
            &["f32[2]", "token[]"],
            "expected an array as operand 1, found token[]",
        );
    }

    #[test]
    fn binary_operations_have_their_types() {
        for (operation, operand, kinds) in [
            (B::Maximum, "c64[]", "pred, integral or floating"),
            (B::Subtract, "pred[]", "integral, floating or complex"),
            (B::Divide, "pred[]", "integral, floating or complex"),
            (B::Remainder, "c64[]", "integral or floating"),
            (B::Atan2, "s32[]", "floating or complex"),
            (B::Complex, "c64[]", "floating"),
            (B::ShiftRightLogical, "f32[]", "integral"),
            (B::ShiftLeft, "pred[]", "integral"),
            (B::Or, "f32[]", "pred or integral"),
            (B::Or, "f8e8m0fnu[]", "pred or integral"),
        ] {
            let message = format!("expected elements that are {kinds}, found {operand}");
            refused(&Opcode::Binary(operation), &[operand, operand], &message);
        }
        for (operation, operand, message) in [
            (B::Complex, "f16[2]", "complex on f16 is not supported"),
            (B::Atan2, "c64[2]", "atan2 on c64 is not supported"),
        ] {
            let opcode = Opcode::Binary(operation);
            refused_as(Unimplemented, &opcode, &[operand, operand], message);
        }
    }

    #[test]
    fn comparisons_give_pred() {
        for (comparison, order, operand, result) in [
            (C::Lt, O::Partial, "f32[2]", "pred[2]"),
            (C::Lt, O::Total, "f16[2]", "pred[2]"),
            (C::Ge, O::Total, "s32[2]", "pred[2]"),
            (C::Gt, O::Partial, "pred[]", "pred[]"),
            (C::Ne, O::Partial, "c64[2,2]", "pred[2,2]"),
            (C::Eq, O::Partial, "u2[]", "pred[]"),
            (C::Lt, O::Total, "f8e8m0fnu[]", "pred[]"),
        ] {
            check(
                &Opcode::Compare(comparison, order),
                &[operand, operand],
                result,
            );
        }
        for (comparison, order) in [(C::Lt, O::Partial), (C::Eq, O::Total)] {
            refused(
                &Opcode::Compare(comparison, order),
                &["c64[]", "c64[]"],
                "expected elements that are pred, integral or floating, found c64[]",
            );
        }
    }

    #[test]
    fn a_select_is_by_element_or_of_the_whole() {
        let select = Opcode::Select;
        check(&select, &["pred[2]", "f32[2]", "f32[2]"], "f32[2]");
        check(&select, &["pred[]", "f8e5m2[2]", "f8e5m2[2]"], "f8e5m2[2]");
        check(
            &select,
            &["pred[]", "(f32[2], s4[])", "(f32[2], s4[])"],
            "(f32[2], s4[])",
        );
        for (operands, message) in [
            (
                ["s32[2]", "f32[2]", "f32[2]"],
                "expected a predicate of pred elements, found s32[2]",
            ),
            (
                ["pred[2]", "f32[2]", "f32[3]"],
                "expected two values of the same shape, found f32[2] and f32[3]",
            ),
            (
                ["pred[3]", "f32[2]", "f32[2]"],
                "expected a scalar predicate or one with the dimensions of f32[2], found pred[3]",
            ),
            (
                ["pred[2]", "(f32[2])", "(f32[2])"],
                "expected a scalar predicate or one with the dimensions of (f32[2]), found pred[2]",
            ),
        ] {
            refused(&select, &operands, message);
        }
    }

    #[test]
    fn clamps_have_bounds_of_the_operands_type() {
        check(&Opcode::Clamp, &["f32[]", "f32[4]", "f32[4]"], "f32[4]");
        check(&Opcode::Clamp, &["pred[]", "pred[4]", "pred[]"], "pred[4]");
        refused(
            &Opcode::Clamp,
            &["f32[]", "f32[4]", "f32[3]"],
            "expected bounds that are f32 scalars or f32[4], found f32[3]",
        );
        refused(
            &Opcode::Clamp,
            &["s32[]", "f32[4]", "f32[]"],
            "expected bounds that are f32 scalars or f32[4], found s32[]",
        );
        refused(
            &Opcode::Clamp,
            &["c64[]", "c64[4]", "c64[]"],
            "expected elements that are pred, integral or floating, found c64[4]",
        );
    }

    #[test]
    fn precision_keeps_an_exponent() {
        let bits = |exponent_bits| Opcode::ReducePrecision {
            exponent_bits,
            mantissa_bits: 0,
        };
        check(&bits(1), &["f32[4]"], "f32[4]");
        refused(
            &bits(0),
            &["f32[4]"],
            "expected exponent_bits of at least 1, found 0",
        );
        refused(
            &bits(5),
            &["s32[4]"],
            "expected elements that are floating, found s32[4]",
        );
    }
}
