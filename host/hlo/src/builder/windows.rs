//! Operations on windows of arrays, sorts, transforms and linear algebra.

use super::{Op, ProgramBuilder};
use crate::{
    ComputationId, Convolution, FftKind, IndexedWindows, Opcode, RandomAlgorithm, TriangularSolve,
    WindowDimension,
};
use callbox_core::values::{Result, Shape};

impl ProgramBuilder {
    /// The windows of `x`, of these sizes, that begin at the index vectors in `indices`. A window
    /// that would reach past `x` is moved to fit.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn gather(
        &mut self,
        x: Op,
        indices: Op,
        windows: IndexedWindows,
        sizes: &[usize],
    ) -> Result<Op> {
        let sizes = sizes.to_vec();
        self.instruction(Opcode::Gather { windows, sizes }, &[x, indices], None)
    }

    /// `arrays` with the windows in `updates` combined into them where the index vectors in
    /// `indices` say. A window that would reach past its array is left out.
    ///
    /// `computation` takes one element of each array, then one of each update, and gives the new
    /// elements: a scalar for one array, a tuple for several.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn scatter(
        &mut self,
        arrays: &[Op],
        indices: Op,
        updates: &[Op],
        windows: IndexedWindows,
        computation: ComputationId,
    ) -> Result<Op> {
        let opcode = Opcode::Scatter {
            windows,
            computation,
        };
        self.instruction(opcode, &[arrays, &[indices], updates].concat(), None)
    }

    /// `operands`, sorted together along a dimension. Equal elements keep their order.
    ///
    /// `computation` takes two elements of each operand, and says whether the first of them come
    /// before the second.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn sort(
        &mut self,
        operands: &[Op],
        dimension: usize,
        computation: ComputationId,
    ) -> Result<Op> {
        let opcode = Opcode::Sort {
            dimension,
            is_stable: true,
            computation,
        };
        self.instruction(opcode, operands, None)
    }

    /// A tuple of the `k` largest or smallest elements of each row of `x`, and their indices.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn top_k(&mut self, x: Op, k: usize, largest: bool) -> Result<Op> {
        self.instruction(Opcode::TopK { k, largest }, &[x], None)
    }

    /// Reduces each position of a window over the arrays, as [`reduce`](Self::reduce) does.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn reduce_window(
        &mut self,
        arrays: &[Op],
        initial_values: &[Op],
        window: &[WindowDimension],
        computation: ComputationId,
    ) -> Result<Op> {
        let opcode = Opcode::ReduceWindow {
            window: window.to_vec(),
            computation,
        };
        self.instruction(opcode, &[arrays, initial_values].concat(), None)
    }

    /// An array of `initial`, a scalar, into which `scatter` combines each element of `source`
    /// where the window at its position selects an element of `x`.
    ///
    /// `select` says whether the element selected so far stays selected beside another one.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn select_and_scatter(
        &mut self,
        [x, source, initial]: [Op; 3],
        window: &[WindowDimension],
        select: ComputationId,
        scatter: ComputationId,
    ) -> Result<Op> {
        let opcode = Opcode::SelectAndScatter {
            window: window.to_vec(),
            select,
            scatter,
        };
        self.instruction(opcode, &[x, source, initial], None)
    }

    /// The convolution of `x` with `kernel`.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn convolution(&mut self, x: Op, kernel: Op, convolution: Convolution) -> Result<Op> {
        let opcode = Opcode::Convolution(Box::new(convolution));
        self.instruction(opcode, &[x, kernel], None)
    }

    /// The Fourier transforms of the last dimensions of `x`, of these lengths in time.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn fft(&mut self, x: Op, kind: FftKind, length: &[usize]) -> Result<Op> {
        let length = length.to_vec();
        self.instruction(Opcode::Fft { kind, length }, &[x], None)
    }

    /// The triangular factor of each symmetric or Hermitian matrix in the last two dimensions.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn cholesky(&mut self, a: Op, lower: bool) -> Result<Op> {
        self.instruction(Opcode::Cholesky { lower }, &[a], None)
    }

    /// The solutions of systems of equations with triangular matrices.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn triangular_solve(&mut self, a: Op, b: Op, options: TriangularSolve) -> Result<Op> {
        self.instruction(Opcode::TriangularSolve(options), &[a, b], None)
    }

    /// A tuple of a new state and random bits, whose shape is `bits`.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn random_bits(
        &mut self,
        state: Op,
        algorithm: RandomAlgorithm,
        bits: Shape,
    ) -> Result<Op> {
        let declared = Shape::tuple(vec![self.shape(state)?.clone(), bits])?;
        let opcode = Opcode::RngBitGenerator(algorithm);
        self.instruction(opcode, &[state], Some(&declared))
    }
}
