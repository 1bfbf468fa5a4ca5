//! What a target knows of its call besides operands, results and attributes.

use alloc::string::String;
use core::cell::Cell;
use core::fmt;

use crate::abi::{self, Frame};
use crate::decode::{Decoder, TargetParameter};
use crate::description::{Role, Stage};
use crate::{Dictionary, Failure, StatusCode};

/// How important a log line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LogLevel {
    /// Something failed.
    Error = 0,
    /// Something may be wrong.
    Warn = 1,
    /// What the target does.
    Info = 2,
    /// What its author wants to know.
    Debug = 3,
    /// Everything.
    Trace = 4,
}

/// The call that a target serves. A target that wants it has a parameter `context: &Context`.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    frame: Frame<'a>,
    status: &'a Cell<StatusCode>,
    stage: Stage,
}

impl<'a> Context<'a> {
    /// Hands a line to the host's log, which cuts it at its limit.
    pub fn log(&self, level: LogLevel, message: &str) {
        abi::log(level, message);
    }

    /// The stage that runs.
    #[must_use]
    pub const fn stage(&self) -> Stage {
        self.stage
    }

    /// All attributes of the call, bound to parameters or not.
    #[must_use]
    pub fn attributes(&self) -> Dictionary<'a> {
        Dictionary(self.frame.attributes())
    }

    /// The call's opaque bytes: its `backend_config`, where the program gives that undecoded.
    #[must_use]
    pub fn opaque(&self) -> &'a [u8] {
        self.frame.opaque()
    }

    /// The version of the FFI that the host provides: major and minor.
    #[must_use]
    pub fn ffi_version(&self) -> (u16, u16) {
        let version = abi::version();
        ((version >> 16) as u16, version as u16)
    }

    /// Makes the call fail with this, in place of any failure set before, even if the target then returns `Ok`. Returning
    /// the failure is the plainer way.
    pub fn set_failure(&self, failure: &Failure) {
        abi::set_failure(failure.code(), failure.message(), failure.is_recoverable());
        self.status.set(failure.code());
    }

    /// Takes back what [`set_failure`](Self::set_failure) did.
    pub fn set_success(&self) {
        abi::set_success();
        self.status.set(StatusCode::Ok);
    }
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("stage", &self.stage)
            .field("status", &self.status.get())
            .finish_non_exhaustive()
    }
}

impl<'a> TargetParameter<'a> for Context<'a> {
    const ROLE: Role = Role::Context;

    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, String> {
        Ok(Self {
            frame: decoder.frame,
            status: decoder.status,
            stage: decoder.description.stage,
        })
    }
}
