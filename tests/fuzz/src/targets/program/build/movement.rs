//! Operations that move elements.

use arbitrary::Result;
use callbox::program::{PaddingDimension, SliceDimension};
use callbox::{ArrayShape, ElementType, Shape};

use super::{Building, Step, TYPES, made};
use crate::generate::{dimensions, permutation};

impl Building<'_, '_> {
    pub(super) fn iota(&mut self) -> Step {
        let element_type = *self.u.choose(&TYPES)?;
        let sizes = dimensions(self.u)?;
        let dimension = self.u.int_in_range(0..=sizes.len())?;
        let shape = Shape::array(element_type, &sizes).unwrap();
        Ok(made(self.builder.iota(shape, dimension)))
    }

    pub(super) fn broadcast(&mut self) -> Step {
        let (x, shape) = self.any()?;
        let mut sizes = dimensions(self.u)?;
        let rank = sizes.len();
        let mut mapping = permutation(self.u, rank)?;
        mapping.truncate(shape.rank());
        if self.u.ratio(7, 8)? {
            mapping.sort_unstable();
            for (&to, &size) in std::iter::zip(&mapping, shape.dimensions()) {
                sizes[to] = size;
            }
        }
        Ok(made(self.builder.broadcast(x, &sizes, &mapping)))
    }

    pub(super) fn reshape(&mut self) -> Step {
        let (x, shape) = self.any()?;
        let sizes = self.other_dimensions(&shape)?;
        Ok(made(self.builder.reshape(x, &sizes)))
    }

    pub(super) fn transpose(&mut self) -> Step {
        let (x, shape) = self.any()?;
        let order = permutation(self.u, shape.rank())?;
        match self.u.int_in_range(0..=3)? {
            0 => Ok(made(self.builder.copy(x))),
            1 => {
                let reversed = &order[..self.u.int_in_range(0..=order.len())?];
                Ok(made(self.builder.reverse(x, reversed)))
            }
            _ => Ok(made(self.builder.transpose(x, &order))),
        }
    }

    pub(super) fn slice(&mut self) -> Step {
        let (x, shape) = self.any()?;
        let slice = |&size: &usize| {
            let start = self.u.int_in_range(0..=size)?;
            let limit = self.u.int_in_range(start..=size)?;
            let stride = self.u.int_in_range(1..=3)?;
            Ok(SliceDimension {
                start,
                limit,
                stride,
            })
        };
        let slices = shape
            .dimensions()
            .iter()
            .map(slice)
            .collect::<Result<Vec<_>>>()?;
        Ok(made(self.builder.slice(x, &slices)))
    }

    /// Builds a dynamic slice or a dynamic update.
    pub(super) fn dynamic(&mut self) -> Step {
        let (x, shape) = self.any()?;
        let sizes = shape
            .dimensions()
            .iter()
            .map(|&size| self.u.int_in_range(0..=size));
        let sizes = sizes.collect::<Result<Vec<_>>>()?;
        let index = *self.u.choose(&[
            ElementType::S32,
            ElementType::S64,
            ElementType::U8,
            ElementType::U64,
        ])?;
        let starts = sizes
            .iter()
            .map(|_| self.scalar(index))
            .collect::<Result<Vec<_>>>()?;
        if self.u.arbitrary()? {
            return Ok(made(self.builder.dynamic_slice(x, &starts, &sizes)));
        }
        let update = self.same(&ArrayShape::new(shape.element_type(), &sizes).unwrap())?;
        Ok(made(self.builder.dynamic_update_slice(x, update, &starts)))
    }

    pub(super) fn concatenate(&mut self) -> Step {
        let (x, shape) = self.any()?;
        let mut operands = vec![x];
        for _ in 0..self.u.int_in_range(0..=2)? {
            operands.push(self.same(&shape)?);
        }
        let dimension = self.u.int_in_range(0..=shape.rank())?;
        Ok(made(self.builder.concatenate(&operands, dimension)))
    }

    pub(super) fn pad(&mut self) -> Step {
        let (x, shape) = self.any()?;
        let value = self.scalar(shape.element_type())?;
        let padding = shape.dimensions().iter().map(|_| {
            Ok(PaddingDimension {
                low: self.u.int_in_range(-3..=3)?,
                high: self.u.int_in_range(-3..=3)?,
                interior: self.u.int_in_range(0..=2)?,
            })
        });
        let padding = padding.collect::<Result<Vec<_>>>()?;
        Ok(made(self.builder.pad(x, value, &padding)))
    }
}
