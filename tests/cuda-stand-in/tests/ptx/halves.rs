//! Compares 16-bit arithmetic compiled by NVRTC 13.0 (`tests/kernels/halves.cu`) with the half
//! crate's.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::device_memory::{Device, Element, launch, module, numbers};
use half::f16;

#[test]
fn halves_are_the_half_crates() {
    let module = module("halves.ptx");
    let device = Device::with(&module);
    let a: Vec<i16> = numbers(500, 3).into_iter().map(|x| x as i16).collect();
    let b: Vec<i16> = numbers(500, 4).into_iter().map(|x| x as i16).collect();
    let results = device.buffer(&[0_i16; 4000]);
    let parameters = [
        device.buffer(&a).to_bytes(),
        device.buffer(&b).to_bytes(),
        results.to_bytes(),
        500_i32.to_bytes(),
    ];
    launch(&module, &device, "half_sums", (16, 32), &parameters).unwrap();
    for (i, r) in device.read::<i16>(results).chunks(8).enumerate() {
        let (x, y) = (f16::from_bits(a[i] as u16), f16::from_bits(b[i] as u16));
        let (wide_x, wide_y) = (x.to_f64(), y.to_f64());
        // f32 is precise enough for sums and products of f16 numbers that a second rounding is
        // harmless.
        let mut expected = vec![x + y, x * y, f16::from_f32(x.to_f32() * 3.0)];
        expected.push(if x < y { x } else { y });
        let found = [0, 1, 3, 5].map(|at| f16::from_bits(r[at] as u16));
        for (found, expected) in found.into_iter().zip(expected) {
            let is_same =
                found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
            assert!(is_same, "of {x} and {y}: {found}, not {expected}");
        }
        let greatest = f16::from_bits(r[4] as u16).to_f64();
        assert!(greatest == wide_x.max(wide_y) || (greatest.is_nan() && x.is_nan() && y.is_nan()));
        let fused = f16::from_bits(r[2] as u16).to_f64();
        let exact = wide_x.mul_add(wide_y, wide_x);
        let is_near = (fused - exact).abs() <= exact.abs() / 2048.0 + 2.0_f64.powi(-25);
        assert!(
            is_near || exact.is_nan() || exact.abs() >= 65519.0,
            "{x} * {y} + {x}: {fused}"
        );
        let integer = if x.is_nan() { 0 } else { x.to_f32() as i32 };
        assert_eq!(
            r[6] as u16,
            f16::from_f32(integer as f32).to_bits(),
            "{x} as an integer"
        );
    }
}
