//! `call-function`: a guest calls back into the program that called it.
//!
//! The guest passes claims: the host reads its records field by field, checks buffers right before
//! their use, and requires the shapes of the function.
//!
//! - A function's number is a capability: it is valid for the current call alone, and stands for a
//!   function to which that call site refers.
//! - The function runs in instances of its own, on the same thread, and on a stack of its own where
//!   the thread's is too short (crate `stacker`). Its time and its fuel are the call's.
//! - The target decides what the function's failure means. If it returns the same code without a
//!   failure of its own, the function's status is passed on whole. In the deterministic mode a lack
//!   of what others take ends the target's call, too.

use std::sync::Arc;

use wasmtime::{Caller, Linker};

use callbox_core::call::{Bounds, Fuel, FunctionReference, Functions};
use callbox_core::text::shortened;
use callbox_core::values::{
    ArrayShape, Blame, ElementType, Literal, Result, Shape, Status, with_capacity,
};

use crate::claim::{Claim, Extent};
use crate::failure::{exhausted, invalid, status};
use crate::frame::abi::buffer;
use crate::import::{self, memory};
use crate::memory::GuestMemory;
use crate::state::GuestState;

/// The stack that the host itself may need to run a function: the executor recurses for each
/// computation.
const PROGRAM_STACK: usize = 1 << 20;

pub(crate) fn define(linker: &mut Linker<GuestState>, module: &str) -> wasmtime::Result<()> {
    import::define(
        linker,
        module,
        "call-function",
        |caller, [function, operands, operand_count, results, result_count]| {
            let operands = Records(operands, operand_count);
            let results = Records(results, result_count);
            call_function(caller, function, operands, results)
        },
    )?;
    import::define(linker, module, "function-message", function_message)
}

/// A guest's list of `buffer` records: its offset and count.
#[derive(Clone, Copy)]
struct Records(Claim<u32>, Claim<u32>);

/// Why a function was not called.
enum NotCalled {
    /// The guest gets the status's code, and may go on.
    Refused(Status),
    /// The guest passed memory out of bounds, and is stopped.
    Stopped(Status),
}

/// The status of memory that is out of bounds.
impl From<Status> for NotCalled {
    fn from(status: Status) -> Self {
        Self::Stopped(status)
    }
}

/// Runs a function of the program. The guest gets the code of its failure.
fn call_function(
    mut caller: Caller<'_, GuestState>,
    function: Claim<u32>,
    operands: Records,
    results: Records,
) -> wasmtime::Result<u32> {
    caller.data_mut().callee_failure = None;
    let called = try_call(&mut caller, function, operands, results);
    // The function's time is the call's, even if the guest itself runs for less than a tick.
    caller.data().interrupt.check()?;
    match called {
        Ok(()) => Ok(0),
        // A lack may depend on what others take. What the guest returns must not.
        Err(NotCalled::Refused(status))
            if caller.data().shared.policy.deterministic && status.is_lack() =>
        {
            Err(status.into())
        }
        Err(NotCalled::Refused(status)) => {
            let code = status.code().number();
            caller.data_mut().callee_failure = Some(status);
            Ok(u32::from(code))
        }
        Err(NotCalled::Stopped(status)) => Err(status.into()),
    }
}

fn try_call(
    caller: &mut Caller<'_, GuestState>,
    number: Claim<u32>,
    operands: Records,
    results: Records,
) -> Result<(), NotCalled> {
    let (functions, function) = callee(caller.data(), number).map_err(NotCalled::Refused)?;
    let in_function = |status: Status| {
        let name = shortened(&function.name);
        NotCalled::Refused(status.context(format_args!("function {name:?}")))
    };
    let operand_shapes: Vec<_> = function.parameters.iter().flat_map(Shape::leaves).collect();
    let memory = memory(caller, "call-function's buffers")?;
    // Both lists are read before either is refused: memory out of bounds stops the guest anyway.
    let from = buffers(&memory, "operand", operands, &operand_shapes)?;
    let to = buffers(&memory, "result", results, &function.result.leaves())?;
    let (from, to) = (from.map_err(in_function)?, to.map_err(in_function)?);
    let arguments = arguments(&memory, &function, &from)?;
    let bytes: usize = from.iter().chain(&to).map(|buffer| buffer.size).sum();
    let spare = caller.data().fuel.spare();
    let bounds = Bounds {
        deadline: caller.data().interrupt.instant(),
        // Outside the deterministic mode there is no fuel.
        fuel: caller
            .get_fuel()
            .ok()
            .map(|left| Fuel::with_spare(left.saturating_sub(bytes as u64), spare)),
    };
    let stack = caller.data().shared.policy.limits.stack_bytes;
    let needed = stack.saturating_add(PROGRAM_STACK);
    let mut outcome = stacker::maybe_grow(needed, needed.saturating_add(PROGRAM_STACK), || {
        functions.call(function.id, &arguments, &bounds)
    });
    if let Some(fuel) = bounds.fuel {
        outcome = fuel.check().and(outcome);
        let lost = spare.saturating_sub(fuel.spare());
        caller.data_mut().fuel.take_spare(lost);
        caller
            .set_fuel(fuel.left())
            .map_err(|error| Status::internal(format!("fuel cannot be set: {error:#}")))?;
    }
    write(caller, &outcome.map_err(in_function)?, &to)?;
    Ok(())
}

/// The running program's functions, and the one that is called.
type Callee = (Arc<dyn Functions>, Arc<FunctionReference>);

/// Looks up the function of a number.
fn callee(state: &GuestState, number: Claim<u32>) -> Result<Callee> {
    let callable = &state.callable;
    let found = number.check(|number| {
        let functions = state.attached.functions.as_ref()?;
        Some((functions, callable.get(number as usize)?))
    });
    let (functions, function) = found.map_err(|number| {
        status!(
            NotFound,
            Guest,
            "call-function: expected one of the {} functions that can be called here, found number {number}",
            callable.len()
        )
    })?;
    let limit = state.shared.policy.limits.callback_depth;
    if functions.depth() >= limit {
        return Err(exhausted(format!(
            "call-function: expected calls back at most {limit} deep, found more"
        )));
    }
    Ok((Arc::clone(functions), Arc::clone(function)))
}

/// A leaf's bytes in the guest's memory.
struct GuestBuffer {
    offset: Claim<u32>,
    size: usize,
}

/// Reads a list of records. The outer error is memory out of bounds, the inner one buffers that do
/// not fit the function.
fn buffers(
    memory: &GuestMemory<'_>,
    kind: &str,
    Records(offset, count): Records,
    shapes: &[&ArrayShape],
) -> Result<Result<Vec<GuestBuffer>>> {
    if let Err(count) = count.check(|count| (count as usize == shapes.len()).then_some(())) {
        let message = format!("expected {} {kind}s, found {count}", shapes.len());
        return Ok(Err(mismatch(message)));
    }
    let mut buffers = Vec::with_capacity(shapes.len());
    for (i, shape) in shapes.iter().enumerate() {
        let record = offset.plus(i * buffer::SIZE);
        memory.check("a buffer record", record, buffer::SIZE)?;
        match read_buffer(memory, record, shape)? {
            Ok(buffer) => buffers.push(buffer),
            Err(message) => return Ok(Err(mismatch(format!("{kind} {i}: {message}")))),
        }
    }
    Ok(Ok(buffers))
}

/// Reads a record and compares it with the shape. The inner error says how they differ.
fn read_buffer(
    memory: &GuestMemory<'_>,
    record: Claim<usize>,
    shape: &ArrayShape,
) -> Result<Result<GuestBuffer, String>> {
    let rank = shape.rank();
    let number = memory.read("a buffer record", record.plus(buffer::ELEMENT_TYPE), 1)?[0];
    let (found_rank, dimensions) = numbers(memory, record.plus(buffer::DIMENSIONS), rank)?;
    let expected: Vec<_> = shape.dimensions().iter().map(|&d| d as i64).collect();
    if number != shape.element_type().number()
        || found_rank as usize != rank
        || dimensions != expected
    {
        let element_type = ElementType::from_number(number)
            .map_or_else(|| format!("type {number}"), |t| t.lower_name().to_owned());
        return Ok(Err(format!(
            "expected {shape}, found {element_type} of rank {found_rank} and dimensions {dimensions:?}"
        )));
    }
    // An empty layout stands for row-major.
    let (count, layout) = numbers(memory, record.plus(buffer::MINOR_TO_MAJOR), rank)?;
    let row_major: Vec<_> = (0..rank as i64).rev().collect();
    if count != 0 && (count as usize != rank || layout != row_major) {
        return Ok(Err(format!(
            "expected the layout {row_major:?}, found {layout:?}"
        )));
    }
    let offset = memory.read_u32("a buffer record", record.plus(buffer::DATA))?;
    let size = memory.read_u32("a buffer record", record.plus(buffer::DATA + 4))?;
    let expected = shape.byte_size();
    if size.to_check() != expected {
        return Ok(Err(format!("expected {expected} bytes, found {size}")));
    }
    memory.check("a buffer's data", offset, expected)?;
    Ok(Ok(GuestBuffer {
        offset,
        size: expected,
    }))
}

/// Reads a list of numbers: its length, which the caller compares with the expected rank, and at
/// most `most` of the numbers.
fn numbers(memory: &GuestMemory<'_>, field: Claim<usize>, most: usize) -> Result<(u32, Vec<i64>)> {
    let offset = memory.read_u32("a buffer record", field)?;
    let count = memory.read_u32("a buffer record", field.plus(4))?.opaque();
    let shown = most.min(count as usize);
    let bytes = memory.read("a buffer's numbers", offset, 8 * shown)?;
    let (numbers, _) = bytes.as_chunks::<8>();
    let numbers = numbers.iter().map(|bytes| i64::from_le_bytes(*bytes));
    Ok((count, numbers.collect()))
}

/// The operands as literals, one for each parameter.
fn arguments(
    memory: &GuestMemory<'_>,
    function: &FunctionReference,
    buffers: &[GuestBuffer],
) -> Result<Vec<Literal>> {
    let mut buffers = buffers.iter();
    let literal = |shape: &Shape| {
        let leaves = buffers.by_ref().take(shape.leaf_count());
        let bytes = leaves.map(|buffer| {
            let what = "an operand of call-function";
            let bytes = memory.read(what, buffer.offset, buffer.size)?;
            let mut copy = with_capacity(bytes.len())?;
            copy.extend_from_slice(&bytes);
            Ok(copy)
        });
        Literal::from_leaves(shape.clone(), bytes.collect::<Result<_>>()?)
    };
    function.parameters.iter().map(literal).collect()
}

fn write(
    caller: &mut Caller<'_, GuestState>,
    result: &Literal,
    buffers: &[GuestBuffer],
) -> Result<()> {
    let mut memory = memory(caller, "call-function's results")?;
    for ((_, bytes), buffer) in std::iter::zip(result.leaves(), buffers) {
        if bytes.len() != buffer.size {
            return Err(Status::internal(
                "a function's result has another size than its shape",
            ));
        }
        memory.write("a result of call-function", buffer.offset, bytes)?;
    }
    Ok(())
}

/// Copies the message of the last failure into the guest's memory.
fn function_message(
    mut caller: Caller<'_, GuestState>,
    [into, room]: [Claim<u32>; 2],
) -> Result<u32> {
    let failure = caller.data_mut().callee_failure.take();
    let message = failure.as_ref().map_or("", shown_to_guest);
    let written = memory(&mut caller, "function-message's room").and_then(|mut memory| {
        memory.write_prefix("function-message's room", into, room, message.as_bytes())
    });
    let length = message.len() as u32;
    caller.data_mut().callee_failure = failure;
    written.map(|()| length)
}

/// The part of a function's failure that a guest may read.
///
/// The host's own failures can name its files and addresses. A guest can pass such a failure on,
/// but not see it.
pub fn shown_to_guest(failure: &Status) -> &str {
    match failure.blame() {
        Blame::Host => "the function could not be run, for a reason that the host keeps to itself",
        Blame::Guest | Blame::Caller => failure.message(),
    }
}

fn mismatch(message: String) -> Status {
    invalid(message)
}

#[cfg(test)]
mod tests {
    use callbox_core::values::StatusCode;

    use super::*;

    #[test]
    fn a_guest_does_not_see_the_hosts_own_failures() {
        let failed = |blame| {
            Status::new(
                StatusCode::Internal,
                blame,
                "no memory at 0x7f00dead, see /srv",
            )
        };
        assert!(!shown_to_guest(&failed(Blame::Host)).contains(['/', '7']));
        for blame in [Blame::Guest, Blame::Caller] {
            assert_eq!(shown_to_guest(&failed(blame)), failed(blame).message());
        }
    }
}
