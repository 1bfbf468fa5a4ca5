//! Shape inference never panics, whatever the instruction.

use proptest::prelude::*;
use proptest::sample::select;

use super::testing::{Signature, infer_text};
use crate::{
    BinaryOperation, Comparison, ComparisonOrder, ComputationId, Convolution,
    ConvolutionDimensions, CustomCall, DotDimensions, FusionKind, IndexedWindows, Opcode,
    PaddingDimension, SliceDimension, UnaryOperation, WindowDimension,
};
use callbox_core::{Literal, Shape};

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

/// Dimension numbers and sizes, mostly small ones.
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

fn indexed_windows() -> impl Strategy<Value = IndexedWindows> {
    let lists = (numbers(), numbers(), numbers(), numbers(), numbers());
    (lists, number()).prop_map(|((a, b, c, d, e), index_vector)| IndexedWindows {
        window_dimensions: a,
        collapsed: b,
        index_map: c,
        operand_batch: d,
        indices_batch: e,
        index_vector,
    })
}

fn window() -> impl Strategy<Value = Vec<WindowDimension>> {
    let numbers = (number(), number(), number(), number());
    let dimension = (numbers, amount(), amount(), any::<bool>());
    let dimension = dimension.prop_map(|((a, b, c, d), low, high, is_reversed)| WindowDimension {
        size: a,
        stride: b,
        low,
        high,
        base_dilation: c,
        window_dilation: d,
        is_reversed,
    });
    prop::collection::vec(dimension, 0..3)
}

fn convolution() -> impl Strategy<Value = Convolution> {
    let labels = || {
        (number(), number(), numbers()).prop_map(|(outer, features, spatial)| {
            ConvolutionDimensions {
                outer,
                features,
                spatial,
            }
        })
    };
    let all = (window(), labels(), labels(), labels(), number(), number());
    all.prop_map(|(window, input, kernel, output, a, b)| Convolution {
        window,
        input,
        kernel,
        output,
        feature_groups: a,
        batch_groups: b,
    })
}

fn of_windows() -> impl Strategy<Value = Opcode> {
    prop_oneof![
        (indexed_windows(), numbers())
            .prop_map(|(windows, sizes)| Opcode::Gather { windows, sizes }),
        convolution().prop_map(|convolution| Opcode::Convolution(Box::new(convolution))),
        (indexed_windows(), callee()).prop_map(|(windows, computation)| Opcode::Scatter {
            windows,
            computation
        }),
        (number(), callee()).prop_map(|(dimension, computation)| Opcode::Sort {
            dimension,
            is_stable: true,
            computation
        }),
        (window(), callee()).prop_map(|(window, computation)| Opcode::ReduceWindow {
            window,
            computation
        }),
        (window(), callee(), callee()).prop_map(|(window, select, scatter)| {
            Opcode::SelectAndScatter {
                window,
                select,
                scatter,
            }
        }),
    ]
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
        opcode in prop_oneof![of_arrays(), of_anything(), of_windows()],
        operands in prop::collection::vec(shape(), 0..4),
        declared in prop::option::of(shape()),
    ) {
        // An inferred shape can be printed and parsed.
        if let Ok(shape) = infer_text(&opcode, &operands, declared, CALLEES) {
            prop_assert_eq!(shape.to_string().parse::<Shape>(), Ok(shape));
        }
    }
}
