//! The worker: a process that runs one module for one executable, on behalf of the process at the
//! other end of its socket.
//!
//! The worker trusts that process and not the guest. The [`wasm`](callbox_wasm) backend confines
//! the guest as in any process. If that fails, the guest is confined to the worker, which gave up
//! every other privilege before it read a byte of the module.

mod compile;
mod confinement;
mod descriptors;
mod filter;
mod link;
mod scheduling;
mod serve;

use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use self::link::Link;
use crate::message::{Reply, Request};
use callbox_core::policy::{CompileIn, Policy};
use callbox_core::values::{Blame, Result, Status, StatusCode};
use callbox_wasm::{Config, Engine, LogRecord};

/// Bytes of stack beyond the policy's limit for guests.
const STACK: usize = 4 << 20;

/// Serves the process that started this one as its worker, until that process closes the socket.
///
/// Call it before anything else in the program: it closes every descriptor but standard input,
/// output and error.
#[must_use]
pub fn worker_main() -> ExitCode {
    match begin() {
        Ok(()) => ExitCode::SUCCESS,
        // The socket failed, so that the error cannot be reported.
        Err(_) => ExitCode::FAILURE,
    }
}

/// Confines this process as a worker is confined, for tests of the confinement. Every descriptor
/// but standard input, output and error is closed.
///
/// # Errors
/// UNAVAILABLE if the kernel lacks a mechanism.
#[doc(hidden)]
pub fn confine() -> Result<()> {
    descriptors::close_others().map_err(cannot)?;
    confinement::begin()?;
    confinement::end(&Policy::default(), [0, 1])
}

/// Confines this process as a compiler is confined, for the same tests.
///
/// # Errors
/// As for [`confine`].
#[doc(hidden)]
pub fn confine_compiler() -> Result<()> {
    descriptors::close_others().map_err(cannot)?;
    confinement::begin()?;
    confinement::end_compiler(Policy::default().limits.compile_memory_bytes, [0, 1])
}

fn begin() -> Result<()> {
    let confined = descriptors::close_others()
        .map_err(cannot)
        .and_then(|()| confinement::begin());
    let link = Arc::new(Link::new()?);
    let policy = match link.receive()? {
        Request::Start { policy } => policy,
        Request::StartCompiler {
            settings,
            memory_bytes,
        } => {
            return match confined {
                Ok(()) => compile::serve(&link, &settings, memory_bytes),
                Err(status) => link.send(&failed(status)),
            };
        }
        _ => return Err(Status::internal("the first request was not a start")),
    };
    let mut policy = match confined.and_then(|()| Policy::from_json(policy.as_bytes())) {
        Ok(policy) => policy,
        Err(status) => return link.send(&failed(status)),
    };
    // The trusted process kills this one when the time is up, and no thread can be started later.
    policy.compile = CompileIn::ThisProcess;
    policy.limits.compile_time = None;
    let stack = policy.limits.stack_bytes.saturating_add(STACK);
    let serving = {
        let link = Arc::clone(&link);
        let thread = thread::Builder::new().stack_size(stack);
        thread.spawn(move || serve(&link, policy))
    };
    match serving {
        // Panics that a guest could cause are caught by the backend.
        Ok(thread) => thread.join().unwrap_or(Ok(())),
        Err(error) => {
            let message = format!("cannot start a thread with {stack} bytes of stack: {error}");
            let status = Status::new(StatusCode::ResourceExhausted, Blame::Caller, message);
            link.send(&failed(status))
        }
    }
}

/// Makes the engine, gives up the privileges that making it took, and serves.
fn serve(link: &Arc<Link>, policy: Policy) -> Result<()> {
    let sink = {
        let link = Arc::clone(link);
        move |record: &LogRecord<'_>| {
            // If sending fails, so does the next reply.
            let _ = link.send(&Reply::Log {
                level: record.level,
                message: record.message.to_owned(),
            });
        }
    };
    let config = Config {
        policy,
        log: Some(Arc::new(sink)),
        ..Config::default()
    };
    let ready = Engine::before_confinement(config).and_then(|engine| {
        confinement::end(engine.policy(), link.descriptors())?;
        Ok(engine)
    });
    match ready {
        Ok(engine) => {
            link.send(&Reply::Done { fuel: None })?;
            serve::module(link, &engine)
        }
        Err(status) => link.send(&failed(status)),
    }
}

/// The reply to a failure before fuel is counted.
fn failed(status: Status) -> Reply {
    Reply::Failed { status, fuel: None }
}

/// The status for a failed system call.
fn cannot(error: impl std::fmt::Display) -> Status {
    Status::new(
        StatusCode::Unavailable,
        Blame::Host,
        format!("the worker cannot be confined: {error}"),
    )
}
