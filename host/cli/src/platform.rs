//! The platform whose targets are called, and the flags that only one platform takes.

use callbox::{Platform, Status};

use super::failure::{Failure, Outcome};
use super::policy::PolicyArguments;
use super::{left_out, native};

/// The flags about where targets run.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Platform")]
pub(super) struct PlatformArguments {
    /// The platform whose targets are called: Host for .wasm modules, or CUDA for kernels of a GPU
    #[arg(long, value_name = "PLATFORM", default_value = "Host", value_parser = platform)]
    pub(super) platform: Platform,

    /// The number of the CUDA device. If left out, 0
    #[arg(long, value_name = "N")]
    pub(super) device: Option<usize>,

    /// Trust native code of this digest with everything that this process can do: it is not
    /// sandboxed. PTX needs no grant if it can be fenced. `callbox inspect` shows the digest. Has
    /// no effect on Host
    #[arg(long, value_name = "SHA256", value_parser = native::digest)]
    pub(super) allow_native: Vec<String>,
}

impl PlatformArguments {
    /// Refuses flags that only the other platform takes.
    pub(super) fn check(&self, policy: &PolicyArguments) -> Outcome<()> {
        match self.platform {
            Platform::Host => self.takes(Platform::Cuda, "--device", self.device.is_some()),
            Platform::Cuda => match policy.host_flag() {
                Some(flag) => self.takes(Platform::Host, flag, true),
                None => Ok(()),
            },
        }
    }

    /// Refuses a given flag that only `expected` takes, on the other platform.
    pub(super) fn takes(&self, expected: Platform, flag: &str, is_given: bool) -> Outcome<()> {
        if !is_given || self.platform == expected {
            return Ok(());
        }
        Err(Failure::usage(Status::invalid_argument(format!(
            "expected --platform {expected} with {flag}, found --platform {}",
            self.platform
        ))))
    }
}

/// Reads a platform's name.
pub(super) fn platform(text: &str) -> Result<Platform, String> {
    match text.parse() {
        Ok(Platform::Cuda) if !cfg!(feature = "cuda") => Err(left_out("cuda")),
        parsed => parsed.map_err(|status: Status| status.message().to_owned()),
    }
}
