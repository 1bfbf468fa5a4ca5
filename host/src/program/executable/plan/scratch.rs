//! Which parts of custom calls' results nobody reads: "tuple outputs as temp buffers" in XLA's document on custom calls.

use crate::program::instruction::{Computation, InstructionId, Opcode};
use crate::values::Shape;

/// For each custom call that runs, the leaves of its result, in preorder, that nothing reads; nothing for other instructions. A
/// get-tuple-element reads what is read of it; whatever else takes a value, the computation's caller too, reads all of it.
pub(super) fn unread(computation: &Computation, live: &[bool]) -> Vec<Vec<usize>> {
    let instructions = &computation.instructions;
    let mut read = Read::new(computation);
    read.all(computation.root);
    // Readers have larger numbers, so one pass backwards has seen them all.
    for (index, instruction) in instructions.iter().enumerate().rev() {
        match instruction.opcode {
            _ if !live[index] => {}
            Opcode::GetTupleElement(element) => {
                read.element(index, instruction.operands[0], element)
            }
            _ => instruction.operands.iter().for_each(|&id| read.all(id)),
        }
    }
    let unread =
        instructions
            .iter()
            .enumerate()
            .map(|(index, instruction)| match instruction.opcode {
                Opcode::CustomCall(_) if live[index] => {
                    let leaves = 0..instruction.shape.leaves().len();
                    let read = &read.leaves[index];
                    leaves
                        .filter(|&leaf| !read.get(leaf).is_some_and(|read| *read))
                        .collect()
                }
                _ => Vec::new(),
            });
    unread.collect()
}

/// What is known to be read.
struct Read<'a> {
    computation: &'a Computation,
    /// For each instruction, which leaves; none is there yet if none is read.
    leaves: Vec<Vec<bool>>,
    /// For each instruction that elements are taken of, the number of each element's first leaf.
    starts: Vec<Vec<usize>>,
}

impl<'a> Read<'a> {
    fn new(computation: &'a Computation) -> Self {
        let count = computation.instructions.len();
        Self {
            computation,
            leaves: vec![Vec::new(); count],
            starts: vec![Vec::new(); count],
        }
    }

    fn all(&mut self, id: InstructionId) {
        if self.is_traced(id) {
            let count = self.shape(id).leaves().len();
            self.leaves[id.index()] = vec![true; count];
        }
    }

    /// What is read of the instruction `index` is read of `tuple`, which it is this element of.
    fn element(&mut self, index: usize, tuple: InstructionId, element: usize) {
        if !self.is_traced(tuple) || self.leaves[index].is_empty() {
            return;
        }
        if self.starts[tuple.index()].is_empty() {
            self.starts[tuple.index()] = starts(self.shape(tuple));
        }
        let start = self.starts[tuple.index()][element];
        let read = std::mem::take(&mut self.leaves[index]);
        if self.leaves[tuple.index()].is_empty() {
            let count = self.shape(tuple).leaves().len();
            self.leaves[tuple.index()] = vec![false; count];
        }
        let all = &mut self.leaves[tuple.index()][start..];
        std::iter::zip(all, read).for_each(|(all, read)| *all |= read);
    }

    /// Whether it matters which leaves are read.
    fn is_traced(&self, id: InstructionId) -> bool {
        let opcode = &self.computation.instructions[id.index()].opcode;
        matches!(opcode, Opcode::CustomCall(_) | Opcode::GetTupleElement(_))
    }

    fn shape(&self, id: InstructionId) -> &'a Shape {
        &self.computation.instructions[id.index()].shape
    }
}

/// The number of each element's first leaf.
fn starts(tuple: &Shape) -> Vec<usize> {
    let elements = tuple.as_tuple().unwrap_or_default().iter();
    let starts = elements.scan(0, |next, element| {
        let start = *next;
        *next += element.leaves().len();
        Some(start)
    });
    starts.collect()
}
