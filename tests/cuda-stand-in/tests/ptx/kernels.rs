//! Compares kernels compiled by NVRTC 13.0 (`tests/kernels/*.cu`) with the same in Rust.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::device_memory::{Device, Element, launch, launch_shape, module};
use callbox_cuda_stand_in::ptx::Shape;

#[test]
fn blocks_sum_reverse_and_scan() {
    let module = module("blocks.ptx");
    let device = Device::with(&module);
    let values: Vec<f32> = (0..1000).map(|i| (i % 17) as f32).collect();
    let sums = device.buffer(&[0.0_f32; 4]);
    let parameters = [
        device.buffer(&values).to_bytes(),
        sums.to_bytes(),
        1000_i32.to_bytes(),
    ];
    launch(&module, &device, "block_sum", (4, 256), &parameters).unwrap();
    let expected: Vec<f32> = values.chunks(256).map(|part| part.iter().sum()).collect();
    assert_eq!(device.read::<f32>(sums), expected);

    let integers: Vec<i32> = (0..300).collect();
    let line = device.buffer(&integers);
    let shape = Shape {
        grid: [3, 1, 1],
        block: [100, 1, 1],
        shared_bytes: 400,
    };
    launch_shape(&module, &device, "reverse", shape, &[line.to_bytes()]).unwrap();
    let expected: Vec<i32> = integers
        .chunks(100)
        .flat_map(|part| part.iter().rev().copied())
        .collect();
    assert_eq!(device.read::<i32>(line), expected);

    let counts: Vec<u32> = (0..256).map(|i| i * i % 23).collect();
    let line = device.buffer(&counts);
    launch(&module, &device, "prefix", (1, 256), &[line.to_bytes()]).unwrap();
    let expected: Vec<u32> = counts
        .iter()
        .scan(0, |sum, x| {
            *sum += x;
            Some(*sum)
        })
        .collect();
    assert_eq!(device.read::<u32>(line), expected);
}

#[test]
fn lanes_vote_and_shuffle() {
    let module = module("blocks.ptx");
    let device = Device::with(&module);
    let values: Vec<i32> = (0..64).map(|i| i * 7 % 19 - 6).collect();
    let results = device.buffer(&[0_u32; 64 * 12]);
    launch(
        &module,
        &device,
        "votes",
        (1, 64),
        &[device.buffer(&values).to_bytes(), results.to_bytes()],
    )
    .unwrap();
    let found: Vec<u32> = device.read(results);
    for (t, r) in found.chunks(12).enumerate() {
        let (warp, lane) = (&values[t / 32 * 32..][..32], t % 32);
        let mask = |holds: &dyn Fn(i32) -> bool| {
            (0..32)
                .filter(|&l| holds(warp[l]))
                .fold(0_u32, |m, l| m | 1 << l)
        };
        let positive = mask(&|v| v > 0);
        let expected = [
            positive,
            1,
            u32::from(warp.contains(&7)),
            warp[3] as u32,
            warp[lane.saturating_sub(1)] as u32,
            warp[lane / 8 * 8 + (lane + 1) % 8] as u32,
            values.iter().filter(|&&v| v > 0).count() as u32,
            u32::from(values.contains(&7)),
            1,
            mask(&|v| v & 3 == warp[lane] & 3),
            if warp[lane] > 0 { positive } else { 0 },
            warp[lane ^ if lane % 2 == 1 { 2 } else { 4 }] as u32,
        ];
        assert_eq!(r, expected, "thread {t}");
    }

    let line = device.buffer(&values[..32]);
    launch(&module, &device, "halves", (1, 32), &[line.to_bytes()]).unwrap();
    let expected: Vec<i32> = (0..32)
        .map(|t| {
            if t < 16 {
                values[t + 16] + 1000
            } else {
                values[t - 16] * 3
            }
        })
        .collect();
    assert_eq!(device.read::<i32>(line), expected);
}

#[test]
fn atomic_operations_count() {
    let module = module("blocks.ptx");
    let device = Device::with(&module);
    let values: Vec<i32> = (0..100).map(|i| (i * 37 % 101) - 50).collect();
    let i32s = device.buffer(&[0, i32::MAX, i32::MIN, 0, 0]);
    let u32s = device.buffer(&[u32::MAX, 0, 0, 0, 3, u32::MAX, u32::MAX, 77]);
    let (u64s, f32s) = (device.buffer(&[0_u64; 3]), device.buffer(&[0.0_f32, -1e9]));
    let f64s = device.buffer(&[0.25_f64]);
    let parameters = [
        device.buffer(&values).to_bytes(),
        i32s.to_bytes(),
        u32s.to_bytes(),
        u64s.to_bytes(),
        f32s.to_bytes(),
        f64s.to_bytes(),
        100_i32.to_bytes(),
    ];
    launch(&module, &device, "atomics", (4, 32), &parameters).unwrap();
    let sum: i32 = values.iter().sum();
    let (least, most) = (*values.iter().min().unwrap(), *values.iter().max().unwrap());
    assert_eq!(device.read::<i32>(i32s), [sum, least, most, -sum, 100]);
    let bits = || values.iter().map(|&v| v as u32);
    let counted_down = (0..100).fold(
        3_u32,
        |old, _| if old == 0 || old > 6 { 6 } else { old - 1 },
    );
    let found = device.read::<u32>(u32s);
    let expected = [
        bits().fold(u32::MAX, |a, b| a & b),
        bits().fold(0, |a, b| a | b),
        bits().fold(0, |a, b| a ^ b),
        (0..100).fold(0_u32, |old, _| if old >= 9 { 0 } else { old + 1 }),
        counted_down,
        bits().min().unwrap(),
    ];
    assert_eq!(found[..6], expected);
    // Threads run in order here: the first one sees the initial ones, and the last one's value
    // remains.
    assert_eq!(found[6], values[99] as u32);
    let sum64 = values.iter().fold(0_u64, |a, &v| a.wrapping_add(v as u64));
    let most64 = u64::from(bits().max().unwrap());
    assert_eq!(device.read::<u64>(u64s), [sum64, most64, most64]);
    assert_eq!(device.read::<f32>(f32s), [sum as f32, most as f32]);
    assert_eq!(device.read::<f64>(f64s), [0.25 + f64::from(sum) * 0.5]);
}

#[test]
fn a_lock_lets_every_thread_in() {
    let module = module("blocks.ptx");
    let device = Device::with(&module);
    let (guard, counter) = (device.buffer(&[0_i32]), device.buffer(&[0_i32]));
    launch(
        &module,
        &device,
        "lock",
        (3, 64),
        &[guard.to_bytes(), counter.to_bytes()],
    )
    .unwrap();
    assert_eq!(device.read::<i32>(counter), [192]);
}

fn gcd(a: i32, b: i32) -> i32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[test]
fn control_flows() {
    let module = module("control.ptx");
    let device = Device::with(&module);
    let values: Vec<i32> = (0..32).map(|i| i % 9).collect();
    let results = device.buffer(&[0_i32; 32 * 8]);
    let mut pair = 11_i32.to_bytes();
    pair.extend([0; 4]);
    pair.extend(2.5_f64.to_bytes());
    pair.extend(b"abcde\0\0\0");
    let parameters = [
        device.buffer(&values).to_bytes(),
        results.to_bytes(),
        pair,
        vec![200],
    ];
    launch(&module, &device, "control", (1, 32), &parameters).unwrap();
    for (t, r) in device.read::<i32>(results).chunks(8).enumerate() {
        let (v, t) = (values[t], t as i32);
        let first = match v {
            0 => 100,
            1 => v * t + 3,
            2 => gcd(84, t + 1),
            3 => {
                if t != 0 {
                    7
                } else {
                    9
                }
            }
            4 => t.count_ones() as i32,
            5 => values[0],
            6 => -t,
            _ => -1,
        };
        let (mut steps, mut n) = (0, v + 1);
        while n != 1 {
            n = if n % 2 == 1 { 3 * n + 1 } else { n / 2 };
            steps += 1;
        }
        let local = (0..9).find(|k| k * 4 % 9 == v % 9).unwrap() * v;
        let weight = ([0.5_f32, 1.5, -2.0, 8.0][(v & 3) as usize] * 4.0) as i32;
        let table = [10, 20, 30, 40, 50];
        let tail = b'x';
        let turned = 11 * v + (2.5 + f64::from(v)) as i32 + i32::from(tail) + i32::from(b'e');
        let expected = [
            first,
            gcd(v * 6, 36),
            steps,
            local,
            weight,
            if v & 1 == 1 { 40 } else { 20 } + table[(v % 5) as usize],
            turned,
            200,
        ];
        assert_eq!(r, expected, "thread {t}, value {v}");
    }
    let launches = callbox_cuda_stand_in::ptx::Memory::global(&device, "launches").unwrap();
    assert_eq!(device.read::<u32>(launches), [1]);

    let line = device.buffer(&[7_i32; 3]);
    launch(&module, &device, "says", (1, 3), &[line.to_bytes()]).unwrap();
    assert_eq!(device.read::<i32>(line), [0, 0, 0]);
}

#[test]
fn indices_are_the_grids() {
    let module = module("control.ptx");
    let device = Device::with(&module);
    let (grid, block) = ([3_u32, 2, 2], [4_u32, 3, 2]);
    let results = device.buffer(&[0_u32; 12 * 24]);
    launch_shape(
        &module,
        &device,
        "indices",
        Shape {
            grid,
            block,
            shared_bytes: 0,
        },
        &[results.to_bytes()],
    )
    .unwrap();
    let mut expected = Vec::new();
    for (bz, by) in (0..grid[2]).flat_map(|z| (0..grid[1]).map(move |y| (z, y))) {
        for bx in 0..grid[0] {
            for (z, y) in (0..block[2]).flat_map(|z| (0..block[1]).map(move |y| (z, y))) {
                expected.extend(
                    (0..block[0])
                        .map(|x| bx + 10 * by + 100 * bz + 1000 * x + 10000 * y + 100_000 * z),
                );
            }
        }
    }
    assert_eq!(device.read::<u32>(results), expected);
}

#[test]
fn vectors_move_whole() {
    let module = module("control.ptx");
    let device = Device::with(&module);
    let from: Vec<i32> = (0..32).map(|i| i * 1000 - 7).collect();
    let doubles: Vec<f64> = (0..16).map(|i| f64::from(i) * 0.1).collect();
    let (to, b, s) = (
        device.buffer(&[0_i32; 32]),
        device.buffer(&[0.0_f64; 16]),
        device.buffer(&[0_i16; 32]),
    );
    let parameters =
        [device.buffer(&from), to, device.buffer(&doubles), b, s].map(Element::to_bytes);
    launch(&module, &device, "copies", (1, 8), &parameters).unwrap();
    let reversed: Vec<i32> = from
        .chunks(4)
        .flat_map(|v| v.iter().rev().copied())
        .collect();
    assert_eq!(device.read::<i32>(to), reversed);
    let swapped: Vec<f64> = doubles.chunks(2).flat_map(|v| [v[1], v[0]]).collect();
    assert_eq!(device.read::<f64>(b), swapped);
    assert_eq!(
        device.read::<i16>(s),
        from.iter().map(|&v| v as i16).collect::<Vec<_>>()
    );
}
