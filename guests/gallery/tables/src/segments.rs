//! Sums by group, and products with sparse matrices.

use callbox_guest::{Failure, Operand, ResultBuffer, target};
use gallery::{invalid, row_major, sum};

/// Adds row `i` of `x` to row `segments[i]` of the result. A row of no segment counts nowhere.
#[target(pure)]
fn segment_sum(
    #[dimensions(n, d)] x: &Operand<f32, 2>,
    #[dimensions(n)] segments: &Operand<i32, 1>,
    #[dimensions(s, d)] sums: &mut ResultBuffer<f32, 2>,
) -> Result<(), Failure> {
    row_major(&[("x", x.shape()), ("sums", sums.shape())])?;
    let width = (sums.dimensions()[1] as usize).max(1);
    let mut totals = vec![0.0_f64; sums.len()];
    for (x, &segment) in x.chunks_exact(width).zip(segments.iter()) {
        if let Some(totals) = row(&mut totals, segment, width) {
            for (total, x) in totals.iter_mut().zip(x) {
                *total += f64::from(*x);
            }
        }
    }
    for (sum, total) in sums.iter_mut().zip(totals) {
        *sum = total as f32;
    }
    Ok(())
}

/// Computes the cotangent of `x` of `segment_sum`: row `i` is row `segments[i]` of `dsums`.
#[target(pure)]
fn segment_sum_grad(
    #[dimensions(n)] segments: &Operand<i32, 1>,
    #[dimensions(s, d)] dsums: &Operand<f32, 2>,
    #[dimensions(n, d)] dx: &mut ResultBuffer<f32, 2>,
) -> Result<(), Failure> {
    row_major(&[("dsums", dsums.shape()), ("dx", dx.shape())])?;
    let width = (dsums.dimensions()[1] as usize).max(1);
    dx.fill(0.0);
    for (dx, &segment) in dx.chunks_exact_mut(width).zip(segments.iter()) {
        let found = usize::try_from(segment).ok();
        if let Some(dsums) = found.and_then(|i| dsums.chunks_exact(width).nth(i)) {
            dx.copy_from_slice(dsums);
        }
    }
    Ok(())
}

fn row(totals: &mut [f64], segment: i32, width: usize) -> Option<&mut [f64]> {
    totals
        .chunks_exact_mut(width)
        .nth(usize::try_from(segment).ok()?)
}

/// Multiplies a sparse matrix in compressed rows by `x`. Row `i` has the elements
/// `starts[i]..starts[i + 1]`, each with its value and its column.
#[target(pure)]
fn csr_matvec(
    #[dimensions(z)] values: &Operand<f32, 1>,
    #[dimensions(z)] columns: &Operand<i32, 1>,
    #[dimensions(starts)] starts: &Operand<i32, 1>,
    #[dimensions(c)] x: &Operand<f32, 1>,
    #[dimensions(r)] y: &mut ResultBuffer<f32, 1>,
) -> Result<(), Failure> {
    check_matrix(columns, starts, x.len(), y.len())?;
    for (y, ends) in y.iter_mut().zip(starts.windows(2)) {
        let elements = ends[0] as usize..ends[1] as usize;
        let (values, columns) = (&values[elements.clone()], &columns[elements]);
        let term = |i: usize| f64::from(values[i]) * f64::from(x[columns[i] as usize]);
        *y = sum(values.len(), term) as f32;
    }
    Ok(())
}

/// Computes the cotangents of `values` and `x` of `csr_matvec`.
#[target(pure)]
#[derivative_of(csr_matvec)]
fn csr_matvec_grad(
    #[dimensions(z)] values: &Operand<f32, 1>,
    #[dimensions(z)] columns: &Operand<i32, 1>,
    #[dimensions(starts)] starts: &Operand<i32, 1>,
    #[dimensions(c)] x: &Operand<f32, 1>,
    #[dimensions(r)] dy: &Operand<f32, 1>,
    #[dimensions(z)] dvalues: &mut ResultBuffer<f32, 1>,
    #[dimensions(c)] dx: &mut ResultBuffer<f32, 1>,
) -> Result<(), Failure> {
    check_matrix(columns, starts, x.len(), dy.len())?;
    let mut sums = vec![0.0_f64; dx.len()];
    for (&dy, ends) in dy.iter().zip(starts.windows(2)) {
        for i in ends[0] as usize..ends[1] as usize {
            let column = columns[i] as usize;
            dvalues[i] = dy * x[column];
            sums[column] += f64::from(dy) * f64::from(values[i]);
        }
    }
    for (dx, sum) in dx.iter_mut().zip(sums) {
        *dx = sum as f32;
    }
    Ok(())
}

/// Checks that the rows are all elements in order, and that each column exists.
fn check_matrix(columns: &[i32], starts: &[i32], width: usize, rows: usize) -> Result<(), Failure> {
    if starts.len() != rows + 1 {
        return Err(Failure::invalid_argument(format!(
            "expected {} starts for {rows} rows, found {}",
            rows + 1,
            starts.len()
        )));
    }
    let (first, last) = (starts[0], starts[rows]);
    if first != 0 || last as usize != columns.len() || !starts.is_sorted() {
        return Err(invalid(format!(
            "expected ascending starts from 0 to {}, found {first} to {last}",
            columns.len()
        )));
    }
    // A negative column is a large one. The greatest is found in vectors.
    let greatest = columns.iter().map(|column| *column as u32).max();
    match greatest.filter(|column| *column as usize >= width) {
        Some(column) => Err(invalid(format!(
            "expected columns below {width}, found {}",
            column as i32
        ))),
        None => Ok(()),
    }
}
