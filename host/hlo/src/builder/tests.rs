//! Programs built in code.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::{Op, ProgramBuilder};
use crate::{
    Comparison, ComparisonOrder, ComputationId, CustomCall, DotDimensions, FusionKind, Opcode,
    PaddingDimension, Schedule, SliceDimension,
};
use callbox_core::ElementType::{F32, F64, Pred, S32};
use callbox_core::call::{Alias, ApiVersion};
use callbox_core::{Literal, Result, Shape, StatusCode};

fn shape(text: &str) -> Shape {
    text.parse().unwrap()
}

/// A builder with an `f32[2,3]` in it.
fn with_array() -> (ProgramBuilder, Op) {
    let mut b = ProgramBuilder::new("main");
    let x = b.parameter(0, shape("f32[2,3]"), "x").unwrap();
    (b, x)
}

/// Checks the shape of the instruction that `build` adds, and that the program is valid.
fn check(result: &str, build: impl FnOnce(&mut ProgramBuilder, Op) -> Result<Op>) {
    let (mut b, x) = with_array();
    let op = build(&mut b, x).unwrap();
    assert_eq!(b.shape(op).unwrap().to_string(), result);
    b.build(op).unwrap();
}

fn refused(message: &str, build: impl FnOnce(&mut ProgramBuilder, Op) -> Result<Op>) {
    let (mut b, x) = with_array();
    assert_eq!(build(&mut b, x).unwrap_err().message(), message);
}

fn scalar(b: &mut ProgramBuilder, value: f32) -> Result<Op> {
    b.constant(Literal::scalar(value))
}

/// `add` of two scalars.
fn addition(b: &mut ProgramBuilder) -> Result<ComputationId> {
    b.computation("add", |c| {
        let x = c.parameter(0, Shape::scalar(F32), "x")?;
        let y = c.parameter(1, Shape::scalar(F32), "y")?;
        c.add(x, y)
    })
}

#[test]
fn names_are_made_and_kept_apart() {
    let mut b = ProgramBuilder::new("main");
    let x = b.parameter(0, Shape::scalar(F32), "x").unwrap();
    let other = b.parameter(1, Shape::scalar(F32), "x").unwrap();
    let nameless = b.parameter(2, Shape::scalar(F32), "").unwrap();
    b.parameter(3, Shape::scalar(F32), "add.4").unwrap();
    let sum = b.add(x, other).unwrap();
    let product = b.multiply(sum, nameless).unwrap();
    let root = b.unary(crate::UnaryOperation::IsFinite, product).unwrap();
    let program = b.build(root).unwrap();
    let names: Vec<_> = program.computations()[0]
        .instructions()
        .iter()
        .map(|i| i.name())
        .collect();
    let expected = [
        "x",
        "x.1",
        "parameter.2",
        "add.4",
        "add.4.1",
        "multiply.5",
        "is-finite.6",
    ];
    assert_eq!(names, expected);
}

#[test]
fn computations_get_names_of_their_own() {
    let mut b = ProgramBuilder::new("add");
    let first = addition(&mut b).unwrap();
    let second = addition(&mut b).unwrap();
    b.export(second).unwrap();
    let err = b.export(second).unwrap_err();
    assert_eq!(
        err.message(),
        "expected a computation that is not exported yet, found %add.2"
    );
    let x = b.parameter(0, Shape::scalar(F32), "x").unwrap();
    let root = b.call(first, &[x, x]).unwrap();
    let program = b.build(root).unwrap();
    let functions = program.functions();
    let names: Vec<_> = functions
        .iter()
        .map(|f| (f.ordinal, f.name.as_str()))
        .collect();
    assert_eq!(names, [(0, "add"), (1, "add.2")]);
    assert_eq!(functions[0].parameters.len(), 1);
    assert_eq!(functions[1].parameters.len(), 2);
}

#[test]
fn elementwise_operations_are_there() {
    check("f32[2,3]", |b, x| {
        let y = b.exponential(x)?;
        b.subtract(x, y)
    });
    check("c64[2,3]", |b, x| b.complex(x, x));
    check("pred[2,3]", |b, x| {
        b.compare(Comparison::Lt, ComparisonOrder::Total, x, x)
    });
    check("f32[2,3]", |b, x| {
        let mask = b.is_finite(x)?;
        b.select(mask, x, x)
    });
    check("f32[2,3]", |b, x| {
        let (zero, one) = (scalar(b, 0.0)?, scalar(b, 1.0)?);
        b.clamp(zero, x, one)
    });
    check("f32[2,3]", |b, x| b.reduce_precision(x, 5, 10));
    check("f64[2,3]", |b, x| b.convert(x, F64));
    check("u8[2,3,4]", |b, x| {
        b.bitcast_convert(x, callbox_core::ElementType::U8)
    });
    check("u32[2,3]", |b, x| {
        b.bitcast_convert(x, callbox_core::ElementType::U32)
    });
}

/// HLO text has no `type=TOTALORDER` for integers.
#[test]
fn integers_have_one_order() {
    let mut b = ProgramBuilder::new("main");
    let x = b.parameter(0, shape("s32[2]"), "x").unwrap();
    let less = b
        .compare(Comparison::Lt, ComparisonOrder::Total, x, x)
        .unwrap();
    let program = b.build(less).unwrap();
    let again = crate::Program::from_hlo_text(&program.to_hlo_text());
    assert_eq!(again, Ok(program));
}

/// Checking and dropping deep attributes does not recurse.
#[test]
fn attributes_nest_to_a_bounded_depth() {
    let nested = |depth| {
        let deeper = |inner, _| {
            let inner = callbox_core::Attribute::Dictionary(inner);
            callbox_core::Dictionary::from([("a".to_owned(), inner)])
        };
        (1..depth).fold(callbox_core::Dictionary::new(), deeper)
    };
    let call = |depth| {
        let (mut b, x) = with_array();
        let options = CustomCall {
            attributes: nested(depth),
            ..CustomCall::new("f")
        };
        let call = b.custom_call(options, &[x], shape("f32[]"))?;
        b.build(call)
    };
    let program = call(64).unwrap();
    let again = crate::Program::from_hlo_text(&program.to_hlo_text());
    assert_eq!(again, Ok(program));
    for depth in [65, 200_000] {
        let status = call(depth).unwrap_err();
        assert_eq!(status.code(), StatusCode::ResourceExhausted);
        assert_eq!(
            status.message(),
            "expected attributes that nest at most 64 deep, found more"
        );
    }
}

#[test]
fn elements_are_moved() {
    check("s32[4]", |b, _| b.iota(shape("s32[4]"), 0));
    check("f32[2,5,3]", |b, x| b.broadcast(x, &[2, 5, 3], &[0, 2]));
    check("f32[6]", |b, x| b.reshape(x, &[6]));
    check("f32[3,2]{0,1}", |b, x| b.bitcast(x, shape("f32[3,2]{0,1}")));
    check("f32[3,2]", |b, x| b.transpose(x, &[1, 0]));
    check("f32[2,3]", |b, x| b.reverse(x, &[1]));
    check("f32[2,3]", |b, x| b.copy(x));
    check("f32[1,2]", |b, x| {
        let dimension = |start, limit, stride| SliceDimension {
            start,
            limit,
            stride,
        };
        b.slice(x, &[dimension(1, 2, 1), dimension(0, 3, 2)])
    });
    check("f32[1,3]", |b, x| {
        let start = b.constant(Literal::scalar(1i32))?;
        b.dynamic_slice(x, &[start, start], &[1, 3])
    });
    check("f32[2,3]", |b, x| {
        let start = b.constant(Literal::scalar(1i32))?;
        let update = b.reshape(x, &[6])?;
        let update = b.broadcast(update, &[1, 6], &[1])?;
        let update = b.dynamic_slice(update, &[start, start], &[1, 2])?;
        b.dynamic_update_slice(x, update, &[start, start])
    });
    check("f32[2,6]", |b, x| b.concatenate(&[x, x], 1));
    check("f32[2,8]", |b, x| {
        let zero = scalar(b, 0.0)?;
        let dimension = |low, high, interior| PaddingDimension {
            low,
            high,
            interior,
        };
        b.pad(x, zero, &[dimension(0, 0, 0), dimension(1, 2, 1)])
    });
}

#[test]
fn elements_are_brought_together() {
    let by_columns = || DotDimensions {
        lhs_contracting: vec![1],
        rhs_contracting: vec![1],
        ..DotDimensions::default()
    };
    check("f32[2,2]", |b, x| b.dot(x, x, by_columns(), None));
    check("f64[2,2]", |b, x| b.dot(x, x, by_columns(), Some(F64)));
    check("f32[2]", |b, x| {
        let (add, zero) = (addition(b)?, scalar(b, 0.0)?);
        b.reduce(&[x], &[zero], &[1], add)
    });
    check("f32[2,3]", |b, x| {
        let add = addition(b)?;
        b.map(&[x, x], add)
    });
}

#[test]
fn control_is_there() {
    check("f32[2,3]", |b, x| {
        let body = b.computation("body", |c| c.parameter(0, shape("f32[2,3]"), "x"))?;
        let condition = b.computation("condition", |c| {
            c.parameter(0, shape("f32[2,3]"), "x")?;
            c.constant(Literal::scalar(false))
        })?;
        b.while_loop(condition, body, x)
    });
    check("f32[]", |b, x| {
        let branch = |c: &mut ProgramBuilder, value| {
            c.computation("branch", |c| {
                c.parameter(0, shape("f32[2,3]"), "x")?;
                scalar(c, value)
            })
        };
        let branches = [
            (branch(b, 1.0)?, x),
            (branch(b, 2.0)?, x),
            (branch(b, 3.0)?, x),
        ];
        let index = b.constant(Literal::scalar(2i32))?;
        b.conditional(index, &branches)
    });
    check("f32[]", |b, _| {
        let (add, one) = (addition(b)?, scalar(b, 1.0)?);
        b.fusion(FusionKind::Loop, add, &[one, one])
    });
    check("f32[2,3]", |b, x| {
        let tuple = b.tuple(&[x, x])?;
        let tuple = b.optimization_barrier(&[tuple])?;
        b.get_tuple_element(tuple, 1)
    });
    check("token[]", |b, _| {
        let token = b.after_all(&[])?;
        b.after_all(&[token, token])
    });
}

#[test]
fn computations_nest() {
    check("f32[]", |b, _| {
        let outer = b.computation("outer", |c| {
            let inner = addition(c)?;
            let x = c.parameter(0, Shape::scalar(F32), "x")?;
            c.call(inner, &[x, x])
        })?;
        let one = scalar(b, 1.0)?;
        b.call(outer, &[one])
    });
}

#[test]
fn custom_calls_say_all_that_xlas_builder_can() {
    let (mut b, x) = with_array();
    let options = CustomCall {
        opaque: b"...".to_vec(),
        has_side_effect: true,
        aliasing: vec![Alias {
            result_index: vec![],
            operand: 0,
            operand_index: vec![],
        }],
        literal: Some(Literal::scalar(1u8)),
        schedule: Schedule::Latest,
        api_version: ApiVersion::StatusReturning,
        operand_layouts: Some(vec![shape("f32[2,3]{0,1}")]),
        ..CustomCall::new("do_custom_call")
    };
    let op = b
        .custom_call(options.clone(), &[x], shape("f32[2,3]{0,1}"))
        .unwrap();
    let program = b.build(op).unwrap();
    let instruction = &program.computations()[0].instructions()[1];
    let Opcode::CustomCall(call) = instruction.opcode() else {
        unreachable!("{instruction:?}");
    };
    assert_eq!(instruction.shape().to_string(), "f32[2,3]{0,1}");
    assert_eq!(**call, options);
}

#[test]
fn errors_name_the_instruction() {
    refused(
        "instruction %add.2 (add) in computation %main: expected an array as operand 1, \
         found token[]",
        |b, x| {
            let token = b.after_all(&[])?;
            b.add(x, token)
        },
    );
    refused(
        "instruction %custom-call.1 (custom-call) in computation %main: expected the name of a \
         target, found an empty custom_call_target",
        |b, x| b.custom_call(CustomCall::new(""), &[x], shape("f32[]")),
    );
    refused(
        "instruction %y (parameter) in computation %main: expected a parameter number that is \
         not taken, found 0",
        |b, _| b.parameter(0, shape("f32[]"), "y"),
    );
    refused(
        "instruction %broadcast.2 (broadcast) in computation %main: expected an array as \
         operand 0, found (f32[2,3])",
        |b, x| {
            let tuple = b.tuple(&[x])?;
            b.broadcast(tuple, &[2], &[])
        },
    );
    refused(
        "computation %gap: expected parameters with the numbers 0 to 0, each once, found \
         parameter 1 (%x)",
        |b, x| {
            b.computation("gap", |c| c.parameter(1, Shape::scalar(Pred), "x"))?;
            Ok(x)
        },
    );
}

#[test]
fn handles_are_of_one_computation() {
    let message = "instruction %negate.1 (negate) in computation %main: \
                   expected handles of computation %main, found one of another";
    refused(message, |b, _| {
        let (_, other) = with_array();
        b.negate(other)
    });
    refused(message, |b, _| {
        let mut inner = None;
        b.computation("inner", |c| {
            let x = c.parameter(0, Shape::scalar(F32), "x")?;
            inner = Some(x);
            Ok(x)
        })?;
        b.negate(inner.unwrap())
    });
    refused(
        "instruction %negate.0 (negate) in computation %inner: \
         expected handles of computation %inner, found one of another",
        |b, x| {
            b.computation("inner", |c| c.negate(x))?;
            Ok(x)
        },
    );
    let (b, _) = with_array();
    let (_, other) = with_array();
    assert!(b.shape(other).is_err());
    assert!(b.build(other).is_err());
}

#[test]
fn computations_are_of_one_builder() {
    let (mut b, x) = with_array();
    let mut other = ProgramBuilder::new("other");
    let add = addition(&mut other).unwrap();
    let expected = "instruction %call.1 (call) in computation %main: \
                    expected a computation of this builder, found number 0 of 0";
    assert_eq!(b.call(add, &[x]).unwrap_err().message(), expected);
    assert!(b.export(add).is_err());
}

/// A computation that fails to build leaves the enclosing one unchanged.
#[test]
fn failures_leave_the_builder_whole() {
    let (mut b, x) = with_array();
    let failed = b.computation("failed", |c| {
        let y = c.parameter(0, Shape::scalar(S32), "y")?;
        c.sqrt(y)
    });
    assert_eq!(failed.unwrap_err().code(), StatusCode::InvalidArgument);
    let y = b.negate(x).unwrap();
    let program = b.build(y).unwrap();
    assert_eq!(program.computations().len(), 1);
}

#[test]
fn effects_can_be_put_in_order() {
    let (mut b, x) = with_array();
    let y = b.negate(x).unwrap();
    let z = b.abs(x).unwrap();
    b.control_predecessor(z, y).unwrap();
    b.control_predecessor(z, y).unwrap();
    let err = b.control_predecessor(y, z).unwrap_err();
    assert_eq!(
        err.message(),
        "expected a control predecessor that comes before %negate.1, found %abs.2"
    );
    let program = b.build(z).unwrap();
    let instructions = program.computations()[0].instructions();
    assert_eq!(instructions[2].control_predecessors().len(), 1);
}
