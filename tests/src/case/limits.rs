//! A case's limits: those of `callbox::wasm::Limits`, by the same names.

use std::time::Duration;

use callbox::wasm::Limits;
use serde::Deserialize;

/// Instances of an engine that serves one case: each takes up address space, and cases run side by side.
const INSTANCES: u32 = 32;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitsText {
    memory_bytes: Option<usize>,
    table_elements: Option<usize>,
    stack_bytes: Option<usize>,
    deadline_ms: Option<u64>,
    module_bytes: Option<usize>,
    metadata_bytes: Option<usize>,
    message_bytes: Option<usize>,
    log_bytes: Option<usize>,
    backtrace_frames: Option<usize>,
    callback_depth: Option<usize>,
    instances: Option<u32>,
}

impl LimitsText {
    pub(super) fn read(self) -> Limits {
        let default = Limits::default();
        Limits {
            memory_bytes: self.memory_bytes.unwrap_or(default.memory_bytes),
            table_elements: self.table_elements.unwrap_or(default.table_elements),
            stack_bytes: self.stack_bytes.unwrap_or(default.stack_bytes),
            deadline: self
                .deadline_ms
                .map(Duration::from_millis)
                .or(default.deadline),
            module_bytes: self.module_bytes.unwrap_or(default.module_bytes),
            metadata_bytes: self.metadata_bytes.unwrap_or(default.metadata_bytes),
            message_bytes: self.message_bytes.unwrap_or(default.message_bytes),
            log_bytes: self.log_bytes.unwrap_or(default.log_bytes),
            backtrace_frames: self.backtrace_frames.unwrap_or(default.backtrace_frames),
            callback_depth: self.callback_depth.unwrap_or(default.callback_depth),
            instances: self.instances.unwrap_or(INSTANCES),
        }
    }
}
