//! Handlers in Rust: twins of targets that need the host for stages and their states, attributes of
//! any kind, functions of the program, the call's context, or failures.
//!
//! A twin declares what its guest declares. A result that depends only on the host is uploaded when
//! the twin is called. A result that depends on operands is computed when the stream reaches it.

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
    /// What the twins logged on this thread. Handlers run on the caller's thread.
    static LOG: RefCell<Vec<ExpectedLog>> = const { RefCell::new(Vec::new()) };
}

/// Takes what was logged on this thread.
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

/// A guest's twins, with new counters, as an instance of a module has.
///
/// # Errors
/// A guest that was not built, or that has no target with a twin's name.
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

/// A twin with `execute` only.
fn twin(
    name: &'static str,
    execute: impl Fn(&mut callbox::cuda::CudaCall<'_>) -> callbox::Result<()> + Send + Sync + 'static,
) -> (&'static str, CudaTarget) {
    (name, CudaTarget::new(name, execute))
}
