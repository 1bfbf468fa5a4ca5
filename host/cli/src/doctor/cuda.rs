//! NVIDIA's driver, devices and compiler.

use callbox::cuda::{CudaDevice, assembler, nvrtc as compiler, probe};
use callbox::{Result, Status};

use super::{Device, Finding, Memory};

const DRIVER: &str = "on a machine with an NVIDIA GPU: `sudo ubuntu-drivers install` (Ubuntu), `sudo apt install nvidia-driver` (Debian), or https://www.nvidia.com/drivers";

const NVRTC: &str = "`pip install nvidia-cuda-nvrtc`";

const PTXAS: &str = "`pip install nvidia-cuda-nvcc`; until then the driver assembles them in this process, which ends if its assembler crashes";

/// The driver and its devices.
pub(super) fn driver() -> (Finding, Vec<Device>) {
    match probe() {
        Ok(driver) => {
            let (major, minor) = driver.version();
            let finding = Finding::found(Some(format!("CUDA {major}.{minor}")), None);
            (finding, (0..driver.devices()).map(device).collect())
        }
        Err(status) => (Finding::missing(status.message(), DRIVER), Vec::new()),
    }
}

fn device(ordinal: usize) -> Device {
    let device = CudaDevice::open(ordinal);
    let memory = device
        .as_ref()
        .map_err(Status::clone)
        .and_then(|d| d.memory());
    let known = device.as_ref().ok();
    let capability = known.map(|device| device.compute_capability());
    let problem: Result<()> = memory.as_ref().map(drop).map_err(Status::clone);
    Device {
        ordinal,
        name: known.map(|device| device.name().to_owned()),
        compute_capability: capability.map(|(major, minor)| format!("{major}.{minor}")),
        memory: memory.ok().map(|(free, total)| Memory { free, total }),
        problem: problem.err().map(|status| status.message().to_owned()),
    }
}

/// The compiler of CUDA source.
pub(super) fn nvrtc() -> Finding {
    match compiler::find() {
        Ok(found) => {
            let (major, minor) = found.version;
            let path = found.path.display().to_string();
            Finding::found(Some(format!("{major}.{minor}")), Some(path))
        }
        // The status lists every folder that was searched.
        Err(_) => Finding::missing(
            "no NVRTC library was found; CALLBOX_NVRTC can name its folder",
            NVRTC,
        ),
    }
}

/// The assembler of fenced kernels.
pub(super) fn ptxas() -> Finding {
    match assembler::find() {
        Ok(path) => Finding::found(None, Some(path.display().to_string())),
        Err(_) => Finding::missing("no ptxas was found; CALLBOX_PTXAS can name it", PTXAS),
    }
}
