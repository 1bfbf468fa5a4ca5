//! Whether there is CUDA here. It is asked once, and never panics.

use std::sync::OnceLock;

use super::driver;
use crate::values::{Blame, Result, Status, StatusCode};

/// The driver that was found.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    version: i32,
    devices: usize,
}

/// The oldest driver that has all that callbox calls: CUDA 12.8.
const OLDEST: i32 = 12_080;

/// Functions that older drivers lack, and without which cudarc would panic when they are called.
const NEWEST_FUNCTIONS: [&str; 3] = [
    "cuFuncGetParamInfo",
    "cuGraphExecUpdate_v2",
    "cuMemAllocAsync",
];

impl Driver {
    /// The newest version of CUDA that it supports: (13, 0).
    #[must_use]
    pub const fn version(&self) -> (u32, u32) {
        let version = self.version.unsigned_abs();
        (version / 1000, version % 1000 / 10)
    }

    /// How many devices it has.
    #[must_use]
    pub const fn devices(&self) -> usize {
        self.devices
    }
}

/// The driver, or why there is none.
///
/// # Errors
/// UNAVAILABLE, with what was looked for and what was found: no library, a toolkit's stub of one, no device, or a driver that is too old. It is the same
/// answer each time.
pub fn probe() -> Result<Driver> {
    static FOUND: OnceLock<Result<Driver>> = OnceLock::new();
    FOUND.get_or_init(look).clone()
}

fn look() -> Result<Driver> {
    if !driver::is_library_present() {
        return Err(unavailable(
            "expected NVIDIA's driver (libcuda.so.1, nvcuda.dll), found no such library on the loader's path",
        ));
    }
    if let Some(missing) = NEWEST_FUNCTIONS
        .into_iter()
        .find(|name| !driver::has_function(name))
    {
        return Err(unavailable(&format!(
            "expected a driver for CUDA 12.8 or newer, found one without {missing}"
        )));
    }
    match driver::initialize() {
        Ok((version, _)) if version < OLDEST => {
            let found = Driver {
                version,
                devices: 0,
            };
            let (major, minor) = found.version();
            Err(unavailable(&format!(
                "expected a driver for CUDA 12.8 or newer, found one for CUDA {major}.{minor}"
            )))
        }
        Ok((version, devices)) => Ok(Driver { version, devices }),
        Err(failure) => Err(unavailable(&match failure.code {
            34 => "expected NVIDIA's driver, found a toolkit's stub of it (a folder named stubs is on the loader's path)".to_owned(),
            100 => "expected an NVIDIA GPU, found a driver without devices".to_owned(),
            _ => format!("expected a driver that can be used: {failure}"),
        })),
    }
}

fn unavailable(why: &str) -> Status {
    Status::new(
        StatusCode::Unavailable,
        Blame::Host,
        format!("CUDA is unavailable: {why}"),
    )
}
