//! Scratch: the leaves of custom calls' results that nothing reads.
//!
//! XLA's documentation of custom calls names this use: "tuple outputs as temp buffers".

use std::ops::Range;

use crate::evaluate::element_leaves;
use crate::instruction::{Computation, InstructionId, Opcode};

/// For each custom call that runs, the leaves of its result, in preorder, that nothing reads. The
/// entries of other instructions are empty.
///
/// A get-tuple-element reads the leaves of its operand that are read of its own result. Every other
/// reader, including the computation's caller, reads the whole value.
pub(super) fn unread(computation: &Computation, live: &[bool]) -> Vec<Vec<usize>> {
    let instructions = &computation.instructions;
    let mut reads = Reads::new(computation);
    reads.mark_all(computation.root);
    // Readers have larger numbers, so that one backward pass has seen all of them.
    for (index, instruction) in instructions.iter().enumerate().rev() {
        match instruction.opcode {
            _ if !live[index] => {}
            Opcode::GetTupleElement(element) => {
                reads.mark_element(index, instruction.operands[0], element);
            }
            _ => instruction
                .operands
                .iter()
                .for_each(|&id| reads.mark_all(id)),
        }
    }
    let unread = std::iter::zip(instructions, reads.leaves).enumerate();
    let unread = unread.map(|(index, (instruction, read))| match instruction.opcode {
        Opcode::CustomCall(_) if live[index] => {
            let leaves = 0..instruction.shape.leaf_count();
            leaves
                .filter(|&leaf| !read.get(leaf).is_some_and(|read| *read))
                .collect()
        }
        _ => Vec::new(),
    });
    unread.collect()
}

/// The leaves known to be read.
struct Reads<'a> {
    computation: &'a Computation,
    /// For each instruction, a flag for each leaf, or no flags if none is read.
    leaves: Vec<Vec<bool>>,
    /// For each instruction whose elements are taken, their leaves.
    elements: Vec<Vec<Range<usize>>>,
}

impl<'a> Reads<'a> {
    fn new(computation: &'a Computation) -> Self {
        let count = computation.instructions.len();
        Self {
            computation,
            leaves: vec![Vec::new(); count],
            elements: vec![Vec::new(); count],
        }
    }

    fn mark_all(&mut self, id: InstructionId) {
        if self.is_traced(id) {
            let count = self.computation.shape(id).leaf_count();
            self.leaves[id.index()] = vec![true; count];
        }
    }

    /// Marks the leaves of this element of `tuple` that are read of the instruction `index`, which
    /// takes the element.
    fn mark_element(&mut self, index: usize, tuple: InstructionId, element: usize) {
        if !self.is_traced(tuple) || self.leaves[index].is_empty() {
            return;
        }
        let shape = self.computation.shape(tuple);
        let (elements, leaves) = (&mut self.elements[tuple.index()], shape.leaf_count());
        if elements.is_empty() {
            *elements = element_leaves(shape).collect();
        }
        let range = elements[element].clone();
        let read = std::mem::take(&mut self.leaves[index]);
        let all = &mut self.leaves[tuple.index()];
        all.resize(leaves, false);
        std::iter::zip(&mut all[range], read).for_each(|(all, read)| *all |= read);
    }

    /// Whether reads of single leaves are tracked.
    fn is_traced(&self, id: InstructionId) -> bool {
        let opcode = &self.computation.instructions[id.index()].opcode;
        matches!(opcode, Opcode::CustomCall(_) | Opcode::GetTupleElement(_))
    }
}
