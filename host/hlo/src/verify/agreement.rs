//! The evaluator computes every operation that shape inference accepts, on every element type.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use crate::{
    BinaryOperation, Comparison, ComparisonOrder, DotDimensions, Executable, ExecuteOptions, Op,
    PaddingDimension, ProgramBuilder, SliceDimension, UnaryOperation,
};
use callbox_core::ElementType::{self, Pred, Token};
use callbox_core::Registry;
use callbox_core::call::Platform;
use callbox_core::{ArrayShape, Literal, Result, Shape, Status, StatusCode};

/// The beginnings of the messages about XLA's operations that callbox lacks. Apart from these,
/// callbox refuses only what XLA refuses, too: no operation depends on the width of a type.
const UNIMPLEMENTED: &[&str] = &[
    "atan2 on c",
    "bitcast from ",
    "bitcast-convert on ",
    "complex on ",
    "convert from complex ",
    "dot of ",
    "products of ",
];

/// Counts the programs that ran, so that a test that builds none fails.
#[derive(Default)]
struct Runs(usize);

impl Runs {
    /// Runs the program, if it can be built.
    fn run(&mut self, build: impl FnOnce(&mut ProgramBuilder) -> Result<Op>) {
        let mut b = ProgramBuilder::new("main");
        let root = match build(&mut b) {
            Ok(root) => root,
            Err(err) => return check_refusal(&err),
        };
        let program = b.build(root).unwrap();
        let executable = Executable::compile(&program, &Registry::new(), Platform::Host).unwrap();
        match executable.execute(0, &[], &ExecuteOptions::default()) {
            Ok(result) => assert_eq!(*result.shape(), program.functions()[0].result),
            Err(err) => panic!("{program:?}: {err}"),
        }
        self.0 += 1;
    }
}

fn check_refusal(err: &Status) {
    let is_known = match err.code() {
        StatusCode::InvalidArgument => true,
        StatusCode::Unimplemented => UNIMPLEMENTED
            .iter()
            .any(|text| err.message().contains(text)),
        _ => false,
    };
    assert!(is_known, "{err}");
}

/// The arrays' dimensions.
const DIMENSIONS: &[usize] = &[2, 3];

/// An array whose bytes are all 1, which is a valid value for every type.
fn ones(b: &mut ProgramBuilder, element_type: ElementType, dimensions: &[usize]) -> Result<Op> {
    let shape = ArrayShape::new(element_type, dimensions)?;
    let bytes = vec![1; shape.byte_size()];
    b.constant(Literal::from_bytes(shape, bytes)?)
}

fn array_types() -> impl Iterator<Item = ElementType> {
    let types = ElementType::ALL.iter().copied();
    types.filter(|&element_type| element_type != Token)
}

#[test]
fn elementwise_operations_run() {
    let mut runs = Runs::default();
    for t in array_types() {
        for &operation in UnaryOperation::ALL {
            runs.run(|b| {
                let x = ones(b, t, DIMENSIONS)?;
                b.unary(operation, x)
            });
        }
        for &operation in BinaryOperation::ALL {
            runs.run(|b| {
                let x = ones(b, t, DIMENSIONS)?;
                b.binary(operation, x, x)
            });
        }
        for &comparison in Comparison::ALL {
            for order in [ComparisonOrder::Partial, ComparisonOrder::Total] {
                runs.run(|b| {
                    let x = ones(b, t, DIMENSIONS)?;
                    b.compare(comparison, order, x, x)
                });
            }
        }
        for bits in [1, u32::MAX] {
            runs.run(|b| {
                let x = ones(b, t, DIMENSIONS)?;
                b.reduce_precision(x, bits, bits - 1)
            });
        }
    }
    assert!(runs.0 > 400, "{}", runs.0);
}

#[test]
fn choices_run() {
    let mut runs = Runs::default();
    for t in array_types() {
        for bound in [DIMENSIONS, &[]] {
            runs.run(|b| {
                let (bound, x) = (ones(b, t, bound)?, ones(b, t, DIMENSIONS)?);
                b.clamp(bound, x, bound)
            });
            runs.run(|b| {
                let (mask, x) = (ones(b, Pred, bound)?, ones(b, t, DIMENSIONS)?);
                b.select(mask, x, x)
            });
        }
        runs.run(|b| {
            let (predicate, x) = (ones(b, Pred, &[])?, ones(b, t, DIMENSIONS)?);
            let tuple = b.tuple(&[x, predicate])?;
            b.select(predicate, tuple, tuple)
        });
    }
    assert!(runs.0 > 100, "{}", runs.0);
}

#[test]
fn operations_of_two_types_run() {
    let mut runs = Runs::default();
    for t in array_types() {
        for u in array_types() {
            runs.run(|b| {
                let x = ones(b, t, DIMENSIONS)?;
                b.convert(x, u)
            });
            for ratio in [2, 4, 8, 16] {
                runs.run(|b| {
                    let x = ones(b, t, &[3, ratio])?;
                    b.bitcast_convert(x, u)
                });
            }
            runs.run(|b| {
                let x = ones(b, t, DIMENSIONS)?;
                b.bitcast(x, Shape::array(u, &[3, 2])?)
            });
            runs.run(|b| {
                let x = ones(b, t, DIMENSIONS)?;
                let dimensions = DotDimensions {
                    lhs_contracting: vec![1],
                    rhs_contracting: vec![1],
                    ..DotDimensions::default()
                };
                b.dot(x, x, dimensions, Some(u))
            });
            runs.run(|b| {
                let (x, start) = (ones(b, t, DIMENSIONS)?, ones(b, u, &[])?);
                let part = b.dynamic_slice(x, &[start, start], &[1, 2])?;
                b.dynamic_update_slice(x, part, &[start, start])
            });
        }
    }
    assert!(runs.0 > 1_000, "{}", runs.0);
}

#[test]
fn movements_run() {
    let mut runs = Runs::default();
    for t in array_types() {
        runs.run(|b| b.iota(Shape::array(t, DIMENSIONS)?, 1));
        runs.run(|b| {
            let x = ones(b, t, DIMENSIONS)?;
            let x = b.broadcast(x, &[3, 4, 2], &[2, 0])?;
            let x = b.transpose(x, &[1, 0, 2])?;
            let x = b.reverse(x, &[2])?;
            let x = b.concatenate(&[x, x], 1)?;
            let x = b.reshape(x, &[8, 6])?;
            b.copy(x)
        });
        runs.run(|b| {
            let x = ones(b, t, DIMENSIONS)?;
            let slice = |start, limit, stride| SliceDimension {
                start,
                limit,
                stride,
            };
            b.slice(x, &[slice(0, 1, usize::MAX), slice(3, 3, 1)])
        });
        runs.run(|b| {
            let (x, value) = (ones(b, t, DIMENSIONS)?, ones(b, t, &[])?);
            let padding = |low, high, interior| PaddingDimension {
                low,
                high,
                interior,
            };
            b.pad(x, value, &[padding(-5, 5, 2), padding(1, -1, 1)])
        });
    }
    assert!(runs.0 > 90, "{}", runs.0);
}

#[test]
fn operations_that_call_run() {
    let mut runs = Runs::default();
    for t in array_types() {
        runs.run(|b| {
            let double = b.computation("double", |c| {
                let x = c.parameter(0, Shape::scalar(t), "x")?;
                c.add(x, x)
            })?;
            let x = ones(b, t, DIMENSIONS)?;
            b.map(&[x], double)
        });
        for as_tuple in [false, true] {
            runs.run(|b| {
                let first = b.computation("first", |c| {
                    let x = c.parameter(0, Shape::scalar(t), "x")?;
                    c.parameter(1, Shape::scalar(t), "y")?;
                    if as_tuple { c.tuple(&[x]) } else { Ok(x) }
                })?;
                let (x, initial) = (ones(b, t, DIMENSIONS)?, ones(b, t, &[])?);
                b.reduce(&[x], &[initial], &[1], first)
            });
        }
        runs.run(|b| {
            let both = b.computation("both", |c| {
                let parameters = (0..4).map(|i| c.parameter(i, Shape::scalar(t), ""));
                let parameters = parameters.collect::<Result<Vec<_>>>()?;
                c.tuple(&parameters[1..3])
            })?;
            let (x, initial) = (ones(b, t, DIMENSIONS)?, ones(b, t, &[])?);
            b.reduce(&[x, x], &[initial, initial], &[1, 0], both)
        });
    }
    assert!(runs.0 > 90, "{}", runs.0);
}
