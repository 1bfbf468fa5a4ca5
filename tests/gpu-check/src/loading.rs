//! How long it takes until a kernel can be launched: NVRTC, and the driver's own compiler.
//!
//! Each is timed once, on the host's clock: what comes a second time is kept somewhere. The driver keeps what it compiled in a folder of the user's, too;
//! this section's process is told to do without (`CUDA_CACHE_DISABLE`).

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

/// What NVRTC compiles for where there is no device to ask.
const NO_DEVICE: (u32, u32) = (9, 0);

/// Measures what can be had: NVRTC needs no device, and a device no NVRTC.
///
/// # Errors
/// What fails of it.
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
        return Ok(match compiled.is_null() {
            true => Section::skipped(name, "there is neither a device nor NVRTC"),
            false => Section::ok(name, json!({"nvrtc": compiled, "modules": null})),
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

/// The first compilation in this process, with all that NVRTC does once, and one of another source.
fn compile(root: &Path, capability: (u32, u32), version: (u32, u32)) -> Result<Value> {
    let source = guests::read(&root.join("guests/add_n/add_n.cu"))?;
    let other = format!("{source}\n// another source, which is not kept from before\n");
    let compile = |text: &str| once_ms(|| Ok(nvrtc::compile("add_n.cu", text, capability, &[])?));
    let (first, ptx) = compile(&source)?;
    let (later, _) = compile(&other)?;
    Ok(json!({
        "version": format!("{}.{}", version.0, version.1),
        "first_ms": first,
        "later_ms": later,
        "ptx_bytes": ptx.len(),
    }))
}
