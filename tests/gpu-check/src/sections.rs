//! The sections. Each runs in a process of its own, so that a driver that crashes or hangs does not
//! cost the whole report.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use callbox::cuda::CudaDevice;
use callbox_cuda_stand_in::StandIn;
use serde_json::Value;

use crate::options::Options;
use crate::report::Section;
use crate::{bandwidth, conformance, environment, faults, fence, launch, loading};

/// The device name that the stand-in driver reports. No GPU has this name.
const STAND_IN_DEVICE: &str = "callbox stand-in (not a GPU)";

/// The sections, in order. The faults and the random kernels have several processes.
pub(crate) const ENVIRONMENT: &str = "environment";
pub(crate) const CONFORMANCE: &str = "conformance";
pub(crate) const LAUNCH: &str = "launch cost";
pub(crate) const BANDWIDTH: &str = "bandwidth";
pub(crate) const LOADING: &str = "loading";
pub(crate) const FENCE: &str = "fence";
pub(crate) const FENCE_COST: &str = "fence cost";
pub(crate) const RANDOM: &str = "random kernels";

/// Returns the timeout of a section.
pub(crate) fn limit(name: &str) -> Duration {
    Duration::from_secs(match name {
        CONFORMANCE => 150,
        name if name.starts_with(fence::random::PREFIX) => 180,
        LAUNCH | BANDWIDTH | FENCE | FENCE_COST => 60,
        _ => 30,
    })
}

/// Runs a section in this process.
pub(crate) fn run(name: &str, options: &Options, root: &Path) -> Section {
    let found = if options.stand_in {
        // The stand-in must be loaded before any other CUDA function is called.
        StandIn::try_preload()
            .map_err(anyhow::Error::msg)
            .and_then(|_| find(name, options, root))
    } else {
        find(name, options, root)
    };
    found.unwrap_or_else(|error| Section::failed(name, format!("{error:#}"), Value::Null))
}

fn find(name: &str, options: &Options, root: &Path) -> Result<Section> {
    match name {
        ENVIRONMENT => return Ok(environment::look(name)),
        CONFORMANCE => {
            let is_stressed = !options.quick && !options.stand_in;
            return conformance::run(name, root, &options.cases, options.stand_in, is_stressed);
        }
        LOADING => return loading::measure(name, root),
        _ => {}
    }
    let device = open()?;
    if let Some(fault) = name.strip_prefix(faults::PREFIX) {
        return faults::cause(name, fault, &device, root);
    }
    let is_stand_in = is_stand_in(&device);
    let amount = options.amount(is_stand_in);
    if let Some(share) = name.strip_prefix(fence::random::PREFIX) {
        return fence::random::part(name, share, &device, root, amount);
    }
    let measured = match name {
        FENCE => return fence::hold(name, &device, root, amount, is_stand_in),
        FENCE_COST => fence::cost::measure(&device, root, amount)?,
        LAUNCH => launch::measure(&device, root, amount)?,
        BANDWIDTH => bandwidth::measure(&device, root, amount)?,
        _ => bail!("expected the name of a section, found {name:?}"),
    };
    Ok(Section::timed(name, measured, is_stand_in))
}

/// Opens the device to check.
pub(crate) fn open() -> Result<Arc<CudaDevice>> {
    Ok(CudaDevice::open(0)?)
}

/// Returns whether a device is the stand-in's, by the name that it reports.
pub(crate) fn is_stand_in(device: &CudaDevice) -> bool {
    device.name() == STAND_IN_DEVICE
}
