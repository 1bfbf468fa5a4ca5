//! Sorts, Fourier transforms, linear algebra and random bits.

use arbitrary::Result;
use callbox::program::{
    BinaryOperation, Comparison, ComparisonOrder, DotDimensions, FftKind, Op, RandomAlgorithm,
    Transposition, TriangularSolve,
};
use callbox::{ArrayShape, ElementType, Shape};

use super::{Building, Step, TYPES, made};
use crate::generate::dimensions;

impl Building<'_, '_> {
    pub(super) fn sort(&mut self) -> Step {
        let (x, shape) = self.any()?;
        let t = shape.element_type();
        // A comparison that NaN makes no order gives some permutation.
        let order = if t.is_floating() {
            ComparisonOrder::Total
        } else {
            ComparisonOrder::Partial
        };
        let comparison = *self.u.choose(&[Comparison::Lt, Comparison::Gt])?;
        let mut operands = vec![x];
        let mut types = vec![t];
        if self.u.arbitrary()? {
            let t = *self.u.choose(&TYPES)?;
            types.push(t);
            operands.push(self.same(&ArrayShape::new(t, shape.dimensions()).unwrap())?);
        }
        let dimension = self.u.int_in_range(0..=shape.rank())?;
        let computation = self.builder.computation("before", |c| {
            let mut all = Vec::new();
            for (i, &t) in types.iter().enumerate() {
                all.push(c.parameter(2 * i, Shape::scalar(t), "")?);
                all.push(c.parameter(2 * i + 1, Shape::scalar(t), "")?);
            }
            c.compare(comparison, order, all[0], all[1])
        });
        let Some(computation) = made(computation) else {
            return Ok(None);
        };
        let sorted = made(self.builder.sort(&operands, dimension, computation));
        self.element_of(sorted, operands.len())
    }

    pub(super) fn top_k(&mut self) -> Step {
        let (x, shape) = self.any()?;
        let most = shape.dimensions().last().copied().unwrap_or(0) + 1;
        let k = self.u.int_in_range(0..=most)?;
        let largest = self.u.arbitrary()?;
        let top = made(self.builder.top_k(x, k, largest));
        self.element_of(top, 2)
    }

    /// Keeps a tuple of `count` elements and gives one of them. One element alone is no tuple.
    fn element_of(&mut self, op: Option<Op>, count: usize) -> Step {
        let Some(op) = op.filter(|_| count > 1) else {
            return Ok(op);
        };
        self.all.push(op);
        let index = self.u.choose_index(count)?;
        Ok(made(self.builder.get_tuple_element(op, index)))
    }

    pub(super) fn fft(&mut self) -> Step {
        use FftKind::{Forward, Inverse, RealForward, RealInverse};
        let kind = *self
            .u
            .choose(&[Forward, Inverse, RealForward, RealInverse])?;
        let types = match kind {
            RealForward => [ElementType::F32, ElementType::F64],
            _ => [ElementType::C64, ElementType::C128],
        };
        let mut shape = ArrayShape::new(*self.u.choose(&types)?, &dimensions(self.u)?).unwrap();
        if self.u.ratio(1, 4)? {
            shape = self.any()?.1;
        }
        let x = self.same(&shape)?;
        let count = self.u.int_in_range(0..=shape.rank())?;
        let mut length = shape.dimensions()[shape.rank() - count..].to_vec();
        if let (RealInverse, Some(last)) = (kind, length.last_mut()) {
            // Both lengths have half a spectrum of this size.
            *last = (2 * *last).saturating_sub(1 + usize::from(self.u.arbitrary::<bool>()?));
        }
        Ok(made(self.builder.fft(x, kind, &length)))
    }

    /// Generates square matrices, in half of the cases those of an existing value.
    fn squares(&mut self) -> Result<(Op, ArrayShape)> {
        use ElementType::{Bf16, C64, C128, F16, F32, F64};
        if self.u.ratio(1, 8)? {
            return self.any();
        }
        let t = *self.u.choose(&[F32, F64, C64, C128, F16, Bf16])?;
        let n = self.u.int_in_range(0..=4)?;
        let sizes = if self.u.ratio(1, 3)? {
            vec![self.u.int_in_range(0..=2)?, n, n]
        } else {
            vec![n, n]
        };
        let shape = ArrayShape::new(t, &sizes).unwrap();
        Ok((self.same(&shape)?, shape))
    }

    pub(super) fn cholesky(&mut self) -> Step {
        let (mut a, shape) = self.squares()?;
        if let (rank @ 2.., true) = (shape.rank(), self.u.ratio(7, 8)?) {
            // A product of a matrix and its transpose is mostly positive definite.
            let batch: Vec<usize> = (0..rank - 2).collect();
            let product = made(self.builder.dot(
                a,
                a,
                DotDimensions {
                    lhs_batch: batch.clone(),
                    rhs_batch: batch,
                    lhs_contracting: vec![rank - 1],
                    rhs_contracting: vec![rank - 1],
                },
                None,
            ));
            let Some(product) = product else {
                return Ok(None);
            };
            self.all.push(product);
            let sum = made(self.builder.binary(BinaryOperation::Add, product, product));
            self.all.extend(sum);
            a = sum.unwrap_or(product);
        }
        let lower = self.u.arbitrary()?;
        Ok(made(self.builder.cholesky(a, lower)))
    }

    pub(super) fn triangular_solve(&mut self) -> Step {
        use Transposition::{Adjoint, None, Transpose};
        let (a, shape) = self.squares()?;
        let options = TriangularSolve {
            left_side: self.u.arbitrary()?,
            lower: self.u.arbitrary()?,
            unit_diagonal: self.u.arbitrary()?,
            transpose: *self.u.choose(&[None, Transpose, Adjoint])?,
        };
        let mut sizes = shape.dimensions().to_vec();
        if let [.., rows, columns] = &mut sizes[..] {
            let free = if options.left_side { columns } else { rows };
            *free = self.u.int_in_range(0..=3)?;
        }
        let b = self.same(&ArrayShape::new(shape.element_type(), &sizes).unwrap())?;
        Ok(made(self.builder.triangular_solve(a, b, options)))
    }

    pub(super) fn random_bits(&mut self) -> Step {
        use RandomAlgorithm::{Default, Philox, ThreeFry};
        let algorithm = *self.u.choose(&[Default, Philox, ThreeFry])?;
        let size = self.u.int_in_range(2..=3)?;
        let state = self.same(&ArrayShape::new(ElementType::U64, &[size]).unwrap())?;
        let t = *self.u.choose(&TYPES)?;
        let bits = Shape::array(t, &dimensions(self.u)?).unwrap();
        let bits = made(self.builder.random_bits(state, algorithm, bits));
        self.element_of(bits, 2)
    }
}
