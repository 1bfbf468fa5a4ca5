//! Handlers in Rust: twins of what a kernel alone cannot do, for it takes a host: stages and their states, attributes of any kind, functions of the
//! program, the call's context, failures.
//!
//! A twin declares what its guest declares. What it reads on the host alone is known when it is called, so that its results are uploaded; what depends
//! on operands is computed when the stream comes to it.

mod attributes;
mod buffers;
mod c_typed;
mod context;
mod faults;
mod functions;
mod jax;
mod results;
mod stages;
mod words;

use std::cell::RefCell;

use anyhow::{Context, Result, bail};
use callbox::call::TargetModule;
use callbox::cuda::CudaTarget;

use crate::case::ExpectedLog;
use crate::platform::host;

/// The guests that have twins here.
pub(super) const GUESTS: [&str; 6] = [
    "typed_ffi",
    "functions",
    "faults",
    "c_typed",
    "jax_add_n",
    "jax_misc",
];

thread_local! {
    /// What twins logged in calls of this thread: handlers run on the thread that makes a call.
    static LOG: RefCell<Vec<ExpectedLog>> = const { RefCell::new(Vec::new()) };
}

/// What was logged on this thread since the last time.
pub(super) fn take_log() -> Vec<ExpectedLog> {
    LOG.take()
}

fn log(level: &str, message: impl Into<String>) {
    let message = ExpectedLog {
        level: level.to_owned(),
        message: message.into(),
    };
    LOG.with_borrow_mut(|log| log.push(message));
}

/// A guest's twins, with counters of their own: what an instance is to a module.
///
/// # Errors
/// A guest that was not built, or that has no target of a twin's name.
pub(super) fn of(guest: &str) -> Result<Vec<CudaTarget>> {
    let twins: Vec<(&str, CudaTarget)> = match guest {
        "typed_ffi" => {
            let mut twins = attributes::twins();
            twins.extend(buffers::twins());
            twins.extend(context::twins());
            twins.extend(stages::twins());
            twins
        }
        "functions" => functions::twins(),
        "faults" => faults::twins(),
        "c_typed" => c_typed::twins(),
        "jax_add_n" => jax::add_n_twins(),
        "jax_misc" => jax::misc_twins(),
        _ => bail!("expected a guest with twins in Rust, found {guest:?}"),
    };
    let module = host::guest(guest)?.with_context(|| format!("loading {guest}"))?;
    let signature = |name: &str| {
        let mut signatures = module.targets().iter();
        let signature = signatures.find(|signature| signature.name == name);
        signature
            .cloned()
            .with_context(|| format!("expected a target {name:?} of {guest}"))
    };
    twins
        .into_iter()
        .map(|(name, twin)| {
            let declared = signature(name)?;
            Ok(twin.declaring(|signature| *signature = declared))
        })
        .collect()
}

/// A twin that has `execute` alone.
fn twin(
    name: &'static str,
    execute: impl Fn(&mut callbox::cuda::CudaCall<'_>) -> callbox::Result<()> + Send + Sync + 'static,
) -> (&'static str, CudaTarget) {
    (name, CudaTarget::new(name, execute))
}
