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
        let linear = if x <= 0.04045 {
            x / 12.92
        } else {
            ((x + 0.055) / 1.055).powf(2.4)
        };
        *y = linear as f32;
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
        let srgb = if x <= 0.003_130_8 {
            12.92 * x
        } else {
            1.055 * x.powf(1.0 / 2.4) - 0.055
        };
        *y = srgb as f32;
    }
    Ok(())
}
