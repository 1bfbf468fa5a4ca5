//! A worker as its parent sees it: a child process that serves requests, and is killed if it breaks
//! the protocol or does not answer in time.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::buffers::Buffers;
use crate::exchange::{Exchange, Loss, Patience};
use crate::message::{FuelLeft, FunctionCall, Reply, Request, decode_reply, encode};
use crate::sandbox::{Place, Shared};
use crate::spawner::{Descriptors, Started};
use callbox_core::call::{CancelToken, Deadline, Fuel, FunctionReference, Functions};
use callbox_core::policy::{Grants, LogLevel};
use callbox_core::untrusted_text::{clean_message, sanitize};
use callbox_core::values::{Backtrace, Blame, Literal, Result, Shape, Status, StatusCode};
use callbox_wasm::{LogRecord, shown_to_guest};
use serde_bytes::ByteBuf;

/// The wait for the exit status of a process that closed its socket.
pub(super) const END: Duration = Duration::from_millis(100);

/// The time that a worker may take beyond that of its guest.
pub(super) const GRACE: Duration = Duration::from_millis(100);

/// The time that a worker may take to start, and beyond the limit to prepare.
pub(super) const START: Duration = Duration::from_secs(10);

/// Bytes of stack that running a function of the program may need.
const PROGRAM_STACK: usize = 1 << 20;

/// Bytes of a reply beyond its texts and buffers.
const ANSWER: usize = 1 << 20;

/// Bytes that the length of a leaf may take in a reply.
const LEAF_LENGTH: usize = 10;

/// Bytes of a status message beyond the guest's text.
pub(super) const CONTEXT: usize = 4096;

/// The most bytes that a note on a cut adds to a log message.
const NOTE: usize = 64;

/// A worker.
#[derive(Debug)]
pub(super) struct Process {
    /// `None` once it is lost.
    child: Option<Started>,
    exchange: Exchange,
    pub(super) buffers: Buffers,
    shared: Arc<Shared>,
    grants: Arc<Grants>,
    /// The worker's share of the sandbox's limit, once it has run something.
    place: Option<Place>,
}

/// The context of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asking<'a> {
    /// The request's name in messages.
    pub(super) what: &'a str,
    /// The time at which the worker is killed unless it has answered.
    pub(super) until: Option<Instant>,
    /// The deadline of the call, for messages.
    pub(super) deadline: Option<Deadline>,
    pub(super) cancel: Option<&'a CancelToken>,
    /// The functions of the running program, and those that may be called back.
    pub(super) functions: Option<&'a Arc<dyn Functions>>,
    pub(super) callable: &'a [Arc<FunctionReference>],
    /// The fuel of the execution, if the caller limits it.
    pub(super) fuel: Option<&'a Fuel>,
    /// The most calls of the guest that the request may cause, each of which may log.
    pub(super) calls: usize,
}

impl<'a> Asking<'a> {
    /// The context of a request that is not part of a call.
    pub(super) fn plain(what: &'a str, until: Option<Instant>) -> Self {
        Self {
            what,
            until,
            deadline: None,
            cancel: None,
            functions: None,
            callable: &[],
            fuel: None,
            calls: 1,
        }
    }

    fn patience(&self) -> Patience<'a> {
        Patience {
            until: self.until,
            cancel: self.cancel,
        }
    }
}

impl Process {
    /// Starts a worker, which makes an engine and then confines itself.
    pub(super) fn start(
        shared: &Arc<Shared>,
        grants: &Arc<Grants>,
        cancel: Option<&CancelToken>,
    ) -> Result<Self> {
        let policy = shared.policy_for(grants)?;
        shared.check_here()?;
        let cannot = |error| unavailable(format!("cannot start a worker: {error}"));
        let (mut exchange, socket) = Exchange::new().map_err(cannot)?;
        let buffers = Buffers::new().map_err(cannot)?;
        let descriptors = Descriptors {
            socket,
            buffers: buffers.share().map_err(cannot)?,
            errors: None,
        };
        let child = shared.spawner.spawn(descriptors).map_err(cannot)?;
        exchange.watch(&child);
        let mut new = Self {
            child: Some(child),
            exchange,
            buffers,
            shared: Arc::clone(shared),
            grants: Arc::clone(grants),
            place: None,
        };
        let asking = Asking {
            cancel,
            ..Asking::plain("the start of a worker", Some(Instant::now() + START))
        };
        new.ask(&Request::Start { policy }, asking)?;
        Ok(new)
    }

    /// Takes a share of the limit on workers, unless this worker has one.
    pub(super) fn take_place(&mut self) -> Result<()> {
        if self.place.is_none() {
            self.place = Some(self.shared.place()?);
        }
        Ok(())
    }

    /// Whether the worker has not been lost.
    pub(super) fn is_healthy(&self) -> bool {
        self.child.is_some()
    }

    /// Whether the worker is alive and idle.
    pub(super) fn is_there(&self) -> bool {
        self.child.as_ref().is_some_and(Started::can_be_ended) && self.exchange.is_open()
    }

    /// Sends a request and waits for the reply. A worker that breaks the protocol is killed.
    ///
    /// # Errors
    /// The status in the worker's reply, or the status for a lost worker.
    pub(super) fn ask(&mut self, request: &Request, asking: Asking<'_>) -> Result<()> {
        self.ask_with(request, &[], asking)
    }

    /// Sends a request, and bytes that it announces, which are not copied for it.
    ///
    /// # Errors
    /// As for [`Process::ask`].
    pub(super) fn ask_with(
        &mut self,
        request: &Request,
        announced: &[u8],
        asking: Asking<'_>,
    ) -> Result<()> {
        let message = encode(request)?;
        let mut parts = [&*message, announced].into_iter();
        let sent = parts.try_for_each(|part| self.exchange.send(part, asking.patience()));
        let answered = sent.and_then(|()| self.answer(asking));
        answered.unwrap_or_else(|loss| Err(self.lose_in(loss, asking)))
    }

    /// Handles log messages and calls back until the worker has answered.
    fn answer(&mut self, asking: Asking<'_>) -> Result<Result<()>, Loss> {
        let mut log = self.log_budget(asking.calls);
        let most = self.longest_answer(asking.callable);
        let most_text = self.longest_answer(&[]);
        loop {
            let bytes = self.exchange.receive(most, asking.patience())?;
            match decode_reply(&bytes, most_text).map_err(violation)? {
                Reply::Done { fuel } => {
                    charge(asking.fuel, fuel);
                    return Ok(Ok(()));
                }
                Reply::Failed { status, fuel } => {
                    charge(asking.fuel, fuel);
                    return Ok(Err(self.clean(status)));
                }
                Reply::Ready { .. } | Reply::Compiled { .. } => {
                    return Err(Loss::Violation(
                        "a worker that runs a module sent the reply of a compiler".to_owned(),
                    ));
                }
                Reply::Log { level, message } => {
                    // An empty message costs something too, so that a flood of them ends.
                    let cost = message.len().saturating_sub(NOTE).max(1);
                    log = log.checked_sub(cost).ok_or_else(too_much_log)?;
                    self.log(level, &message);
                }
                Reply::Function(call) => {
                    let request = self.call_back(&call, asking)?;
                    self.exchange.send(&request, asking.patience())?;
                }
            }
        }
    }

    /// The total length of log messages. A worker enforces the limit, then escapes the text, which
    /// may triple its length.
    fn log_budget(&self, calls: usize) -> usize {
        let limit = self.shared.policy.limits.log_bytes.saturating_mul(3);
        limit.saturating_mul(calls.max(1)).saturating_add(CONTEXT)
    }

    /// The longest reply: texts within the limits, and the operands of a function that may be
    /// called back.
    fn longest_answer(&self, callable: &[Arc<FunctionReference>]) -> usize {
        let limits = &self.shared.policy.limits;
        let operands = callable.iter().map(|function| {
            let leaves = function.parameters.iter().flat_map(Shape::leaves);
            leaves.fold(0_usize, |sum, leaf| {
                sum.saturating_add(leaf.byte_size())
                    .saturating_add(LEAF_LENGTH)
            })
        });
        let texts = limits.backtrace_frames.saturating_add(1);
        ANSWER
            .saturating_add(limits.message_bytes.saturating_mul(4).saturating_mul(texts))
            .saturating_add(operands.max().unwrap_or(0))
    }

    /// Calls a function of the program and encodes its outcome.
    fn call_back(&self, call: &FunctionCall, asking: Asking<'_>) -> Result<Vec<u8>, Loss> {
        let mut callable = asking.callable.iter();
        let function = callable.find(|function| function.id == call.id);
        let (Some(function), Some(functions)) = (function, asking.functions) else {
            return Err(Loss::Violation(format!(
                "expected a call of a function that the call site names, found number {}",
                call.id
            )));
        };
        let arguments = arguments(function, call).map_err(violation)?;
        let policy = &self.shared.policy;
        let limits = &policy.limits;
        // In deterministic mode, only the caller's own deadline stops a function.
        let until = asking
            .until
            .filter(|_| !policy.deterministic || asking.deadline.is_some());
        let fuel = policy.deterministic.then(|| {
            let left = asking.fuel.map_or(u64::MAX, Fuel::left);
            left.min(limits.fuel)
        });
        let bounds = call.bounds(until, fuel);
        let given = bounds.fuel.as_ref().map(Fuel::left);
        let outcome = if functions.depth() >= limits.callback_depth {
            Err(too_deep(limits.callback_depth))
        } else {
            {
                let needed = limits.stack_bytes.saturating_add(PROGRAM_STACK);
                let size = needed.saturating_add(PROGRAM_STACK);
                stacker::maybe_grow(needed, size, || {
                    functions.call(function.id, &arguments, &bounds)
                })
            }
        };
        let leaves = |literal: &Literal| {
            let leaves = literal.leaves();
            leaves.map(|(_, bytes)| ByteBuf::from(bytes)).collect()
        };
        let fuel = bounds.fuel.as_ref();
        // The fuel is charged here, whatever the worker reports.
        if let (Some(all), Some(given), Some(fuel)) = (asking.fuel, given, fuel) {
            all.take(given.saturating_sub(fuel.left()));
        }
        let outcome = fuel.map_or(Ok(()), Fuel::check).and(outcome);
        let outcome = outcome.as_ref().map(leaves).map_err(told);
        let fuel = fuel.map(FuelLeft::of);
        encode(&Request::Returned { outcome, fuel }).map_err(violation)
    }

    /// Passes a guest's log message to the sink, if the policy grants its level.
    fn log(&self, level: LogLevel, message: &str) {
        let Some(sink) = &self.shared.log else {
            return;
        };
        if self.grants.log.is_some_and(|least| level <= least) {
            let limit = self.shared.text_limit();
            let message = sanitize(message.as_bytes(), message.len(), limit);
            sink(&LogRecord {
                level,
                message: &message,
            });
        }
    }

    /// Escapes and cuts the texts of a worker's status: they may be the guest's.
    fn clean(&self, status: Status) -> Status {
        let limit = self.shared.text_limit();
        let status = clean_message(status, limit.saturating_add(CONTEXT));
        let Some(backtrace) = status.backtrace() else {
            return status;
        };
        let most = self.shared.policy.limits.backtrace_frames;
        let frames = backtrace.frames().iter().take(most);
        let frames: Vec<_> = frames
            .map(|frame| sanitize(frame.as_bytes(), frame.len(), limit).replace(['\n', '\t'], " "))
            .collect();
        let is_truncated = backtrace.is_truncated() || backtrace.frames().len() > most;
        status.with_backtrace(Backtrace::new(frames, is_truncated))
    }

    /// Kills a worker in the course of a request, and names the deadline that was missed.
    fn lose_in(&mut self, loss: Loss, asking: Asking<'_>) -> Status {
        let status = self.lose(loss, asking.what);
        match (status.code(), asking.deadline.and_then(Deadline::whole)) {
            (StatusCode::DeadlineExceeded, Some(whole)) => {
                let what = asking.what;
                let message = format!("{what} ran past its deadline of {whole:?}");
                Status::new(status.code(), status.blame(), message)
            }
            _ => status,
        }
    }

    /// Kills a worker, and returns the status of the call.
    pub(super) fn lose(&mut self, loss: Loss, what: &str) -> Status {
        let status = match loss {
            Loss::Ended => Status::new(
                StatusCode::Unavailable,
                Blame::Guest,
                format!("{what} failed: its process ended ({})", self.end()),
            ),
            Loss::Deadline => Status::new(
                StatusCode::DeadlineExceeded,
                Blame::Guest,
                format!("{what} ran past its deadline"),
            ),
            Loss::Cancelled => Status::new(
                StatusCode::Cancelled,
                Blame::Caller,
                format!("{what} was cancelled"),
            ),
            Loss::Violation(message) => Status::new(
                StatusCode::Internal,
                Blame::Guest,
                format!("{what} failed: {message}"),
            ),
            Loss::Failed(error) => unavailable(format!("{what} failed: {error}")),
        };
        self.kill();
        clean_message(status, self.shared.text_limit().saturating_add(CONTEXT))
    }

    /// How a process that closed its socket ended.
    fn end(&mut self) -> String {
        let Some(child) = &mut self.child else {
            return "it was lost before".to_owned();
        };
        let until = Instant::now() + END;
        loop {
            match child.child.try_wait() {
                Ok(Some(status)) => return status.to_string(),
                Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(1)),
                Ok(None) => return "it closed its socket".to_owned(),
                Err(error) => return error.to_string(),
            }
        }
    }

    fn kill(&mut self) {
        if let Some(child) = self.child.take() {
            self.shared.spawner.reap(child);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Charges the fuel that a request used.
fn charge(fuel: Option<&Fuel>, left: Option<FuelLeft>) {
    if let (Some(fuel), Some(left)) = (fuel, left) {
        left.charge(fuel);
    }
}

/// The operands of a call back, checked against the function's parameters.
fn arguments(function: &FunctionReference, call: &FunctionCall) -> Result<Vec<Literal>> {
    let mut leaves = call.operands.iter();
    let literal = |shape: &Shape| {
        let leaves = leaves.by_ref().take(shape.leaf_count());
        Literal::from_leaves(shape.clone(), leaves.map(|leaf| leaf.to_vec()).collect())
    };
    let arguments = function.parameters.iter().map(literal);
    let arguments = arguments.collect::<Result<Vec<_>>>()?;
    match leaves.len() {
        0 => Ok(arguments),
        more => Err(Status::invalid_argument(format!(
            "a function has {more} operands more than parameters"
        ))),
    }
}

/// The status of a failed function as the guest may see it.
fn told(failure: &Status) -> Status {
    let message = shown_to_guest(failure);
    Status::new(failure.code(), failure.blame(), message).with_recoverable(failure.recoverable())
}

fn violation(status: Status) -> Loss {
    Loss::Violation(status.message().to_owned())
}

fn too_much_log() -> Loss {
    Loss::Violation("the worker sent more log messages than the limits allow".to_owned())
}

fn too_deep(limit: usize) -> Status {
    Status::new(
        StatusCode::ResourceExhausted,
        Blame::Guest,
        format!("call-function: expected calls back at most {limit} deep, found more"),
    )
}

fn unavailable(message: String) -> Status {
    Status::new(StatusCode::Unavailable, Blame::Host, message)
}
