//! The failures of a job or a child.

use std::time::Duration;

use callbox_core::values::{Blame, Status, StatusCode};
use callbox_wasm::CompileJob;
use rustix::process::{Resource, Signal, getrlimit};

use crate::exchange::Loss;

pub(super) fn violation(status: Status) -> Loss {
    Loss::Violation(status.message().to_owned())
}

pub(super) fn too_long() -> Loss {
    Loss::Violation("expected no more code than the request allows".to_owned())
}

/// A process that compiles has the limits of this one, too, which may be lower than the policy's.
pub(super) fn no_memory(job: &CompileJob<'_>) -> Status {
    let limits = [("RLIMIT_AS", Resource::As), ("RLIMIT_DATA", Resource::Data)];
    let limits = limits.map(|(name, resource)| (name, getrlimit(resource).current));
    no_memory_within(job.memory_bytes, limits)
}

fn no_memory_within(policy: u64, limits: [(&str, Option<u64>); 2]) -> Status {
    let limits = limits
        .into_iter()
        .filter_map(|(name, most)| Some((most?, name)));
    let (most, name, blame) = match limits.min() {
        Some((most, name)) if most < policy => (most, name, Blame::Host),
        _ => (policy, "compile_memory_bytes", Blame::Guest),
    };
    Status::new(
        StatusCode::ResourceExhausted,
        blame,
        format!(
            "expected the module to compile in {most} bytes of memory (`{name}`), found that it takes more"
        ),
    )
}

/// The status of a job whose child ended by a signal from outside, if it is known by which one. The
/// kernel kills the compiler first when the machine's memory runs out, and sends SIGXCPU past an
/// `RLIMIT_CPU`, which children inherit.
pub(super) fn killed(signal: Option<i32>) -> Status {
    let limit = processor_time_limit().filter(|_| signal == Some(Signal::XCPU.as_raw()));
    let (blame, message) = match limit {
        Some(most) => (
            Blame::Host,
            format!(
                "expected the module to compile in {most:?} of processor time (RLIMIT_CPU), found that it takes more"
            ),
        ),
        None => (
            Blame::Guest,
            "the process that compiled the module was killed: the machine's memory ran out, or another process killed it".to_owned(),
        ),
    };
    Status::new(StatusCode::ResourceExhausted, blame, message).with_recoverable(true)
}

/// The processor time that a child may use in its life, for all its jobs.
pub(super) fn processor_time_limit() -> Option<Duration> {
    getrlimit(Resource::Cpu).current.map(Duration::from_secs)
}

pub(super) fn unavailable(message: String) -> Status {
    Status::new(StatusCode::Unavailable, Blame::Host, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_limit_of_the_process_is_not_the_modules_fault() {
        let blame = |space, data| {
            no_memory_within(1000, [("RLIMIT_AS", space), ("RLIMIT_DATA", data)]).blame()
        };
        assert_eq!(blame(None, None), Blame::Guest);
        assert_eq!(blame(Some(1000), Some(2000)), Blame::Guest);
        assert_eq!(blame(None, Some(999)), Blame::Host);
        assert_eq!(blame(Some(999), Some(2000)), Blame::Host);
    }
}
