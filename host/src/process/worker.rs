//! The worker: a process that runs one module for one executable, for the process at the other end of its socket.
//!
//! It trusts that process and not the guest. What the guest may do is bounded here by the [`wasm`](crate::wasm) backend, as ever; what it could do
//! if that failed is bounded by what this process gave up before it read a byte of the module.

mod confinement;
mod descriptors;
mod filter;
mod link;
mod serve;

use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use self::link::Link;
use super::message::{Reply, Request};
use crate::policy::Policy;
use crate::values::{Blame, Result, Status, StatusCode};
use crate::wasm::{Config, Engine, LogRecord};

/// Stack besides what the policy gives to guests.
const STACK: usize = 4 << 20;

/// Serves as a worker of the process that started this one, until that has no more use for it. It is the first thing that the program calls: all
/// that is open besides standard input, output and error is closed.
#[must_use]
pub fn worker_main() -> ExitCode {
    match begin() {
        Ok(()) => ExitCode::SUCCESS,
        // There is nobody who could be told: it is the socket that failed.
        Err(_) => ExitCode::FAILURE,
    }
}

/// Gives up what a worker gives up before it reads a module, in this process: for tests that try what is left. Everything but standard
/// input, output and error is closed.
///
/// # Errors
/// UNAVAILABLE if the kernel has not what it takes.
#[doc(hidden)]
pub fn confine() -> Result<()> {
    descriptors::close_others().map_err(cannot)?;
    confinement::begin()?;
    confinement::end(&Policy::default(), [0, 1])
}

fn begin() -> Result<()> {
    let confined = descriptors::close_others()
        .map_err(cannot)
        .and_then(|()| confinement::begin());
    let link = Arc::new(Link::new()?);
    let Request::Start(policy) = link.receive()? else {
        return Err(Status::internal("expected to be told to start"));
    };
    let policy = match confined.and_then(|()| Policy::from_json(policy.as_bytes())) {
        Ok(policy) => policy,
        Err(status) => return link.send(&Reply::Failed(status, None)),
    };
    let stack = policy.limits.stack_bytes.saturating_add(STACK);
    let serving = {
        let link = Arc::clone(&link);
        let thread = thread::Builder::new().stack_size(stack);
        thread.spawn(move || serve(&link, policy))
    };
    match serving {
        // A panic was caught where a guest could cause one.
        Ok(thread) => thread.join().unwrap_or(Ok(())),
        Err(error) => {
            let message = format!("expected a thread with {stack} bytes of stack: {error}");
            let status = Status::new(StatusCode::ResourceExhausted, Blame::Caller, message);
            link.send(&Reply::Failed(status, None))
        }
    }
}

/// Makes the engine, which takes what is given up then, and serves.
fn serve(link: &Arc<Link>, policy: Policy) -> Result<()> {
    let sink = {
        let link = Arc::clone(link);
        move |record: &LogRecord<'_>| {
            // Should it fail, the next answer fails as well.
            let _ = link.send(&Reply::Log(record.level, record.message.to_owned()));
        }
    };
    let config = Config {
        policy,
        log: Some(Arc::new(sink)),
        ..Config::default()
    };
    let ready = Engine::with_config(config).and_then(|engine| {
        confinement::end(engine.policy(), link.descriptors())?;
        Ok(engine)
    });
    match ready {
        Ok(engine) => {
            link.send(&Reply::Done(None))?;
            serve::module(link, &engine)
        }
        Err(status) => link.send(&Reply::Failed(status, None)),
    }
}

/// The machine does not let a process give something up.
fn cannot(error: impl std::fmt::Display) -> Status {
    Status::new(
        StatusCode::Unavailable,
        Blame::Host,
        format!("expected a worker to be confined: {error}"),
    )
}
