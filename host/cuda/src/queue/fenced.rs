//! Launches of fenced kernels.
#![allow(unsafe_code, reason = "puts the task of a launch into the stream")]

use std::sync::Arc;

use callbox_core::call::{CallOptions, DeviceQueue};
use callbox_core::locks::locked;
use callbox_core::values::Result;
use callbox_ptx::fence::Record;

use super::CudaQueue;
use crate::fenced::{Bounds, FEW_LAUNCHES, FencedKernel, QueueStop, Running};
use crate::staging::Kept;

/// The most records that wait to be read. Beyond it, the queue waits for its stream.
const MAX_RUNNING: usize = 1024;
/// The most units of work in the stream that no stop ends. Beyond it, the queue waits for its
/// stream.
const MAX_UNITS: u64 = FEW_LAUNCHES as u64 * (1 << 40);

impl CudaQueue {
    /// Counts work that no stop ends and that is put into the stream next. If there is too much,
    /// the stream is waited for, and the call's deadline is looked at again.
    ///
    /// # Errors
    /// The failure of a launch that was waited for; DEADLINE_EXCEEDED, CANCELLED.
    pub(crate) fn count_units(&mut self, units: u64, options: &CallOptions) -> Result<()> {
        let is_too_much = self.units > 0 && self.units.saturating_add(units) > MAX_UNITS;
        if is_too_much && !self.is_captured_elsewhere {
            self.download(&[])?;
            options.check()?;
        }
        self.units = self.units.saturating_add(units);
        Ok(())
    }

    /// Prepares the record of a launch that is put into the stream next.
    pub(crate) fn begin_fenced(
        &mut self,
        kernel: &Arc<FencedKernel>,
        bounds: Bounds,
    ) -> Result<Arc<Running>> {
        if self.running.len() >= MAX_RUNNING {
            self.download(&[])?;
        }
        let running = Running::begin(kernel, self.slot(Record::BYTES)?, bounds, &self.stopped)?;
        // From here on the record is kept until the stream has passed the launch.
        self.running.push(Arc::clone(&running));
        if let Some(task) = running.begin_task() {
            // SAFETY: `running` holds the task, and the queue keeps it until it has waited for the
            // stream, or until the stream has passed the event that `Staging::retire` records.
            let put = unsafe { self.stream.launch_host(task) };
            self.check("marking the beginning of a launch", put)?;
        }
        Ok(running)
    }

    /// Waits for fenced kernels in another framework's stream: that framework would not learn that
    /// one failed. Kernels that cannot fail have no record to wait for.
    pub(crate) fn end_fenced_elsewhere(&mut self) -> Result<()> {
        if self.is_own_stream || self.running.is_empty() {
            return Ok(());
        }
        self.download(&[]).map(drop)
    }

    /// Reads the records, after the stream has been waited for.
    pub(super) fn read_records(&mut self) {
        self.stopped = QueueStop::default();
        for running in self.running.drain(..) {
            let Some((outcome, slot)) = running.end() else {
                continue;
            };
            self.device.staging().give_back(Kept::slot(slot));
            if let Err(status) = outcome {
                locked(&self.failure).get_or_insert(status);
            }
        }
    }
}
