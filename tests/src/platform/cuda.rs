//! The platform CUDA: callbox, with native kernels for targets.
//!
//! Which of a guest's targets has a twin, and of which kind, [`targets`] knows; why one has none, [`reasons`] says. Targets of the C ABI are run in
//! each way in which buffers can be handed to them, and must give the same each time.

mod call;
mod libraries;
mod manner;
mod program;
mod reasons;
mod targets;
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

/// What the stand-in driver calls its devices. Whatever has this name is no GPU.
const STAND_IN_DEVICE: &str = "callbox stand-in (not a GPU)";

/// callbox on one CUDA device, or on what stands in for one.
#[derive(Debug)]
pub struct Cuda {
    /// The device, or why there is none.
    device: Result<Arc<CudaDevice>, String>,
    targets: Targets,
}

impl Cuda {
    /// The first device of this machine's driver. Where the stand-in was loaded before, it is the driver.
    #[must_use]
    pub fn open() -> Self {
        Self::new(CudaDevice::open(0).map_err(|status| status.message().to_owned()))
    }

    /// The first device of the stand-in driver, which becomes this process's `libcuda`: it must be called before anything else of CUDA.
    #[must_use]
    pub fn on_stand_in() -> Self {
        let device = StandIn::try_preload().and_then(|_| {
            let device = CudaDevice::open(0).map_err(|status| status.message().to_owned())?;
            match is_stand_in(&device) {
                true => Ok(device),
                false => Err(format!(
                    "expected the stand-in driver, found {:?}: another was loaded before it",
                    device.name()
                )),
            }
        });
        Self::new(device)
    }

    /// The platform where it is not there, for this reason.
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

/// Whether a device is the stand-in's, which says so of itself.
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

    /// Whether a target of the C ABI takes part, which is run in each manner.
    fn has_c_targets(&self) -> bool {
        named(&self.case.subject).any(|(guest, target)| libraries::has(guest, target))
    }
}

impl Bench for CudaBench<'_> {
    fn prepare(&self) -> Result<Result<Box<dyn Prepared + '_>, Failure>> {
        // What targets logged in what ran before is not this preparation's.
        drop(twins::take_log());
        if !self.has_c_targets() {
            return self.prepare_in(Manner::Leaves);
        }
        variants::prepare(|manner| self.prepare_in(manner))
    }

    /// Native targets are trusted: none is hostile.
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

/// A failure on the way to something that runs, as an outcome of its preparation.
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
