//! The failures of a job or a child.

use callbox_core::values::{Blame, Status, StatusCode};
use callbox_wasm::CompileJob;

use crate::exchange::Loss;

pub(super) fn violation(status: Status) -> Loss {
    Loss::Violation(status.message().to_owned())
}

pub(super) fn too_long() -> Loss {
    Loss::Violation("expected no more code than the request allows".to_owned())
}

pub(super) fn no_memory(job: &CompileJob<'_>) -> Status {
    let most = job.memory_bytes;
    Status::new(
        StatusCode::ResourceExhausted,
        Blame::Guest,
        format!(
            "expected the module to compile in {most} bytes of memory (`compile_memory_bytes`), found that it takes more"
        ),
    )
}

/// The kernel kills the compiler first when the machine's memory runs out.
pub(super) fn killed() -> Status {
    let message = "the process that compiled the module was killed: the machine's memory ran out, or another process killed it";
    let status = Status::new(StatusCode::ResourceExhausted, Blame::Guest, message);
    status.with_recoverable(true)
}

pub(super) fn unavailable(message: String) -> Status {
    Status::new(StatusCode::Unavailable, Blame::Host, message)
}
