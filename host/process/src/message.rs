//! The messages between this process and a worker.
//!
//! A message is a length of four bytes and then a [`Request`] or a [`Reply`], encoded by postcard.
//!
//! Arbitrary bytes are safe to decode:
//!
//! - postcard checks the lengths of texts and bytes against the message, and reserves at most 1 MiB
//!   for a list before it reads the elements. Long messages have few elements: [`decode_reply`].
//! - Values are built by their checked constructors.
//! - Only dictionaries and shapes nest. A shape is encoded as text, which is read without
//!   recursion. Only requests contain dictionaries: they come from the trusted process, and
//!   [`Request::prepare`] bounds their depth.
//! - Every failure is a protocol [`violation`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use callbox_core::call::{Bounds, CallOptions, CallSite, Deadline, Fuel, UserData};
use callbox_core::policy::LogLevel;
use callbox_core::values::{Blame, Result, Status, StatusCode, check_depth};
use callbox_wasm::CompilerSettings;
use serde::de::{DeserializeOwned, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_bytes::{ByteBuf, Bytes};

/// Bytes of the length that a message begins with.
pub(super) const LENGTH: usize = 4;

/// A request to a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Make an engine with this policy, in JSON, and give up all other privileges.
    Start { policy: String },
    /// Load the module of this many bytes that follows the message.
    Load { wasm_bytes: u64, label: String },
    /// Prepare these call sites: those of a program, or a single one outside a program.
    Prepare {
        sites: Vec<CallSite>,
        is_alone: bool,
    },
    /// Begin an execution of these call sites.
    Begin {
        beginning: Beginning,
        sites: Vec<usize>,
    },
    /// Run the `initialize` stages of the execution.
    Initialize,
    /// Call this call site as a part of the execution.
    Call { site: usize },
    /// Call this call site as an execution of its own.
    Alone { beginning: Beginning, site: usize },
    /// End the execution.
    End,
    /// A function that was called back returned these leaves.
    Returned {
        outcome: Result<Vec<ByteBuf>>,
        fuel: Option<FuelLeft>,
    },
    /// Make a compiler with these settings and at most `memory_bytes` of memory, and give up all
    /// other privileges.
    StartCompiler {
        settings: CompilerSettings,
        memory_bytes: u64,
    },
    /// Compile the module of this many bytes that follows the message, to at most `most_bytes`.
    Compile {
        wasm_bytes: u64,
        most_bytes: u64,
        message_bytes: usize,
    },
}

/// How an execution is run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Beginning {
    deadline: Option<Remaining>,
    fuel: Option<u64>,
    #[serde(
        serialize_with = "write_user_data",
        deserialize_with = "read_user_data"
    )]
    user_data: Option<Arc<UserData>>,
    /// The number of callbacks that enclose the execution. `None` without a program to call back.
    pub(super) depth: Option<usize>,
}

/// A deadline for another process.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Remaining {
    /// [`Deadline::After`].
    After(Duration),
    /// [`Deadline::At`].
    At(Moment),
    /// [`Deadline::Begun`].
    Begun { end: Moment, whole: Duration },
}

/// An instant, as the reading of the monotonic clock that all processes of the system share.
///
/// A deadline must not move with the time that a message takes: where the program that called a
/// guest stops first, the guest would have some time left to answer for it. It is never later in
/// the other process.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Moment(Duration);

impl Moment {
    /// An instant that has passed becomes the present.
    fn of(instant: Instant) -> Self {
        // The clock is read first, so that the moment is early by the time in between.
        let now = monotonic_clock();
        Self(now.saturating_add(left(instant)))
    }

    /// As in [`Deadline::instant`], one that another process made up is cut.
    fn instant(self) -> Instant {
        const FAR: Duration = Duration::from_secs(1 << 32);
        let now = Instant::now();
        let left = self.0.saturating_sub(monotonic_clock());
        now.checked_add(left.min(FAR)).unwrap_or(now)
    }
}

fn monotonic_clock() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // The clock begins at zero.
    Duration::try_from(now).unwrap_or_default()
}

impl Beginning {
    /// The beginning of an execution, where `deadline` is the remainder of the deadline in
    /// `options`.
    pub(super) fn new(
        options: &CallOptions,
        deadline: Option<Deadline>,
        depth: Option<usize>,
    ) -> Self {
        Self {
            deadline: deadline.map(|deadline| match deadline {
                Deadline::After(duration) => Remaining::After(duration),
                Deadline::At(instant) => Remaining::At(Moment::of(instant)),
                Deadline::Begun { end, whole } => Remaining::Begun {
                    end: Moment::of(end),
                    whole,
                },
            }),
            fuel: options.fuel.as_ref().map(Fuel::left),
            user_data: options.user_data.clone(),
            depth,
        }
    }

    /// The options for the worker's own backend. They have no cancel token: a cancelled worker is
    /// killed.
    pub(super) fn options(&self) -> CallOptions {
        CallOptions {
            deadline: self.deadline.map(|remaining| match remaining {
                Remaining::After(duration) => Deadline::After(duration),
                Remaining::At(moment) => Deadline::At(moment.instant()),
                Remaining::Begun { end, whole } => Deadline::Begun {
                    end: end.instant(),
                    whole,
                },
            }),
            fuel: self.fuel.map(Fuel::new),
            user_data: self.user_data.clone(),
            ..CallOptions::default()
        }
    }
}

/// The time until `instant`.
pub(super) fn left(instant: Instant) -> Duration {
    instant.saturating_duration_since(Instant::now())
}

fn write_user_data<S: Serializer>(
    data: &Option<Arc<UserData>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let borrowed: Option<BTreeMap<_, _>> = data.as_ref().map(|data| {
        let entries = data.iter();
        entries
            .map(|(name, bytes)| (name, Bytes::new(bytes)))
            .collect()
    });
    borrowed.serialize(serializer)
}

fn read_user_data<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Arc<UserData>>, D::Error> {
    let data = Option::<BTreeMap<String, ByteBuf>>::deserialize(deserializer)?;
    Ok(data.map(|data| {
        let entries = data.into_iter();
        Arc::new(
            entries
                .map(|(name, bytes)| (name, bytes.into_vec()))
                .collect(),
        )
    }))
}

/// A message from a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// The request was served.
    Done { fuel: Option<FuelLeft> },
    /// The request failed.
    Failed {
        status: Status,
        fuel: Option<FuelLeft>,
    },
    /// The guest logged a message.
    Log { level: LogLevel, message: String },
    /// The guest calls a function of the program.
    Function(FunctionCall),
    /// The compiler is ready. Its code runs only in engines with this fingerprint.
    Ready { fingerprint: [u8; 32] },
    /// The module was compiled to this many bytes, which follow the message.
    Compiled { bytes: u64 },
}

/// What is left of fuel that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FuelLeft {
    units: u64,
    /// [`Fuel::has_lack`].
    has_lack: bool,
}

impl FuelLeft {
    pub(super) fn of(fuel: &Fuel) -> Self {
        Self {
            units: fuel.left(),
            has_lack: fuel.has_lack(),
        }
    }

    /// Charges what the other process used. It cannot give fuel back.
    pub(super) fn charge(self, fuel: &Fuel) {
        fuel.take(fuel.left().saturating_sub(self.units));
        if self.has_lack {
            fuel.note_lack();
        }
    }
}

/// A guest's call of a function of the program.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FunctionCall {
    /// The function's number.
    pub(super) id: usize,
    /// The operands' leaves.
    #[serde(deserialize_with = "read_leaves")]
    pub(super) operands: Vec<ByteBuf>,
    /// The deadline of the function.
    end: Option<Moment>,
    fuel: Option<u64>,
}

/// The most leaves of a call's operands. An empty one takes one byte of a message, and 24 bytes of
/// memory once it is read.
const MOST_LEAVES: usize = 1 << 20;

/// Reads at most [`MOST_LEAVES`] leaves.
fn read_leaves<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ByteBuf>, D::Error> {
    struct Leaves;

    impl<'de> Visitor<'de> for Leaves {
        type Value = Vec<ByteBuf>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {MOST_LEAVES} leaves")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut leaves: A) -> Result<Self::Value, A::Error> {
            let mut found = Vec::new();
            while let Some(leaf) = leaves.next_element()? {
                if found.len() == MOST_LEAVES {
                    return Err(A::Error::invalid_length(MOST_LEAVES + 1, &self));
                }
                found.push(leaf);
            }
            Ok(found)
        }
    }

    deserializer.deserialize_seq(Leaves)
}

impl FunctionCall {
    pub(super) fn new(id: usize, operands: Vec<ByteBuf>, bounds: &Bounds) -> Self {
        Self {
            id,
            operands,
            end: bounds.deadline.map(Moment::of),
            fuel: bounds.fuel.as_ref().map(Fuel::left),
        }
    }

    /// The bounds of the function: the worker's, and at most these. Fuel is counted only if `fuel`
    /// is given.
    pub(super) fn bounds(&self, deadline: Option<Instant>, fuel: Option<u64>) -> Bounds {
        let own = self.end.map(Moment::instant);
        let fuel = fuel.map(|most| self.fuel.map_or(most, |own| own.min(most)));
        Bounds {
            deadline: own.into_iter().chain(deadline).min(),
            fuel: fuel.map(Fuel::new),
        }
    }
}

impl Request {
    /// A request to prepare call sites.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if their attributes nest too deep.
    pub(super) fn prepare(sites: &[CallSite], is_alone: bool) -> Result<Self> {
        sites
            .iter()
            .try_for_each(|site| check_depth(&site.attributes))?;
        Ok(Self::Prepare {
            sites: sites.to_vec(),
            is_alone,
        })
    }
}

/// The message, with its length.
///
/// # Errors
/// RESOURCE_EXHAUSTED for a message of 4 GiB or more.
pub(super) fn encode(message: &impl Serialize) -> Result<Vec<u8>> {
    let mut bytes = postcard::to_extend(message, vec![0; LENGTH])
        .map_err(|error| Status::internal(format!("a worker's message: {error}")))?;
    let length = bytes.len() - LENGTH;
    let prefix = u32::try_from(length).map_err(|_| {
        Status::new(
            StatusCode::ResourceExhausted,
            Blame::Caller,
            format!("expected a message to a worker of less than 4 GiB, found {length} bytes"),
        )
    })?;
    bytes[..LENGTH].copy_from_slice(&prefix.to_le_bytes());
    Ok(bytes)
}

/// Reads a message, without its length.
///
/// # Errors
/// A [`violation`].
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(violation(format!(
            "{} bytes follow the end of a message",
            rest.len()
        ))),
        Err(error) => Err(violation(format!("malformed message: {error}"))),
    }
}

/// The first byte of a [`Reply::Function`].
const FUNCTION: u8 = 3;

/// Reads a reply of a worker that runs a module. Only a call of a function may be longer than
/// `most_text` bytes: texts take up to 24 times their length in memory.
///
/// # Errors
/// A [`violation`].
pub(super) fn decode_reply(bytes: &[u8], most_text: usize) -> Result<Reply> {
    if bytes.len() > most_text && bytes.first() != Some(&FUNCTION) {
        return Err(violation(format!(
            "expected a reply of at most {most_text} bytes, found one of {}",
            bytes.len()
        )));
    }
    decode(bytes)
}

/// The status for a worker that broke the protocol.
#[cold]
fn violation(message: impl Into<String>) -> Status {
    let status = Status::new(StatusCode::Internal, Blame::Guest, message);
    status.context("the module's process")
}

#[cfg(test)]
mod tests;
