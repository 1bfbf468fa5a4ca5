//! Targets whose work the host does: products of matrices, elementwise functions, and functions of
//! rows.

use callbox_guest::maths::{
    self, Complex, Converted, Elementwise, Factor, MatrixElement, Order, Reduction, Sizes, Strides,
};
use callbox_guest::{
    AnyOperand, AnyResult, Bf16, C64, C128, ElementType, F16, Failure, Operand, ResultBuffer,
    Shape, target,
};

/// Computes a function of each element.
#[target(pure, T = [f32, f64])]
fn elementwise<T: MatrixElement>(
    x: &Operand<T>,
    y: &mut ResultBuffer<T>,
    #[attr] function: &str,
) -> Result<(), Failure> {
    y.expect_dimensions(x.dimensions())?;
    expect_row_major(&[("x", x.shape()), ("y", y.shape())])?;
    let found = Elementwise::ALL
        .into_iter()
        .find(|known| known.name() == function);
    maths::map(found.ok_or_else(|| unknown(function))?, x, y);
    Ok(())
}

/// Converts each element to the type of the result.
#[target(pure, T = [f32, F16, Bf16, i8])]
fn convert<T: Converted>(
    #[dimensions(..)] x: &Operand<T>,
    #[dimensions(..)] y: &mut AnyResult,
) -> Result<(), Failure> {
    let dimensions = y.dimensions();
    if dimensions != x.dimensions() {
        return Err(Failure::invalid_argument(format!(
            "expected y to have the dimensions of x, {:?}, found {dimensions:?}",
            x.dimensions()
        )));
    }
    expect_row_major(&[("x", x.shape()), ("y", y.shape())])?;
    match y.element_type() {
        ElementType::F32 => maths::convert(x, &mut y.as_typed::<f32>()?),
        ElementType::F16 => maths::convert(x, &mut y.as_typed::<F16>()?),
        ElementType::Bf16 => maths::convert(x, &mut y.as_typed::<Bf16>()?),
        _ => maths::convert(x, &mut y.as_typed::<i8>()?),
    }
    Ok(())
}

/// Computes the softmax over the last axis.
#[target(pure, T = [f32, f64])]
fn softmax_rows<T: MatrixElement>(
    #[dimensions(.., n)] x: &Operand<T>,
    #[dimensions(.., n)] y: &mut ResultBuffer<T>,
) -> Result<(), Failure> {
    y.expect_dimensions(x.dimensions())?;
    expect_row_major(&[("x", x.shape()), ("y", y.shape())])?;
    let columns = x.dimensions().last().map_or(1, |&n| n as usize);
    maths::softmax_rows(x, columns, y);
    Ok(())
}

/// Computes a function of each row.
#[target(pure, T = [f32, f64])]
fn reduce_rows<T: MatrixElement>(
    #[dimensions(m, _n)] x: &Operand<T, 2>,
    #[dimensions(m)] y: &mut ResultBuffer<T, 1>,
    #[attr] function: &str,
) -> Result<(), Failure> {
    expect_row_major(&[("x", x.shape())])?;
    expect_rows(x.dimensions(), y)?;
    let found = Reduction::ALL
        .into_iter()
        .find(|known| known.name() == function);
    maths::reduce_rows(found.ok_or_else(|| unknown(function))?, x, y);
    Ok(())
}

/// Computes the dot products of rows.
#[target(pure, T = [f32, f64])]
fn dot_rows<T: MatrixElement>(
    #[dimensions(m, n)] a: &Operand<T, 2>,
    #[dimensions(m, n)] b: &Operand<T, 2>,
    #[dimensions(m)] y: &mut ResultBuffer<T, 1>,
) -> Result<(), Failure> {
    if a.dimensions() != b.dimensions() {
        return Err(Failure::invalid_argument(format!(
            "expected b to have the dimensions of a, {:?}, found {:?}",
            a.dimensions(),
            b.dimensions()
        )));
    }
    expect_row_major(&[("a", a.shape()), ("b", b.shape())])?;
    expect_rows(a.dimensions(), y)?;
    maths::dot_rows(a, b, y);
    Ok(())
}

/// Sorts the positions of the elements of each row.
#[target(pure, T = [f32, f64])]
fn argsort_rows<T: MatrixElement>(
    #[dimensions(.., n)] x: &Operand<T>,
    #[dimensions(.., n)] positions: &mut ResultBuffer<i32>,
    #[attr] order: &str,
) -> Result<(), Failure> {
    positions.expect_dimensions(x.dimensions())?;
    expect_row_major(&[("x", x.shape()), ("positions", positions.shape())])?;
    let columns = x.dimensions().last().map_or(1, |&n| n as usize);
    let found = Order::ALL.into_iter().find(|known| known.name() == order);
    let order = found
        .ok_or_else(|| Failure::invalid_argument(format!("expected an order, found `{order}`")))?;
    maths::argsort_rows(order, x, columns, positions);
    Ok(())
}

/// Selects the greatest elements of each row, and their positions.
#[target(pure, T = [f32, f64])]
fn top_k_rows<T: MatrixElement>(
    #[dimensions(m, _n)] x: &Operand<T, 2>,
    #[dimensions(m, k)] values: &mut ResultBuffer<T, 2>,
    #[dimensions(m, k)] positions: &mut ResultBuffer<i32, 2>,
) -> Result<(), Failure> {
    let (&[rows, columns], &[_, kept]) = (x.dimensions(), values.dimensions()) else {
        return Err(Failure::invalid_argument("expected two dimensions"));
    };
    values.expect_dimensions(&[rows, kept.min(columns)])?;
    positions.expect_dimensions(&[rows, kept])?;
    expect_row_major(&[
        ("x", x.shape()),
        ("values", values.shape()),
        ("positions", positions.shape()),
    ])?;
    maths::top_k_rows(x, columns as usize, values, positions);
    Ok(())
}

/// Computes the Fourier transform over the last axis, or its inverse.
#[target(pure, T = [C64, C128])]
fn fft_rows<T: Complex>(
    #[dimensions(.., n)] x: &Operand<T>,
    #[dimensions(.., n)] y: &mut ResultBuffer<T>,
    #[attr] inverse: bool,
) -> Result<(), Failure> {
    y.expect_dimensions(x.dimensions())?;
    expect_row_major(&[("x", x.shape()), ("y", y.shape())])?;
    let points = x.dimensions().last().map_or(1, |&n| n as usize);
    if inverse {
        maths::inverse_fft_rows(x, points, y);
    } else {
        maths::fft_rows(x, points, y);
    }
    Ok(())
}

/// Computes the first half of the Fourier transform of each row of real numbers.
#[target(pure, T = [C64, C128])]
fn real_fft_rows<T: Complex>(
    #[dimensions(m, n)] x: &AnyOperand,
    #[dimensions(m, _h)] y: &mut ResultBuffer<T, 2>,
) -> Result<(), Failure> {
    let x = x.as_typed::<T::Part>()?;
    let rows = expect_matrix(x.shape())?;
    expect_points(rows[1])?;
    y.expect_dimensions(&[rows[0], rows[1] / 2 + 1])?;
    expect_row_major(&[("x", x.shape()), ("y", y.shape())])?;
    maths::real_fft_rows(&x, rows[1] as usize, y);
    Ok(())
}

/// Computes the inverse of `real_fft_rows`.
#[target(pure, T = [C64, C128])]
fn inverse_real_fft_rows<T: Complex>(
    #[dimensions(m, _h)] x: &Operand<T, 2>,
    #[dimensions(m, n)] y: &mut AnyResult,
) -> Result<(), Failure> {
    let mut y = y.as_typed::<T::Part>()?;
    let rows = expect_matrix(y.shape())?;
    expect_points(rows[1])?;
    let half = [rows[0], rows[1] / 2 + 1];
    if x.dimensions() != half {
        return Err(Failure::invalid_argument(format!(
            "expected x to have the dimensions {half:?}, found {:?}",
            x.dimensions()
        )));
    }
    expect_row_major(&[("x", x.shape()), ("y", y.shape())])?;
    maths::inverse_real_fft_rows(x, rows[1] as usize, &mut y);
    Ok(())
}

fn expect_matrix(shape: Shape<'_>) -> Result<[i64; 2], Failure> {
    shape
        .dimensions()
        .try_into()
        .map_err(|_| Failure::invalid_argument("expected two dimensions"))
}

fn expect_points(count: i64) -> Result<(), Failure> {
    if count > 0 {
        return Ok(());
    }
    Err(Failure::invalid_argument(
        "expected rows of at least one number, found none",
    ))
}

/// Normalises rows by their root mean square.
#[target(pure)]
fn rms_norm_rows(
    #[dimensions(.., n)] x: &Operand<f32>,
    #[dimensions(n)] weight: &Operand<f32, 1>,
    #[dimensions(.., n)] y: &mut ResultBuffer<f32>,
    #[attr] eps: f32,
) -> Result<(), Failure> {
    y.expect_dimensions(x.dimensions())?;
    expect_row_major(&[("x", x.shape()), ("y", y.shape())])?;
    maths::rms_norm_rows(x, weight, eps, y);
    Ok(())
}

/// Computes the gradient of `rms_norm_rows`.
#[target(pure)]
fn rms_norm_rows_gradient(
    #[dimensions(.., n)] x: &Operand<f32>,
    #[dimensions(n)] weight: &Operand<f32, 1>,
    #[dimensions(.., n)] dy: &Operand<f32>,
    #[dimensions(.., n)] dx: &mut ResultBuffer<f32>,
    #[dimensions(n)] dweight: &mut ResultBuffer<f64, 1>,
    #[attr] eps: f32,
) -> Result<(), Failure> {
    dx.expect_dimensions(x.dimensions())?;
    dweight.expect_dimensions(weight.dimensions())?;
    expect_row_major(&[("x", x.shape()), ("dy", dy.shape()), ("dx", dx.shape())])?;
    dweight.fill(0.0);
    maths::rms_norm_rows_gradient([x, weight, dy], eps, dx, dweight);
    Ok(())
}

/// Multiplies matrices: the last two dimensions of the operands, for each index of the others.
#[target(pure, T = [f32, f64, F16, Bf16, i8])]
fn matmul<T: Factor<Sum: Default + From<u8>>>(
    a: &Operand<T>,
    b: &Operand<T>,
    c: &mut AnyResult,
    #[attr] transpose_a: bool,
    #[attr] transpose_b: bool,
) -> Result<(), Failure> {
    expect_row_major(&[("a", a.shape()), ("b", b.shape()), ("c", c.shape())])?;
    let (batch, [mut rows, mut depth]) = matrices("a", a.dimensions())?;
    let (of_b, [mut terms, mut columns]) = matrices("b", b.dimensions())?;
    let mut of_a = Strides::row_major(rows, depth);
    if transpose_a {
        of_a = of_a.transposed();
        (rows, depth) = (depth, rows);
    }
    let mut strides_of_b = Strides::row_major(terms, columns);
    if transpose_b {
        strides_of_b = strides_of_b.transposed();
        (terms, columns) = (columns, terms);
    }
    if depth != terms || batch != of_b {
        return Err(Failure::invalid_argument(format!(
            "expected matrices that can be multiplied, found {:?} and {:?}",
            a.dimensions(),
            b.dimensions()
        )));
    }
    let mut dimensions = batch.to_vec();
    dimensions.extend([rows as i64, columns as i64]);
    let mut c = c.as_typed::<T::Sum>()?;
    c.expect_dimensions(&dimensions)?;
    let sizes = Sizes {
        batch: batch.iter().product::<i64>() as usize,
        rows,
        columns,
        depth,
    };
    maths::gemm(
        sizes,
        T::Sum::from(1),
        (a, of_a),
        (b, strides_of_b),
        T::Sum::default(),
        (&mut c, Strides::row_major(rows, columns)),
    );
    Ok(())
}

/// Splits dimensions into those of the batch and those of a matrix.
fn matrices<'d>(name: &str, dimensions: &'d [i64]) -> Result<(&'d [i64], [usize; 2]), Failure> {
    match dimensions {
        [batch @ .., rows, columns] => Ok((batch, [*rows as usize, *columns as usize])),
        _ => Err(Failure::invalid_argument(format!(
            "expected {name} to have two dimensions or more, found {dimensions:?}"
        ))),
    }
}

fn unknown(function: &str) -> Failure {
    Failure::invalid_argument(format!("`{function}` is no function"))
}

/// Checks that `y` has one element for each row.
fn expect_rows<T: MatrixElement>(
    dimensions: &[i64],
    y: &ResultBuffer<T, 1>,
) -> Result<(), Failure> {
    y.expect_dimensions(&dimensions[..1])
}

fn expect_row_major(buffers: &[(&str, Shape<'_>)]) -> Result<(), Failure> {
    match buffers.iter().find(|(_, shape)| !shape.is_row_major()) {
        None => Ok(()),
        Some((name, shape)) => Err(Failure::invalid_argument(format!(
            "expected a row-major layout of {name}, found {shape:?}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use callbox_guest::native::Call;

    #[test]
    fn matrices_are_multiplied_and_transposed() {
        // numpy: a = [[1, 2, 3], [4, 5, 6]], b = [[1, 0], [2, -1], [0, 3]], a @ b
        let a = [1.0_f64, 2.0, 3.0, 4.0, 5.0, 6.0];
        let a_transposed = [1.0_f64, 4.0, 2.0, 5.0, 3.0, 6.0];
        let b = [1.0_f64, 0.0, 2.0, -1.0, 0.0, 3.0];
        for (a, dimensions, transpose) in [(a, [2, 3], false), (a_transposed, [3, 2], true)] {
            let mut call = Call::new();
            call.operand(&a, &dimensions)
                .operand(&b, &[3, 2])
                .result::<f64>(&[2, 2])
                .attribute("transpose_a", transpose)
                .attribute("transpose_b", false);
            assert_eq!(call.run::<super::matmul>(), Ok(()));
            assert_eq!(call.result_elements::<f64>(0), [5.0, 7.0, 14.0, 13.0]);
        }
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        let mut call = Call::new();
        call.operand(&[1.0_f32; 4], &[2, 2])
            .operand(&[1.0_f32; 3], &[3, 1])
            .result::<f32>(&[2, 1])
            .attribute("transpose_a", false)
            .attribute("transpose_b", false);
        let failure = call.run::<super::matmul>();
        assert_eq!(
            failure.map_err(|failure| failure.to_string()),
            Err("INVALID_ARGUMENT: expected matrices that can be multiplied, found [2, 2] and [3, 1]".to_owned())
        );
    }
}
