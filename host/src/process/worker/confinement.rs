//! What a worker gives up.
//!
//! The limit on memory does not count what is shared. So the filter refuses shared mappings, and what is left of this kind, memory that is a
//! file, is bounded by how large and how many files may be: the engine keeps there what instances begin with.
//! What is not given up are the capabilities of a worker that runs as root. Most calls that they are for are not on the filter's list, but it
//! is better not to run an embedder as root.

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit,
};

use super::{cannot, filter};
use crate::policy::Policy;
use crate::values::Result;

/// Descriptors that a worker may have: its own three, and what the engine keeps of each module's memory.
const DESCRIPTORS: u64 = 32;

/// Bytes that compiling may take, and what else is not the guest's.
const MEMORY: u64 = 4 << 30;

/// The largest memory that a guest can have: its addresses have 32 bits.
const GUEST: u64 = 1 << 32;

/// Before anything else, on the first thread: no worker outlives the thread that started it. The kernel keeps this by thread, and the first one
/// stays to the end.
pub(super) fn begin() -> Result<()> {
    // Should that thread have ended before this, the socket is closed and says so.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(cannot)
}

/// After the engine was made: limits, and the filter. Only these descriptors are read from.
pub(super) fn end(policy: &Policy, readable: [i32; 2]) -> Result<()> {
    // Nobody of the same user looks into this process, and it leaves no image of itself.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(cannot)?;
    let limits = &policy.limits;
    // The guest's memory, the buffers in two places more, and the compiler's.
    let memory = (limits.memory_bytes as u64).saturating_mul(4);
    let memory = memory.saturating_add(limits.stack_bytes as u64);
    // The buffers' memory and what instances begin with are files to the kernel. Neither holds more than a guest's memory, but what is operand
    // and result at once counts twice.
    let file = (limits.memory_bytes as u64).min(GUEST).saturating_mul(2);
    for (resource, most) in [
        (Resource::Core, 0),
        (Resource::Memlock, 0),
        (Resource::Nofile, DESCRIPTORS),
        (Resource::Data, memory.saturating_add(MEMORY)),
        (Resource::Fsize, file),
    ] {
        lower(resource, most)?;
    }
    filter::install(readable)
}

/// Lowers a limit. One that is lower already stays.
fn lower(resource: Resource, most: u64) -> Result<()> {
    let now = rustix::process::getrlimit(resource);
    let least = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
    let new = Rlimit {
        current: least(now.current),
        maximum: least(now.maximum),
    };
    setrlimit(resource, new).map_err(cannot)
}
