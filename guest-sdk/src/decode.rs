//! Decodes a call frame into a target's parameters, and the target's outcome into a status.
//!
//! The checks, their order and their messages are those of XLA's `Handler::Call`
//! (xla/ffi/api/api.h). The counts come first, and the first mismatch fails the call. The
//! parameters follow, and all their mismatches are reported together, each on its own line; XLA
//! concatenates them.

use alloc::string::String;
use core::any::type_name;
use core::cell::Cell;

use crate::abi::{self, Buffers, Frame, FramePointer, Scratch, State};
use crate::attribute::{self, AttributeValue, Dictionary};
use crate::description::{Count, Description, Role};
use crate::status::{range, wrong_count};
use crate::text::{append, append_line, text};
use crate::{ElementType, Failure, Outcome, Stage, StatusCode, operand, panics};

/// A function that a host calls. The macro [`target`](macro@crate::target) implements the trait.
///
/// ```
/// use callbox_guest::{ResultBuffer, Target, native::Call, target};
///
/// #[target]
/// fn ones(y: &mut ResultBuffer<f32>) {
///     y.fill(1.0);
/// }
///
/// /// Runs a target on a result of two elements.
/// fn two<T: Target>() -> Vec<f32> {
///     let mut call = Call::new();
///     call.result::<f32>(&[2]).run::<T>().expect("it succeeds");
///     call.result_elements(0)
/// }
///
/// assert_eq!(two::<ones>(), [1.0, 1.0]);
/// ```
pub trait Target {
    /// The description of the function's parameters.
    const DESCRIPTION: &'static Description;

    /// Decodes the parameters, runs the function, and returns the state that it created.
    fn call(decoder: Decoder<'_>) -> Result<Option<State>, Failure>;
}

/// A parameter of a target that is neither an attribute nor state.
///
/// ```
/// use callbox_guest::{AnyOperand, Context, Operand, ResultBuffer, target};
///
/// #[target]
/// fn f(
///     context: &Context,
///     x: &Operand<f32>,
///     of_any_type: &AnyOperand,
///     bias: Option<&Operand<f32, 1>>,
///     y: Option<&mut ResultBuffer<f32>>,
/// ) {
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a parameter of a target",
    label = "expected an operand (`&Operand<T, RANK>`, `&AnyOperand`), a result (`&mut ResultBuffer<T, RANK>`, `&mut AnyResult`), an `Option` of one, `RemainingOperands`, `RemainingResults`, `&mut InPlace<T, RANK>` or `&Context`",
    note = "attributes are marked `#[attr]`, and the state of an earlier stage `#[state]`"
)]
pub trait TargetParameter<'a>: Sized {
    /// The role of the parameter.
    #[doc(hidden)]
    const ROLE: Role;

    /// Takes the parameter's value from the call, or returns XLA's message for a mismatch.
    #[doc(hidden)]
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, String>;
}

/// Runs a target for the host, and returns the status code.
#[inline]
pub fn run<T: Target>(mut pointer: FramePointer<'_>) -> u32 {
    panics::install();
    // Consumes a number that no function call has, so that a `Failure` kept from an earlier call
    // does not count as this call's.
    abi::count_function_call();
    let status = Cell::new(StatusCode::Ok);
    let scratch = Scratch::new();
    let outcome = pointer.open(T::DESCRIPTION, |frame, buffers| {
        check_stage(T::DESCRIPTION.stage, frame.stage_number())?;
        T::call(Decoder {
            frame,
            buffers,
            status: &status,
            scratch: &scratch,
            description: T::DESCRIPTION,
            position: 0,
            unset_states: 0,
            bad_count: 0,
            bad: String::new(),
            bad_attributes: String::new(),
            diagnostics: String::new(),
        })
    });
    match outcome {
        Ok(None) => status.get() as u32,
        Ok(Some(state)) => {
            // The host takes no state from a stage that failed. Stage `execute` leaves none.
            let stage = T::DESCRIPTION.stage;
            if stage != Stage::Execute && status.get() == StatusCode::Ok {
                pointer.keep_state(stage, state);
            }
            status.get() as u32
        }
        Err(failure) => report(&failure, status.get()),
    }
}

/// The values of one call, from which its target's parameters are decoded.
pub struct Decoder<'a> {
    pub(crate) frame: Frame<'a>,
    pub(crate) buffers: Buffers<'a>,
    pub(crate) status: &'a Cell<StatusCode>,
    pub(crate) scratch: &'a Scratch,
    pub(crate) description: &'static Description,
    position: usize,
    unset_states: usize,
    bad_count: usize,
    /// The positions of other parameters that mismatch than attributes, separated by commas.
    bad: String,
    /// The names of attributes that mismatch, separated by commas.
    bad_attributes: String,
    /// The messages of the mismatches, each on its own line.
    diagnostics: String,
}

impl core::fmt::Debug for Decoder<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Decoder")
            .field("target", &self.description.name)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

impl<'a> Decoder<'a> {
    /// Checks the numbers of operands, results and attributes. A target that has no parameter of a
    /// kind accepts any number.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with XLA's message.
    #[inline]
    pub fn check_counts(&self) -> Result<(), Failure> {
        let description = self.description;
        let (operands, results) = (self.buffers.operand_count(), self.buffers.result_count());
        if !description.operands.allows(operands) {
            return Err(self.wrong_count("arguments", description.operands, operands));
        }
        if !description.results.allows(results) {
            return Err(self.wrong_count("results", description.results, results));
        }
        if description.attributes.is_empty() {
            return Ok(());
        }
        let attributes = Dictionary(self.frame.attributes());
        if attributes.len() < description.required_attribute_count
            || attributes.len() > description.attributes.len()
        {
            return Err(self.wrong_attributes(attributes));
        }
        if description.required_attribute_count < description.attributes.len() {
            self.check_names(attributes)?;
        }
        Ok(())
    }

    /// Decodes the next parameter. Notes a mismatch and returns `None`.
    #[inline]
    pub fn parameter<P: TargetParameter<'a>>(&mut self) -> Option<P> {
        let decoded = P::decode(self);
        self.note(decoded)
    }

    /// Decodes the next parameter, an attribute. `place` is the index of its name among the sorted
    /// names of the target's attributes.
    #[inline]
    pub fn attribute<A: AttributeValue<'a>>(&mut self, name: &str, place: usize) -> Option<A> {
        let decoded = self.decode_attribute(name, place);
        self.position += 1;
        match decoded {
            Ok(value) => Some(value),
            Err(diagnostic) => {
                self.note_attribute(name, &diagnostic);
                None
            }
        }
    }

    /// Decodes the next parameter, the state of an earlier stage. The messages are those of
    /// xla/ffi/execution_state.cc, with type names instead of type ids.
    pub fn state<T: 'static>(&mut self, stage: Stage) -> Option<&'a T> {
        let decoded = match self.frame.state(stage) {
            None => {
                self.unset_states += 1;
                Err(no_state(&text![
                    "State is not set: stage ",
                    stage.name(),
                    " has not run"
                ]))
            }
            Some(state) => state.get().ok_or_else(|| {
                no_state(&text![
                    "Set state type ",
                    state.type_name(),
                    " does not match the requested one ",
                    type_name::<T>()
                ])
            }),
        };
        self.note(decoded)
    }

    /// Returns the element type in this call of the parameter at an index of
    /// [`Description::parameters`].
    #[must_use]
    pub fn element_type(&self, parameter: usize) -> Option<ElementType> {
        let number = if self.description.parameters[parameter].roles[0].takes_operand() {
            let index = self.description.operands_before(parameter);
            self.buffers.operand_type(index)
        } else {
            let index = self.description.results_before(parameter);
            self.buffers.result_type(index)
        };
        ElementType::from_number(number?)
    }

    /// Returns the failure of a generic target that does not support the element type of this
    /// parameter. `position` is the index among all parameters.
    #[cold]
    #[must_use]
    pub fn unsupported_type(mut self, parameter: usize, position: usize) -> Failure {
        let roles = self.description.parameters[parameter].roles.iter();
        // A target of two type parameters has a role for each pair of types.
        let types = roles.enumerate().filter_map(|(i, role)| {
            let ty = role.signature()?.element_type?;
            let earlier = &self.description.parameters[parameter].roles[..i];
            let is_new = |role: &Role| role.signature().and_then(|s| s.element_type) != Some(ty);
            earlier.iter().all(is_new).then_some(ty)
        });
        let mut expected = String::new();
        for name in types.map(ElementType::upper_name) {
            if !expected.is_empty() {
                append(&mut expected, " or ".into());
            }
            append(&mut expected, name.into());
        }
        let found = self.element_type(parameter).map_or(0, |found| found as u8);
        self.note_mismatch(position, &operand::wrong_type(&expected, found));
        self.failure()
    }

    /// Returns the failure for all noted mismatches.
    #[cold]
    #[must_use]
    pub fn failure(self) -> Failure {
        let (before_positions, before_names) =
            match (self.bad.is_empty(), self.bad_attributes.is_empty()) {
                (true, _) => ("attributes (bad attributes: ", ""),
                (false, true) => ("operands (bad operands at: ", ""),
                (false, false) => ("operands (bad operands at: ", "; bad attributes: "),
            };
        // Missing state is not a wrong argument.
        let code = if self.unset_states == self.bad_count {
            StatusCode::NotFound
        } else {
            StatusCode::InvalidArgument
        };
        Failure::new(
            code,
            text![
                "[",
                self.description.stage.name(),
                "] Failed to decode all FFI handler ",
                before_positions,
                &self.bad,
                before_names,
                &self.bad_attributes,
                ")\nDiagnostics:\n",
                &self.diagnostics
            ],
        )
    }

    #[inline]
    fn note<T>(&mut self, decoded: Result<T, String>) -> Option<T> {
        let position = self.position;
        self.position += 1;
        match decoded {
            Ok(value) => Some(value),
            Err(diagnostic) => {
                self.note_mismatch(position, &diagnostic);
                None
            }
        }
    }

    #[cold]
    fn note_mismatch(&mut self, position: usize, diagnostic: &str) {
        if !self.bad.is_empty() {
            append(&mut self.bad, ", ".into());
        }
        append(&mut self.bad, position.into());
        self.bad_count += 1;
        append_line(&mut self.diagnostics, diagnostic);
    }

    #[cold]
    fn note_attribute(&mut self, name: &str, diagnostic: &str) {
        if !self.bad_attributes.is_empty() {
            append(&mut self.bad_attributes, ", ".into());
        }
        append(&mut self.bad_attributes, name.into());
        self.bad_count += 1;
        append_line(&mut self.diagnostics, diagnostic);
    }

    fn decode_attribute<A: AttributeValue<'a>>(
        &self,
        name: &str,
        place: usize,
    ) -> Result<A, String> {
        let attributes = Dictionary(self.frame.attributes());
        let all_are_required =
            self.description.required_attribute_count == self.description.attributes.len();
        let attribute = if all_are_required {
            self.expect_name(name, place)?;
            attributes.nth(place)
        } else {
            attributes.find(name)
        };
        match attribute {
            Some(attribute) => {
                A::decode(attribute).map_err(|diagnostic| in_attribute(name, &diagnostic))
            }
            None => A::absent().ok_or_else(|| missing_attribute(name, attributes)),
        }
    }

    /// Checks the name of the attribute at `place`.
    fn expect_name(&self, name: &str, place: usize) -> Result<(), String> {
        let found = self.frame.attributes().name(place).unwrap_or_default();
        if found == name.as_bytes() {
            return Ok(());
        }
        let found = str::from_utf8(found).unwrap_or("(not UTF-8)");
        Err(text!["Attribute name mismatch: ", found, " vs ", name])
    }

    /// Checks that the target knows every attribute of the call.
    fn check_names(&self, attributes: Dictionary<'_>) -> Result<(), Failure> {
        let known = self.description.attributes;
        let unknown = attributes
            .names()
            .find(|name| known.iter().all(|attribute| attribute.name != *name));
        let Some(unknown) = unknown else {
            return Ok(());
        };
        let known = known.iter().map(|attribute| attribute.name);
        Err(self.invalid(&attribute::unknown_name(known, unknown)))
    }

    #[cold]
    fn wrong_count(&self, what: &str, expected: Count, found: usize) -> Failure {
        let Count { least, most } = expected;
        let expected = match most {
            // XLA sets no upper bound where something is optional, and ignores what it does not
            // know.
            Some(most) => range(least, most),
            None => text!["at least ", least],
        };
        self.invalid(&wrong_count(what, &expected, found))
    }

    #[cold]
    fn wrong_attributes(&self, attributes: Dictionary<'_>) -> Failure {
        let least = self.description.required_attribute_count;
        let most = self.description.attributes.len();
        let mut message = wrong_count("attributes", &range(least, most), attributes.len());
        if !attributes.is_empty() {
            let names = attribute::list(attributes.names());
            append(&mut message, " with name(s): ".into());
            append(&mut message, (&names).into());
        }
        self.invalid(&message)
    }

    #[cold]
    fn invalid(&self, message: &str) -> Failure {
        Failure::invalid_argument(text!["[", self.description.stage.name(), "] ", message])
    }
}

#[inline]
fn check_stage(expected: Stage, found: u8) -> Result<(), Failure> {
    if expected.number() == found {
        Ok(())
    } else {
        Err(wrong_stage(expected, found))
    }
}

#[cold]
fn wrong_stage(expected: Stage, found: u8) -> Failure {
    let found = Stage::from_number(found).map_or("unknown", Stage::name);
    Failure::invalid_argument(text![
        "Wrong execution stage: expected `",
        expected.name(),
        "` but got `",
        found,
        "`"
    ])
}

/// Puts the attribute's name before each line of a diagnostic.
#[cold]
fn in_attribute(name: &str, diagnostic: &str) -> String {
    let mut lines = String::new();
    for line in diagnostic.split('\n') {
        append_line(&mut lines, &text!["attribute ", name, ": ", line]);
    }
    lines
}

#[cold]
fn missing_attribute(name: &str, attributes: Dictionary<'_>) -> String {
    let mut found = attribute::list(attributes.names());
    if attributes.is_empty() {
        append(&mut found, "none".into());
    }
    text!["Missing attribute: expected ", name, " but got ", &found]
}

#[cold]
fn no_state(why: &str) -> String {
    text!["Failed to get state from execution context: ", why]
}

/// Makes a failure the call's status, and returns its code. The failure of a called function is
/// left to the host, which knows its details, unless the target called another function since or
/// set a failure of its own.
#[cold]
fn report(failure: &Failure, status: StatusCode) -> u32 {
    let call = failure.function_call();
    let is_hosts = call != 0 && call == abi::function_call_count();
    if !is_hosts || status != StatusCode::Ok {
        abi::set_failure(failure.code(), failure.message(), failure.is_recoverable());
    }
    failure.code() as u32
}

/// Converts the outcome of stage `execute`.
///
/// # Errors
/// The target's failure.
#[inline]
pub fn finish(outcome: impl Outcome) -> Result<Option<State>, Failure> {
    outcome.into_result().map(|()| None)
}

/// Converts the outcome of any other stage, which returns a state.
///
/// # Errors
/// The target's failure.
pub fn keep<T: 'static>(state: Result<T, Failure>) -> Result<Option<State>, Failure> {
    Ok(Some(State::new(state?)))
}
