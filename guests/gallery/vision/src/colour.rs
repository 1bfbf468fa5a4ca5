//! Colours in other forms. A colour is the last axis.

use callbox_guest::{Failure, Operand, ResultBuffer, target};
use gallery::row_major;

/// Converts red, green and blue from 0 to 1 to hue, saturation and value from 0 to 1.
#[target(rows)]
fn rgb_to_hsv(
    #[dimensions(.., 3)] x: &Operand<f32>,
    #[dimensions(.., 3)] y: &mut ResultBuffer<f32>,
) -> Result<(), Failure> {
    row_major(&[("x", x.shape()), ("y", y.shape())])?;
    for (x, y) in x.chunks_exact(3).zip(y.chunks_exact_mut(3)) {
        let [red, green, blue] = [x[0], x[1], x[2]];
        let value = red.max(green).max(blue);
        let range = value - red.min(green).min(blue);
        let sixth = if range == 0.0 {
            0.0
        } else if value == red {
            (green - blue) / range
        } else if value == green {
            2.0 + (blue - red) / range
        } else {
            4.0 + (red - green) / range
        };
        y[0] = (sixth / 6.0).rem_euclid(1.0);
        y[1] = if range == 0.0 { 0.0 } else { range / value };
        y[2] = value;
    }
    Ok(())
}

/// Converts hue, saturation and value from 0 to 1 to red, green and blue from 0 to 1.
#[target(rows)]
fn hsv_to_rgb(
    #[dimensions(.., 3)] x: &Operand<f32>,
    #[dimensions(.., 3)] y: &mut ResultBuffer<f32>,
) -> Result<(), Failure> {
    row_major(&[("x", x.shape()), ("y", y.shape())])?;
    for (x, y) in x.chunks_exact(3).zip(y.chunks_exact_mut(3)) {
        let [hue, saturation, value] = [x[0], x[1], x[2]];
        for (y, turn) in y.iter_mut().zip([5.0, 3.0, 1.0]) {
            let k = (turn + hue * 6.0).rem_euclid(6.0);
            *y = value - value * saturation * k.min(4.0 - k).clamp(0.0, 1.0);
        }
    }
    Ok(())
}

/// Converts intensities of sRGB from 0 to 1 to linear ones (IEC 61966-2-1).
#[target(elementwise)]
fn srgb_to_linear(
    #[dimensions(..)] x: &Operand<f32>,
    #[dimensions(..)] y: &mut ResultBuffer<f32>,
) -> Result<(), Failure> {
    row_major(&[("x", x.shape()), ("y", y.shape())])?;
    for (y, x) in y.iter_mut().zip(x.iter()) {
        let x = f64::from(*x);
        let power = power((x + 0.055) / 1.055, 2.4);
        *y = if x <= 0.04045 { x / 12.92 } else { power } as f32;
    }
    Ok(())
}

/// Converts linear intensities from 0 to 1 to those of sRGB.
#[target(elementwise)]
fn linear_to_srgb(
    #[dimensions(..)] x: &Operand<f32>,
    #[dimensions(..)] y: &mut ResultBuffer<f32>,
) -> Result<(), Failure> {
    row_major(&[("x", x.shape()), ("y", y.shape())])?;
    for (y, x) in y.iter_mut().zip(x.iter()) {
        let x = f64::from(*x);
        let power = 1.055 * power(x, 1.0 / 2.4) - 0.055;
        *y = if x <= 0.003_130_8 { 12.92 * x } else { power } as f32;
    }
    Ok(())
}

/// Computes `x^y` for an F32 `x` above 2^-126, or infinity or NaN, and a `y` from 0 to 3, with a
/// relative error below 2^-30. There is no branch, so that loops become vectors: `powf` of the
/// standard library takes five times as long.
#[inline(always)]
fn power(x: f64, y: f64) -> f64 {
    // 1.5 * 2^52: the lowest bits of a sum with it are an integer.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    const MANTISSA: u64 = (1 << 52) - 1;
    let root = std::f64::consts::FRAC_1_SQRT_2.to_bits();
    // x = 2^exponent m, with m from the root of 1/2 to that of 2.
    let bits = x.to_bits().wrapping_sub(root);
    let exponent = f64::from_bits((bits as i64 >> 52).wrapping_add(ROUND.to_bits() as i64) as u64);
    let m = f64::from_bits((bits & MANTISSA).wrapping_add(root));
    // log(m) = 2 artanh(s), by its series.
    let s = (m - 1.0) / (m + 1.0);
    let squared = s * s;
    let series = [1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0, 1.0];
    let artanh = s * polynomial(series, squared);
    let log2 = (exponent - ROUND) + artanh * (2.0 * std::f64::consts::LOG2_E);
    let power = (y * log2).min(1000.0);
    // 2^power = 2^whole e^rest, with a rest of at most 0.35.
    let whole = power + ROUND;
    let rest = (power - (whole - ROUND)) * std::f64::consts::LN_2;
    let series = [
        1.0 / 40320.0,
        1.0 / 5040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ];
    let exp = polynomial(series, rest);
    let scale = f64::from_bits((whole.to_bits() << 52).wrapping_add(1.0_f64.to_bits()));
    if x < f64::INFINITY { exp * scale } else { x }
}

/// The polynomial with these coefficients, that of the highest power first.
#[inline(always)]
fn polynomial<const N: usize>(coefficients: [f64; N], x: f64) -> f64 {
    coefficients
        .iter()
        .fold(0.0, |sum, coefficient| sum * x + coefficient)
}

#[cfg(test)]
mod tests {
    use super::power;

    #[test]
    fn powers_are_those_of_the_standard_library() {
        let most = (0x0080_0000..0x7f80_0000).step_by(997);
        for x in most.map(|bits| f64::from(f32::from_bits(bits))) {
            for y in [1.0 / 2.4, 2.4] {
                let (found, expected) = (power(x, y), x.powf(y));
                let error = (found / expected - 1.0).abs();
                assert!(error < 0.5_f64.powi(30), "{x}^{y}: {found}, not {expected}");
            }
        }
        assert_eq!(power(f64::INFINITY, 2.4), f64::INFINITY);
        assert!(power(f64::NAN, 2.4).is_nan());
    }
}
