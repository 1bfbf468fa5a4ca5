//! Runs elementwise instructions on large arrays in one pass, tile by tile, on several threads.
//!
//! A tile of a value has the bits that the instruction gives on whole arrays. The values between
//! two instructions stay in the processor's caches; only values that are read after the pass are
//! stored as a whole. A result takes the memory of an input of its size that nothing else reads.

use std::collections::BTreeMap;
use std::iter::zip;
use std::sync::Arc;

use super::array::{Array, Elements, array, fill, leaf, repeat};
use super::strided::Strides;
use super::teamwork::{Check, Team};
use super::{bug, evaluate_elements, keeps_bytes, zeroed};
use crate::instruction::{Computation, Instruction, InstructionId, Opcode};
use callbox_core::float_mode::FloatMode;
use callbox_core::values::{Literal, Result, untouched};

/// The elements of a tile.
const TILE: usize = 4096;

/// Elementwise instructions with results of the same dimensions.
#[derive(Debug)]
pub(crate) struct Pass {
    pub(crate) dimensions: Vec<usize>,
    /// The values that exist before the pass.
    pub(crate) inputs: Vec<InstructionId>,
    /// In an order in which operands come first.
    pub(crate) members: Vec<Member>,
}

/// An instruction of a pass.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) instruction: InstructionId,
    pub(crate) operands: Vec<Source>,
    /// Whether its value is read after the pass.
    pub(crate) is_result: bool,
    /// The members whose values no later one reads.
    pub(crate) last_uses: Vec<usize>,
}

/// Where an operand comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Input(usize),
    Member(usize),
}

impl Pass {
    /// The instructions whose values are read after the pass.
    pub(crate) fn results(&self) -> impl Iterator<Item = InstructionId> {
        let results = self.members.iter().filter(|member| member.is_result);
        results.map(|member| member.instruction)
    }
}

/// An input during a pass.
enum Input<'a> {
    /// An array of the pass's dimensions, or one that is broadcast to them.
    Array(Array<'a>),
    /// A tile of copies of a scalar.
    Scalar(Elements<'a>),
    /// An array of the pass's dimensions, in the memory of the result with this number.
    Taken(callbox_core::ElementType, usize),
}

/// The elements of one tile.
#[derive(Clone, Copy)]
struct Tile {
    start: usize,
    count: usize,
}

/// Runs a pass. Gives the results, in the order of the members.
///
/// # Errors
/// RESOURCE_EXHAUSTED if there is no memory for the results, or the error of the team's check.
pub(crate) fn run_pass(
    pass: &Pass,
    computation: &Computation,
    mut inputs: Vec<Literal>,
    team: Team<'_>,
) -> Result<Vec<Literal>> {
    let _mode = FloatMode::WASM.set();
    let count = pass.dimensions.iter().product::<usize>();
    let instructions = &computation.instructions;
    let results = pass.members.iter().filter(|member| member.is_result);
    let shapes = Vec::from_iter(results.map(|m| &instructions[m.instruction.index()].shape));
    let sizes = Vec::from_iter(shapes.iter().map(|shape| shape.leaves()[0].byte_size()));
    let (taken_by, taken) = take_memory(pass, computation, &mut inputs, &sizes);
    let mut spread = Vec::with_capacity(inputs.len());
    for input in &inputs {
        let input = array(input)?;
        let is_scalar = input.dimensions().is_empty();
        spread.push(repeat(
            input.bytes,
            if is_scalar { TILE.min(count) } else { 0 },
        )?);
    }
    let mut prepared = Vec::with_capacity(inputs.len());
    for (number, (input, spread)) in zip(&inputs, &spread).enumerate() {
        if let Some(result) = taken_by[number] {
            let shape = instructions[pass.inputs[number].index()].shape.as_array();
            let shape = shape.ok_or_else(|| bug("an input of a pass is not an array"))?;
            prepared.push(Input::Taken(shape.element_type(), result));
            continue;
        }
        let input = array(input)?;
        prepared.push(if input.dimensions().is_empty() {
            Input::Scalar(Elements {
                bytes: spread,
                ..input.elements()
            })
        } else {
            Input::Array(input)
        });
    }
    let outputs = zip(taken, sizes).map(|(taken, size)| match taken {
        Some(memory) => Ok(memory),
        None => untouched(size),
    });
    let mut outputs = outputs.collect::<Result<Vec<_>>>()?;
    let mut rest = Vec::from_iter(zip(&mut outputs, &shapes).map(|(output, shape)| {
        let width = shape.leaves()[0].element_type().byte_width();
        output.chunks_mut(TILE * width)
    }));
    let tiles = (0..count).step_by(TILE).map(|start| {
        let parts = rest
            .iter_mut()
            .map(|chunks| chunks.next().unwrap_or_default());
        let count = TILE.min(count - start);
        (Tile { start, count }, Vec::from_iter(parts))
    });
    team.share(
        tiles,
        count.saturating_mul(pass.members.len()),
        |(tile, parts)| run_tile(pass, instructions, &prepared, tile, parts, team.check),
    )?;
    zip(shapes, outputs)
        .map(|(shape, bytes)| leaf(shape, bytes))
        .collect()
}

/// Takes the memory of inputs that nothing else reads, for results of the same size.
///
/// Gives for each input the number of the result that takes it, and for each result the memory with
/// the input's elements. The input becomes a scalar without meaning.
fn take_memory(
    pass: &Pass,
    computation: &Computation,
    inputs: &mut [Literal],
    sizes: &[usize],
) -> (Vec<Option<usize>>, Vec<Option<Vec<u8>>>) {
    let mut is_broadcast = vec![false; inputs.len()];
    for member in &pass.members {
        let instruction = &computation.instructions[member.instruction.index()];
        if let (Opcode::Broadcast(_), [Source::Input(input)]) =
            (&instruction.opcode, &*member.operands)
        {
            is_broadcast[*input] = true;
        }
    }
    // The results without memory by their sizes, the first one last.
    let mut free: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (result, &size) in sizes.iter().enumerate().rev() {
        free.entry(size).or_default().push(result);
    }
    let mut taken_by = vec![None; inputs.len()];
    let mut taken = vec![None; sizes.len()];
    for (number, input) in inputs.iter_mut().enumerate() {
        let [leaf] = input.shared_leaves() else {
            continue;
        };
        let is_array = array(input).is_ok_and(|x| x.dimensions() == pass.dimensions);
        if !is_array || is_broadcast[number] || Arc::strong_count(leaf) != 1 {
            continue;
        }
        if let Some(result) = free.get_mut(&leaf.len()).and_then(Vec::pop) {
            let leaf = Arc::clone(leaf);
            *input = Literal::scalar(0_u8);
            taken_by[number] = Some(result);
            taken[result] = Some(Arc::unwrap_or_clone(leaf));
        }
    }
    (taken_by, taken)
}

/// The instructions that run on a tile between two looks at the deadline.
const BETWEEN_LOOKS: usize = 8;

fn run_tile(
    pass: &Pass,
    instructions: &[Instruction],
    inputs: &[Input<'_>],
    tile: Tile,
    parts: Vec<&mut [u8]>,
    check: &dyn Check,
) -> Result<()> {
    // The elements of inputs whose memory results take.
    let mut taken = vec![Vec::new(); parts.len()];
    for input in inputs {
        if let Input::Taken(_, result) = *input {
            check.check()?;
            taken[result] = parts[result].to_vec();
        }
    }
    let mut parts = parts.into_iter();
    let mut values: Vec<Vec<u8>> = Vec::with_capacity(pass.members.len());
    for (number, member) in pass.members.iter().enumerate() {
        if number % BETWEEN_LOOKS == BETWEEN_LOOKS - 1 {
            check.check()?;
        }
        let instruction = &instructions[member.instruction.index()];
        let value = match (&instruction.opcode, &*member.operands) {
            (Opcode::Broadcast(to), [Source::Input(input)]) => {
                broadcast(&inputs[*input], to, &pass.dimensions, tile)?
            }
            _ => {
                let operands = zip(&member.operands, &instruction.operands);
                let operands = operands.map(|(source, id)| match *source {
                    Source::Input(input) => inputs[input].part(tile, &taken),
                    Source::Member(member) => Ok(Elements {
                        element_type: element_type(&instructions[id.index()])?,
                        bytes: &values[member],
                    }),
                });
                compute(
                    instruction,
                    instructions,
                    &operands.collect::<Result<Vec<_>>>()?,
                )?
            }
        };
        if member.is_result {
            let part = parts.next().ok_or_else(|| bug("a result has no memory"))?;
            part.copy_from_slice(&value);
        }
        values.push(value);
        for &dead in &member.last_uses {
            values[dead] = Vec::new();
        }
    }
    Ok(())
}

fn compute(
    instruction: &Instruction,
    instructions: &[Instruction],
    operands: &[Elements<'_>],
) -> Result<Vec<u8>> {
    if let ([x], [operand]) = (operands, &*instruction.operands)
        && let shape = &instructions[operand.index()].shape
        && keeps_bytes(&instruction.opcode, shape, &instruction.shape)
    {
        return Ok(x.bytes.to_vec());
    }
    let bytes = evaluate_elements(&instruction.opcode, operands, element_type(instruction)?);
    bytes.unwrap_or_else(|| Err(bug("an instruction of a pass is not elementwise")))
}

fn element_type(instruction: &Instruction) -> Result<callbox_core::ElementType> {
    let shape = instruction.shape.as_array();
    shape
        .map(|shape| shape.element_type())
        .ok_or_else(|| bug("an instruction of a pass gives no array"))
}

impl<'a> Input<'a> {
    /// The elements of a tile. `taken` has those of inputs whose memory results take.
    fn part<'t>(&self, tile: Tile, taken: &'t [Vec<u8>]) -> Result<Elements<'t>>
    where
        'a: 't,
    {
        let (elements, start) = match self {
            &Self::Taken(element_type, result) => {
                let bytes = taken[result].as_slice();
                let elements = Elements {
                    element_type,
                    bytes,
                };
                (elements, 0)
            }
            Self::Array(array) => (array.elements(), tile.start),
            Self::Scalar(copies) => (*copies, 0),
        };
        Ok(Elements {
            bytes: elements.part(start, tile.count)?,
            ..elements
        })
    }
}

/// A tile of an array whose dimension `i` becomes dimension `to[i]`.
fn broadcast(input: &Input<'_>, to: &[usize], dimensions: &[usize], tile: Tile) -> Result<Vec<u8>> {
    let x = match input {
        Input::Array(x) => x,
        Input::Scalar(_) => return Ok(input.part(tile, &[])?.bytes.to_vec()),
        Input::Taken(..) => return Err(bug("a broadcast of memory that a result takes")),
    };
    let width = x.width();
    let steps = Strides::broadcast(x, to, dimensions.len())?.steps;
    let (Some((&inner, outer)), Some((&inner_step, outer_steps))) =
        (dimensions.split_last(), steps.split_last())
    else {
        return Err(bug("a broadcast to a scalar in a pass"));
    };
    let mut bytes = zeroed(tile.count * width)?;
    let (mut at, mut left) = (tile.start, &mut *bytes);
    while !left.is_empty() {
        let (mut row, column) = (at / inner, at % inner);
        let run = (inner - column).min(left.len() / width);
        let mut from = column * inner_step as usize;
        for (&size, &step) in zip(outer, outer_steps).rev() {
            from += (row % size) * step as usize;
            row /= size;
        }
        let part;
        (part, left) = left.split_at_mut(run * width);
        let length = if inner_step == 0 { width } else { part.len() };
        let found = x.bytes.get(from..from + length);
        fill(
            found.ok_or_else(|| bug("a broadcast is out of bounds"))?,
            part,
        );
        at += run;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
