//! From a call frame to a target's parameters, and from what the target returns to a status.
//!
//! The checks, their order and their messages are those of XLA's `Handler::Call` (xla/ffi/api/api.h): first the counts,
//! each of which fails alone; then every parameter, all of whose failures are reported together. XLA runs the latter
//! into one another; here each has its line.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::any::type_name;
use core::cell::Cell;

use crate::abi::{self, Buffers, Frame, FramePointer, Scratch, State};
use crate::attribute::{AttributeValue, Dictionary};
use crate::description::{Count, Description, Role, Stage};
use crate::status::wrong_count;
use crate::{ElementType, Failure, Outcome, StatusCode, operand, panics};

/// A function that a host calls, made by the attribute macro.
pub trait Target {
    /// What it takes and gives.
    const DESCRIPTION: &'static Description;

    /// Decodes the parameters, runs the function, and returns the state that it made.
    fn call(decoder: Decoder<'_>) -> Result<Option<State>, Failure>;
}

/// A parameter of a target that is neither an attribute nor state.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a parameter of a target",
    label = "expected an operand (`&Operand<T, RANK>`, `&AnyOperand`), a result (`&mut ResultBuffer<T, RANK>`, `&mut AnyResult`), an `Option` of one, `RemainingOperands`, `RemainingResults`, `&mut InPlace<T, RANK>` or `&Context`",
    note = "an attribute is marked `#[attr]`, and what an earlier stage returned `#[state]`"
)]
pub trait TargetParameter<'a>: Sized {
    /// What the parameter stands for.
    #[doc(hidden)]
    const ROLE: Role;

    /// Takes what the parameter stands for, or says in XLA's words why it does not fit.
    #[doc(hidden)]
    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, String>;
}

/// Runs a target for the host, and returns the status code.
#[inline]
pub fn run<T: Target>(mut pointer: FramePointer<'_>) -> u32 {
    panics::install();
    // Takes a number that no call of a function has: a failure that was kept since an earlier call is none of this call's.
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
            bad: Vec::new(),
            diagnostics: Vec::new(),
        })
    });
    match outcome {
        Ok(None) => status.get() as u32,
        Ok(Some(state)) => {
            // Of a stage that failed the host keeps nothing.
            if status.get() == StatusCode::Ok {
                pointer.keep_state(T::DESCRIPTION.stage, state);
            }
            status.get() as u32
        }
        Err(failure) => report(&failure, status.get()),
    }
}

/// What one call has for the parameters of its target.
pub struct Decoder<'a> {
    pub(crate) frame: Frame<'a>,
    pub(crate) buffers: Buffers<'a>,
    pub(crate) status: &'a Cell<StatusCode>,
    pub(crate) scratch: &'a Scratch,
    pub(crate) description: &'static Description,
    position: usize,
    unset_states: usize,
    bad: Vec<usize>,
    diagnostics: Vec<String>,
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
    /// Checks how many operands, results and attributes there are. A target that takes none of a kind takes any number.
    ///
    /// # Errors
    /// INVALID_ARGUMENT in XLA's words.
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

    /// The value of the next parameter, or `None` and a note of what is wrong.
    #[inline]
    pub fn parameter<P: TargetParameter<'a>>(&mut self) -> Option<P> {
        let decoded = P::decode(self);
        self.note(decoded)
    }

    /// The value of the next parameter, an attribute. `place` is its name's place among the sorted names of the target's
    /// attributes.
    #[inline]
    pub fn attribute<A: AttributeValue<'a>>(&mut self, name: &str, place: usize) -> Option<A> {
        let decoded = self.decode_attribute(name, place);
        self.note(decoded)
    }

    /// The value of the next parameter, what an earlier stage returned. The texts are those of xla/ffi/execution_state.cc, with
    /// names for type ids.
    pub fn state<T: 'static>(&mut self, stage: Stage) -> Option<&'a T> {
        let decoded = match self.frame.state(stage) {
            None => {
                self.unset_states += 1;
                Err(no_state(&format!(
                    "State is not set: stage {stage} has not run"
                )))
            }
            Some(state) => state.get().ok_or_else(|| {
                no_state(&format!(
                    "Set state type {} does not match the requested one {}",
                    state.type_name(),
                    type_name::<T>()
                ))
            }),
        };
        self.note(decoded)
    }

    /// The element type that the parameter with this place among [`Description::parameters`] has in this call.
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

    /// The failure of a generic target that is not made for the element type of this parameter, of which `position` is the
    /// place among all parameters.
    #[cold]
    #[must_use]
    pub fn unsupported_type(mut self, parameter: usize, position: usize) -> Failure {
        let roles = self.description.parameters[parameter].roles.iter();
        let expected: Vec<&str> = roles
            .filter_map(|role| role.signature()?.element_type)
            .map(ElementType::name)
            .collect();
        let found = self.element_type(parameter).map_or(0, |found| found as u8);
        self.bad.push(position);
        self.diagnostics
            .push(operand::wrong_type(&expected.join(" or "), found));
        self.failure()
    }

    /// The failure of all that was noted.
    #[cold]
    #[must_use]
    pub fn failure(self) -> Failure {
        let bad: Vec<String> = self.bad.iter().map(ToString::to_string).collect();
        // A state that is not there is no fault of the caller's arguments.
        let code = match self.unset_states == bad.len() {
            true => StatusCode::NotFound,
            false => StatusCode::InvalidArgument,
        };
        Failure::new(
            code,
            format!(
                "[{}] Failed to decode all FFI handler operands (bad operands at: {})\nDiagnostics:\n{}",
                self.description.stage,
                bad.join(", "),
                self.diagnostics.join("\n")
            ),
        )
    }

    #[inline]
    fn note<T>(&mut self, decoded: Result<T, String>) -> Option<T> {
        let position = self.position;
        self.position += 1;
        match decoded {
            Ok(value) => Some(value),
            Err(diagnostic) => {
                self.bad.push(position);
                self.diagnostics.push(diagnostic);
                None
            }
        }
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
            Some(attribute) => A::decode(attribute),
            None => A::absent().ok_or_else(|| missing_attribute(name, attributes)),
        }
    }

    /// Checks that the attribute at a place has the name that the target's attribute there has.
    fn expect_name(&self, name: &str, place: usize) -> Result<(), String> {
        let found = self.frame.attributes().name(place).unwrap_or_default();
        if found == name.as_bytes() {
            return Ok(());
        }
        let found = String::from_utf8_lossy(found);
        Err(format!("Attribute name mismatch: {found} vs {name}"))
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
        let known: Vec<&str> = known.iter().map(|attribute| attribute.name).collect();
        Err(self.invalid(&format!(
            "Unknown attribute: expected one of {} but got {unknown}",
            known.join(", ")
        )))
    }

    #[cold]
    fn wrong_count(&self, what: &str, expected: Count, found: usize) -> Failure {
        let Count { least, most } = expected;
        let expected = match most {
            Some(most) if most == least => most.to_string(),
            // XLA has no bound above where something is optional, and reads no more than it knows.
            Some(most) => format!("{least} to {most}"),
            None => format!("at least {least}"),
        };
        self.invalid(&wrong_count(what, &expected, found))
    }

    #[cold]
    fn wrong_attributes(&self, attributes: Dictionary<'_>) -> Failure {
        let least = self.description.required_attribute_count;
        let most = self.description.attributes.len();
        let expected = if least == most {
            most.to_string()
        } else {
            format!("{least} to {most}")
        };
        let mut message = wrong_count("attributes", &expected, attributes.len());
        if !attributes.is_empty() {
            message.push_str(" with name(s): ");
            message.push_str(&names(attributes));
        }
        self.invalid(&message)
    }

    #[cold]
    fn invalid(&self, message: &str) -> Failure {
        Failure::invalid_argument(format!("[{}] {message}", self.description.stage))
    }
}

#[inline]
fn check_stage(expected: Stage, found: u8) -> Result<(), Failure> {
    if expected as u8 == found {
        Ok(())
    } else {
        Err(wrong_stage(expected, found))
    }
}

#[cold]
fn wrong_stage(expected: Stage, found: u8) -> Failure {
    let found = Stage::from_number(found).map_or("unknown", Stage::name);
    Failure::invalid_argument(format!(
        "Wrong execution stage: expected `{expected}` but got `{found}`"
    ))
}

#[cold]
fn missing_attribute(name: &str, attributes: Dictionary<'_>) -> String {
    format!(
        "Missing attribute: expected {name} but got {}",
        if attributes.is_empty() {
            String::from("none")
        } else {
            names(attributes)
        }
    )
}

fn names(attributes: Dictionary<'_>) -> String {
    attributes.names().collect::<Vec<_>>().join(", ")
}

#[cold]
fn no_state(why: &str) -> String {
    format!("Failed to get state from execution context: {why}")
}

/// Makes a failure the call's status. That of a function is left to the host, which knows more of it, unless another function was
/// called after it or the target set a failure of its own.
#[cold]
fn report(failure: &Failure, status: StatusCode) -> u32 {
    let call = failure.function_call();
    let is_hosts = call != 0 && call == abi::function_call_count();
    if !is_hosts || status != StatusCode::Ok {
        abi::set_failure(failure.code(), failure.message(), failure.is_recoverable());
    }
    failure.code() as u32
}

/// The outcome of stage `execute`.
///
/// # Errors
/// What the target returned.
#[inline]
pub fn finish(outcome: impl Outcome) -> Result<Option<State>, Failure> {
    outcome.into_result().map(|()| None)
}

/// The outcome of any other stage, which returns a state.
///
/// # Errors
/// What the target returned.
pub fn keep<T: 'static>(state: Result<T, Failure>) -> Result<Option<State>, Failure> {
    Ok(Some(State::new(state?)))
}
