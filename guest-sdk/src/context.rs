//! What a target knows of its call besides operands, results and attributes.

use alloc::alloc::Layout;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::Cell;
use core::fmt;

use crate::abi::{self, Frame, Scratch};
use crate::decode::{Decoder, TargetParameter};
use crate::description::{Role, Stage};
use crate::{AnyOperand, Dictionary, Element, Failure, FunctionRef, StatusCode, operand};

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
    scratch: &'a Scratch,
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

    /// The leaves of the call's literal, in preorder: none if it has no literal, or if the host's version is 1.0.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for an element type that this crate does not know.
    pub fn literal(&self) -> Result<Vec<AnyOperand<'a>>, Failure> {
        let leaves = self.frame.literal();
        let leaves = leaves.map(|(array, bytes)| operand::any(array, bytes));
        let leaves: Result<_, _> = leaves.collect();
        leaves.map_err(Failure::invalid_argument)
    }

    /// The call's called computations: none if the host's version is 1.0.
    pub fn called_functions(&self) -> impl ExactSizeIterator<Item = FunctionRef<'a>> {
        let numbers = self.frame.functions().iter();
        numbers.map(|number| FunctionRef::new(*number))
    }

    /// The bytes that the embedder attached to the execution under this name: XLA's user data.
    #[must_use]
    pub fn user_data(&self, name: &str) -> Option<Vec<u8>> {
        bytes(|into| abi::user_data(name, into))
    }

    /// Memory for this call, all zeros: XLA's scratch allocator. It is freed when the target has returned, whatever it returns.
    ///
    /// # Errors
    /// INVALID_ARGUMENT, `Unsupported alignment`, if `alignment` is not a power of two; RESOURCE_EXHAUSTED if there is no memory
    /// for it.
    pub fn scratch(&self, size: usize, alignment: usize) -> Result<&'a mut [u8], Failure> {
        if !alignment.is_power_of_two() {
            return Err(Failure::invalid_argument("Unsupported alignment"));
        }
        Layout::from_size_align(size, alignment)
            .ok()
            .and_then(|layout| self.scratch.take(layout))
            .ok_or_else(|| no_scratch(size))
    }

    /// Elements for this call, all zeros: [`scratch`](Self::scratch) for `count` of them.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if there is no memory for them.
    pub fn scratch_elements<T: Element>(&self, count: usize) -> Result<&'a mut [T], Failure> {
        let size = count.saturating_mul(size_of::<T>());
        let bytes = self.scratch(size, align_of::<T>())?;
        abi::elements_mut(bytes).ok_or_else(|| no_scratch(size))
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
            scratch: decoder.scratch,
            stage: decoder.description.stage,
        })
    }
}

/// All bytes of which `copy` copies as many as fit and says how many there are.
pub(crate) fn bytes(copy: impl Fn(&mut [u8]) -> Option<usize>) -> Option<Vec<u8>> {
    let mut bytes = alloc::vec![0; copy(&mut [])?];
    let len = copy(&mut bytes)?;
    bytes.truncate(len);
    Some(bytes)
}

#[cold]
fn no_scratch(size: usize) -> Failure {
    Failure::resource_exhausted(format!(
        "Failed to allocate scratch memory: expected {size} bytes, found less"
    ))
}
