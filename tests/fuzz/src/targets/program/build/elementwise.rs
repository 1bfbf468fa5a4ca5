//! Elementwise operations and bit conversions.

use arbitrary::Result;
use callbox::program::{BinaryOperation, Comparison, ComparisonOrder, Op, UnaryOperation};
use callbox::{ArrayShape, ElementType, Layout};

use super::{Building, Step, TYPES, made};
use crate::generate::permutation;

impl Building<'_, '_> {
    pub(super) fn unary(&mut self) -> Step {
        let (x, _) = self.any()?;
        let operation = *self.u.choose(UnaryOperation::ALL)?;
        Ok(made(self.builder.unary(operation, x)))
    }

    pub(super) fn binary(&mut self) -> Step {
        let (x, shape) = self.any()?;
        let y = self.same(&shape)?;
        let operation = *self.u.choose(BinaryOperation::ALL)?;
        Ok(made(self.builder.binary(operation, x, y)))
    }

    pub(super) fn compare(&mut self) -> Step {
        use Comparison as C;
        let (x, shape) = self.any()?;
        let y = self.same(&shape)?;
        let comparison = *self.u.choose(&[C::Eq, C::Ne, C::Ge, C::Gt, C::Le, C::Lt])?;
        let order = *self
            .u
            .choose(&[ComparisonOrder::Partial, ComparisonOrder::Total])?;
        Ok(made(self.builder.compare(comparison, order, x, y)))
    }

    pub(super) fn select(&mut self) -> Step {
        let (x, shape) = self.any()?;
        let y = self.same(&shape)?;
        let predicate = if self.u.arbitrary()? {
            self.same(&ArrayShape::new(ElementType::Pred, shape.dimensions()).unwrap())?
        } else {
            self.scalar(ElementType::Pred)?
        };
        Ok(made(self.builder.select(predicate, x, y)))
    }

    pub(super) fn clamp(&mut self) -> Step {
        let (x, shape) = self.any()?;
        let low = self.bound(&shape)?;
        let high = self.bound(&shape)?;
        Ok(made(self.builder.clamp(low, x, high)))
    }

    pub(super) fn bound(&mut self, shape: &ArrayShape) -> Result<Op> {
        if self.u.arbitrary()? {
            self.same(shape)
        } else {
            self.scalar(shape.element_type())
        }
    }

    pub(super) fn reduce_precision(&mut self) -> Step {
        let (x, shape) = self.any()?;
        // At least one mantissa bit: with none, XLA's rounding depends on the last bit of the
        // exponent.
        let (exponent, mantissa) = (self.u.int_in_range(0..=9)?, self.u.int_in_range(1..=24)?);
        // The interpreter has no wider type for these.
        match shape.element_type() {
            ElementType::F64 => Ok(None),
            _ => Ok(made(self.builder.reduce_precision(x, exponent, mantissa))),
        }
    }

    pub(super) fn convert(&mut self) -> Step {
        let (x, _) = self.any()?;
        let to = *self.u.choose(&TYPES)?;
        Ok(made(self.builder.convert(x, to)))
    }

    pub(super) fn bits(&mut self) -> Step {
        let (x, shape) = self.any()?;
        let to = *self.u.choose(&TYPES)?;
        if self.u.arbitrary()? {
            // Most bytes are no truth value.
            if to.is_pred() {
                return Ok(None);
            }
            return Ok(made(self.builder.bitcast_convert(x, to)));
        }
        // The same elements with other dimensions and another layout.
        let sizes = self.other_dimensions(&shape)?;
        let layout = permutation(self.u, sizes.len())?;
        let to = ArrayShape::new(shape.element_type(), &sizes).unwrap();
        let to = to.with_layout(Layout::new(&layout).unwrap()).unwrap();
        Ok(made(self.builder.bitcast(x, to.into())))
    }

    /// Returns dimensions with the same number of elements: permuted, merged, or split.
    pub(super) fn other_dimensions(&mut self, shape: &ArrayShape) -> Result<Vec<usize>> {
        let sizes = shape.dimensions();
        Ok(match self.u.int_in_range(0..=3)? {
            0 => vec![shape.element_count()],
            1 => permutation(self.u, sizes.len())?
                .into_iter()
                .map(|d| sizes[d])
                .collect(),
            2 => [sizes, &[1]].concat(),
            _ => {
                let mut others = Vec::new();
                for &size in sizes {
                    if size % 2 == 0 && size > 0 {
                        others.extend([size / 2, 2])
                    } else {
                        others.push(size)
                    }
                }
                others
            }
        })
    }
}
