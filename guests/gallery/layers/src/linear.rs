//! A linear layer. Its batch is the rows of a product of matrices, so that a larger one costs less
//! for each row.

use callbox_guest::maths::{self, Sizes, Strides};
use callbox_guest::{Failure, Operand, ResultBuffer, target};
use gallery::row_major;

/// Computes `x weight + bias`.
#[target(batched)]
fn linear(
    #[dimensions(batch, n)] x: &Operand<f32, 2>,
    #[dimensions(n, m)] weight: &Operand<f32, 2>,
    #[dimensions(m)] bias: &Operand<f32, 1>,
    #[dimensions(batch, m)] y: &mut ResultBuffer<f32, 2>,
) -> Result<(), Failure> {
    row_major(&[
        ("x", x.shape()),
        ("weight", weight.shape()),
        ("y", y.shape()),
    ])?;
    let [rows, depth] = sizes(x.dimensions());
    let columns = bias.len();
    y.expect_dimensions(&[rows as i64, columns as i64])?;
    for y in y.chunks_exact_mut(columns.max(1)) {
        y.copy_from_slice(bias);
    }
    let sizes = Sizes {
        batch: 1,
        rows,
        columns,
        depth,
    };
    let (a, b) = (
        Strides::row_major(rows, depth),
        Strides::row_major(depth, columns),
    );
    let c = Strides::row_major(rows, columns);
    maths::gemm(
        sizes,
        1.0,
        (&x[..], a),
        (&weight[..], b),
        1.0,
        (&mut y[..], c),
    );
    Ok(())
}

/// Computes the cotangents of the operands of `linear` from the cotangent `dy` of its result:
/// `dy weight^T`, `x^T dy`, and the sum of the rows of `dy`.
#[target(pure)]
#[derivative_of(linear)]
fn linear_grad(
    #[dimensions(batch, n)] x: &Operand<f32, 2>,
    #[dimensions(n, m)] weight: &Operand<f32, 2>,
    #[dimensions(m)] bias: &Operand<f32, 1>,
    #[dimensions(batch, m)] dy: &Operand<f32, 2>,
    #[dimensions(batch, n)] dx: &mut ResultBuffer<f32, 2>,
    #[dimensions(n, m)] dweight: &mut ResultBuffer<f32, 2>,
    #[dimensions(m)] dbias: &mut ResultBuffer<f32, 1>,
) -> Result<(), Failure> {
    row_major(&[
        ("x", x.shape()),
        ("weight", weight.shape()),
        ("dy", dy.shape()),
        ("dx", dx.shape()),
        ("dweight", dweight.shape()),
    ])?;
    let [rows, depth] = sizes(x.dimensions());
    let columns = bias.len();
    let of_x = Strides::row_major(rows, depth);
    let of_weight = Strides::row_major(depth, columns);
    let of_y = Strides::row_major(rows, columns);
    let back = Sizes {
        batch: 1,
        rows,
        columns: depth,
        depth: columns,
    };
    let weights = (&weight[..], of_weight.transposed());
    maths::gemm(
        back,
        1.0,
        (&dy[..], of_y),
        weights,
        0.0,
        (&mut dx[..], of_x),
    );
    let outer = Sizes {
        batch: 1,
        rows: depth,
        columns,
        depth: rows,
    };
    let inputs = (&x[..], of_x.transposed());
    let products = (&mut dweight[..], of_weight);
    maths::gemm(outer, 1.0, inputs, (&dy[..], of_y), 0.0, products);
    dbias.fill(0.0);
    for dy in dy.chunks_exact(columns.max(1)) {
        for (sum, dy) in dbias.iter_mut().zip(dy) {
            *sum += dy;
        }
    }
    Ok(())
}

fn sizes(dimensions: &[i64]) -> [usize; 2] {
    [0, 1].map(|i| dimensions.get(i).map_or(0, |size| *size as usize))
}

#[cfg(test)]
mod tests {
    use callbox_guest::native::Call;

    #[test]
    fn a_batch_without_entries_and_rows_without_elements_are_fine() {
        for (rows, depth) in [(0, 2), (3, 0)] {
            let mut call = Call::new();
            call.operand(&vec![1.0_f32; rows * depth], &[rows as i64, depth as i64])
                .operand(&vec![1.0_f32; depth * 2], &[depth as i64, 2])
                .operand(&[5.0_f32, 6.0], &[2])
                .result::<f32>(&[rows as i64, 2]);
            assert_eq!(call.run::<super::linear>(), Ok(()));
            assert_eq!(call.result_elements::<f32>(0), [5.0, 6.0].repeat(rows));
        }
    }
}
