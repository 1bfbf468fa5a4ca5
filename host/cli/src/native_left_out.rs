//! Native code in a `callbox` that was built without the feature `cuda`: it is refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use callbox::call::TargetModule;
use callbox::program::{Executable, Program};
use callbox::{CallOptions, Status};
use callbox_package::Package;

use super::call::Loaded;
use super::failure::Outcome;
use super::left_out;
use super::observe::Observer;
use super::output::DeviceName;
use super::platform::PlatformArguments;
use super::policy::PolicyArguments;

/// The value of `--native`, of which there is none.
pub(super) type NativeArgument = std::convert::Infallible;

pub(super) fn parse(_: &str) -> Result<NativeArgument, String> {
    Err(left_out("cuda"))
}

pub(super) fn digest(_: &str) -> Result<String, String> {
    Err(left_out("cuda"))
}

pub(super) fn load(
    _: &Path,
    _: &str,
    _: &PlatformArguments,
    _: &PolicyArguments,
    _: &Arc<Observer>,
) -> Outcome<Loaded> {
    Err(Status::unimplemented(left_out("cuda")).into())
}

pub(super) fn compile(
    _: &Program,
    _: &[NativeArgument],
    _: &[PathBuf],
    _: &PlatformArguments,
    _: &PolicyArguments,
    _: &Arc<Observer>,
) -> Outcome<(Executable, DeviceName, CallOptions)> {
    Err(Status::unimplemented(left_out("cuda")).into())
}

pub(super) fn load_twin(
    _: &Path,
    _: &Package<'_>,
    _: &PlatformArguments,
    _: &PolicyArguments,
) -> Outcome<(Arc<dyn TargetModule>, DeviceName)> {
    Err(Status::unimplemented(left_out("cuda")).into())
}
