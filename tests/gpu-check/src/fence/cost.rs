//! What the fence costs on the device, and whether fenced kernels compute the same bits.
//!
//! A kernel and its fenced form are timed in turns, each as a batch between two events of the
//! stream, on launches that fill the device (`launches.json`). Whole calls through callbox, granted
//! and fenced, are timed on the host's clock.
#![allow(unsafe_code, reason = "launches kernels of this repository")]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use callbox::call::CallSite;
use callbox::cuda::{CudaDevice, CudaModule, NativeGrants};
use callbox::policy::Gpu;
use callbox::{ArrayShape, Attribute, Dictionary, ElementType};
use callbox_ptx::verify::{Launch, Limits, Param};
use callbox_ptx_cases::launch::{KernelData, kernels};
use serde_json::{Value, json};

use super::rig::{Rig, fenced};
use crate::guests;
use crate::options::Amount;
use crate::raw::{Kernel, Memory, Raw, Record};
use crate::report::Goal;
use crate::timing::{Series, once_ms};

/// The largest ratio for kernels that move memory, and for those on tensor cores.
const GOALS: [(bool, f64); 2] = [(false, 1.03), (true, 1.10)];

/// The kernels that compute on tensor cores.
const ON_TENSOR_CORES: [&str; 3] = ["matmul", "attention", "causal_attention"];

/// Measures all kernels.
///
/// # Errors
/// Failures of the device; fenced kernels with other results.
pub(crate) fn measure(device: &Arc<CudaDevice>, root: &Path, amount: Amount) -> Result<Value> {
    let rig = Rig::new(device)?;
    let same = same_results(&rig, root)?;
    let (mut rows, mut goals) = (Vec::new(), Vec::new());
    if amount != Amount::Tiny {
        let launches: Vec<KernelData> = serde_json::from_str(include_str!("launches.json"))?;
        for data in launches {
            let row = time(rig.raw(), root, &data, amount)
                .with_context(|| format!("{} {}", data.file, data.entry))?;
            let ratio = row["ratio"].as_f64().unwrap_or(f64::NAN);
            let limit = GOALS.iter().find(|(on_tensor_cores, _)| {
                *on_tensor_cores == ON_TENSOR_CORES.contains(&&*data.entry)
            });
            if let Some((_, limit)) = limit {
                let goal = format!("{}: times the kernel without its fence", data.entry);
                goals.push(Goal::at_most(goal, *limit, ratio));
            }
            rows.push(row);
        }
    }
    Ok(json!({
        "same_results": same,
        "kernels": rows,
        "calls": calls(device, root, amount)?,
        "goals": goals,
    }))
}

/// Counts the kernels of `tests/ptx/kernels.json` that compute the same bits with their fence.
fn same_results(rig: &Rig, root: &Path) -> Result<usize> {
    let kernels = kernels(root)?;
    for data in &kernels {
        let name = format!("{} {}", data.file, data.entry);
        let text = guests::read(&root.join(&data.file))?;
        let both = rig.both(&text, &data.entry, &data.launch.launch());
        let [plain, fenced] = both.with_context(|| name.clone())?;
        ensure!(plain == fenced, "{name}: other results with its fence");
    }
    Ok(kernels.len())
}

/// Times a kernel and its fenced form.
fn time(raw: &Arc<Raw>, root: &Path, data: &KernelData, amount: Amount) -> Result<Value> {
    let text = guests::read(&root.join(&data.file))?;
    let launch = data.launch.launch();
    let (verify_ms, fenced) = once_ms(|| {
        let fenced = fenced(&text, &data.entry, &launch, &Limits::default());
        fenced.map_err(|refusals| anyhow::anyhow!("refused: {:?}", refusals.first()))
    })?;
    let printed = callbox_ptx::print(&fenced.module);
    let (plain_load_ms, plain) = once_ms(|| kernel(raw, &text, &data.entry))?;
    let (fenced_load_ms, guarded) = once_ms(|| kernel(raw, &printed, &data.entry))?;
    let buffers = buffers(raw, &launch)?;
    let record = Record::new(raw)?;
    let own = &buffers.parameters;
    let parameters = [&own[..], &[record.address().to_le_bytes().to_vec()]].concat();
    let enqueue = |kernel: &Kernel, parameters: &[Vec<u8>], batch: usize| {
        for _ in 0..batch {
            // SAFETY: the launches of `launches.json` are those of this repository's kernels, whose
            // buffers, and the record, live until `device_ms` has waited.
            let is_launched = unsafe { kernel.launch(&launch, parameters) }?;
            ensure!(is_launched, "the driver refused the launch");
        }
        Ok(())
    };
    let once = raw.device_ms(|| enqueue(&plain, own, 1))?;
    let (rounds, batch_ms) = match amount {
        Amount::Tiny | Amount::Quick => (5, 5.0),
        Amount::Full => (15, 20.0),
    };
    let batch = ((batch_ms / once) as usize).clamp(1, 256);
    let [mut plain_us, mut fenced_us, mut ratio] = <[Series; 3]>::default();
    for round in 0..=rounds {
        let [plain_ms, fenced_ms] = [
            raw.device_ms(|| enqueue(&plain, own, batch))?,
            raw.device_ms(|| enqueue(&guarded, &parameters, batch))?,
        ];
        // The first round warms up.
        if round > 0 {
            let each = 1e3 / batch as f64;
            plain_us.push(plain_ms * each);
            fenced_us.push(fenced_ms * each);
            ratio.push(fenced_ms / plain_ms);
        }
    }
    ensure!(
        record.site() == 0,
        "the fenced kernel noted site {}",
        record.site()
    );
    Ok(json!({
        "kernel": format!("{} {}", data.file.trim_start_matches("guests/"), data.entry),
        "us": plain_us.median(),
        "fenced_us": fenced_us.median(),
        "ratio": ratio.median(),
        "ratio_p10_p90": [ratio.quantile(0.1), ratio.quantile(0.9)],
        "registers": plain.registers()?,
        "fenced_registers": guarded.registers()?,
        "verify_and_fence_ms": verify_ms,
        "driver_compiles_ms": plain_load_ms,
        "driver_compiles_fenced_ms": fenced_load_ms,
    }))
}

fn kernel(raw: &Arc<Raw>, text: &str, entry: &str) -> Result<Kernel> {
    match raw.kernel(text, entry)? {
        Some(kernel) => Ok(kernel),
        None => bail!("the driver refused the text"),
    }
}

/// The buffers of a launch.
struct Buffers {
    /// Held until the device is done with it.
    _memory: Vec<Arc<Memory>>,
    /// The bytes of the parameters, in order.
    parameters: Vec<Vec<u8>>,
}

/// Allocates the buffers of a launch, and fills those that are read: with small numbers as F16 and
/// F32, and small indices.
fn buffers(raw: &Raw, launch: &Launch) -> Result<Buffers> {
    let (mut memory, mut parameters) = (Vec::new(), Vec::new());
    for param in &launch.params {
        match param {
            Param::Value(bytes) => parameters.push(bytes.clone()),
            Param::Buffer {
                bytes, writable, ..
            } => {
                let size = usize::try_from(*bytes)?;
                let buffer = if *writable {
                    raw.memory(size)?
                } else {
                    let content = callbox_ptx_cases::content(*bytes);
                    raw.memory_with(&content)?
                };
                parameters.push(buffer.address().to_le_bytes().to_vec());
                memory.push(buffer);
            }
        }
    }
    Ok(Buffers {
        _memory: memory,
        parameters,
    })
}

/// Times whole calls of `add_n` with arrays on the host, granted and fenced.
fn calls(device: &Arc<CudaDevice>, root: &Path, amount: Amount) -> Result<Vec<Value>> {
    let path = root.join("guests/add_n/callbox.json");
    let granted = guests::kernels(root, "add_n")?;
    let fenced = CudaModule::load_manifest(&path, &NativeGrants::none(), &Gpu::default())?;
    ensure!(fenced.is_fenced(), "expected a module with a fence");
    let (sizes, rounds, batch) = match amount {
        Amount::Tiny => (vec![4], 1, 1),
        Amount::Quick => (vec![256, 1 << 20], 5, 20),
        Amount::Full => (vec![256, 1 << 20], 30, 50),
    };
    let mut rows = Vec::new();
    for elements in sizes {
        let shape = ArrayShape::new(ElementType::F32, &[elements])?;
        let site = CallSite::new("add_n", vec![shape.clone().into()], shape.into());
        let attributes = [("n".to_owned(), Attribute::scalar(2.5_f32))];
        let site = site.with_attributes(Dictionary::from(attributes));
        let [granted, fenced] =
            [&granted, &fenced].map(|module| module.prepare_call(device, site.clone()));
        let operand = vec![0; elements * 4];
        let mut result = vec![0; elements * 4];
        let mut call = |prepared: &callbox::cuda::CudaPreparedCall| -> Result<f64> {
            let begun = Instant::now();
            for _ in 0..batch {
                prepared.call(&[&operand], &mut [&mut result])?;
            }
            Ok(begun.elapsed().as_secs_f64() * 1e6 / f64::from(batch))
        };
        let (granted, fenced) = (granted?, fenced?);
        let [mut granted_us, mut fenced_us, mut ratio] = <[Series; 3]>::default();
        for round in 0..=rounds {
            let times = [call(&granted)?, call(&fenced)?];
            if round > 0 {
                granted_us.push(times[0]);
                fenced_us.push(times[1]);
                ratio.push(times[1] / times[0]);
            }
        }
        let expected: Vec<u8> = 2.5_f32.to_le_bytes().repeat(elements);
        ensure!(result == expected, "add_n: expected other sums");
        rows.push(json!({
            "call": format!("add_n on f32[{elements}], arrays on the host"),
            "granted_us": granted_us.median(),
            "fenced_us": fenced_us.median(),
            "ratio": ratio.median(),
        }));
    }
    Ok(rows)
}
