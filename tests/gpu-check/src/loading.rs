//! Measures the time until a kernel is ready: compilation by NVRTC, and by the driver.
//!
//! Each step is timed once on the host's clock, because repetitions hit caches. The driver also
//! caches compiled code on disk, which `CUDA_CACHE_DISABLE` turns off in this section's process.

use std::path::Path;

use anyhow::Result;
use callbox::ArrayShape;
use callbox::ElementType;
use callbox::call::CallSite;
use callbox::cuda::nvrtc;
use serde_json::{Value, json};

use crate::guests;
use crate::raw::Raw;
use crate::report::Section;
use crate::sections::{is_stand_in, open};
use crate::timing::once_ms;

/// The environment of this section's process.
pub(crate) const WITHOUT_CACHE: (&str, &str) = ("CUDA_CACHE_DISABLE", "1");

/// The compute capability that NVRTC compiles for where there is no device.
const NO_DEVICE: (u32, u32) = (9, 0);

/// Measures what the machine supports: NVRTC works without a device, and loading works without
/// NVRTC.
///
/// # Errors
/// A step that fails.
pub(crate) fn measure(name: &str, root: &Path) -> Result<Section> {
    let device = open().ok();
    let capability = device
        .as_ref()
        .map_or(NO_DEVICE, |device| device.compute_capability());
    let compiled = match nvrtc::find() {
        Ok(found) => compile(root, capability, found.version)?,
        Err(_) => Value::Null,
    };
    let Some(device) = device else {
        return Ok(if compiled.is_null() {
            Section::skipped(name, "there is neither a device nor NVRTC")
        } else {
            Section::ok(name, json!({"nvrtc": compiled, "modules": null}))
        });
    };
    let raw = Raw::open(&device)?;
    let mut modules = Vec::new();
    for path in guests::ptx(root)? {
        let text = guests::read(&path)?;
        let (ms, ()) = once_ms(|| raw.load(&text))?;
        let file = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        modules.push(json!({"file": file, "bytes": text.len(), "ms": ms}));
    }
    let shape = ArrayShape::new(ElementType::F32, &[4])?;
    let site = CallSite::new("healthy", vec![shape.clone().into()], shape.into());
    let (first_call, ()) = once_ms(|| {
        let prepared = guests::kernels(root, "faults")?.prepare_call(&device, site)?;
        Ok(prepared.call(&[&[0; 16]], &mut [&mut [0; 16]])?)
    })?;
    let numbers = json!({
        "nvrtc": compiled,
        "modules": modules,
        "callbox_load_and_first_call_ms": first_call,
    });
    Ok(Section::timed(name, numbers, is_stand_in(&device)))
}

/// Times the first compilation in this process, NVRTC's initialisation included, and a compilation
/// of another source.
fn compile(root: &Path, capability: (u32, u32), version: (u32, u32)) -> Result<Value> {
    let source = guests::read(&root.join("guests/add_n/add_n.cu"))?;
    let other = format!("{source}\n// another source, which is not kept from before\n");
    let compile = |text: &str| once_ms(|| Ok(nvrtc::compile("add_n.cu", text, capability)?));
    let (first, ptx) = compile(&source)?;
    let (later, _) = compile(&other)?;
    Ok(json!({
        "version": format!("{}.{}", version.0, version.1),
        "first_ms": first,
        "later_ms": later,
        "ptx_bytes": ptx.len(),
    }))
}
