//! The call's context: everything but its operands, results and bound attributes.

use alloc::alloc::Layout;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::Cell;
use core::fmt;

use crate::abi::{self, Frame, Scratch};
use crate::decode::{Decoder, TargetParameter};
use crate::description::Role;
use crate::text::text;
use crate::{
    AnyOperand, Dictionary, Element, Failure, FunctionRef, LogLevel, Stage, StatusCode, operand,
};

/// The call that a target serves, which a parameter `context: &Context` receives.
///
/// It gives access to the host's log, the opaque bytes, all attributes, the literal, the called
/// computations, user data and scratch memory.
///
/// ```
/// use callbox_guest::{Context, Failure, LogLevel, Operand, ResultBuffer, native::Call, target};
///
/// #[target]
/// fn sort(context: &Context, x: &Operand<f32>, y: &mut ResultBuffer<f32>) -> Result<(), Failure> {
///     let scratch = context.scratch_elements::<f32>(x.len())?;
///     scratch.copy_from_slice(x);
///     scratch.sort_by(f32::total_cmp);
///     y.copy_from_slice(scratch);
///     context.log(LogLevel::Info, "sorted");
///     Ok(())
/// }
///
/// let mut call = Call::new();
/// call.operand(&[2.0_f32, 1.0], &[2]).result::<f32>(&[2]);
/// assert_eq!(call.run::<sort>(), Ok(()));
/// assert_eq!(call.result_elements::<f32>(0), [1.0, 2.0]);
/// assert_eq!(call.log()[0].1, "sorted");
/// ```
#[derive(Clone, Copy)]
pub struct Context<'a> {
    frame: Frame<'a>,
    status: &'a Cell<StatusCode>,
    scratch: &'a Scratch,
    stage: Stage,
}

impl<'a> Context<'a> {
    /// Writes a message to the host's log. The host truncates it at its limit.
    ///
    /// ```
    /// use callbox_guest::{Context, Failure, LogLevel, native::Call, target};
    ///
    /// #[target]
    /// fn check(context: &Context) -> Result<(), Failure> {
    ///     context.log(LogLevel::Warn, "the image is grey");
    ///     Ok(())
    /// }
    ///
    /// let mut call = Call::new();
    /// assert_eq!(call.run::<check>(), Ok(()));
    /// assert_eq!(call.log(), [(LogLevel::Warn, "the image is grey".to_owned())]);
    /// ```
    pub fn log(&self, level: LogLevel, message: &str) {
        abi::log(level, message);
    }

    /// Returns the current stage.
    ///
    /// ```
    /// use callbox_guest::{Context, Failure, Stage, native::Call, target};
    ///
    /// #[target]
    /// fn check(context: &Context) -> Result<(), Failure> {
    ///     assert_eq!(context.stage(), Stage::Execute);
    ///     Ok(())
    /// }
    ///
    /// assert_eq!(Call::new().run::<check>(), Ok(()));
    /// ```
    #[must_use]
    pub const fn stage(&self) -> Stage {
        self.stage
    }

    /// Returns all attributes of the call, whether they are bound to parameters or not.
    ///
    /// ```
    /// use callbox_guest::{Context, Failure, native::Call, target};
    ///
    /// #[target]
    /// fn check(context: &Context) -> Result<(), Failure> {
    ///     assert_eq!(context.attributes().get::<i64>("axis")?, 1);
    ///     Ok(())
    /// }
    ///
    /// assert_eq!(Call::new().attribute("axis", 1_i64).run::<check>(), Ok(()));
    /// ```
    #[must_use]
    pub fn attributes(&self) -> Dictionary<'a> {
        Dictionary(self.frame.attributes())
    }

    /// Returns the call's opaque bytes: its `backend_config` if the program passes it undecoded.
    ///
    /// ```
    /// use callbox_guest::{Context, Failure, native::Call, target};
    ///
    /// #[target]
    /// fn check(context: &Context) -> Result<(), Failure> {
    ///     assert_eq!(context.opaque(), b"axis=1");
    ///     Ok(())
    /// }
    ///
    /// assert_eq!(Call::new().opaque(b"axis=1").run::<check>(), Ok(()));
    /// ```
    #[must_use]
    pub fn opaque(&self) -> &'a [u8] {
        self.frame.opaque()
    }

    /// Returns the leaves of the call's literal in preorder. There are none if the call has no
    /// literal, or if the host's version is 1.0.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for an element type that this crate does not know.
    ///
    /// ```
    /// use callbox_guest::{Context, Failure, native::Call, target};
    ///
    /// #[target]
    /// fn check(context: &Context) -> Result<(), Failure> {
    ///     let leaves = context.literal()?;
    ///     assert_eq!(*leaves[0].as_typed::<f32>()?, [1.0, 2.0]);
    ///     Ok(())
    /// }
    ///
    /// assert_eq!(Call::new().literal(&[1.0_f32, 2.0], &[2]).run::<check>(), Ok(()));
    /// ```
    pub fn literal(&self) -> Result<Vec<AnyOperand<'a>>, Failure> {
        self.frame
            .literal()
            .map(|(array, bytes)| operand::any(array, bytes))
            .collect::<Result<_, _>>()
            .map_err(Failure::invalid_argument)
    }

    /// Returns the call's called computations. There are none if the host's version is 1.0.
    ///
    /// ```
    /// use callbox_guest::{Context, Failure, native::Call, target};
    ///
    /// #[target]
    /// fn check(context: &Context) -> Result<(), Failure> {
    ///     for function in context.called_functions() {
    ///         function.call(&[], &mut [])?;
    ///     }
    ///     Ok(())
    /// }
    ///
    /// let mut call = Call::new();
    /// call.called_function(|_, _| Err(Failure::unavailable("not now")));
    /// assert_eq!(call.run::<check>(), Err(Failure::unavailable("not now")));
    /// ```
    pub fn called_functions(&self) -> impl ExactSizeIterator<Item = FunctionRef<'a>> {
        self.frame
            .functions()
            .iter()
            .map(|&number| FunctionRef::new(number))
    }

    /// Returns the bytes that the embedder attached to the execution under this name: XLA's user
    /// data.
    ///
    /// In XLA, user data is a pointer that is found by its type. A pointer has no meaning in a
    /// guest's memory.
    ///
    /// ```
    /// use callbox_guest::{Context, Failure, native::Call, target};
    ///
    /// #[target]
    /// fn check(context: &Context) -> Result<(), Failure> {
    ///     assert_eq!(context.user_data("user").as_deref(), Some(&b"ada"[..]));
    ///     assert_eq!(context.user_data("group"), None);
    ///     Ok(())
    /// }
    ///
    /// assert_eq!(Call::new().user_data("user", b"ada").run::<check>(), Ok(()));
    /// ```
    #[must_use]
    pub fn user_data(&self, name: &str) -> Option<Vec<u8>> {
        bytes(|into| abi::user_data(name, into))
    }

    /// Allocates zeroed memory for this call: XLA's scratch allocator. It is freed when the call
    /// ends.
    ///
    /// # Errors
    /// INVALID_ARGUMENT, `Unsupported alignment`, if `alignment` is not a power of two;
    /// RESOURCE_EXHAUSTED if memory is exhausted.
    ///
    /// ```
    /// use callbox_guest::{Context, Failure, native::Call, target};
    ///
    /// #[target]
    /// fn check(context: &Context) -> Result<(), Failure> {
    ///     assert_eq!(context.scratch(4, 16)?, [0; 4]);
    ///     Ok(())
    /// }
    ///
    /// assert_eq!(Call::new().run::<check>(), Ok(()));
    /// ```
    pub fn scratch(&self, size: usize, alignment: usize) -> Result<&'a mut [u8], Failure> {
        if !alignment.is_power_of_two() {
            return Err(Failure::invalid_argument("Unsupported alignment"));
        }
        Layout::from_size_align(size, alignment)
            .ok()
            .and_then(|layout| self.scratch.take(layout))
            .ok_or_else(|| no_scratch(size))
    }

    /// Allocates `count` zeroed elements for this call, as [`scratch`](Self::scratch) does.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if memory is exhausted.
    ///
    /// ```
    /// use callbox_guest::{Context, Failure, native::Call, target};
    ///
    /// #[target]
    /// fn check(context: &Context) -> Result<(), Failure> {
    ///     assert_eq!(context.scratch_elements::<f32>(2)?, [0.0; 2]);
    ///     Ok(())
    /// }
    ///
    /// assert_eq!(Call::new().run::<check>(), Ok(()));
    /// ```
    pub fn scratch_elements<T: Element>(&self, count: usize) -> Result<&'a mut [T], Failure> {
        let size = count.saturating_mul(size_of::<T>());
        let bytes = self.scratch(size, align_of::<T>())?;
        abi::elements_mut(bytes).ok_or_else(|| no_scratch(size))
    }

    /// Returns the major and the minor version of the host's FFI.
    ///
    /// ```
    /// use callbox_guest::{Context, Failure, native::Call, target};
    ///
    /// #[target]
    /// fn check(context: &Context) -> Result<(), Failure> {
    ///     assert!(context.ffi_version() >= (1, 1));
    ///     Ok(())
    /// }
    ///
    /// assert_eq!(Call::new().run::<check>(), Ok(()));
    /// ```
    #[must_use]
    pub fn ffi_version(&self) -> (u16, u16) {
        let version = abi::version();
        ((version >> 16) as u16, version as u16)
    }

    /// Makes the call fail, even if the target then returns `Ok`. The failure replaces any that was
    /// set before. Returning a failure is the simpler way.
    ///
    /// ```
    /// use callbox_guest::{Context, Failure, native::Call, target};
    ///
    /// #[target]
    /// fn check(context: &Context) -> Result<(), Failure> {
    ///     context.set_failure(&Failure::not_found("no such token"));
    ///     Ok(())
    /// }
    ///
    /// assert_eq!(Call::new().run::<check>(), Err(Failure::not_found("no such token")));
    /// ```
    pub fn set_failure(&self, failure: &Failure) {
        abi::set_failure(failure.code(), failure.message(), failure.is_recoverable());
        self.status.set(failure.code());
    }

    /// Clears the failure that [`set_failure`](Self::set_failure) set.
    ///
    /// ```
    /// use callbox_guest::{Context, Failure, native::Call, target};
    ///
    /// #[target]
    /// fn check(context: &Context) -> Result<(), Failure> {
    ///     context.set_failure(&Failure::not_found("no such token"));
    ///     context.set_success();
    ///     Ok(())
    /// }
    ///
    /// assert_eq!(Call::new().run::<check>(), Ok(()));
    /// ```
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

/// Collects the bytes of `copy`, which copies what fits and returns the number of all bytes.
pub(crate) fn bytes(copy: impl Fn(&mut [u8]) -> Option<usize>) -> Option<Vec<u8>> {
    let mut bytes = alloc::vec![0; copy(&mut [])?];
    let len = copy(&mut bytes)?;
    bytes.truncate(len);
    Some(bytes)
}

#[cold]
fn no_scratch(size: usize) -> Failure {
    Failure::resource_exhausted(text![
        "Failed to allocate scratch memory: expected ",
        size,
        " bytes, found less"
    ])
}
