//! The platform CUDA: callbox, with native kernels for targets.
//!
//! [`targets`] lists the twins of a guest's targets, and [`reasons`] why a target has none. Targets
//! of the C ABI run once for each way of passing buffers, and kernels with a grant and with a
//! fence. They must return the same each time.

mod call;
mod libraries;
mod manner;
mod program;
mod reasons;
mod targets;
pub mod trusted;
mod twins;
mod variants;

use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use callbox::Status;
use callbox::cuda::CudaDevice;
use callbox_cuda_stand_in::StandIn;

use self::manner::Manner;
use self::targets::Targets;
use super::{Bench, Failure, Platform, PlatformName, Prepared, ffi_call};
use crate::case::{Case, Phase, Subject};

/// The name of the stand-in driver's devices. A device with this name is not a GPU.
const STAND_IN_DEVICE: &str = "callbox stand-in (not a GPU)";

/// callbox on one CUDA device, or on the stand-in.
#[derive(Debug)]
pub struct Cuda {
    /// The device, or the reason why there is none.
    device: Result<Arc<CudaDevice>, String>,
    targets: Targets,
}

impl Cuda {
    /// The first device of this machine's driver, or of the stand-in if that was loaded before.
    #[must_use]
    pub fn open() -> Self {
        Self::new(CudaDevice::open(0).map_err(|status| status.message().to_owned()))
    }

    /// The first device of the stand-in driver, which becomes this process's `libcuda`. It must be
    /// called before CUDA is first used.
    #[must_use]
    pub fn on_stand_in() -> Self {
        let device = StandIn::try_preload().and_then(|_| {
            let device = CudaDevice::open(0).map_err(|status| status.message().to_owned())?;
            if is_stand_in(&device) {
                Ok(device)
            } else {
                Err(format!(
                    "expected the stand-in driver, found {:?}: another was loaded before it",
                    device.name()
                ))
            }
        });
        Self::new(device)
    }

    /// The platform without a device, for this reason.
    #[must_use]
    pub fn absent(reason: &str) -> Self {
        Self::new(Err(reason.to_owned()))
    }

    fn new(device: Result<Arc<CudaDevice>, String>) -> Self {
        Self {
            device,
            targets: Targets::default(),
        }
    }

    /// The device, if there is one.
    #[must_use]
    pub fn device(&self) -> Option<&Arc<CudaDevice>> {
        self.device.as_ref().ok()
    }
}

/// Whether a device is the stand-in's.
fn is_stand_in(device: &CudaDevice) -> bool {
    device.name() == STAND_IN_DEVICE
}

impl Platform for Cuda {
    fn name(&self) -> PlatformName {
        PlatformName::Cuda
    }

    fn label(&self) -> String {
        match &self.device {
            Ok(device) if is_stand_in(device) => "CUDA (stand-in)".to_owned(),
            _ => self.name().to_string(),
        }
    }

    fn availability(&self) -> Result<(), String> {
        self.device.as_ref().map(drop).map_err(Clone::clone)
    }

    fn reason_against(&self, case: &Case) -> Option<&'static str> {
        reasons::against(case)
    }

    fn open<'c>(&'c self, case: &'c Case) -> Result<Box<dyn Bench + 'c>> {
        let device = match &self.device {
            Ok(device) => device,
            Err(reason) => bail!("{reason}"),
        };
        if let Some(lost) = device.lost() {
            bail!(
                "expected a device that can be used, found one that a case before this took: {lost}"
            );
        }
        Ok(Box::new(CudaBench {
            device,
            targets: &self.targets,
            case,
        }))
    }
}

struct CudaBench<'c> {
    device: &'c Arc<CudaDevice>,
    targets: &'c Targets,
    case: &'c Case,
}

impl CudaBench<'_> {
    fn prepare_in(&self, manner: Manner) -> Result<Result<Box<dyn Prepared + '_>, Failure>> {
        match &self.case.subject {
            Subject::Program { text, targets } => program::prepare(self, manner, text, targets),
            Subject::Call { module, site } => call::prepare(self, manner, module, site),
            Subject::FfiCall(call) => {
                let module = self.targets.module(&call.module, &call.function, manner)?;
                let module = module.on_device(self.device);
                ffi_call::prepare(module, call, &self.case.steps, twins::take_log)
            }
            Subject::Load { .. } => bail!("expected a program or a call"),
        }
    }
}

impl Bench for CudaBench<'_> {
    fn prepare(&self) -> Result<Result<Box<dyn Prepared + '_>, Failure>> {
        // Earlier runs may have logged.
        drop(twins::take_log());
        let mut is_c = false;
        let (mut count, mut kernels) = (0, 0);
        for (guest, target) in named(&self.case.subject) {
            is_c |= libraries::has(guest, target);
            kernels += usize::from(self.targets.has_kernels(guest, target)?);
            count += 1;
        }
        let manners: &[Manner] = if is_c {
            &Manner::OF_C
        } else if kernels > 0 && kernels == count {
            &Manner::OF_KERNELS
        } else {
            return self.prepare_in(Manner::Leaves);
        };
        variants::prepare(manners, |manner| self.prepare_in(manner))
    }

    /// Native targets are trusted: none needs a healthy run after it.
    fn run_healthy(&self) -> Result<()> {
        ensure!(
            self.device.lost().is_none(),
            "expected the device to be there afterwards"
        );
        Ok(())
    }
}

/// The guests and targets that a subject names.
fn named(subject: &Subject) -> Box<dyn Iterator<Item = (&str, &str)> + '_> {
    match subject {
        Subject::Program { targets, .. } => Box::new(
            targets
                .iter()
                .filter_map(|target| Some((target.module.guest()?, target.export.as_str()))),
        ),
        Subject::Call { module, site } => Box::new(
            module
                .guest()
                .into_iter()
                .map(|guest| (guest, site.target.as_str())),
        ),
        Subject::FfiCall(call) => Box::new(
            call.module
                .guest()
                .into_iter()
                .map(|guest| (guest, call.function.as_str())),
        ),
        Subject::Load { .. } => Box::new(std::iter::empty()),
    }
}

/// A failure of a preparation, as its outcome.
fn failed<T>(phase: Phase, status: Status) -> Result<Result<T, Failure>> {
    Ok(Err(Failure::new(phase, status)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_platform_says_why() {
        let absent = Cuda::absent("no GPU here");
        assert_eq!(absent.availability().unwrap_err(), "no GPU here");
        assert_eq!(absent.label(), "CUDA");
    }
}
