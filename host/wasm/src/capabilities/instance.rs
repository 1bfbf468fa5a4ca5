//! The capabilities of an instance.

use std::fmt;

use wasmtime_wasi::p1::WasiP1Ctx;

use super::files::Files;
use super::output::Output;
use super::random::RandomSource;
use crate::log::GuestLog;

/// The capabilities of an instance, by its module's grants.
pub(crate) struct InstanceCapabilities {
    pub(super) wasi: WasiP1Ctx,
    pub(super) files: Files,
    pub(super) output: Output,
    pub(super) random: Option<RandomSource>,
}

impl InstanceCapabilities {
    /// Logs the unfinished lines of a call that ends.
    #[inline]
    pub(crate) fn end_output(&mut self, log: &mut GuestLog) {
        self.output.end(log);
    }

    /// Whether the instance may be idle with the files that it left open.
    pub(crate) fn may_be_idle(&self) -> bool {
        self.files.may_be_idle()
    }
}

impl fmt::Debug for InstanceCapabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InstanceCapabilities")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}
