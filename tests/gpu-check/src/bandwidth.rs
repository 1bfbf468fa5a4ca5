//! Measures memory bandwidth: between host and device, on the device, and through a kernel.
//!
//! Copies between host and device are timed on the host, the final wait included. Work on the
//! device is timed as a batch between two events of its stream, which excludes the launch overhead
//! and the host's clock. All figures are medians of several measurements.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};
use callbox::call::CallSite;
use callbox::cuda::{CudaDevice, CudaModule};
use callbox::{ArrayShape, CallOptions, ElementType};
use serde_json::{Value, json};

use crate::guests;
use crate::options::Amount;
use crate::raw::Raw;
use crate::report::Goal;
use crate::timing::{median_ms, once_ms};

/// The number of elements that `broadcast_add` repeats, as in its sample program.
const REPEATED: usize = 128;

/// The value of every element of the other operand.
const ADDED: f32 = 2.0;

/// Measures the bandwidth and checks the computed results.
///
/// # Errors
/// Failures of the device, and wrong results.
pub(crate) fn measure(device: &Arc<CudaDevice>, root: &Path, amount: Amount) -> Result<Value> {
    let raw = Raw::open(device)?;
    let (copied, exponents) = match amount {
        Amount::Tiny => (4 << 10, 11..=12),
        Amount::Quick => (64 << 20, 11..=24),
        Amount::Full => (256 << 20, 11..=28),
    };
    let module = guests::kernels(root, "broadcast_add")?;
    let mut rows = Vec::new();
    for exponent in exponents {
        rows.push(broadcast_add(device, &raw, &module, 1 << exponent, amount)?);
    }
    let largest = rows
        .last()
        .and_then(|row| row["share_of_copy_rate"].as_f64());
    let goal = largest.filter(|_| amount == Amount::Full).map(|share| {
        Goal::at_least(
            "broadcast_add at 2^28 elements moves memory at 0.9 times the rate of a copy of as many on the device",
            0.9,
            share,
        )
    });
    Ok(json!({
        "host_and_device": host_and_device(&raw, copied, amount)?,
        "broadcast_add": rows,
        "goals": goal.into_iter().collect::<Vec<_>>(),
    }))
}

const fn times(amount: Amount) -> usize {
    match amount {
        Amount::Tiny => 1,
        Amount::Quick | Amount::Full => 9,
    }
}

/// Returns gigabytes (10^9 bytes) per second.
fn rate(bytes: usize, ms: f64) -> f64 {
    (bytes as f64 / ms / 1e6 * 1e3).round() / 1e3
}

/// Measures copies of `size` bytes in both directions, from and to pinned and pageable memory.
fn host_and_device(raw: &Raw, size: usize, amount: Amount) -> Result<Value> {
    let memory = raw.memory(size)?;
    // Touch all pages before the measurement.
    let mut pageable: Vec<u8> = (0..size).map(|place| (place % 251) as u8).collect();
    let mut pinned = raw.pinned(size)?;
    let count = times(amount);
    let pageable_in = median_ms(count, || Ok(once_ms(|| raw.copy_in(&pageable, &memory))?.0))?;
    let pinned_out = {
        let bytes = pinned.bytes()?;
        let ms = median_ms(count, || Ok(once_ms(|| raw.copy_out(&memory, bytes))?.0))?;
        ensure!(
            *bytes == *pageable,
            "expected the bytes that were copied in"
        );
        ms
    };
    let pinned_in = {
        let bytes = pinned.bytes()?;
        bytes.reverse();
        median_ms(count, || Ok(once_ms(|| raw.copy_in(bytes, &memory))?.0))?
    };
    let pageable_out = median_ms(count, || {
        Ok(once_ms(|| raw.copy_out(&memory, &mut pageable))?.0)
    })?;
    ensure!(
        *pinned.bytes()? == *pageable,
        "expected the bytes that were copied in"
    );
    let row = |way: &str, ms: f64| json!({"way": way, "bytes": size, "ms": ms, "gb_per_s": rate(size, ms)});
    Ok(json!([
        row("pinned, to the device", pinned_in),
        row("pinned, to the host", pinned_out),
        row("pageable, to the device", pageable_in),
        row("pageable, to the host", pageable_out),
    ]))
}

/// Measures one size: the kernel through a prepared call, and a device copy of the same number of
/// elements. Both read and write each element once.
fn broadcast_add(
    device: &Arc<CudaDevice>,
    raw: &Raw,
    module: &Arc<CudaModule>,
    elements: usize,
    amount: Amount,
) -> Result<Value> {
    let size = elements * 4;
    let (free, _) = device.memory()?;
    if free < 2 * size + (256 << 20) && amount != Amount::Tiny {
        return Ok(
            json!({"elements": elements, "why": format!("not measured: {free} bytes of the device's memory are free")}),
        );
    }
    let repeated: Vec<f32> = (0..REPEATED as u16).map(f32::from).collect();
    let bytes = |floats: &[f32]| -> Vec<u8> {
        floats
            .iter()
            .flat_map(|float| float.to_le_bytes())
            .collect()
    };
    let b = raw.memory_with(&bytes(&repeated))?;
    let c = raw.memory_with(&bytes(&[ADDED]).repeat(elements))?;
    let a = raw.memory(size)?;
    let shape = |elements: usize| ArrayShape::new(ElementType::F32, &[elements]);
    let (small, large) = (shape(REPEATED)?, shape(elements)?);
    let site = CallSite::new(
        "broadcast_add",
        vec![small.into(), large.clone().into()],
        large.into(),
    );
    let prepared = module.prepare_call(device, site)?;
    let operands = [b.buffer(), c.buffer()];
    let results = [a.buffer()];
    let options = CallOptions::default();
    let mut queue = raw.queue(device)?;
    // About 20 ms of work at a few TB/s, and fewer launches than the driver queues without
    // blocking.
    let batch = match amount {
        Amount::Tiny => 1,
        Amount::Quick | Amount::Full => (40_000_000_000 / (2 * size)).clamp(4, 256),
    };
    let copy_ms = median_ms(times(amount), || {
        raw.device_ms(|| (0..batch).try_for_each(|_| raw.copy(&c, &a)))
    })?;
    let kernel_ms = median_ms(times(amount), || {
        raw.device_ms(|| {
            (0..batch).try_for_each(|_| {
                Ok(prepared.enqueue(&options, &mut queue.queue, &operands, &results)?)
            })
        })
    })?;
    raw.wait()?;
    // Check the beginning and the end, which different blocks compute.
    for start in [0, size - REPEATED * 4] {
        let found = raw.read(&a, start, REPEATED * 4)?;
        let expected: Vec<f32> = repeated.iter().map(|b| b + ADDED).collect();
        ensure!(
            found == bytes(&expected),
            "broadcast_add of {elements} elements: expected other sums from byte {start} on"
        );
    }
    let each = |ms: f64| ms / batch as f64;
    Ok(json!({
        "elements": elements,
        "copy_us": each(copy_ms) * 1e3,
        "copy_gb_per_s": rate(2 * size, each(copy_ms)),
        "kernel_us": each(kernel_ms) * 1e3,
        "kernel_gb_per_s": rate(2 * size, each(kernel_ms)),
        "share_of_copy_rate": copy_ms / kernel_ms,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_in_gigabytes() {
        assert_eq!(rate(2_000_000_000, 1000.0), 2.0);
        assert_eq!(rate(48, 0.000_01), 4.8);
    }
}
