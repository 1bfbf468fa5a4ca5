//! Products with weights of 8 and 4 bits. `docs/gallery.md` has the formulas.

use callbox_guest::maths::{self, Sizes, Strides};
use callbox_guest::{Failure, Operand, ResultBuffer, target};
use gallery::{last, row_major};

/// The rows that are in memory as F32, or as sums, at one time.
const BLOCK: usize = 32;

/// Computes `x_scale w_scale sum(x w)` for each row of `x` and each row of `w`. The sums of the
/// products are exact integers of 32 bits, which wrap around.
#[target(rows)]
fn matmul_int8(
    #[dimensions(.., k)] x: &Operand<i8>,
    #[dimensions(..)] x_scale: &Operand<f32>,
    #[dimensions(n, k)] w: &Operand<i8, 2>,
    #[dimensions(n)] w_scale: &Operand<f32, 1>,
    #[dimensions(.., n)] y: &mut ResultBuffer<f32>,
) -> Result<(), Failure> {
    row_major(&[
        ("x", x.shape()),
        ("x_scale", x_scale.shape()),
        ("w", w.shape()),
        ("y", y.shape()),
    ])?;
    let [depth] = last("x", x.dimensions())?;
    let columns = w_scale.len();
    let w = (&w[..], Strides::row_major(columns, depth).transposed());
    let mut sums = vec![0; BLOCK.min(x_scale.len()) * columns];
    for (block, x_scale) in x_scale.chunks(BLOCK).enumerate() {
        let (first, rows) = (block * BLOCK, x_scale.len());
        let sizes = Sizes {
            batch: 1,
            rows,
            columns,
            depth,
        };
        let x = &x[first * depth..][..rows * depth];
        let x = (x, Strides::row_major(rows, depth));
        let sums = &mut sums[..rows * columns];
        let by_row = Strides::row_major(rows, columns);
        maths::gemm(sizes, 1, x, w, 0, (sums, by_row));
        for (i, &scale) in x_scale.iter().enumerate() {
            let (y, sums) = (
                &mut y[(first + i) * columns..][..columns],
                &sums[i * columns..],
            );
            for ((y, &sum), w_scale) in y.iter_mut().zip(sums).zip(w_scale.iter()) {
                *y = sum as f32 * (scale * w_scale);
            }
        }
    }
    Ok(())
}

/// Computes `x w^T` with weights of 4 bits: `w = scale (q - zero)`, with one `scale` and one `zero`
/// for each group of neighbours in a row of `w`.
///
/// A byte of `w` has two weights, the first in its lower half. The groups of a row are equally
/// long.
#[target(rows)]
fn matmul_int4(
    #[dimensions(.., k)] x: &Operand<f32>,
    #[dimensions(n, half)] w: &Operand<u8, 2>,
    #[dimensions(n, groups)] scale: &Operand<f32, 2>,
    #[dimensions(n, groups)] zero: &Operand<f32, 2>,
    #[dimensions(.., n)] y: &mut ResultBuffer<f32>,
) -> Result<(), Failure> {
    row_major(&[
        ("x", x.shape()),
        ("w", w.shape()),
        ("scale", scale.shape()),
        ("zero", zero.shape()),
        ("y", y.shape()),
    ])?;
    let [depth] = last("x", x.dimensions())?;
    let [columns, half] = last("w", w.dimensions())?;
    let [_, groups] = last("scale", scale.dimensions())?;
    if half * 2 != depth {
        return Err(Failure::invalid_argument(format!(
            "expected w to have half as many bytes in a row as x has elements, {depth}, found {half}"
        )));
    }
    if groups == 0 || !depth.is_multiple_of(groups) {
        return Err(Failure::invalid_argument(format!(
            "expected groups that divide the {depth} elements of a row, found {groups}"
        )));
    }
    let rows = y.len() / columns.max(1);
    let mut weights = vec![0.0; BLOCK * depth];
    for first in (0..columns).step_by(BLOCK) {
        let count = BLOCK.min(columns - first);
        for (j, weights) in weights
            .chunks_exact_mut(depth.max(1))
            .take(count)
            .enumerate()
        {
            let row = first + j;
            let group = row * groups..(row + 1) * groups;
            let (scale, zero) = (&scale[group.clone()], &zero[group]);
            unpack(&w[row * half..][..half], scale, zero, weights);
        }
        let sizes = Sizes {
            batch: 1,
            rows,
            columns: count,
            depth,
        };
        let by_row = Strides::row_major(rows, columns);
        maths::gemm(
            sizes,
            1.0,
            (x, Strides::row_major(rows, depth)),
            (&weights, Strides::row_major(count, depth).transposed()),
            0.0,
            (&mut y[first.min(rows * columns)..], by_row),
        );
    }
    Ok(())
}

/// Writes the weights of one row.
fn unpack(bytes: &[u8], scale: &[f32], zero: &[f32], weights: &mut [f32]) {
    let (fours, rest) = bytes.as_chunks();
    let (eights, last) = weights.as_chunks_mut();
    for (weights, &four) in eights.iter_mut().zip(fours) {
        *weights = halves(u32::from_le_bytes(four)).map(f32::from);
    }
    let mut four = [0; 4];
    four[..rest.len()].copy_from_slice(rest);
    for (weight, half) in last.iter_mut().zip(halves(u32::from_le_bytes(four))) {
        *weight = f32::from(half);
    }
    let length = weights.len() / scale.len();
    let groups = scale.iter().zip(zero);
    for (group, (scale, zero)) in weights.chunks_exact_mut(length.max(1)).zip(groups) {
        for weight in group {
            *weight = (*weight - zero) * scale;
        }
    }
}

/// The halves of four bytes, the lower half of each first: all eight at once, for a vector has no
/// shift by another distance in each lane.
fn halves(four: u32) -> [u8; 8] {
    let x = u64::from(four);
    let x = (x | x << 16) & 0x0000_ffff_0000_ffff;
    let x = (x | x << 8) & 0x00ff_00ff_00ff_00ff;
    let x = (x | x << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    x.to_le_bytes()
}
