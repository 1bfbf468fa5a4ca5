//! The confinement of a worker.
//!
//! The kernel's limit on memory (`RLIMIT_DATA`) counts private memory that can be written. It
//! counts neither shared memory and files in memory, which the filter refuses, nor memory that was
//! written and then made read-only. The limit on address space bounds that: it leaves room for what
//! the engine has reserved, and as much as the limit on memory. All threads are started before.
//!
//! A worker that runs as root keeps its capabilities. Most of the system calls that they are for
//! are not on the filter's list, but an embedder should not run as root.

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit,
};

use super::{cannot, filter, scheduling};
use callbox_core::policy::Policy;
use callbox_core::values::Result;
use callbox_wasm::address_space_in_use;

/// The most descriptors of a worker: its own three, and those that the engine opened.
const DESCRIPTORS: u64 = 32;

/// Bytes for the compiler and everything else that is not the guest's.
const MEMORY: u64 = 4 << 30;

/// Bytes of a compiler's own program, and of the stacks of its threads.
const OWN_MEMORY: u64 = 64 << 20;

/// Bytes of address space that the allocator reserves for the threads of a compiler.
const ARENAS: u64 = 1 << 30;

/// Bytes of the largest guest memory: addresses have 32 bits.
const GUEST: u64 = 1 << 32;

/// First step, on the main thread, before others start: leaves real-time scheduling, and ties the
/// worker's life to the thread that started it. The kernel keeps this setting per thread, and the
/// main thread stays to the end.
pub(super) fn begin() -> Result<()> {
    scheduling::leave_real_time().map_err(cannot)?;
    // If that thread has already ended, the socket is closed, and the worker ends too.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(cannot)
}

/// Last step, after the engine was made: limits and the filter. Only the `readable` descriptors can
/// be read.
pub(super) fn end(policy: &Policy, readable: [i32; 2]) -> Result<()> {
    // Other processes of the user cannot attach to this one, and it writes no core dump.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(cannot)?;
    let limits = &policy.limits;
    // The tables of the pool's few instances, of 8 bytes for each element.
    let tables = (limits.table_elements as u64).saturating_mul(64);
    // The guest's memory, two copies of the buffers, and the compiler's memory.
    let memory = (limits.memory_bytes as u64)
        .saturating_mul(4)
        .saturating_add(limits.stack_bytes as u64)
        .saturating_add(tables)
        .saturating_add(MEMORY);
    // The buffers are a file to the kernel. They are not larger than a guest's memory, but a buffer
    // that is both operand and result counts twice.
    let file = (limits.memory_bytes as u64).min(GUEST).saturating_mul(2);
    for (resource, most) in [
        (Resource::Core, 0),
        (Resource::Memlock, 0),
        (Resource::Nofile, DESCRIPTORS),
        (Resource::Data, memory),
        (Resource::As, address_space_in_use().saturating_add(memory)),
        (Resource::Fsize, file),
    ] {
        lower(resource, most)?;
    }
    filter::install(readable)
}

/// Last step of a compiler, after its threads were started: limits and the filter. It has no
/// descriptors but those of its link.
pub(super) fn end_compiler(memory_bytes: u64, [socket, _]: [i32; 2]) -> Result<()> {
    // First, because the files in `/proc` of a process that is not dumpable belong to root.
    end_first();
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(cannot)?;
    end_by_signal_of_time()?;
    let memory = memory_bytes.saturating_add(OWN_MEMORY);
    for (resource, most) in [
        (Resource::Core, 0),
        (Resource::Memlock, 0),
        (Resource::Nofile, DESCRIPTORS),
        (Resource::Data, memory),
        (
            Resource::As,
            address_space_in_use()
                .saturating_add(memory)
                .saturating_add(ARENAS),
        ),
        (Resource::Fsize, 0),
    ] {
        lower(resource, most)?;
    }
    filter::compiler::install(socket)
}

/// Has the kernel end this process rather than another one when memory runs out. Without `/proc` it
/// chooses by size.
#[allow(
    clippy::disallowed_methods,
    reason = "`/proc` is the kernel's interface to processes, and the worker owns this one"
)]
fn end_first() {
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
}

/// Has an `RLIMIT_CPU` end this process with SIGXCPU. Where the hard limit is the same, it would
/// end with SIGKILL, which may have other reasons.
fn end_by_signal_of_time() -> Result<()> {
    let now = rustix::process::getrlimit(Resource::Cpu);
    let below = now.maximum.map(|most| most.saturating_sub(1).max(1));
    let current = now.current.into_iter().chain(below).min();
    setrlimit(Resource::Cpu, Rlimit { current, ..now }).map_err(cannot)
}

/// Lowers a limit, unless it is lower already.
fn lower(resource: Resource, most: u64) -> Result<()> {
    let now = rustix::process::getrlimit(resource);
    let least = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
    let new = Rlimit {
        current: least(now.current),
        maximum: least(now.maximum),
    };
    setrlimit(resource, new).map_err(cannot)
}
