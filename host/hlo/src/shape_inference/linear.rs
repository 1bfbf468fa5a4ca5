//! Linear algebra: Cholesky factors and triangular systems.

use super::{arrays, bare};
use crate::TriangularSolve;
use crate::instruction::Domain;
use callbox_core::values::{ArrayShape, Result, Shape};

/// XLA's `InferCholeskyShape`.
pub(super) fn cholesky(operands: &[&Shape]) -> Result<Shape> {
    let [a] = arrays(operands)?;
    check_square(a)?;
    Ok(bare(a))
}

/// XLA's `InferTriangularSolveShape`.
pub(super) fn triangular_solve(solve: &TriangularSolve, operands: &[&Shape]) -> Result<Shape> {
    let [a, b] = arrays(operands)?;
    check_square(a)?;
    ensure!(
        a.element_type() == b.element_type(),
        "expected operands of one element type, found {a} and {b}"
    );
    ensure!(
        a.rank() == b.rank(),
        "expected operands of the same rank, found {a} and {b}"
    );
    let batch = a.rank() - 2;
    ensure!(
        a.dimensions()[..batch] == b.dimensions()[..batch],
        "expected operands of the same batch dimensions, found {a} and {b}"
    );
    let side = if solve.left_side { batch } else { batch + 1 };
    ensure!(
        a.dimensions()[batch] == b.dimensions()[side],
        "expected a dimension {side} of {} in the right-hand sides, found {b}",
        a.dimensions()[batch]
    );
    Ok(bare(b))
}

/// Checks that an array holds square matrices of numbers that can be divided.
fn check_square(a: &ArrayShape) -> Result<()> {
    Domain::FloatingOrComplex.check(a)?;
    let is_square = match a.dimensions() {
        [.., rows, columns] => rows == columns,
        _ => false,
    };
    ensure!(is_square, "expected square matrices, found {a}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, refused};
    use crate::{Opcode, Transposition, TriangularSolve};

    const CHOLESKY: Opcode = Opcode::Cholesky { lower: true };

    fn solve(left_side: bool) -> Opcode {
        Opcode::TriangularSolve(TriangularSolve {
            left_side,
            lower: true,
            unit_diagonal: false,
            transpose: Transposition::None,
        })
    }

    #[test]
    fn matrices_are_square_and_of_numbers() {
        check(&CHOLESKY, &["f32[3,3]"], "f32[3,3]");
        check(&CHOLESKY, &["c128[2,0,0]"], "c128[2,0,0]");
        for (operand, message) in [
            ("f32[3,4]", "expected square matrices, found f32[3,4]"),
            ("f32[3]", "expected square matrices, found f32[3]"),
            (
                "s32[3,3]",
                "expected elements that are floating or complex, found s32[3,3]",
            ),
        ] {
            refused(&CHOLESKY, &[operand], message);
        }
    }

    #[test]
    fn right_hand_sides_fit_the_matrix() {
        check(&solve(true), &["f32[5,3,3]", "f32[5,3,2]"], "f32[5,3,2]");
        check(&solve(false), &["f32[3,3]", "f32[2,3]"], "f32[2,3]");
        for (b, message) in [
            (
                "f32[2,3]",
                "expected a dimension 0 of 3 in the right-hand sides, found f32[2,3]",
            ),
            (
                "f64[3,2]",
                "expected operands of one element type, found f32[3,3] and f64[3,2]",
            ),
            (
                "f32[3]",
                "expected operands of the same rank, found f32[3,3] and f32[3]",
            ),
        ] {
            refused(&solve(true), &["f32[3,3]", b], message);
        }
        let message =
            "expected operands of the same batch dimensions, found f32[5,3,3] and f32[4,3,2]";
        refused(&solve(true), &["f32[5,3,3]", "f32[4,3,2]"], message);
    }
}
