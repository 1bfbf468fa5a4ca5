//! The search for a driver, which runs once and never panics.

use std::sync::OnceLock;

use callbox_core::values::{Blame, Result, Status, StatusCode};

use super::driver;

/// NVIDIA's driver on this machine.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    version: i32,
    devices: usize,
}

/// The oldest driver with every function that callbox calls: CUDA 12.8.
const OLDEST: i32 = 12_080;

/// Functions that older drivers lack. cudarc panics when it is asked to call one that is missing.
const NEWEST_FUNCTIONS: [&str; 3] = [
    "cuFuncGetParamInfo",
    "cuGraphExecUpdate_v2",
    "cuMemAllocAsync",
];

impl Driver {
    /// The newest version of CUDA that the driver supports, such as `(13, 0)`.
    #[must_use]
    pub const fn version(&self) -> (u32, u32) {
        let version = self.version.unsigned_abs();
        (version / 1000, version % 1000 / 10)
    }

    /// The number of devices.
    #[must_use]
    pub const fn devices(&self) -> usize {
        self.devices
    }
}

/// Finds NVIDIA's driver. The answer stays the same for the life of the process.
///
/// # Errors
/// UNAVAILABLE, with the reason: no driver library, a toolkit's stub of it, no device, or a driver
/// older than CUDA 12.8.
pub fn probe() -> Result<Driver> {
    static FOUND: OnceLock<Result<Driver>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        search().map_err(|why| {
            let message = format!("CUDA is unavailable: {why}");
            Status::new(StatusCode::Unavailable, Blame::Host, message)
        })
    });
    found.clone()
}

fn search() -> Result<Driver, String> {
    if !driver::is_library_present() {
        return Err(
            "expected NVIDIA's driver (libcuda.so.1, nvcuda.dll), found no such library on the \
             loader's path"
                .to_owned(),
        );
    }
    let mut functions = NEWEST_FUNCTIONS.into_iter();
    if let Some(missing) = functions.find(|name| !driver::has_function(name)) {
        return Err(format!(
            "expected a driver for CUDA 12.8 or newer, found one without {missing}"
        ));
    }
    let (version, devices) = driver::initialize().map_err(|failure| match failure.code {
        34 => "expected NVIDIA's driver, found a toolkit's stub of it (a folder named stubs is on \
               the loader's path)"
            .to_owned(),
        100 => "expected an NVIDIA GPU, found a driver without devices".to_owned(),
        _ => format!("the driver cannot be used: {failure}"),
    })?;
    let found = Driver { version, devices };
    if version < OLDEST {
        let (major, minor) = found.version();
        return Err(format!(
            "expected a driver for CUDA 12.8 or newer, found one for CUDA {major}.{minor}"
        ));
    }
    Ok(found)
}
