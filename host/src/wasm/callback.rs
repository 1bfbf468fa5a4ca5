//! `call-function`: a guest calls back into the program that called it.
//!
//! What the guest hands over are claims: the records are read field by field, buffers become ranges next to their use, and
//! shapes must be those of the function. The call runs in instances of its own.

use std::sync::Arc;

use wasmtime::{Caller, Linker};

use super::api::{copy_what_fits, memory};
use super::claim::{Claim, import};
use super::memory::GuestMemory;
use super::state::GuestState;
use crate::call::{Bounds, Fuel, FunctionReference, Functions};
use crate::frame::abi::buffer;
use crate::values::{ArrayShape, Blame, ElementType, Literal, Result, Shape, Status, StatusCode};

/// Stack that the host itself may need to run a function of the program: the executor calls itself for each computation.
const PROGRAM_STACK: usize = 1 << 20;

pub(super) fn define(linker: &mut Linker<GuestState>, module: &str) -> wasmtime::Result<()> {
    import(
        linker,
        module,
        "call-function",
        |caller, [function, operands, operand_count, results, result_count]| {
            let operands = Records(operands, operand_count);
            let results = Records(results, result_count);
            call_function(caller, function, operands, results)
        },
    )?;
    import(
        linker,
        module,
        "function-message",
        |caller, [into, room]| function_message(caller, (into, room)).map_err(wasmtime::Error::new),
    )
}

/// A guest's list of `buffer` records: offset and count.
#[derive(Clone, Copy)]
struct Records(Claim<u32>, Claim<u32>);

/// Runs a function of the program. Its failure is the guest's to know: the code that it gets back. A buffer that is not in memory
/// stops the guest.
fn call_function(
    mut caller: Caller<'_, GuestState>,
    function: Claim<u32>,
    operands: Records,
    results: Records,
) -> wasmtime::Result<u32> {
    caller.data_mut().callee_failure = None;
    let called = try_call(&mut caller, function, operands, results);
    // The function's time is the call's, also of a guest that does not run long enough itself to be stopped.
    caller
        .data_mut()
        .interrupt
        .tick()
        .map_err(wasmtime::Error::new)?;
    match called.map_err(wasmtime::Error::new)? {
        Ok(()) => Ok(0),
        Err(status) => {
            let code = status.code().number();
            caller.data_mut().callee_failure = Some(status);
            Ok(u32::from(code))
        }
    }
}

fn try_call(
    caller: &mut Caller<'_, GuestState>,
    number: Claim<u32>,
    operands: Records,
    results: Records,
) -> Result<Result<()>> {
    let (functions, function) = match callee(caller.data(), number) {
        Ok(callee) => callee,
        Err(status) => return Ok(Err(status)),
    };
    let function = &*function;
    let operand_shapes: Vec<_> = function.parameters.iter().flat_map(Shape::leaves).collect();
    let result_shapes = function.result.leaves();
    let memory = memory(caller, "call-function's buffers")?;
    let read = |kind, records, shapes| places(&memory, kind, records, shapes);
    let (from, to) = match (
        read("operand", operands, &operand_shapes)?,
        read("result", results, &result_shapes)?,
    ) {
        (Ok(from), Ok(to)) => (from, to),
        (Err(status), _) | (_, Err(status)) => return Ok(Err(in_function(function, status))),
    };
    let arguments = arguments(&memory, function, &from)?;
    let bytes: usize = from.iter().chain(&to).map(|&(_, size)| size).sum();
    let bounds = Bounds {
        deadline: caller.data_mut().interrupt.instant(),
        // What is called back takes of what this call still has. Without the deterministic mode there is none.
        fuel: fuel_left(caller, bytes as u64),
    };
    let outcome = run(caller, &*functions, function, (&arguments, &bounds));
    if let Some(fuel) = bounds.fuel {
        caller
            .set_fuel(fuel.left())
            .map_err(|error| Status::internal(format!("fuel cannot be set: {error:#}")))?;
    }
    match outcome {
        Ok(result) => write(caller, &result, &to).map(Ok),
        Err(status) => Ok(Err(in_function(function, status))),
    }
}

/// What is left for what is called back, once the bytes that are handed over are taken from it. Without the deterministic mode there is no fuel.
fn fuel_left(caller: &mut Caller<'_, GuestState>, bytes: u64) -> Option<Fuel> {
    let left = caller.get_fuel().ok()?;
    Some(Fuel::new(left.saturating_sub(bytes)))
}

/// The running program's functions, and the one of them that is called.
type Callee = (Arc<dyn Functions>, Arc<FunctionReference>);

/// The function that a number stands for, if it can be called from here.
fn callee(state: &GuestState, number: Claim<u32>) -> Result<Callee> {
    let callable = &state.callable;
    let found = number.check(|number| {
        let functions = state.functions.as_ref()?;
        Some((functions, callable.get(number as usize)?))
    });
    let (functions, function) = found.map_err(|number| {
        Status::new(
            StatusCode::NotFound,
            Blame::Guest,
            format!(
                "call-function: expected one of the {} functions that can be called here, found number {number}",
                callable.len()
            ),
        )
    })?;
    let limit = state.shared.policy.limits.callback_depth;
    if functions.depth() >= limit {
        return Err(Status::new(
            StatusCode::ResourceExhausted,
            Blame::Guest,
            format!("call-function: expected calls back at most {limit} deep, found more"),
        ));
    }
    Ok((Arc::clone(functions), Arc::clone(function)))
}

/// Where a leaf lies, as a guest claims, and how many bytes it has.
type Place = (Claim<u32>, usize);

/// Where the leaves lie that a guest hands over: offset and size in bytes. The outer failure is memory that is not there, the inner one
/// what does not fit the function.
fn places(
    memory: &GuestMemory<'_>,
    kind: &str,
    Records(offset, count): Records,
    shapes: &[&ArrayShape],
) -> Result<Result<Vec<Place>>> {
    if let Err(count) = count.check(|count| (count as usize == shapes.len()).then_some(())) {
        let message = format!("expected {} {kind}s, found {count}", shapes.len());
        return Ok(Err(wrong(message)));
    }
    let mut places = Vec::with_capacity(shapes.len());
    for (i, shape) in shapes.iter().enumerate() {
        let record = offset.plus(i * buffer::SIZE);
        memory.check("a buffer record", record, buffer::SIZE)?;
        let found = describe(memory, record, shape.rank())?;
        let expected = (
            shape.element_type().number(),
            shape.rank() as u32,
            shape.dimensions().iter().map(|&d| d as i64).collect(),
        );
        if found != expected {
            let (number, rank, dimensions) = found;
            let element_type = ElementType::from_number(number)
                .map_or_else(|| format!("type {number}"), |t| t.lower_name().to_owned());
            let message = format!(
                "{kind} {i}: expected {shape}, found {element_type} of rank {rank} and dimensions {dimensions:?}"
            );
            return Ok(Err(wrong(message)));
        }
        if let Some(found) = other_layout(memory, record, shape.rank())? {
            let expected: Vec<_> = (0..shape.rank() as i64).rev().collect();
            let message = format!("{kind} {i}: expected the layout {expected:?}, found {found:?}");
            return Ok(Err(wrong(message)));
        }
        let data = memory.read_u32("a buffer record", record.plus(buffer::DATA))?;
        let size = memory.read_u32("a buffer record", record.plus(buffer::DATA + 4))?;
        let expected = |size| (size as usize == shape.byte_size()).then_some(size as usize);
        let Ok(size) = size.check(expected) else {
            let message = format!(
                "{kind} {i}: expected {} bytes, found {size}",
                shape.byte_size()
            );
            return Ok(Err(wrong(message)));
        };
        memory.check("a buffer's data", data, size)?;
        places.push((data, size));
    }
    Ok(Ok(places))
}

/// What a record says of its buffer: element type, rank, and as many dimensions as are expected, if there are.
fn describe(
    memory: &GuestMemory<'_>,
    record: Claim<usize>,
    rank: usize,
) -> Result<(u8, u32, Vec<i64>)> {
    let element_type = memory.read("a buffer record", record.plus(buffer::ELEMENT_TYPE), 1)?;
    let (count, dimensions) = numbers(memory, record.plus(buffer::DIMENSIONS), rank)?;
    Ok((element_type[0], count, dimensions))
}

/// The layout that a record says, if it is another than row-major. None at all stands for it.
fn other_layout(
    memory: &GuestMemory<'_>,
    record: Claim<usize>,
    rank: usize,
) -> Result<Option<Vec<i64>>> {
    let (count, found) = numbers(memory, record.plus(buffer::MINOR_TO_MAJOR), rank)?;
    let is_default = found.iter().copied().eq((0..rank as i64).rev());
    Ok((count != 0 && !(count as usize == rank && is_default)).then_some(found))
}

/// A list of numbers: how many there are, and as many of them as are wanted.
fn numbers(memory: &GuestMemory<'_>, field: Claim<usize>, most: usize) -> Result<(u32, Vec<i64>)> {
    let offset = memory.read_u32("a buffer record", field)?;
    // What it is compared with says what it may be.
    let count = memory.read_u32("a buffer record", field.plus(4))?.opaque();
    let shown = most.min(count as usize);
    let bytes = memory.read("a buffer's numbers", offset, 8 * shown)?;
    let numbers = bytes.chunks_exact(8).map(|bytes| {
        let mut number = [0; 8];
        number.copy_from_slice(bytes);
        i64::from_le_bytes(number)
    });
    Ok((count, numbers.collect()))
}

/// The operands as literals, one for each parameter.
fn arguments(
    memory: &GuestMemory<'_>,
    function: &FunctionReference,
    places: &[Place],
) -> Result<Vec<Literal>> {
    let mut places = places.iter();
    let literal = |shape: &Shape| {
        let leaves = places.by_ref().take(shape.leaves().len());
        let bytes = leaves.map(|&(offset, size)| {
            memory
                .read("an operand of call-function", offset, size)
                .map(|bytes| bytes.to_vec())
        });
        Literal::from_leaves(shape.clone(), bytes.collect::<Result<_>>()?)
    };
    function.parameters.iter().map(literal).collect()
}

/// Runs the function, on another stack if this one might not do.
fn run(
    caller: &Caller<'_, GuestState>,
    functions: &dyn Functions,
    function: &FunctionReference,
    (arguments, bounds): (&[Literal], &Bounds),
) -> Result<Literal> {
    let needed = caller
        .data()
        .shared
        .policy
        .limits
        .stack_bytes
        .saturating_add(PROGRAM_STACK);
    stacker::maybe_grow(needed, needed.saturating_add(PROGRAM_STACK), || {
        functions.call(function.id, arguments, bounds)
    })
}

fn write(caller: &mut Caller<'_, GuestState>, result: &Literal, places: &[Place]) -> Result<()> {
    let mut memory = memory(caller, "call-function's results")?;
    for ((_, bytes), &(offset, size)) in std::iter::zip(result.leaves(), places) {
        if bytes.len() != size {
            return Err(Status::internal(
                "a function's result has another size than its shape",
            ));
        }
        memory.write("a result of call-function", offset, bytes)?;
    }
    Ok(())
}

fn function_message(
    mut caller: Caller<'_, GuestState>,
    room: (Claim<u32>, Claim<u32>),
) -> Result<u32> {
    let failure = caller.data_mut().callee_failure.take();
    let copied = copy_message(&mut caller, failure.as_ref(), room);
    caller.data_mut().callee_failure = failure;
    copied
}

fn copy_message(
    caller: &mut Caller<'_, GuestState>,
    failure: Option<&Status>,
    room: (Claim<u32>, Claim<u32>),
) -> Result<u32> {
    let message = failure.map_or("", shown_to_guest);
    let mut memory = memory(caller, "function-message's room")?;
    copy_what_fits(
        &mut memory,
        "function-message's room",
        message.as_bytes(),
        room,
    )?;
    Ok(message.len() as u32)
}

/// What a guest may read of a function's failure. What the host itself fails with can name its files and addresses: a guest that hands the
/// failure on hands it on whole, but does not see it.
pub(crate) fn shown_to_guest(failure: &Status) -> &str {
    match failure.blame() {
        Blame::Host => "the function could not be run, for a reason that the host keeps to itself",
        Blame::Guest | Blame::Caller => failure.message(),
    }
}

fn in_function(function: &FunctionReference, status: Status) -> Status {
    status.context(format_args!("function {:?}", function.name))
}

fn wrong(message: String) -> Status {
    Status::new(StatusCode::InvalidArgument, Blame::Guest, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_fails_with_is_not_shown_to_a_guest() {
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
