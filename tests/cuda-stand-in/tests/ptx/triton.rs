//! The committed Triton kernels give what NumPy computes in double precision
//! (`tests/triton/reference.py`).
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::path::Path;

use crate::device_memory::{Device, Element, launch_shape};
use callbox_cuda_stand_in::ptx::{Module, Shape};
use half::f16;

/// Multiples of 1/64 from -1/2 to 1/2, as in `reference.py`.
fn operand(seed: u64, count: usize) -> Vec<f32> {
    let hashed = |index: u64| ((index + 1_000_003 * seed) * 2_654_435_761) % (1 << 32);
    let value = |index| (hashed(index) >> 26) as f32 / 64.0 - 0.5;
    (0..count as u64).map(value).collect()
}

fn halves(values: &[f32]) -> Vec<i16> {
    let bits = |value: &f32| f16::from_f32(*value).to_bits().cast_signed();
    values.iter().map(bits).collect()
}

fn text(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests/triton");
    std::fs::read_to_string(root.join(path)).unwrap()
}

/// The bytes of shared memory of the launch of an entry, from the manifest.
fn shared_bytes(folder: &str, entry: &str) -> u32 {
    let manifest = text(&format!("{folder}/callbox.json"));
    let (_, launch) = manifest
        .split_once(&format!("\"entry\": \"{entry}\""))
        .unwrap();
    let launch = launch.split("\"entry\"").next().unwrap();
    launch
        .split_once("\"shared_memory\": \"")
        .map_or(0, |(_, bytes)| {
            bytes.split('"').next().unwrap().parse().unwrap()
        })
}

/// Launches a kernel of 128 threads, with these parameters and Triton's two null pointers.
fn run(device: &Device, folder: &str, entry: &str, grid: [u32; 2], parameters: &[Vec<u8>]) {
    let module = Module::parse(&text(&format!("{folder}/{entry}.ptx"))).unwrap();
    let shape = Shape {
        grid: [grid[0], grid[1], 1],
        block: [128, 1, 1],
        shared_bytes: shared_bytes(folder, entry),
    };
    let mut parameters = parameters.to_vec();
    parameters.extend([0_u64.to_bytes(), 0_u64.to_bytes()]);
    launch_shape(&module, device, entry, shape, &parameters).unwrap();
}

/// Compares results with those of `reference.py`, with an error of `most` in units of 1 or of the
/// expected number, whichever is larger.
fn check(name: &str, found: &[f32], most: f32) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/triton/{name}.f32"));
    let bytes = std::fs::read(path).unwrap();
    let expected: Vec<f32> = bytes.chunks(4).map(f32::from_bytes).collect();
    assert_eq!(found.len(), expected.len(), "{name}");
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs() / expected.abs().max(1.0);
        assert!(error <= most, "{name}[{at}]: {found} instead of {expected}");
    }
}

fn buffers(device: &Device, operands: &[Vec<f32>]) -> Vec<Vec<u8>> {
    operands
        .iter()
        .map(|values| device.buffer(values).to_bytes())
        .collect()
}

fn results(device: &Device, count: usize) -> u64 {
    device.buffer(&vec![f32::NAN; count])
}

#[test]
fn elementwise_kernels() {
    let device = Device::default();
    let (x, y) = (operand(1, 1500), operand(2, 1500));
    let out = results(&device, 1500);
    let mut parameters = buffers(&device, &[x, y]);
    parameters.extend([out.to_bytes(), 1500_u32.to_bytes()]);
    run(&device, "add", "add", [2, 1], &parameters);
    check("add", &device.read(out), 0.0);

    let x: Vec<f32> = operand(1, 1500).iter().map(|x| x * 8.0).collect();
    let out = results(&device, 1500);
    let mut parameters = buffers(&device, &[x]);
    parameters.extend([out.to_bytes(), 1500_u32.to_bytes()]);
    run(&device, "gelu", "gelu", [2, 1], &parameters);
    check("gelu", &device.read(out), 1e-6);
}

#[test]
fn kernels_of_rows() {
    let device = Device::default();
    let x: Vec<f32> = operand(1, 2100).iter().map(|x| x * 8.0).collect();
    let out = results(&device, 2100);
    let mut parameters = buffers(&device, &[x]);
    parameters.extend([out.to_bytes(), 700_u32.to_bytes()]);
    run(&device, "softmax", "softmax", [3, 1], &parameters);
    check("softmax", &device.read(out), 1e-6);

    let out = results(&device, 3300);
    let mut parameters = buffers(&device, &[operand(1, 3300), operand(2, 1100)]);
    parameters.extend([out.to_bytes(), 1100_u32.to_bytes(), 1e-5_f32.to_bytes()]);
    run(&device, "rms_norm", "rms_norm", [3, 1], &parameters);
    check("rms_norm", &device.read(out), 1e-6);
}

#[test]
fn layer_norm_and_its_gradient() {
    let device = Device::default();
    let (rows, columns) = (37, 300);
    let [x, weight, bias, dy] = [
        operand(1, rows * columns),
        operand(2, columns),
        operand(3, columns),
        operand(4, rows * columns),
    ];
    let given = buffers(&device, &[x, weight, bias, dy]);
    let [x, weight, bias, dy] = given.try_into().unwrap();
    let counts = [rows * columns, rows, rows, rows * columns, columns, columns];
    let made = counts.map(|count| results(&device, count));
    let [y, mean, scale, dx, dweight, dbias] = made.map(Element::to_bytes);
    let width = (columns as u32).to_bytes();

    let forward = [
        &x,
        &weight,
        &bias,
        &y,
        &mean,
        &scale,
        &width,
        &1e-5_f32.to_bytes(),
    ];
    run(
        &device,
        "layer_norm",
        "layer_norm_forward",
        [37, 1],
        &forward.map(Clone::clone),
    );
    let backward = [&dy, &x, &weight, &mean, &scale, &dx, &width];
    run(
        &device,
        "layer_norm",
        "layer_norm_backward_x",
        [37, 1],
        &backward.map(Clone::clone),
    );
    let height = (rows as u32).to_bytes();
    let backward = [&dy, &x, &mean, &scale, &dweight, &dbias, &height, &width];
    let kernel = "layer_norm_backward_weight";
    run(
        &device,
        "layer_norm",
        kernel,
        [10, 1],
        &backward.map(Clone::clone),
    );

    let names = ["y", "mean", "scale", "dx", "dweight", "dbias"];
    for (name, result) in names.iter().zip(made) {
        check(&format!("layer_norm_{name}"), &device.read(result), 5e-6);
    }
}

fn half_results(device: &Device, result: u64) -> Vec<f32> {
    let bits: Vec<i16> = device.read(result);
    bits.iter()
        .map(|bits| f16::from_bits(bits.cast_unsigned()).to_f32())
        .collect()
}

#[test]
fn matmul_on_tensor_cores() {
    let device = Device::default();
    let a = device.buffer(&halves(&operand(1, 70 * 48)));
    let b = device.buffer(&halves(&operand(2, 48 * 80)));
    let c = device.buffer(&vec![-1_i16; 70 * 80]);
    let [m, n, k] = [70_u32, 80, 48].map(Element::to_bytes);
    let parameters = [a.to_bytes(), b.to_bytes(), c.to_bytes(), m, n, k];
    run(&device, "matmul", "matmul", [4, 1], &parameters);
    check("matmul", &half_results(&device, c), 5e-4);
}

#[test]
fn attention_on_tensor_cores() {
    for name in ["attention", "causal_attention"] {
        let device = Device::default();
        let given = [1, 2, 3].map(|seed| device.buffer(&halves(&operand(seed, 2 * 100 * 64))));
        let out = device.buffer(&vec![-1_i16; 2 * 100 * 64]);
        let mut parameters: Vec<Vec<u8>> = given.map(Element::to_bytes).to_vec();
        parameters.extend([out.to_bytes(), 100_u32.to_bytes(), 0.125_f32.to_bytes()]);
        run(&device, "attention", name, [2, 2], &parameters);
        check(name, &half_results(&device, out), 5e-4);
    }
}

#[test]
fn histogram_by_atomic_additions() {
    let device = Device::default();
    let numbers: Vec<i32> = operand(1, 1000).iter().map(|x| (x * 64.0) as i32).collect();
    let numbers = device.buffer(&numbers).to_bytes();
    let counts = device.buffer(&[-1_i32; 20]);
    let bins = 20_u32.to_bytes();
    let parameters = [counts.to_bytes(), bins.clone()];
    run(&device, "histogram", "clear", [1, 1], &parameters);
    let parameters = [numbers, counts.to_bytes(), 1000_u32.to_bytes(), bins];
    run(&device, "histogram", "count", [2, 1], &parameters);
    let found: Vec<f32> = device
        .read::<i32>(counts)
        .iter()
        .map(|&count| count as f32)
        .collect();
    check("histogram", &found, 0.0);
}
