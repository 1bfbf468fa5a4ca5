//! What this process and a worker tell each other. A message is a length of four bytes and as many bytes; the first of them says what
//! it is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::site;
use super::wire::{Reader, Writer, violation};
use crate::call::{Bounds, CallOptions, CallSite, Deadline, Fuel, UserData};
use crate::policy::LogLevel;
use crate::values::{Backtrace, Blame, Result, Status, StatusCode};

/// Bytes of the length that a message begins with.
pub(super) const LENGTH: usize = 4;

/// What this process asks of a worker.
#[derive(Debug)]
pub(super) enum Request {
    /// Make an engine with this policy, as JSON, and give everything else up.
    Start(String),
    /// Load this module.
    Load(Vec<u8>),
    /// Prepare these call sites: those of a program, or one alone.
    Prepare(Vec<CallSite>, bool),
    /// Begin an execution in which these call sites take part.
    Begin(Beginning, Vec<usize>),
    /// Run the execution's stages `initialize`.
    Initialize,
    /// Call this call site, as a part of the execution.
    Call(usize),
    /// Call this call site, as an execution of its own.
    Alone(Beginning, usize),
    /// End the execution.
    End,
    /// What a function returned that was called back: its leaves, and what is left of the fuel.
    Returned(Result<Vec<Vec<u8>>>, Option<u64>),
}

/// How an execution is run.
#[derive(Debug)]
pub(super) struct Beginning {
    deadline: Option<Remaining>,
    fuel: Option<u64>,
    user_data: Option<Arc<UserData>>,
    /// How deep in calls back it is, if there is a program to call back.
    pub(super) depth: Option<usize>,
}

/// A deadline, for another process.
#[derive(Clone, Copy, Debug)]
enum Remaining {
    After(Duration),
    From(Duration),
}

impl Beginning {
    /// The deadline is what is left of the options' own.
    pub(super) fn new(
        options: &CallOptions,
        deadline: Option<Deadline>,
        depth: Option<usize>,
    ) -> Self {
        Self {
            deadline: deadline.map(|deadline| match deadline {
                Deadline::After(duration) => Remaining::After(duration),
                Deadline::At(instant) => Remaining::From(left(instant)),
            }),
            fuel: options.fuel.as_ref().map(Fuel::left),
            user_data: options.user_data.clone(),
            depth,
        }
    }

    /// The options for the worker's own backend. Cancellation does not reach it: it is killed.
    pub(super) fn options(&self) -> CallOptions {
        CallOptions {
            deadline: self.deadline.map(|remaining| match remaining {
                Remaining::After(duration) => Deadline::After(duration),
                Remaining::From(duration) => Deadline::At(Deadline::After(duration).instant()),
            }),
            fuel: self.fuel.map(Fuel::new),
            user_data: self.user_data.clone(),
            ..CallOptions::default()
        }
    }
}

/// How long it is until then.
pub(super) fn left(instant: Instant) -> Duration {
    instant.saturating_duration_since(Instant::now())
}

/// What a worker says.
#[derive(Debug)]
pub(super) enum Reply {
    /// What was asked is done. How much fuel is left, if it was counted.
    Done(Option<u64>),
    /// It failed.
    Failed(Status, Option<u64>),
    /// The guest logged something.
    Log(LogLevel, String),
    /// The guest calls the function with this id.
    Function(FunctionCall),
}

/// A guest's call of a function.
#[derive(Debug)]
pub(super) struct FunctionCall {
    pub(super) id: usize,
    /// The operands' leaves.
    pub(super) operands: Vec<Vec<u8>>,
    /// How long it may take.
    time: Option<Duration>,
    fuel: Option<u64>,
}

impl FunctionCall {
    pub(super) fn new(id: usize, operands: Vec<Vec<u8>>, bounds: &Bounds) -> Self {
        Self {
            id,
            operands,
            time: bounds.deadline.map(left),
            fuel: bounds.fuel.as_ref().map(Fuel::left),
        }
    }

    /// What the function may take: what the worker says, and no more than this. Fuel is counted if there is any here.
    pub(super) fn bounds(&self, deadline: Option<Instant>, fuel: Option<u64>) -> Bounds {
        let own = self.time.map(|time| Deadline::After(time).instant());
        let fuel = fuel.map(|most| self.fuel.map_or(most, |own| own.min(most)));
        Bounds {
            deadline: own.into_iter().chain(deadline).min(),
            fuel: fuel.map(Fuel::new),
        }
    }
}

impl Request {
    /// The message, with its length.
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let mut writer = begun();
        match self {
            Self::Start(policy) => {
                writer.u8(0);
                writer.text(policy);
            }
            Self::Load(wasm) => {
                writer.u8(1);
                writer.blob(wasm);
            }
            Self::Prepare(sites, is_alone) => {
                writer.u8(2);
                writer.bool(*is_alone);
                writer.list(sites, site::write);
            }
            Self::Begin(beginning, sites) => {
                writer.u8(3);
                write_beginning(&mut writer, beginning);
                writer.list(sites, |writer, &site| writer.usize(site));
            }
            Self::Initialize => writer.u8(4),
            Self::Call(site) => {
                writer.u8(5);
                writer.usize(*site);
            }
            Self::Alone(beginning, site) => {
                writer.u8(6);
                write_beginning(&mut writer, beginning);
                writer.usize(*site);
            }
            Self::End => writer.u8(7),
            Self::Returned(outcome, fuel) => {
                writer.u8(8);
                write_outcome(&mut writer, outcome);
                writer.option(*fuel, Writer::u64);
            }
        }
        ended(writer)
    }

    /// Reads a message, without its length.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let request = match reader.u8()? {
            0 => Self::Start(reader.text()?.to_owned()),
            1 => Self::Load(reader.blob()?.to_vec()),
            2 => {
                let is_alone = reader.bool()?;
                Self::Prepare(reader.list(site::read)?, is_alone)
            }
            3 => Self::Begin(read_beginning(&mut reader)?, reader.list(Reader::usize)?),
            4 => Self::Initialize,
            5 => Self::Call(reader.usize()?),
            6 => Self::Alone(read_beginning(&mut reader)?, reader.usize()?),
            7 => Self::End,
            8 => Self::Returned(read_outcome(&mut reader)?, reader.option(Reader::u64)?),
            other => return Err(violation(format!("expected a request, found {other}"))),
        };
        reader.end()?;
        Ok(request)
    }
}

impl Reply {
    /// The message, with its length.
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let mut writer = begun();
        match self {
            Self::Done(fuel) => {
                writer.u8(0);
                writer.option(*fuel, Writer::u64);
            }
            Self::Failed(status, fuel) => {
                writer.u8(1);
                write_status(&mut writer, status);
                writer.option(*fuel, Writer::u64);
            }
            Self::Log(level, message) => {
                writer.u8(2);
                writer.u8(*level as u8);
                writer.text(message);
            }
            Self::Function(call) => {
                writer.u8(3);
                writer.usize(call.id);
                writer.list(&call.operands, |writer, leaf| writer.blob(leaf));
                writer.option(call.time, write_duration);
                writer.option(call.fuel, Writer::u64);
            }
        }
        ended(writer)
    }

    /// Reads a message, without its length.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let reply = match reader.u8()? {
            0 => Self::Done(reader.option(Reader::u64)?),
            1 => Self::Failed(read_status(&mut reader)?, reader.option(Reader::u64)?),
            2 => {
                let number = reader.u8()?;
                let level = LogLevel::from_number(u32::from(number));
                let level = level
                    .ok_or_else(|| violation(format!("expected a log level, found {number}")))?;
                Self::Log(level, reader.text()?.to_owned())
            }
            3 => Self::Function(FunctionCall {
                id: reader.usize()?,
                operands: reader.list(|reader| Ok(reader.blob()?.to_vec()))?,
                time: reader.option(read_duration)?,
                fuel: reader.option(Reader::u64)?,
            }),
            other => return Err(violation(format!("expected an answer, found {other}"))),
        };
        reader.end()?;
        Ok(reply)
    }
}

/// A message with room for its length.
fn begun() -> Writer {
    let mut writer = Writer::default();
    (0..LENGTH).for_each(|_| writer.u8(0));
    writer
}

/// The message with its length in place.
fn ended(writer: Writer) -> Result<Vec<u8>> {
    let mut bytes = writer.bytes();
    let length = u32::try_from(bytes.len() - LENGTH).map_err(|_| {
        Status::new(
            StatusCode::ResourceExhausted,
            Blame::Caller,
            format!(
                "expected what a worker is told to take less than 4 GiB, found {} bytes",
                bytes.len()
            ),
        )
    })?;
    bytes[..LENGTH].copy_from_slice(&length.to_le_bytes());
    Ok(bytes)
}

fn write_duration(writer: &mut Writer, duration: Duration) {
    writer.u64(duration.as_secs());
    writer.u64(u64::from(duration.subsec_nanos()));
}

fn read_duration(reader: &mut Reader<'_>) -> Result<Duration> {
    let (seconds, nanos) = (reader.u64()?, reader.u64()?);
    match u32::try_from(nanos) {
        Ok(nanos) if nanos < 1_000_000_000 => Ok(Duration::new(seconds, nanos)),
        _ => Err(violation(format!(
            "expected a second's nanoseconds, found {nanos}"
        ))),
    }
}

fn write_beginning(writer: &mut Writer, beginning: &Beginning) {
    writer.option(beginning.deadline, |writer, remaining| match remaining {
        Remaining::After(duration) => {
            writer.u8(0);
            write_duration(writer, duration);
        }
        Remaining::From(duration) => {
            writer.u8(1);
            write_duration(writer, duration);
        }
    });
    writer.option(beginning.fuel, Writer::u64);
    writer.option(beginning.user_data.as_ref(), |writer, data| {
        let entries: Vec<_> = data.iter().collect();
        writer.list(&entries, |writer, (name, bytes)| {
            writer.text(name);
            writer.blob(bytes);
        });
    });
    writer.option(beginning.depth, Writer::usize);
}

fn read_beginning(reader: &mut Reader<'_>) -> Result<Beginning> {
    let deadline = reader.option(|reader| match reader.u8()? {
        0 => read_duration(reader).map(Remaining::After),
        1 => read_duration(reader).map(Remaining::From),
        other => Err(violation(format!("expected a deadline, found {other}"))),
    })?;
    let fuel = reader.option(Reader::u64)?;
    let entry = |reader: &mut Reader<'_>| Ok((reader.text()?.to_owned(), reader.blob()?.to_vec()));
    let user_data = reader.option(|reader| reader.list(entry))?;
    Ok(Beginning {
        deadline,
        fuel,
        user_data: user_data.map(|entries| Arc::new(entries.into_iter().collect())),
        depth: reader.option(Reader::usize)?,
    })
}

fn write_outcome(writer: &mut Writer, outcome: &Result<Vec<Vec<u8>>>) {
    match outcome {
        Ok(leaves) => {
            writer.u8(0);
            writer.list(leaves, |writer, leaf| writer.blob(leaf));
        }
        Err(status) => {
            writer.u8(1);
            write_status(writer, status);
        }
    }
}

fn read_outcome(reader: &mut Reader<'_>) -> Result<Result<Vec<Vec<u8>>>> {
    match reader.u8()? {
        0 => Ok(Ok(reader.list(|reader| Ok(reader.blob()?.to_vec()))?)),
        1 => Ok(Err(read_status(reader)?)),
        other => Err(violation(format!("expected an outcome, found {other}"))),
    }
}

const BLAMES: [Blame; 3] = [Blame::Guest, Blame::Caller, Blame::Host];

fn write_status(writer: &mut Writer, status: &Status) {
    writer.u8(status.code().number());
    let blame = BLAMES.iter().position(|&blame| blame == status.blame());
    writer.u8(blame.map_or(u8::MAX, |index| index as u8));
    writer.bool(status.recoverable());
    writer.text(status.message());
    writer.option(status.backtrace(), |writer, backtrace| {
        writer.list(backtrace.frames(), |writer, frame| writer.text(frame));
        writer.bool(backtrace.is_truncated());
    });
}

fn read_status(reader: &mut Reader<'_>) -> Result<Status> {
    let number = reader.u8()?;
    let code = StatusCode::from_number(u32::from(number))
        .filter(|&code| code != StatusCode::Ok)
        .ok_or_else(|| violation(format!("expected a failure's code, found {number}")))?;
    let number = reader.u8()?;
    let blame = BLAMES
        .get(usize::from(number))
        .ok_or_else(|| violation(format!("expected a blame, found {number}")))?;
    let recoverable = reader.bool()?;
    let status = Status::new(code, *blame, reader.text()?).with_recoverable(recoverable);
    let backtrace = reader.option(|reader| {
        let frames = reader.list(|reader| Ok(reader.text()?.to_owned()))?;
        Ok(Backtrace::new(frames, reader.bool()?))
    })?;
    Ok(match backtrace {
        Some(backtrace) => status.with_backtrace(backtrace),
        None => status,
    })
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::panic,
        reason = "a test fails by panicking"
    )]

    use super::*;

    #[test]
    fn a_status_comes_back_whole() {
        let backtrace = Backtrace::new(vec!["f".to_owned(), "g".to_owned()], true);
        let status = Status::new(StatusCode::Aborted, Blame::Guest, "boom")
            .with_recoverable(true)
            .with_backtrace(backtrace);
        let bytes = Reply::Failed(status.clone(), Some(9)).encode().unwrap();
        match Reply::decode(&bytes[LENGTH..]).unwrap() {
            Reply::Failed(found, Some(9)) => assert_eq!(found, status),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        // Nothing, no such answer, a success as a failure, no such blame, no such level, text that is not UTF-8, and bytes too many.
        for bytes in [
            &[][..],
            &[9],
            &[1, 0, 0, 0],
            &[1, 3, 7, 0],
            &[2, 5, 0, 0, 0, 0, 0, 0, 0, 0],
            &[2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xff],
            &[0, 0, 0],
            &[0, 2],
        ] {
            let status = Reply::decode(bytes).unwrap_err();
            assert_eq!(
                (status.code(), status.blame()),
                (StatusCode::Internal, Blame::Guest),
                "{bytes:?}"
            );
        }
    }
}
