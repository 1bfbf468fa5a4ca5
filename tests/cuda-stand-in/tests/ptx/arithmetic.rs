//! Compares arithmetic compiled by NVRTC 13.0 (`tests/kernels/*.cu`) with the same in Rust.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::manual_checked_ops, reason = "it is as the kernel has it")]

use crate::device_memory::{Device, Element, launch, module, numbers};

const EDGES: [i32; 12] = [
    0,
    1,
    -1,
    2,
    -2,
    31,
    32,
    255,
    -32768,
    65535,
    i32::MIN,
    i32::MAX,
];

fn pairs() -> (Vec<i32>, Vec<i32>) {
    let edges = EDGES
        .iter()
        .flat_map(|&a| EDGES.iter().map(move |&b| (a, b)));
    let random = numbers(300, 7)
        .into_iter()
        .map(|x| (x as i32, (x >> 32) as i32));
    edges.chain(random).unzip()
}

fn byte_perm(x: u32, y: u32, selector: u32) -> u32 {
    let bytes: Vec<u8> = x.to_le_bytes().into_iter().chain(y.to_le_bytes()).collect();
    let chosen = [0, 4, 8, 12].map(|at| bytes[((selector >> at) & 7) as usize]);
    u32::from_le_bytes(chosen)
}

/// Computes `integers.cu` by C's rules.
fn expected_integers(x: i32, y: i32) -> [i64; 40] {
    let (ux, uy) = (x as u32, y as u32);
    let wide = (i64::from(x) << 32) ^ i64::from(y);
    let u = |value: u32| i64::from(value);
    let s = |value: i32| i64::from(value);
    let is_odd_division = y == 0 || y == -1;
    [
        s(x.wrapping_add(y)),
        s(x.wrapping_sub(y)),
        s(x.wrapping_mul(y)),
        s(x) * s(y),
        if is_odd_division { 0 } else { s(x / y) },
        if is_odd_division { 0 } else { s(x % y) },
        if uy == 0 { 0 } else { u(ux / uy) },
        if uy == 0 { 0 } else { u(ux % uy) },
        s(x.min(y)),
        u(ux.max(uy)),
        s(x.wrapping_abs()),
        s(x & y),
        s(x | !y),
        s(x ^ y),
        s(x.wrapping_shl(uy & 31)),
        s(x >> (uy & 31)),
        u(ux >> (uy & 31)),
        wide >> (uy & 63),
        u(ux.leading_zeros()),
        u(ux.count_ones()),
        u(ux.reverse_bits()),
        if x == 0 { 0 } else { u(x.trailing_zeros() + 1) },
        u(byte_perm(ux, uy, 0x6172)),
        // The upper word of y:x, shifted left.
        u(((((u64::from(uy)) << 32 | u64::from(ux)) << 13) >> 32) as u32),
        u(((u64::from(uy) << 32 | u64::from(ux)) >> (ux & 31)) as u32),
        (s(x) * s(y)) >> 32,
        ((u64::from(ux) * u64::from(uy)) >> 32) as i64,
        s((((s(x) << 40) >> 40) * ((s(y) << 40) >> 40)) as i32),
        u(x.abs_diff(y).wrapping_add(7)),
        u((wide as u64).leading_zeros()),
        u(wide.count_ones()),
        wide.reverse_bits(),
        ((i128::from(wide) * i128::from(s(y).wrapping_mul(0x1_2345_6789))) >> 64) as i64,
        ((u128::from(wide as u64) * u128::from(u64::from(uy).wrapping_mul(0x9_8765_4321))) >> 64)
            as i64,
        i64::from(x as i8) + i64::from(y as u8),
        s(i32::from(x as i16).wrapping_mul(i32::from(y as u16))),
        wide.wrapping_mul(1_000_003).wrapping_add(s(x)),
        u((ux & uy) ^ (uy | 0x55) ^ (ux >> 3)),
        if wide == 0 {
            1
        } else {
            0x7123_4567_89ab_cdef_i64.wrapping_div(wide)
        },
        if wide == 0 {
            1
        } else {
            (0xf123_4567_89ab_cdef_u64 % (wide as u64)) as i64
        },
    ]
}

#[test]
fn integers_are_rusts() {
    let module = module("integers.ptx");
    let device = Device::with(&module);
    let (a, b) = pairs();
    let results = device.buffer(&vec![0_i64; 40 * a.len()]);
    let parameters = [
        device.buffer(&a).to_bytes(),
        device.buffer(&b).to_bytes(),
        results.to_bytes(),
        (a.len() as i32).to_bytes(),
    ];
    launch(
        &module,
        &device,
        "integers",
        ((a.len() as u32).div_ceil(64), 64),
        &parameters,
    )
    .unwrap();
    let found: Vec<i64> = device.read(results);
    for (i, found) in found.chunks(40).enumerate() {
        let expected = expected_integers(a[i], b[i]);
        for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
            assert_eq!(*found, expected, "r[{at}] of {} and {}", a[i], b[i]);
        }
    }
}

#[test]
fn carries_make_128_bits() {
    let module = module("integers.ptx");
    for words in numbers(400, 99)
        .chunks(4)
        .chain([&[u64::MAX; 4][..], &[0, 0, 0, 1]])
    {
        let device = Device::with(&module);
        let (a, b, results) = (
            device.buffer(&words[..2]),
            device.buffer(&words[2..]),
            device.buffer(&[0_u64; 6]),
        );
        let parameters = [a, b, results].map(Element::to_bytes);
        launch(&module, &device, "carries", (1, 1), &parameters).unwrap();
        let x = u128::from(words[0]) << 64 | u128::from(words[1]);
        let y = u128::from(words[2]) << 64 | u128::from(words[3]);
        let expected = [x.wrapping_add(y), x.wrapping_sub(y), x.wrapping_mul(y)];
        let expected: Vec<u64> = expected
            .iter()
            .flat_map(|v| [(v >> 64) as u64, *v as u64])
            .collect();
        assert_eq!(device.read::<u64>(results), expected);
    }
}

fn singles() -> Vec<f32> {
    let mut values = vec![
        0.0,
        -0.0,
        1.0,
        -1.5,
        0.5,
        2.5,
        f32::MIN_POSITIVE,
        1e-40,
        -3e-42,
        f32::MAX,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        1e10,
        -7.7e18,
        3.0e38,
    ];
    values.extend(
        numbers(150, 5)
            .into_iter()
            .map(|bits| f32::from_bits(bits as u32)),
    );
    values.extend(
        numbers(150, 6)
            .into_iter()
            .map(|bits| (bits as i32) as f32 / 65536.0),
    );
    values
}

/// Returns the candidate nearest to the exact result for which `is_wanted` holds. Sums and products
/// are exact in f64.
fn expected_rounding(exact: f64, nearest: f32, is_wanted: impl Fn(f64, f64) -> bool) -> f32 {
    let candidates = [nearest.next_down(), nearest, nearest.next_up()];
    let wanted = candidates
        .into_iter()
        .filter(|&c| is_wanted(f64::from(c), exact));
    wanted
        .min_by(|a, b| {
            (f64::from(*a) - exact)
                .abs()
                .total_cmp(&(f64::from(*b) - exact).abs())
        })
        .unwrap()
}

#[test]
fn singles_are_rusts() {
    let module = module("floats.ptx");
    let device = Device::with(&module);
    let a = singles();
    let b: Vec<f32> = a.iter().rev().copied().collect();
    let c: Vec<f32> = a.iter().cycle().skip(37).take(a.len()).copied().collect();
    let results = device.buffer(&vec![0.0_f32; 24 * a.len()]);
    let parameters = [
        device.buffer(&a).to_bytes(),
        device.buffer(&b).to_bytes(),
        device.buffer(&c).to_bytes(),
        results.to_bytes(),
        (a.len() as i32).to_bytes(),
    ];
    launch(
        &module,
        &device,
        "singles",
        ((a.len() as u32).div_ceil(32), 32),
        &parameters,
    )
    .unwrap();
    for (i, r) in device.read::<f32>(results).chunks(24).enumerate() {
        let (x, y, z) = (a[i], b[i], c[i]);
        let class = if x.is_nan() {
            1.0
        } else if y.is_infinite() {
            2.0
        } else {
            3.0
        };
        let clamped = if x.is_nan() { 0.0 } else { x.clamp(0.0, 1.0) };
        let expected = [
            x + y,
            x - y,
            x * y,
            x / y,
            x.sqrt(),
            x.mul_add(y, z),
            x.min(y),
            x.max(y),
            x.abs(),
            -x,
            x.copysign(y),
            x.floor(),
            x.ceil(),
            x.trunc(),
            x.round_ties_even(),
            if x < y { z } else { x },
            x,
            class,
            1.0 / x,
            clamped,
            (x as i32) as f32,
        ];
        for (at, (found, expected)) in r.iter().zip(expected).enumerate() {
            let is_same =
                found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
            // Either zero is a valid minimum here.
            let is_zero = matches!(at, 6 | 7 | 19) && *found == 0.0 && expected == 0.0;
            assert!(
                is_same || is_zero,
                "r[{at}] of {x:e}, {y:e}, {z:e}: {found:e}, not {expected:e}"
            );
        }
        if !y.is_nan() {
            assert_eq!(r[21], (y.abs() as u64) as f32, "of {y:e}");
        }
        let (sum, product) = (f64::from(x) + f64::from(y), f64::from(x) * f64::from(y));
        let is_exact = |value: f64| value.is_finite() && value.abs() < f64::from(f32::MAX);
        let span = if x == 0.0 || y == 0.0 {
            0
        } else {
            (x.abs().log2() - y.abs().log2()).abs() as i32
        };
        if is_exact(sum) && span < 25 {
            let expected = expected_rounding(sum, x + y, |c, exact| c.abs() <= exact.abs());
            assert_eq!(r[22], expected, "{x:e} + {y:e} towards zero");
        }
        if is_exact(product) {
            let expected = expected_rounding(product, x * y, |c, exact| c >= exact);
            assert_eq!(r[23], expected, "{x:e} * {y:e} upwards");
        }
    }
}

#[test]
fn functions_are_near_the_c_librarys() {
    let module = module("floats.ptx");
    let device = Device::with(&module);
    let a: Vec<f32> = (-200..200)
        .map(|i| i as f32 * 0.05)
        .chain([1000.0, -20000.0, 1e-6])
        .collect();
    let results = device.buffer(&vec![0.0_f32; 12 * a.len()]);
    let parameters = [
        device.buffer(&a).to_bytes(),
        results.to_bytes(),
        (a.len() as i32).to_bytes(),
    ];
    launch(
        &module,
        &device,
        "functions",
        ((a.len() as u32).div_ceil(128), 128),
        &parameters,
    )
    .unwrap();
    for (i, r) in device.read::<f32>(results).chunks(12).enumerate() {
        let single = a[i];
        let x = f64::from(single);
        let expected = [
            x.exp(),
            (f64::from(single.abs() + 0.5)).ln(),
            x.sin(),
            x.cos(),
            x.tanh(),
            x.abs().powf(1.5),
            1.0 / f64::from(single.abs() + 0.25).sqrt(),
            x.exp(),
            x.sin(),
            libm::erf(x),
            f64::from(single % 0.7),
            x.atan2(2.0),
        ];
        for (at, (found, expected)) in r.iter().zip(expected).enumerate() {
            // The functions with leading underscores are precise to a few digits, and only near
            // zero.
            let tolerance = if matches!(at, 7 | 8) { 2e-5 } else { 1e-6 };
            let is_near =
                (f64::from(*found) - expected).abs() <= tolerance * expected.abs().max(0.1);
            let is_small = f64::from(*found) == 0.0 && expected < 1e-30;
            let overflows = found.is_infinite() && expected > f64::from(f32::MAX);
            assert!(
                is_near || is_small || overflows,
                "r[{at}] of {x}: {found:e}, not {expected:e}"
            );
        }
    }
}

#[test]
fn doubles_are_rusts() {
    let module = module("floats.ptx");
    let device = Device::with(&module);
    let a: Vec<f64> = (0..200)
        .map(|i| f64::from(i - 100) * 0.37 + 0.01)
        .chain([0.0, -0.0, 1e300, 1e-310, f64::NAN])
        .collect();
    let b: Vec<f64> = a.iter().rev().map(|x| x * 1.25).collect();
    let results = device.buffer(&vec![0.0_f64; 12 * a.len()]);
    let parameters = [
        device.buffer(&a).to_bytes(),
        device.buffer(&b).to_bytes(),
        results.to_bytes(),
        (a.len() as i32).to_bytes(),
    ];
    launch(
        &module,
        &device,
        "doubles",
        ((a.len() as u32).div_ceil(64), 64),
        &parameters,
    )
    .unwrap();
    for (i, r) in device.read::<f64>(results).chunks(12).enumerate() {
        let (x, y) = (a[i], b[i]);
        let expected = [
            x + y,
            x * y,
            x / y,
            x.abs().sqrt(),
            x.mul_add(y, x),
            x.min(y),
            x.exp(),
            x.sin(),
            (x as i64) as f64,
            f64::from(x as f32),
            x.round_ties_even(),
            (x.abs() + 1.0).ln(),
        ];
        for (at, (&found, expected)) in r.iter().zip(expected).enumerate() {
            // A device's library is within 2 ULPs; the other operations are exact.
            let steps = if matches!(at, 6 | 7 | 11) {
                2.0 * f64::EPSILON
            } else {
                0.0
            };
            let is_same = found == expected || (found - expected).abs() <= steps * expected.abs();
            // NaN converts to the smallest integer.
            let is_nan = expected.is_nan() && found.is_nan()
                || (at == 8 && x.is_nan() && found == i64::MIN as f64);
            assert!(
                is_same || is_nan,
                "r[{at}] of {x:e}, {y:e}: {found:e}, not {expected:e}"
            );
        }
    }
}
