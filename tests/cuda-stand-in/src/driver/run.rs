//! Executes the work in streams.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, PoisonError};

use cudarc::driver::sys::CUresult;

use super::codes::fault_code;
use super::{Guard, state};
use crate::ptx::{self, Fault, FaultKind};
use crate::state::memory::View;
use crate::state::set_in_host_function;
use crate::state::stream::{Copy, HostFunction, Launch, Next, NodeWork, Set, Source, Work};

/// Notified whenever a stream has advanced.
static MOVED: Condvar = Condvar::new();

/// Bytes copied or filled at a time.
const CHUNK: usize = 64 << 10;

/// Advances a stream to a position, and other streams as far as it waits for them.
pub(super) fn drive(mut guard: Guard, stream: usize, position: u64) -> Guard {
    loop {
        match guard.next(stream, position) {
            Next::Done => return guard,
            Next::Busy => guard = MOVED.wait(guard).unwrap_or_else(PoisonError::into_inner),
            Next::Work(stream, work) => guard = run(guard, stream, work),
        }
    }
}

/// Advances a stream to its end.
pub(super) fn drain(guard: Guard, stream: usize) -> Guard {
    let tail = guard
        .streams
        .get(stream)
        .map_or(0, crate::state::stream::Stream::tail);
    drive(guard, stream, tail)
}

/// Advances all streams of a context to their ends.
pub(super) fn drain_context(mut guard: Guard, context: usize) -> Guard {
    for (stream, position) in guard.tails(context) {
        guard = drive(guard, stream, position);
    }
    guard
}

/// Enqueues capturable work, or adds it to the graph that is being captured from the stream.
pub(super) fn submit(mut guard: Guard, stream: usize, work: NodeWork) -> Result<Guard, CUresult> {
    guard.check_implicit(stream)?;
    if guard.capture_node(stream, &work)? {
        return Ok(guard);
    }
    enqueue(guard, stream, Work::Node(work))
}

/// Enqueues work; eager mode executes it at once. A fault is reported by a later call.
pub(super) fn enqueue(mut guard: Guard, stream: usize, work: Work) -> Result<Guard, CUresult> {
    guard.push(stream, work)?;
    Ok(settle(guard, stream))
}

/// In eager mode, executes the enqueued work.
pub(super) fn settle(guard: Guard, stream: usize) -> Guard {
    if guard.settings.lazy {
        guard
    } else {
        drain(guard, stream)
    }
}

fn run(mut guard: Guard, stream: usize, work: Work) -> Guard {
    let Ok(context) = guard.streams.get(stream).map(|found| found.context) else {
        return guard;
    };
    let broken = guard.check(context).is_err();
    let outcome = match work {
        Work::Record(mark) => {
            let _ = mark.at.set(std::time::Instant::now());
            Ok(())
        }
        Work::Wait { .. } => Ok(()),
        Work::Allocate(base) => {
            if let Some(found) = guard.memory.find(base) {
                found.begin();
            }
            Ok(())
        }
        Work::Free(base) => {
            guard.memory.remove(base);
            Ok(())
        }
        // A broken context executes nothing.
        Work::Node(_) if broken => Ok(()),
        Work::Node(work) => {
            let outcome;
            (guard, outcome) = node(guard, context, work);
            outcome
        }
    };
    if let Err(fault) = outcome {
        guard.fail(context, fault_code(fault.kind), fault.to_string());
    }
    guard.complete(stream);
    MOVED.notify_all();
    guard
}

/// Executes a node's work. Long work runs without the lock.
fn node(guard: Guard, context: usize, work: NodeWork) -> (Guard, Result<(), Fault>) {
    let device = guard
        .contexts
        .get(context)
        .map(|context| context.device)
        .ok();
    match work {
        NodeWork::Empty => (guard, Ok(())),
        NodeWork::Host(function) => {
            drop(guard);
            call_host(function);
            (state(), Ok(()))
        }
        NodeWork::Kernel(launch) => {
            let view = guard.memory.view(device);
            drop(guard);
            let outcome = kernel(&launch, view);
            (state(), outcome)
        }
        NodeWork::Copy(work) => {
            let view = guard.memory.view(if work.peer { None } else { device });
            drop(guard);
            let outcome = copy(&work, &view);
            (
                state(),
                outcome.map_err(|detail| Fault {
                    kind: FaultKind::IllegalAddress,
                    detail,
                }),
            )
        }
        NodeWork::Set(work) => {
            let view = guard.memory.view(device);
            drop(guard);
            let outcome = set(work, &view);
            (
                state(),
                outcome.map_err(|detail| Fault {
                    kind: FaultKind::IllegalAddress,
                    detail,
                }),
            )
        }
    }
}

/// Memory as a kernel sees it.
struct KernelMemory<'a> {
    view: View,
    launch: &'a Launch,
}

impl ptx::Memory for KernelMemory<'_> {
    fn load(&self, address: u64, bytes: &mut [u8]) -> Result<(), String> {
        self.view.load(address, bytes)
    }

    fn store(&self, address: u64, bytes: &[u8]) -> Result<(), String> {
        self.view.store(address, bytes)
    }

    fn global(&self, name: &str) -> Option<u64> {
        self.launch
            .module
            .globals
            .get(name)
            .map(|(address, _)| *address)
    }
}

fn kernel(launch: &Launch, view: View) -> Result<(), Fault> {
    let module = &launch.module.module;
    let Some(entry) = module.entry(&launch.name) else {
        return Err(Fault {
            kind: FaultKind::IllegalInstruction,
            detail: format!("no kernel {} in its module", launch.name),
        });
    };
    let memory = KernelMemory { view, launch };
    // If the interpreter panics, the stream must not stay busy.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        ptx::launch(module, entry, launch.shape, &launch.parameters, &memory)
    }));
    outcome.unwrap_or_else(|_| {
        let detail = format!("the interpreter itself failed in {}", launch.name);
        Err(Fault {
            kind: FaultKind::IllegalInstruction,
            detail,
        })
    })
}

fn call_host(function: HostFunction) {
    let data: *mut c_void = std::ptr::with_exposed_provenance_mut(function.data);
    set_in_host_function(true);
    // SAFETY: the caller that enqueued the function guarantees that it and its argument are valid
    // until the stream reaches it.
    unsafe { (function.function)(data) };
    set_in_host_function(false);
}

fn copy(work: &Copy, view: &View) -> Result<(), String> {
    match &work.from {
        Source::Bytes(bytes) => view.store(work.to, bytes),
        Source::Address(from) => {
            let mut bytes = vec![0; work.size.min(CHUNK)];
            let mut done = 0;
            while done < work.size {
                let part = &mut bytes[..(work.size - done).min(CHUNK)];
                view.load(from + done as u64, part)?;
                view.store(work.to + done as u64, part)?;
                done += part.len();
            }
            Ok(())
        }
    }
}

fn set(work: Set, view: &View) -> Result<(), String> {
    let pattern = &work.pattern[..work.width];
    let per_chunk = CHUNK / work.width;
    let bytes = pattern.repeat(work.count.min(per_chunk));
    let mut done = 0;
    while done < work.count {
        let count = (work.count - done).min(per_chunk);
        view.store(
            work.to + (done * work.width) as u64,
            &bytes[..count * work.width],
        )?;
        done += count;
    }
    Ok(())
}
