//! Reductions, dots, calls and control flow.

use arbitrary::Result;
use callbox::program::{
    BinaryOperation, Comparison, ComparisonOrder, ComputationId, DotDimensions, FusionKind, Op,
};
use callbox::{ArrayShape, ElementType, Literal, Shape};

use super::{ASSOCIATIVE, Building, EXACT, Step, TYPES, is_rounded, made};
use crate::generate::permutation;

impl Building<'_, '_> {
    pub(super) fn reduce(&mut self) -> Step {
        let (x, shape) = self.any()?;
        let t = shape.element_type();
        let mut over = permutation(self.u, shape.rank())?;
        over.truncate(self.u.int_in_range(0..=shape.rank())?);
        let initial = self.scalar(t)?;
        let operation = *self.u.choose(&ASSOCIATIVE)?;
        let is_swapped = self.u.arbitrary()?;
        // For integers the order does not matter: also reduce two arrays at once, and with a
        // computation of two operations.
        let is_integer = t.is_integral() || t.is_pred();
        let kind = if is_integer {
            self.u.int_in_range(0..=2)?
        } else {
            0
        };
        let scalar = Shape::scalar(t);
        let operands = if kind == 2 { 2 } else { 1 };
        let computation = self.builder.computation("reducer", |c| {
            let parameters = (0..2 * operands).map(|i| c.parameter(i, scalar.clone(), ""));
            let p = parameters.collect::<callbox::Result<Vec<_>>>()?;
            let (a, b) = if is_swapped {
                (p[operands], p[0])
            } else {
                (p[0], p[operands])
            };
            let first = c.binary(operation, a, b)?;
            match kind {
                0 => Ok(first),
                1 => c.copy(first),
                _ => {
                    let second = c.binary(BinaryOperation::Maximum, p[1], p[3])?;
                    c.tuple(&[first, second])
                }
            }
        });
        let Some(computation) = made(computation) else {
            return Ok(None);
        };
        if kind == 2 {
            let y = self.same(&shape)?;
            let other = self.scalar(t)?;
            return Ok(made(self.builder.reduce(
                &[x, y],
                &[initial, other],
                &over,
                computation,
            )));
        }
        Ok(made(self.builder.reduce(
            &[x],
            &[initial],
            &over,
            computation,
        )))
    }

    /// Builds a computation from `count` values of a shape to one, of exact operations.
    pub(super) fn computation(
        &mut self,
        shape: &ArrayShape,
        parameters: usize,
    ) -> Result<Option<ComputationId>> {
        let steps = self.u.int_in_range(1..=4)?;
        let choices = (0..steps).map(|_| {
            Ok((
                *self.u.choose(&EXACT)?,
                self.u.arbitrary::<u8>()?,
                self.u.arbitrary::<u8>()?,
            ))
        });
        let choices = choices.collect::<Result<Vec<_>>>()?;
        let shape = Shape::Array(shape.clone().without_layout());
        Ok(made(self.builder.computation("callee", |c| {
            let values = (0..parameters).map(|i| c.parameter(i, shape.clone(), ""));
            let mut values = values.collect::<callbox::Result<Vec<_>>>()?;
            for (operation, x, y) in choices {
                let (x, y) = (
                    values[usize::from(x) % values.len()],
                    values[usize::from(y) % values.len()],
                );
                values.push(c.binary(operation, x, y)?);
            }
            Ok(values[values.len() - 1])
        })))
    }

    pub(super) fn map_or_call(&mut self) -> Step {
        let (x, shape) = self.any()?;
        if is_rounded(shape.element_type()) {
            return Ok(None);
        }
        let y = self.same(&shape)?;
        let kind = self.u.int_in_range(0..=2)?;
        let inner = if kind == 0 {
            ArrayShape::scalar(shape.element_type())
        } else {
            shape
        };
        let Some(callee) = self.computation(&inner, 2)? else {
            return Ok(None);
        };
        Ok(made(match kind {
            0 => self.builder.map(&[x, y], callee),
            1 => self.builder.call(callee, &[x, y]),
            _ => self.builder.fusion(FusionKind::Loop, callee, &[x, y]),
        }))
    }

    pub(super) fn dot(&mut self) -> Step {
        let (x, shape) = self.any()?;
        let contracting = match shape.rank() {
            0 => vec![],
            rank => vec![self.u.choose_index(rank)?],
        };
        let batch: Vec<usize> = if shape.rank() > 1 && self.u.arbitrary()? {
            vec![(contracting[0] + 1) % shape.rank()]
        } else {
            vec![]
        };
        // The right operand has the left one's shape with permuted dimensions.
        let order = permutation(self.u, shape.rank())?;
        let sizes: Vec<usize> = order.iter().map(|&d| shape.dimensions()[d]).collect();
        let y = self.same(&ArrayShape::new(shape.element_type(), &sizes).unwrap())?;
        let place = |of: &[usize]| {
            of.iter()
                .filter_map(|d| order.iter().position(|o| o == d))
                .collect::<Vec<_>>()
        };
        let dimensions = DotDimensions {
            rhs_batch: place(&batch),
            rhs_contracting: place(&contracting),
            lhs_batch: batch,
            lhs_contracting: contracting,
        };
        let to = if self.u.ratio(1, 4)? {
            Some(*self.u.choose(&TYPES)?)
        } else {
            None
        };
        Ok(made(self.builder.dot(x, y, dimensions, to)))
    }

    pub(super) fn tuple(&mut self) -> Step {
        let (x, _) = self.any()?;
        let (y, _) = self.any()?;
        let tuple = match self.u.int_in_range(0..=2)? {
            0 => made(self.builder.tuple(&[x, y])),
            1 => made(self.builder.optimization_barrier(&[x, y])),
            _ => {
                let token = made(self.builder.after_all(&[]));
                self.all.extend(token);
                made(self.builder.tuple(&[y, x]))
            }
        };
        let Some(tuple) = tuple else {
            return Ok(None);
        };
        self.all.push(tuple);
        let index = self.u.int_in_range(0..=2)?;
        Ok(made(self.builder.get_tuple_element(tuple, index)))
    }

    pub(super) fn control(&mut self) -> Step {
        let (x, shape) = self.any()?;
        if is_rounded(shape.element_type()) {
            return Ok(None);
        }
        if self.u.arbitrary()? {
            self.conditional(x, &shape)
        } else {
            self.repeat(x, &shape)
        }
    }

    pub(super) fn conditional(&mut self, x: Op, shape: &ArrayShape) -> Step {
        let is_pred = self.u.arbitrary()?;
        let index = self.scalar(if is_pred {
            ElementType::Pred
        } else {
            ElementType::S32
        })?;
        let count = if is_pred {
            2
        } else {
            self.u.int_in_range(1..=3)?
        };
        let mut branches = Vec::new();
        for _ in 0..count {
            let Some(branch) = self.computation(shape, 1)? else {
                return Ok(None);
            };
            branches.push((branch, x));
        }
        Ok(made(self.builder.conditional(index, &branches)))
    }

    /// Builds a loop of a few rounds, each of which changes a value.
    pub(super) fn repeat(&mut self, x: Op, shape: &ArrayShape) -> Step {
        let Some(change) = self.computation(shape, 1)? else {
            return Ok(None);
        };
        let rounds: i32 = self.u.int_in_range(0..=4)?;
        let counter = Shape::scalar(ElementType::S32);
        let value = Shape::Array(shape.clone().without_layout());
        let state = Shape::tuple(vec![counter, value]).unwrap();
        let condition = self.builder.computation("condition", |c| {
            let state = c.parameter(0, state.clone(), "")?;
            let (i, most) = (
                c.get_tuple_element(state, 0)?,
                c.constant(Literal::scalar(rounds))?,
            );
            c.compare(Comparison::Lt, ComparisonOrder::Partial, i, most)
        });
        let body = self.builder.computation("body", |c| {
            let state = c.parameter(0, state.clone(), "")?;
            let (i, x) = (
                c.get_tuple_element(state, 0)?,
                c.get_tuple_element(state, 1)?,
            );
            let one = c.constant(Literal::scalar(1_i32))?;
            let (i, x) = (c.add(i, one)?, c.call(change, &[x])?);
            c.tuple(&[i, x])
        });
        let (Some(condition), Some(body)) = (made(condition), made(body)) else {
            return Ok(None);
        };
        let zero = self.builder.constant(Literal::scalar(0_i32)).unwrap();
        let first = made(self.builder.tuple(&[zero, x]));
        self.all.push(zero);
        let Some(first) = first else {
            return Ok(None);
        };
        self.all.push(first);
        let Some(last) = made(self.builder.while_loop(condition, body, first)) else {
            return Ok(None);
        };
        self.all.push(last);
        Ok(made(self.builder.get_tuple_element(last, 1)))
    }
}
