//! Which platform's targets are called, and the flags that one of the platforms alone takes.

use std::sync::Arc;

use callbox::cuda::{CudaDevice, NativeGrants};
use callbox::{Platform, Result, Status};

use super::failure::{Failure, Outcome};
use super::policy::PolicyArguments;
use super::{arguments, progress};

/// The flags about where targets run.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Platform")]
pub(super) struct PlatformArguments {
    /// The platform whose targets are called: Host, where they are .wasm modules, or CUDA, where they are native code
    #[arg(long, value_name = "PLATFORM", default_value = "Host", value_parser = arguments::platform)]
    pub(super) platform: Platform,

    /// The number of the CUDA device. If left out, 0
    #[arg(long, value_name = "N")]
    device: Option<usize>,

    /// Trust native code of this digest with all that this process can do: CUDA targets are not sandboxed. `callbox inspect` shows the
    /// digest. Grants nothing on Host
    #[arg(long, value_name = "SHA256", value_parser = digest)]
    allow_native: Vec<String>,
}

impl PlatformArguments {
    /// Refuses flags that the other platform alone takes.
    pub(super) fn check(&self, policy: &PolicyArguments) -> Outcome<()> {
        match self.platform {
            Platform::Host => self.takes(Platform::Cuda, "--device", self.device.is_some()),
            Platform::Cuda => match policy.host_flag() {
                Some(flag) => self.takes(Platform::Host, flag, true),
                None => Ok(()),
            },
        }
    }

    /// Refuses a flag, if it was given, that this platform alone takes.
    pub(super) fn takes(&self, expected: Platform, flag: &str, is_given: bool) -> Outcome<()> {
        if !is_given || self.platform == expected {
            return Ok(());
        }
        Err(Failure::usage(Status::invalid_argument(format!(
            "expected --platform {expected} with {flag}, found --platform {}",
            self.platform
        ))))
    }

    /// The native code that is trusted.
    pub(super) fn grants(&self) -> Result<NativeGrants> {
        let mut digests = self.allow_native.iter();
        digests.try_fold(NativeGrants::none(), |grants, digest| {
            grants.allow_hex(digest)
        })
    }

    /// The CUDA device.
    pub(super) fn open_device(&self) -> Result<Arc<CudaDevice>> {
        let ordinal = self.device.unwrap_or(0);
        let text = || format!("opening CUDA device {ordinal}");
        progress::show(text, || CudaDevice::open(ordinal))
    }
}

fn digest(text: &str) -> Result<String, String> {
    match NativeGrants::none().allow_hex(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(status) => Err(status.message().to_owned()),
    }
}
