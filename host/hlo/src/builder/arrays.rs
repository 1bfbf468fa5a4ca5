//! Operations that move elements or combine them.

use super::{Op, ProgramBuilder};
use crate::{ComputationId, DotDimensions, Opcode, PaddingDimension, SliceDimension};
use callbox_core::values::{ElementType, Result, Shape};

impl ProgramBuilder {
    /// Numbers counting up from 0 along a dimension of `shape`.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn iota(&mut self, shape: Shape, dimension: usize) -> Result<Op> {
        self.instruction(Opcode::Iota(dimension), &[], Some(&shape))
    }

    /// Repeats `x` to fill `dimensions`: its dimension `i` becomes dimension `mapping[i]`.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn broadcast(&mut self, x: Op, dimensions: &[usize], mapping: &[usize]) -> Result<Op> {
        let declared = self.with_dimensions(x, dimensions)?;
        self.instruction(Opcode::Broadcast(mapping.to_vec()), &[x], declared.as_ref())
    }

    /// The elements in row-major order, with other dimensions.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn reshape(&mut self, x: Op, dimensions: &[usize]) -> Result<Op> {
        let declared = self.with_dimensions(x, dimensions)?;
        self.instruction(Opcode::Reshape, &[x], declared.as_ref())
    }

    /// Reinterprets the memory of `x`, in its layout, as `shape`, in its layout.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn bitcast(&mut self, x: Op, shape: Shape) -> Result<Op> {
        self.instruction(Opcode::Bitcast, &[x], Some(&shape))
    }

    /// Dimension `i` of the result is dimension `permutation[i]` of `x`.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn transpose(&mut self, x: Op, permutation: &[usize]) -> Result<Op> {
        self.instruction(Opcode::Transpose(permutation.to_vec()), &[x], None)
    }

    /// Reverses these dimensions.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn reverse(&mut self, x: Op, dimensions: &[usize]) -> Result<Op> {
        self.instruction(Opcode::Reverse(dimensions.to_vec()), &[x], None)
    }

    /// The same value.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn copy(&mut self, x: Op) -> Result<Op> {
        self.instruction(Opcode::Copy, &[x], None)
    }

    /// A part of `x`. `slices` has an entry for each dimension.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn slice(&mut self, x: Op, slices: &[SliceDimension]) -> Result<Op> {
        self.instruction(Opcode::Slice(slices.to_vec()), &[x], None)
    }

    /// A part of `x` of these sizes.
    ///
    /// The start indices are scalars, one for each dimension, and are clamped so that the part is
    /// in bounds.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn dynamic_slice(&mut self, x: Op, starts: &[Op], sizes: &[usize]) -> Result<Op> {
        let operands = [&[x], starts].concat();
        self.instruction(Opcode::DynamicSlice(sizes.to_vec()), &operands, None)
    }

    /// `x` with a part of it replaced by `update`.
    ///
    /// The start indices are scalars, one for each dimension, and are clamped so that the part is
    /// in bounds.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn dynamic_update_slice(&mut self, x: Op, update: Op, starts: &[Op]) -> Result<Op> {
        let operands = [&[x, update], starts].concat();
        self.instruction(Opcode::DynamicUpdateSlice, &operands, None)
    }

    /// The operands, joined along a dimension.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn concatenate(&mut self, operands: &[Op], dimension: usize) -> Result<Op> {
        self.instruction(Opcode::Concatenate(dimension), operands, None)
    }

    /// `x` with `value`, a scalar, before, after and between its elements.
    ///
    /// `padding` has an entry for each dimension.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn pad(&mut self, x: Op, value: Op, padding: &[PaddingDimension]) -> Result<Op> {
        self.instruction(Opcode::Pad(padding.to_vec()), &[x, value], None)
    }

    /// Sums of products over the contracted dimensions.
    ///
    /// The result's dimensions are the batch dimensions, then the other ones of `lhs`, then those
    /// of `rhs`. Its element type is `element_type`, or that of the operands.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn dot(
        &mut self,
        lhs: Op,
        rhs: Op,
        dimensions: DotDimensions,
        element_type: Option<ElementType>,
    ) -> Result<Op> {
        let declared = element_type.map(Shape::scalar);
        self.instruction(Opcode::Dot(dimensions), &[lhs, rhs], declared.as_ref())
    }

    /// Reduces arrays of the same dimensions along some of them.
    ///
    /// Each array has an initial value, a scalar. `computation` takes one accumulator for each
    /// array, then one element of each, and gives the new accumulators: a scalar for one array, a
    /// tuple for several.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn reduce(
        &mut self,
        arrays: &[Op],
        initial_values: &[Op],
        dimensions: &[usize],
        computation: ComputationId,
    ) -> Result<Op> {
        let opcode = Opcode::Reduce {
            dimensions: dimensions.to_vec(),
            computation,
        };
        self.instruction(opcode, &[arrays, initial_values].concat(), None)
    }

    /// Applies a computation from scalars to a scalar to the operands' elements at each index.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn map(&mut self, operands: &[Op], computation: ComputationId) -> Result<Op> {
        self.instruction(Opcode::Map(computation), operands, None)
    }

    /// The shape of `x` with other dimensions. `None` if `x` is not an array, which shape
    /// inference reports.
    fn with_dimensions(&self, x: Op, dimensions: &[usize]) -> Result<Option<Shape>> {
        match self.shape(x)? {
            Shape::Array(array) if array.element_type() != ElementType::Token => {
                Shape::array(array.element_type(), dimensions).map(Some)
            }
            _ => Ok(None),
        }
    }
}
