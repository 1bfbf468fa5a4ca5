//! The findings of a `callbox` that was built without the feature `cuda`.

use super::{Device, Finding};
use crate::left_out;

const REMEDY: &str = "build `callbox` with its default features";

pub(super) fn driver() -> (Finding, Vec<Device>) {
    (Finding::missing(left_out("cuda"), REMEDY), Vec::new())
}

pub(super) fn nvrtc() -> Finding {
    Finding::missing(left_out("cuda"), REMEDY)
}

pub(super) fn ptxas() -> Finding {
    Finding::missing(left_out("cuda"), REMEDY)
}
