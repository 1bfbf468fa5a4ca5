//! Activations: GELU, SiLU and SwiGLU.

use callbox_guest::maths::{self, Elementwise};
use callbox_guest::{Failure, Operand, ResultBuffer, target};
use gallery::row_major;

/// `1 / sqrt(2)`.
const HALF_ROOT: f32 = std::f32::consts::FRAC_1_SQRT_2;

/// `1 / sqrt(2 pi)`, the density of the normal distribution at 0.
const DENSITY: f32 = 0.398_942_3;

/// Computes `x Phi(x)` of each element, where `Phi` is the normal distribution. This is the exact
/// form, `jax.nn.gelu(x, approximate=False)`.
#[target(elementwise)]
fn gelu(
    #[dimensions(..)] x: &Operand<f32>,
    #[dimensions(..)] y: &mut ResultBuffer<f32>,
) -> Result<(), Failure> {
    row_major(&[("x", x.shape()), ("y", y.shape())])?;
    distribution(x, y);
    for (y, x) in y.iter_mut().zip(x.iter()) {
        *y *= x;
    }
    Ok(())
}

/// Computes the cotangent of the operand of `gelu`: `dy (Phi(x) + x phi(x))`.
#[target(elementwise)]
#[derivative_of(gelu)]
fn gelu_grad(
    #[dimensions(..)] x: &Operand<f32>,
    #[dimensions(..)] dy: &Operand<f32>,
    #[dimensions(..)] dx: &mut ResultBuffer<f32>,
) -> Result<(), Failure> {
    row_major(&[("x", x.shape()), ("dy", dy.shape()), ("dx", dx.shape())])?;
    let mut density: Vec<f32> = x.iter().map(|x| -0.5 * x * x).collect();
    maths::map_in_place(Elementwise::Exp, &mut density);
    distribution(x, dx);
    for (((dx, x), dy), density) in dx.iter_mut().zip(x.iter()).zip(dy.iter()).zip(&density) {
        *dx = dy * (*dx + x * (DENSITY * density));
    }
    Ok(())
}

/// Writes the normal distribution of each element of `x` to `y`.
fn distribution(x: &[f32], y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = x * HALF_ROOT;
    }
    maths::map_in_place(Elementwise::Erf, y);
    for y in y {
        *y = 0.5 * (1.0 + *y);
    }
}

/// Computes `x sigmoid(x)` of each element.
#[target(elementwise)]
fn silu(
    #[dimensions(..)] x: &Operand<f32>,
    #[dimensions(..)] y: &mut ResultBuffer<f32>,
) -> Result<(), Failure> {
    row_major(&[("x", x.shape()), ("y", y.shape())])?;
    maths::map(Elementwise::Sigmoid, x, y);
    for (y, x) in y.iter_mut().zip(x.iter()) {
        *y *= x;
    }
    Ok(())
}

/// Computes the cotangent of the operand of `silu`: `dy s (1 + x (1 - s))` with `s = sigmoid(x)`.
#[target(elementwise)]
#[derivative_of(silu)]
fn silu_grad(
    #[dimensions(..)] x: &Operand<f32>,
    #[dimensions(..)] dy: &Operand<f32>,
    #[dimensions(..)] dx: &mut ResultBuffer<f32>,
) -> Result<(), Failure> {
    row_major(&[("x", x.shape()), ("dy", dy.shape()), ("dx", dx.shape())])?;
    maths::map(Elementwise::Sigmoid, x, dx);
    for ((dx, x), dy) in dx.iter_mut().zip(x.iter()).zip(dy.iter()) {
        *dx = dy * silu_slope(*x, *dx);
    }
    Ok(())
}

/// Returns the derivative of SiLU at `x`, whose sigmoid is `s`.
#[inline]
fn silu_slope(x: f32, s: f32) -> f32 {
    s * (1.0 + x * (1.0 - s))
}

/// Computes `silu(gate) up` of each pair of elements.
#[target(elementwise)]
fn swiglu(
    #[dimensions(..)] gate: &Operand<f32>,
    #[dimensions(..)] up: &Operand<f32>,
    #[dimensions(..)] y: &mut ResultBuffer<f32>,
) -> Result<(), Failure> {
    row_major(&[("gate", gate.shape()), ("up", up.shape()), ("y", y.shape())])?;
    maths::map(Elementwise::Sigmoid, gate, y);
    for ((y, gate), up) in y.iter_mut().zip(gate.iter()).zip(up.iter()) {
        *y *= gate * up;
    }
    Ok(())
}

/// Computes the cotangents of the operands of `swiglu`.
#[target(elementwise)]
#[derivative_of(swiglu)]
fn swiglu_grad(
    #[dimensions(..)] gate: &Operand<f32>,
    #[dimensions(..)] up: &Operand<f32>,
    #[dimensions(..)] dy: &Operand<f32>,
    #[dimensions(..)] dgate: &mut ResultBuffer<f32>,
    #[dimensions(..)] dup: &mut ResultBuffer<f32>,
) -> Result<(), Failure> {
    row_major(&[
        ("gate", gate.shape()),
        ("up", up.shape()),
        ("dy", dy.shape()),
        ("dgate", dgate.shape()),
        ("dup", dup.shape()),
    ])?;
    maths::map(Elementwise::Sigmoid, gate, dgate);
    let operands = gate.iter().zip(up.iter()).zip(dy.iter());
    let results = dgate.iter_mut().zip(dup.iter_mut());
    for ((dgate, dup), ((gate, up), dy)) in results.zip(operands) {
        let sigmoid = *dgate;
        *dgate = dy * up * silu_slope(*gate, sigmoid);
        *dup = dy * gate * sigmoid;
    }
    Ok(())
}
