//! Rewrites and compiles modules, within the limits on time and memory.
//!
//! The engine's [`Compiler`] compiles in another process, which is killed when its time is up. An
//! engine without one compiles on a thread of this process. A thread cannot be stopped: a
//! compilation that takes too long goes on in the background.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use callbox_core::policy::CompileIn;
use callbox_core::values::{Result, Status};

use crate::budget::too_slow;
use crate::compiler::{CompileJob, CompiledCode, CompiledIn, Compiler, NotCompiled};
use crate::failure::{caller_exhausted, host_exhausted, status};
use crate::file::ModuleFile;
use crate::permits::{MOST_COMPILATIONS, compilations};
use crate::processor_time::LEAST_SHARE;
use crate::shared::EngineShared;

/// Compiles a validated module.
///
/// # Errors
/// Blamed on the guest: INVALID_ARGUMENT for errors that only compiling finds, DEADLINE_EXCEEDED
/// and RESOURCE_EXHAUSTED past the limits, INTERNAL if the compiler crashes. Blamed on the caller:
/// RESOURCE_EXHAUSTED if other modules take all places until then, and DEADLINE_EXCEEDED if other
/// work takes the processors. UNAVAILABLE if the policy requires a process and none can be started.
pub(crate) fn compile(
    shared: &EngineShared,
    file: &ModuleFile,
) -> Result<(CompiledCode, CompiledIn)> {
    let earlier = shared.refusals.check(&file.digest())?;
    compile_somewhere(shared, file, earlier).inspect_err(|status| {
        let time = shared.policy.limits.compile_refusal;
        shared.refusals.remember(file.digest(), status, time);
    })
}

fn compile_somewhere(
    shared: &EngineShared,
    file: &ModuleFile,
    earlier: Duration,
) -> Result<(CompiledCode, CompiledIn)> {
    let policy = &shared.policy;
    let outcome = match &shared.compiler {
        _ if policy.compile == CompileIn::ThisProcess => {
            return Ok((compile_here(shared, file)?, CompiledIn::ThisProcess(None)));
        }
        Some(compiler) => compile_elsewhere(shared, &**compiler, file, earlier),
        None => Err(NotCompiled::NoProcess(no_compiler())),
    };
    match outcome {
        Ok(code) => Ok((code, CompiledIn::Process)),
        Err(NotCompiled::Failed(status)) => Err(status),
        Err(NotCompiled::Crowded { status, used }) => {
            let time = policy.limits.compile_refusal;
            shared.refusals.remember_time(file.digest(), used, time);
            Err(status)
        }
        Err(NotCompiled::NoProcess(status)) if policy.compile == CompileIn::Process => Err(status),
        Err(NotCompiled::NoProcess(status)) => {
            if shared.compiler.is_some() {
                shared.report(&status);
            }
            let compiled = compile_here(shared, file)?;
            Ok((compiled, CompiledIn::ThisProcess(Some(status))))
        }
    }
}

fn no_compiler() -> Status {
    status!(
        Unavailable,
        Host,
        "expected an engine with a compiler in a process of its own, found one without; configure one, or let the policy compile in this process"
    )
}

fn compile_elsewhere(
    shared: &EngineShared,
    compiler: &dyn Compiler,
    file: &ModuleFile,
    earlier: Duration,
) -> Result<CompiledCode, NotCompiled> {
    let limits = &shared.policy.limits;
    let job = CompileJob {
        wasm: file.bytes(),
        code_bytes: file.code_bytes,
        settings: &shared.compiler_settings,
        fingerprint: shared.fingerprint,
        time: limits.compile_time,
        until: until(limits.compile_time, file),
        read_used: file.read_used(),
        earlier,
        memory_bytes: limits.compile_memory_bytes,
        message_bytes: limits.message_bytes,
    };
    CompiledCode::from_compiler(compiler, &job)
}

fn compile_here(shared: &EngineShared, file: &ModuleFile) -> Result<CompiledCode> {
    match shared.policy.limits.compile_time {
        None => CompiledCode::compile(&shared.engine, file.bytes(), message_bytes(shared)),
        Some(limit) => compile_within(limit, shared, file),
    }
}

/// The time for which a thread waits for its processor on any machine.
const SHORT: Duration = Duration::from_millis(20);

/// The time at which the limit is reached. Reading the file counts.
fn until(limit: Option<Duration>, file: &ModuleFile) -> Option<Instant> {
    Instant::now().checked_add(limit?.saturating_sub(file.read_in()))
}

fn message_bytes(shared: &EngineShared) -> usize {
    shared.policy.limits.message_bytes
}

/// Compiles on a thread of its own, which is abandoned after `limit`.
fn compile_within(
    limit: Duration,
    shared: &EngineShared,
    file: &ModuleFile,
) -> Result<CompiledCode> {
    let begun = Instant::now();
    let left = limit.saturating_sub(file.read_in());
    // Reading may take long, or longer than the limit, while other work has the processors.
    let read_slowly = || {
        status!(
            DeadlineExceeded,
            Caller,
            "the module was not compiled within {limit:?} (`compile_time_ms`): other work took the processors while it was read"
        )
    };
    if left < limit && left.is_zero() {
        return Err(read_slowly());
    }
    let permit = shared.compile_permits.acquire(left).ok_or_else(|| {
        caller_exhausted(format!("expected one of {MOST_COMPILATIONS} places to compile in within {limit:?}, found them taken by other modules"))
    })?;
    let permit = Arc::new(permit);
    let at_first = compilations();
    let (sender, receiver) = mpsc::sync_channel(1);
    let (engine, wasm) = (shared.engine.clone(), file.shared_bytes());
    let message_bytes = message_bytes(shared);
    let work = {
        let permit = Arc::clone(&permit);
        move || {
            let compiled = CompiledCode::compile(&engine, &wasm, message_bytes);
            drop(permit);
            // Fails if the caller has given up waiting.
            let _ = sender.send(compiled);
        }
    };
    thread::Builder::new()
        .name("callbox-compile".to_owned())
        .spawn(work)
        .map_err(|error| {
            host_exhausted(format!("expected to start a thread that compiles: {error}"))
        })?;
    match receiver.recv_timeout(left.saturating_sub(begun.elapsed())) {
        Ok(compiled) => compiled,
        Err(RecvTimeoutError::Timeout) => {
            permit.abandon();
            let most = at_first.max(compilations());
            if most > LEAST_SHARE {
                return Err(status!(
                    DeadlineExceeded,
                    Caller,
                    "the module was not compiled within {limit:?} (`compile_time_ms`): {most} modules were compiled in this process at one time"
                ));
            }
            let waited = file.read_in().saturating_sub(file.read_used());
            if waited > (limit / LEAST_SHARE).max(SHORT) {
                return Err(read_slowly());
            }
            Err(too_slow(limit))
        }
        Err(RecvTimeoutError::Disconnected) => Err(Status::internal(
            "a thread that compiles ended without a word",
        )),
    }
}
