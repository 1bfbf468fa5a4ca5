//! A worker as this process sees it: a child process that is asked things, and lost if it does not answer as it should.

use std::process::Child;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::buffers::Buffers;
use super::exchange::{Exchange, Loss, Patience};
use super::message::{FunctionCall, Reply, Request};
use super::sandbox::{Place, Shared};
use super::spawner::Descriptors;
use crate::call::{CancelToken, Deadline, Fuel, FunctionReference, Functions};
use crate::policy::{Grants, LogLevel};
use crate::values::{Backtrace, Blame, Literal, Result, Shape, Status, StatusCode};
use crate::wasm::{LogRecord, clean_message, sanitize, shown_to_guest};

/// How long the end of a process that closed its socket is waited for, to say how it ended.
const END: Duration = Duration::from_millis(100);

/// How long a worker may take past what its guest may.
pub(super) const GRACE: Duration = Duration::from_millis(100);

/// How long a worker may take to start, and longer than the limits to compile and to prepare.
pub(super) const START: Duration = Duration::from_secs(10);

/// Stack that this process itself may need to run a function of the program.
const PROGRAM_STACK: usize = 1 << 20;

/// Bytes of an answer besides the texts and buffers in it.
const ANSWER: usize = 1 << 20;

/// Bytes of a message besides the guest's text in it.
const CONTEXT: usize = 4096;

/// Bytes of a log message that say how it was cut.
const NOTE: usize = 64;

/// A worker.
#[derive(Debug)]
pub(super) struct Process {
    /// `None` once it is lost.
    child: Option<Child>,
    exchange: Exchange,
    pub(super) buffers: Buffers,
    shared: Arc<Shared>,
    grants: Arc<Grants>,
    /// Its share of the sandbox's limit, once it has run something.
    place: Option<Place>,
}

/// What goes with a question.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asking<'a> {
    /// What is done, for messages.
    pub(super) what: &'a str,
    /// When the worker is killed that has not answered.
    pub(super) until: Option<Instant>,
    /// The deadline that it goes by, for messages.
    pub(super) deadline: Option<Deadline>,
    pub(super) cancel: Option<&'a CancelToken>,
    /// The running program's functions, and which of them may be called back.
    pub(super) functions: Option<&'a Arc<dyn Functions>>,
    pub(super) callable: &'a [Arc<FunctionReference>],
    /// What the execution may take of fuel, if its caller says.
    pub(super) fuel: Option<&'a Fuel>,
    /// How many calls of the guest it can be, each of which may log.
    pub(super) calls: usize,
}

impl<'a> Asking<'a> {
    /// A question to a worker that nobody waits for as a part of a call.
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
    /// Starts a worker, which makes an engine and gives up everything else.
    pub(super) fn start(
        shared: &Arc<Shared>,
        grants: &Arc<Grants>,
        cancel: Option<&CancelToken>,
    ) -> Result<Self> {
        let policy = shared.policy_for(grants)?;
        shared.check_here()?;
        let cannot = |error| unavailable(format!("expected to start a worker: {error}"));
        let (exchange, socket) = Exchange::new().map_err(cannot)?;
        let buffers = Buffers::new().map_err(cannot)?;
        let descriptors = Descriptors {
            socket,
            buffers: buffers.share().map_err(cannot)?,
        };
        let child = shared.spawner.spawn(descriptors).map_err(cannot)?;
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
        new.ask(&Request::Start(policy), asking)?;
        Ok(new)
    }

    /// Takes a place among the workers that there may be, unless it has one.
    pub(super) fn take_place(&mut self) -> Result<()> {
        if self.place.is_none() {
            self.place = Some(self.shared.place()?);
        }
        Ok(())
    }

    /// Whether it can be asked more.
    pub(super) fn is_healthy(&self) -> bool {
        self.child.is_some()
    }

    /// Whether it is there and silent, as one that was not asked anything should be.
    pub(super) fn is_there(&self) -> bool {
        self.is_healthy() && self.exchange.is_open()
    }

    /// Asks a worker and waits for its answer. One that does not answer is killed, and no more use.
    ///
    /// # Errors
    /// What the worker says, or how it was lost.
    pub(super) fn ask(&mut self, request: &Request, asking: Asking<'_>) -> Result<()> {
        let message = request.encode()?;
        let answered = match self.exchange.send(&message, asking.patience()) {
            Ok(()) => self.answer(asking),
            Err(loss) => Err(loss),
        };
        answered.unwrap_or_else(|loss| Err(self.lose_in(loss, asking)))
    }

    /// Serves a worker until it has answered.
    fn answer(&mut self, asking: Asking<'_>) -> Result<Result<()>, Loss> {
        let mut log = self.log_budget(asking.calls);
        let most = self.longest_answer(asking.callable);
        loop {
            let bytes = self.exchange.receive(most, asking.patience())?;
            let reply = Reply::decode(&bytes);
            match reply.map_err(|status| Loss::Violation(status.message().to_owned()))? {
                Reply::Done(fuel) => {
                    note_fuel(asking.fuel, fuel);
                    return Ok(Ok(()));
                }
                Reply::Failed(status, fuel) => {
                    note_fuel(asking.fuel, fuel);
                    return Ok(Err(self.clean(status)));
                }
                Reply::Log(level, message) => {
                    // One without text costs something as well, so that a flood of them ends.
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

    /// What log messages may cost. A worker keeps to the limits itself; making a text fit to be shown may triple it.
    fn log_budget(&self, calls: usize) -> usize {
        let limit = self.shared.policy.limits.log_bytes.saturating_mul(3);
        limit.saturating_mul(calls.max(1)).saturating_add(CONTEXT)
    }

    /// How long an answer may be: texts as the limits say, and the operands of what may be called back.
    fn longest_answer(&self, callable: &[Arc<FunctionReference>]) -> usize {
        let limits = &self.shared.policy.limits;
        let operands = callable.iter().map(|function| {
            let leaves = function.parameters.iter().flat_map(Shape::leaves);
            leaves.fold(0_usize, |sum, leaf| {
                sum.saturating_add(leaf.byte_size()).saturating_add(8)
            })
        });
        let texts = limits.backtrace_frames.saturating_add(1);
        ANSWER
            .saturating_add(limits.message_bytes.saturating_mul(4).saturating_mul(texts))
            .saturating_add(operands.max().unwrap_or(0))
    }

    /// Calls a function back and makes the answer of what came of it.
    fn call_back(&self, call: &FunctionCall, asking: Asking<'_>) -> Result<Vec<u8>, Loss> {
        let mut callable = asking.callable.iter();
        let function = callable.find(|function| function.id == call.id);
        let (Some(function), Some(functions)) = (function, asking.functions) else {
            return Err(Loss::Violation(format!(
                "expected a call of a function that the call site names, found number {}",
                call.id
            )));
        };
        let arguments = arguments(function, call)
            .map_err(|status| Loss::Violation(status.message().to_owned()))?;
        let policy = &self.shared.policy;
        let limits = &policy.limits;
        // No clock is to be seen in the deterministic mode, but for the caller's own deadline.
        let until = asking
            .until
            .filter(|_| !policy.deterministic || asking.deadline.is_some());
        let fuel = policy.deterministic.then(|| {
            let left = asking.fuel.map_or(u64::MAX, Fuel::left);
            left.min(limits.fuel)
        });
        let bounds = call.bounds(until, fuel);
        let given = bounds.fuel.as_ref().map(Fuel::left);
        let outcome = match functions.depth() >= limits.callback_depth {
            true => Err(too_deep(limits.callback_depth)),
            false => {
                let needed = limits.stack_bytes.saturating_add(PROGRAM_STACK);
                let size = needed.saturating_add(PROGRAM_STACK);
                stacker::maybe_grow(needed, size, || {
                    functions.call(function.id, &arguments, &bounds)
                })
            }
        };
        let leaves = |literal: &Literal| {
            let leaves = literal.leaves();
            leaves.map(|(_, bytes)| bytes.to_vec()).collect()
        };
        let fuel = bounds.fuel.as_ref().map(Fuel::left);
        // What it took is taken whether or not the worker says so.
        if let (Some(all), Some(given), Some(left)) = (asking.fuel, given, fuel) {
            all.take(given.saturating_sub(left));
        }
        let outcome = outcome.as_ref().map(leaves).map_err(told);
        let returned = Request::Returned(outcome, fuel);
        let too_long = |status: Status| Loss::Violation(status.message().to_owned());
        returned.encode().map_err(too_long)
    }

    /// What the guest logged, as far as it may.
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

    /// A status as the worker says it, made fit to be shown: its texts may be the guest's.
    fn clean(&self, status: Status) -> Status {
        let limit = self.shared.text_limit();
        let status = clean_message(status, limit.saturating_add(CONTEXT));
        let Some(backtrace) = status.backtrace() else {
            return status;
        };
        let most = self.shared.policy.limits.backtrace_frames;
        let frames = backtrace.frames().iter().take(most);
        let frames: Vec<_> = frames
            .map(|frame| {
                // A frame is a line.
                sanitize(frame.as_bytes(), frame.len(), limit).replace(['\n', '\t'], " ")
            })
            .collect();
        let is_truncated = backtrace.is_truncated() || backtrace.frames().len() > most;
        status.with_backtrace(Backtrace::new(frames, is_truncated))
    }

    /// The same for a question: one that nobody answered in time ran past its deadline.
    fn lose_in(&mut self, loss: Loss, asking: Asking<'_>) -> Status {
        let status = self.lose(loss, asking.what);
        match (status.code(), asking.deadline) {
            (StatusCode::DeadlineExceeded, Some(Deadline::After(duration))) => {
                let what = asking.what;
                let message = format!("{what} ran past its deadline of {duration:?}");
                Status::new(status.code(), status.blame(), message)
            }
            _ => status,
        }
    }

    /// Kills a worker, and says what that means for the call.
    pub(super) fn lose(&mut self, loss: Loss, what: &str) -> Status {
        let status = match loss {
            Loss::Ended => Status::new(
                StatusCode::Unavailable,
                Blame::Guest,
                format!("{what} was broken off: its process ended ({})", self.end()),
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
                format!("{what} was broken off: {message}"),
            ),
            Loss::Failed(error) => unavailable(format!("{what} was broken off: {error}")),
        };
        self.kill();
        clean_message(status, self.shared.text_limit().saturating_add(CONTEXT))
    }

    /// How a process ended that closed its socket.
    fn end(&mut self) -> String {
        let Some(child) = &mut self.child else {
            return "it was lost before".to_owned();
        };
        let until = Instant::now() + END;
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return status.to_string(),
                Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(1)),
                Ok(None) => return "it closed its socket".to_owned(),
                Err(error) => return error.to_string(),
            }
        }
    }

    fn kill(&mut self) {
        if let Some(child) = self.child.take() {
            self.shared.spawner.bury(child);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a call took of its execution's fuel, as far as that goes: no worker gives any back.
fn note_fuel(fuel: Option<&Fuel>, left: Option<u64>) {
    if let (Some(fuel), Some(left)) = (fuel, left) {
        fuel.take(fuel.left().saturating_sub(left));
    }
}

/// The operands of a call back, which have to be of the function's own shapes.
fn arguments(function: &FunctionReference, call: &FunctionCall) -> Result<Vec<Literal>> {
    let mut leaves = call.operands.iter();
    let literal = |shape: &Shape| {
        let leaves = leaves.by_ref().take(shape.leaves().len());
        Literal::from_leaves(shape.clone(), leaves.cloned().collect())
    };
    let arguments = function.parameters.iter().map(literal);
    let arguments = arguments.collect::<Result<Vec<_>>>()?;
    match leaves.len() {
        0 => Ok(arguments),
        more => Err(Status::invalid_argument(format!(
            "expected no more operands of a function, found {more}"
        ))),
    }
}

/// What a worker is told of a function's failure. A guest that hands it on hands on no more than this.
fn told(failure: &Status) -> Status {
    let message = shown_to_guest(failure);
    Status::new(failure.code(), failure.blame(), message).with_recoverable(failure.recoverable())
}

fn too_much_log() -> Loss {
    Loss::Violation("expected log messages as the limits allow them, found more".to_owned())
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
