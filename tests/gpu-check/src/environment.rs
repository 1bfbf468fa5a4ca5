//! Describes the environment: driver, device and NVRTC.

use callbox::cuda::{CudaDevice, nvrtc, probe};
use serde_json::{Value, json};

use crate::report::{Device, Section};
use crate::sections::is_stand_in;

/// Collects the description. A missing device is not a failure.
pub(crate) fn look(name: &str) -> Section {
    let mut numbers = json!({
        "operating_system": std::env::consts::OS,
        "architecture": std::env::consts::ARCH,
        "processors": std::thread::available_parallelism().map_or(0, usize::from),
        "nvrtc": nvrtc(),
        "device": null,
    });
    match device() {
        Ok((device, driver)) => {
            numbers["device"] = json!(device);
            numbers["driver"] = driver;
            Section::ok(name, numbers)
        }
        Err(status) => {
            let mut section = Section::ok(name, numbers);
            status.message().clone_into(&mut section.why);
            section
        }
    }
}

fn device() -> callbox::Result<(Device, Value)> {
    let driver = probe()?;
    let device = CudaDevice::open(0)?;
    let (free, memory_bytes) = device.memory()?;
    let (major, minor) = device.compute_capability();
    let (cuda_major, cuda_minor) = driver.version();
    let is_stand_in = is_stand_in(&device);
    // The driver's full version is only in the kernel module's file.
    let version = std::fs::read_to_string("/proc/driver/nvidia/version").ok();
    let version = version.filter(|_| !is_stand_in);
    let version = version.as_deref().and_then(|text| text.lines().next());
    let driver = json!({
        "cuda": format!("{cuda_major}.{cuda_minor}"),
        "version": version,
        "devices": driver.devices(),
        "free_memory_bytes": free,
    });
    let device = Device {
        name: device.name().to_owned(),
        is_stand_in,
        compute_capability: [major, minor],
        memory_bytes,
    };
    Ok((device, driver))
}

/// Describes the NVRTC library, or why there is none.
fn nvrtc() -> Value {
    match nvrtc::find() {
        Ok(found) => json!({
            "path": found.path.display().to_string(),
            "version": format!("{}.{}", found.version.0, found.version.1),
        }),
        Err(status) => json!({"missing": status.message()}),
    }
}
