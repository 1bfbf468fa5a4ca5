//! Operands and results: optional ones, remaining ones, and every element type.

use callbox_guest::{
    AnyOperand, AnyResult, Bf16, C64, C128, Element, F16, Failure, Operand, RemainingOperands,
    RemainingResults, ResultBuffer, target,
};

/// Returns the number of elements of each operand, and the number of bytes of the last: -1 for an
/// operand that the call omits. Fills an optional second result with the first element of `bias`,
/// or with zeros.
#[target(pure)]
fn optional(
    x: &Operand<f32>,
    bias: Option<&Operand<f32>>,
    any: Option<&AnyOperand>,
    lengths: &mut ResultBuffer<i64, 1>,
    extra: Option<&mut ResultBuffer<f32>>,
) -> Result<(), Failure> {
    lengths.expect_dimensions(&[3])?;
    let length = |length: Option<usize>| length.map_or(-1, |length| length as i64);
    lengths.copy_from_slice(&[
        length(Some(x.len())),
        length(bias.map(|bias| bias.len())),
        length(any.map(|any| any.bytes().len())),
    ]);
    if let Some(extra) = extra {
        let fill = bias.and_then(|bias| bias.first().copied());
        extra.fill(fill.unwrap_or(0.0));
    }
    Ok(())
}

/// Moves each weight against its gradient: `w - rate g`. The rate is an operand or an attribute.
#[target(elementwise)]
fn descend(
    #[dimensions(..)] w: &Operand<f32>,
    #[dimensions(..)] g: &Operand<f32>,
    rate: Option<&Operand<f32, 0>>,
    #[dimensions(..)] y: &mut ResultBuffer<f32>,
    #[attr(name = "rate")] fixed: Option<f32>,
) -> Result<(), Failure> {
    y.expect_dimensions(w.dimensions())?;
    let given = rate.and_then(|rate| rate.first().copied());
    let rate = match (given, fixed) {
        (Some(rate), None) | (None, Some(rate)) => rate,
        _ => {
            return Err(Failure::invalid_argument(
                "expected a rate, as an operand or as an attribute",
            ));
        }
    };
    for (y, (w, g)) in y.iter_mut().zip(w.iter().zip(g.iter())) {
        *y = w - rate * g;
    }
    Ok(())
}

/// Sums all operands, of which there is at least one.
#[target(pure)]
fn sum_remaining(
    first: &Operand<f32>,
    rest: RemainingOperands,
    y: &mut ResultBuffer<f32>,
) -> Result<(), Failure> {
    y.expect_dimensions(first.dimensions())?;
    y.copy_from_slice(first);
    for i in 0..rest.len() {
        let term = rest.get::<f32>(i)?;
        y.expect_dimensions(term.dimensions())?;
        y.iter_mut().zip(term.iter()).for_each(|(y, x)| *y += x);
    }
    Ok(())
}

/// Copies each operand, of any type, to the result at the same index. There may be fewer results
/// than operands.
#[target(pure)]
fn copy_remaining(
    operands: RemainingOperands,
    mut results: RemainingResults,
) -> Result<(), Failure> {
    for i in 0..results.len() {
        copy(&operands.any(i)?, results.any(i)?)?;
    }
    Ok(())
}

/// Copies an operand of any type and rank.
#[target(pure, name = "copy_any")]
pub(crate) fn copy(x: &AnyOperand, y: &mut AnyResult) -> Result<(), Failure> {
    let is_alike = x.element_type() == y.element_type() && x.dimensions() == y.dimensions();
    if !is_alike {
        return Err(Failure::invalid_argument(format!(
            "expected a result like the operand {x:?}, found {y:?}"
        )));
    }
    y.bytes_mut().copy_from_slice(x.bytes());
    Ok(())
}

/// Returns the fields of an operand's record: the number of its element type, its rank, its
/// dimensions, its layout from minor to major, and its size in bytes.
#[target(pure)]
fn describe(x: &AnyOperand, y: &mut ResultBuffer<i64, 1>) -> Result<(), Failure> {
    let mut fields = vec![
        i64::from(x.element_type() as u8),
        x.dimensions().len() as i64,
    ];
    fields.extend(x.dimensions());
    fields.extend(x.shape().minor_to_major());
    fields.push(x.bytes().len() as i64);
    y.expect_dimensions(&[fields.len() as i64])?;
    y.copy_from_slice(&fields);
    Ok(())
}

/// A number that is converted to F32 for arithmetic.
trait Narrow: Element + Into<f32> {
    fn round(value: f32) -> Self;
}

impl Narrow for F16 {
    fn round(value: f32) -> Self {
        Self::from_f32(value)
    }
}

impl Narrow for Bf16 {
    fn round(value: f32) -> Self {
        Self::from_f32(value)
    }
}

/// Multiplies F16 or BF16 by the attribute `factor`, rounding once.
#[target(pure, T = [F16, Bf16])]
fn scale<T: Narrow>(x: &Operand<T>, y: &mut ResultBuffer<T>, #[attr] factor: f32) {
    for (y, x) in y.iter_mut().zip(x.iter()) {
        *y = T::round((*x).into() * factor);
    }
}

/// A complex number.
trait Complex: Element {
    fn conjugate(self) -> Self;
}

impl Complex for C64 {
    fn conjugate(self) -> Self {
        Self {
            im: -self.im,
            ..self
        }
    }
}

impl Complex for C128 {
    fn conjugate(self) -> Self {
        Self {
            im: -self.im,
            ..self
        }
    }
}

/// Computes the complex conjugates of C64 or C128.
#[target(pure, T = [C64, C128])]
fn conjugate<T: Complex>(x: &Operand<T>, y: &mut ResultBuffer<T>) {
    for (y, x) in y.iter_mut().zip(x.iter()) {
        *y = x.conjugate();
    }
}

/// Returns the elements of a matrix of any layout at pairs of indices.
#[target(pure, T = [f32, C64], I = [i32, u64])]
fn picked<T: Element, I: Element + TryInto<usize>>(
    #[dimensions(m, n)] x: &Operand<T>,
    #[dimensions(k, 2)] at: &Operand<I>,
    #[dimensions(k)] y: &mut ResultBuffer<T>,
) {
    let [count, _] = at.dims();
    for i in 0..count {
        // A negative index is past all dimensions.
        let [row, column] = [0, 1].map(|j| at[[i, j]].try_into().unwrap_or(usize::MAX));
        y[i] = x[[row, column]];
    }
}

/// Squares complex numbers with the crate num-complex.
#[target(elementwise)]
fn squared(#[dimensions(..)] x: &Operand<C64>, #[dimensions(..)] y: &mut ResultBuffer<C64>) {
    for (y, &x) in y.iter_mut().zip(x.iter()) {
        let x = num_complex::Complex::from(x);
        *y = (x * x).into();
    }
}

/// Adds the first element of each row to the second, the third to the fourth, and so on.
#[target(rows)]
fn pair_sums(
    #[dimensions(.., 2 * n)] x: &Operand<f32>,
    #[dimensions(.., n)] y: &mut ResultBuffer<f32>,
) {
    for (y, pair) in y.iter_mut().zip(x.chunks_exact(2)) {
        *y = pair[0] + pair[1];
    }
}

/// Takes every other element of each row, the first of them.
#[target(rows)]
fn every_other(
    #[dimensions(.., n)] x: &Operand<f32>,
    #[dimensions(.., (n + 1) / 2)] y: &mut ResultBuffer<f32>,
) {
    let columns = x.dimensions().last().map_or(0, |&columns| columns as usize);
    if columns == 0 {
        return;
    }
    let halves = y.chunks_exact_mut(columns.div_ceil(2));
    for (y, x) in halves.zip(x.chunks_exact(columns)) {
        for (y, x) in y.iter_mut().zip(x.iter().step_by(2)) {
            *y = *x;
        }
    }
}
