//! Whatever is asked, shape inference answers: with a shape or an error, and never with a panic.

use proptest::prelude::*;
use proptest::sample::select;

use super::testing::{Signature, infer_text};
use crate::program::{
    BinaryOperation, Comparison, ComparisonOrder, ComputationId, CustomCall, DotDimensions,
    FusionKind, Opcode, PaddingDimension, SliceDimension, UnaryOperation,
};
use crate::{Literal, Shape};

const SHAPES: &[&str] = &[
    "f32[]",
    "f32[2,3]{0,1}",
    "s32[]",
    "u8[4]",
    "pred[]",
    "pred[2,3]",
    "s4[2]",
    "c128[2,3]",
    "f8e8m0fnu[0,2,3]",
    "token[]",
    "()",
    "(f32[2,3], (pred[], token[]))",
    "u8[9223372036854775807]",
    "f64[0,1152921504606846975]",
];

const CALLEES: &[Signature<'_>] = &[
    (&["f32[]", "f32[]"], "f32[]"),
    (&["f32[2,3]"], "pred[]"),
    (&["f32[2,3]"], "f32[2,3]"),
    (&[], "()"),
];

fn shape() -> impl Strategy<Value = &'static str> {
    select(SHAPES)
}

/// Dimension numbers and sizes, mostly small.
fn number() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 0..4usize, 1 => Just(usize::MAX), 1 => Just(usize::MAX / 2 + 1)]
}

fn numbers() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(number(), 0..4)
}

fn amount() -> impl Strategy<Value = i64> {
    prop_oneof![8 => -3..4i64, 1 => Just(i64::MIN), 1 => Just(i64::MAX)]
}

fn callee() -> impl Strategy<Value = ComputationId> {
    (0..CALLEES.len() as u32).prop_map(ComputationId)
}

fn of_arrays() -> impl Strategy<Value = Opcode> {
    let slice = (number(), number(), number()).prop_map(|(start, limit, stride)| SliceDimension {
        start,
        limit,
        stride,
    });
    let padding =
        (amount(), amount(), amount()).prop_map(|(low, high, interior)| PaddingDimension {
            low,
            high,
            interior,
        });
    let dot = (numbers(), numbers(), numbers(), numbers()).prop_map(|(a, b, c, d)| DotDimensions {
        lhs_batch: a,
        rhs_batch: b,
        lhs_contracting: c,
        rhs_contracting: d,
    });
    let order = select(&[ComparisonOrder::Partial, ComparisonOrder::Total][..]);
    let precision =
        any::<(u32, u32)>().prop_map(|(exponent_bits, mantissa_bits)| Opcode::ReducePrecision {
            exponent_bits,
            mantissa_bits,
        });
    prop_oneof![
        select(UnaryOperation::ALL).prop_map(Opcode::Unary),
        select(BinaryOperation::ALL).prop_map(Opcode::Binary),
        (select(Comparison::ALL), order).prop_map(|(c, o)| Opcode::Compare(c, o)),
        precision,
        number().prop_map(Opcode::Iota),
        numbers().prop_map(Opcode::Broadcast),
        numbers().prop_map(Opcode::Transpose),
        numbers().prop_map(Opcode::Reverse),
        numbers().prop_map(Opcode::DynamicSlice),
        number().prop_map(Opcode::Concatenate),
        prop::collection::vec(slice, 0..3).prop_map(Opcode::Slice),
        prop::collection::vec(padding, 0..3).prop_map(Opcode::Pad),
        dot.prop_map(Opcode::Dot),
    ]
}

fn of_anything() -> impl Strategy<Value = Opcode> {
    let plain = [
        Opcode::Parameter(usize::MAX),
        Opcode::Constant(Literal::scalar(1u8)),
        Opcode::Tuple,
        Opcode::AfterAll,
        Opcode::OptimizationBarrier,
        Opcode::CustomCall(Box::new(CustomCall::new("target"))),
        Opcode::Select,
        Opcode::Clamp,
        Opcode::Convert,
        Opcode::BitcastConvert,
        Opcode::Bitcast,
        Opcode::Reshape,
        Opcode::Copy,
        Opcode::DynamicUpdateSlice,
    ];
    let reduce = (numbers(), callee()).prop_map(|(dimensions, computation)| Opcode::Reduce {
        dimensions,
        computation,
    });
    prop_oneof![
        select(plain.to_vec()),
        number().prop_map(Opcode::GetTupleElement),
        callee().prop_map(Opcode::Call),
        callee().prop_map(|c| Opcode::Fusion(FusionKind::Loop, c)),
        callee().prop_map(Opcode::Map),
        (callee(), callee()).prop_map(|(condition, body)| Opcode::While { condition, body }),
        prop::collection::vec(callee(), 0..3).prop_map(Opcode::Conditional),
        reduce,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn every_question_has_an_answer(
        opcode in prop_oneof![of_arrays(), of_anything()],
        operands in prop::collection::vec(shape(), 0..4),
        declared in prop::option::of(shape()),
    ) {
        // `infer_text` has each shape in a layout of its own or none: a shape that was inferred is one that can be written.
        if let Ok(shape) = infer_text(&opcode, &operands, declared, CALLEES) {
            prop_assert_eq!(shape.to_string().parse::<Shape>(), Ok(shape));
        }
    }
}
