//! The work of validating and compiling a function, counted while its operators are read.
//!
//! The costs of a function grow faster than its bytes where one operator carries many values. A
//! `br_table` of a thousand targets that each carry a hundred values is a hundred thousand values
//! in a kilobyte, and each local that is assigned in a loop is a value of that loop and of all
//! loops around it. [`FunctionWork`] adds up these values before the validator or the compiler sees
//! the operator that carries them. The count is an upper bound on what the compiler keeps, and
//! itself takes constant time for each byte.
//!
//! One unit is one operator, or as much work: about 2 µs and at most 1 KiB of memory.
//!
//! | what | units |
//! | --- | --- |
//! | a function | 64, and one for each parameter, result and local |
//! | an operator | 1 |
//! | a block, branch or call | 4 for each value that it takes or gives |
//! | `br_table` | for each target 1, and 4 for each value that it carries |
//! | the end of a block | for each branch to it, 1 for each local assigned in it |
//! | a loop | the square of the number of loops around it |
//! | a look at the stop word | 8, and 1 for every 64 looks before it; in a loop, for every 32 |
//! | the end of a loop of n used locals | n for each branch to it, and n² / 64 |
//! | a type | 4 for each parameter and result, in all types together |
//! | a function in a table, a global or an export | 32, and 16 for each parameter and result |
//! | a basic block | 1 for every 16 locals and globals, 1 for every 512 values on the stack, |
//! | | and 1 for every 1,024 blocks before it |
//!
//! The factors are measurements of Cranelift: the locals that are live in a loop compete for
//! registers, and nested loops for the place of each value.
//!
//! All types together may have the work of a function, and all functions in tables, globals and
//! exports together that of a module: wasmtime compiles a function for each of them, through which
//! the guest calls the host or the host the guest.
//!
//! The start-up function, which wasmtime makes of a module's initializers, is counted in the same
//! units by [`sections`](crate::sections).

use crate::rewrite::paths::{self, Paths};
use wasmparser::{
    BinaryReaderError, BlockType, ContType, FrameKind, FuncType, ModuleArity, Operator, RefType,
    SubType,
};

/// The units of a function without operators.
const FUNCTION: u64 = 64;

/// The units of a value that a block, branch or call carries.
const CARRIED: u64 = 4;

/// The locals and globals for each unit of a basic block.
const LOCALS_PER_UNIT: u64 = 16;

/// The values on the stack for each unit of a basic block.
const STACK_PER_UNIT: u64 = 512;

/// The units of a look, which is a load, a branch and a block of its own.
const LOOK: u64 = 8;

/// The looks of a function for each further unit of a look: Cranelift takes time for pairs of them.
const LOOKS_PER_UNIT: u64 = 64;

/// The basic blocks of a function for each unit of a basic block.
const BLOCKS_PER_UNIT: u64 = 1024;

/// The pairs of locals in a loop for each unit.
const PAIRS_PER_UNIT: u64 = 64;

/// The types and functions of the module that a function belongs to.
pub(crate) trait FunctionTypes {
    /// The type of this index.
    fn ty(&self, index: u32) -> Option<&SubType>;

    /// The index of a function's type.
    fn type_of(&self, function: u32) -> Option<u32>;

    /// The number of imported functions.
    fn imported_functions(&self) -> u32;

    /// The number of globals.
    fn globals(&self) -> usize;
}

/// The work of one function so far.
pub(crate) struct FunctionWork {
    units: u64,
    /// The parameters and locals.
    locals: u64,
    /// The values on the operand stack: a guess in unreachable code.
    height: u64,
    /// The accesses to globals.
    global_accesses: u64,
    /// Where the rewritten function has looks.
    paths: Paths,
    looks: u64,
    /// The basic blocks.
    blocks: u64,
    frames: Vec<Frame>,
    /// The number of loops in `frames`.
    loops: u64,
}

/// A block that has not ended.
struct Frame {
    block: BlockType,
    kind: FrameKind,
    /// The height of the operand stack below the block's parameters.
    height: u64,
    /// The branches to the block's label.
    branches: u64,
    /// The assignments of locals inside.
    assignments: u64,
    /// The assignments and reads of locals inside.
    uses: u64,
}

impl FunctionWork {
    /// The work of a function of this type before its first operator.
    pub(crate) fn new(ty: u32, types: &impl FunctionTypes) -> Self {
        let block = BlockType::FuncType(ty);
        let mut work = Self {
            units: FUNCTION,
            locals: 0,
            height: 0,
            global_accesses: 0,
            paths: Paths::new(types.imported_functions()),
            looks: 0,
            blocks: 0,
            frames: Vec::new(),
            loops: 0,
        };
        let (parameters, results) = work
            .control(types)
            .block_type_arity(block)
            .unwrap_or((0, 0));
        work.units += u64::from(parameters) + u64::from(results);
        work.locals = u64::from(parameters);
        work.push(block, FrameKind::Block, 0);
        work
    }

    /// The units so far.
    pub(crate) fn units(&self) -> u64 {
        self.units
    }

    /// Counts local variables.
    pub(crate) fn add_locals(&mut self, count: u32) {
        self.locals += u64::from(count);
        self.units += u64::from(count);
    }

    /// Counts the next operator.
    ///
    /// # Errors
    /// wasmparser's, if the targets of a `br_table` cannot be read.
    pub(crate) fn operator(
        &mut self,
        operator: &Operator<'_>,
        types: &impl FunctionTypes,
    ) -> Result<(), BinaryReaderError> {
        self.units += 1;
        if self.paths.next(operator)? || paths::has_look(operator) {
            self.look();
        }
        let (takes, gives) = self.arity(operator, types);
        let beneath = self.height.saturating_sub(takes);
        match operator {
            Operator::LocalGet { .. } => self.top().uses += 1,
            Operator::LocalSet { .. } | Operator::LocalTee { .. } => {
                self.top().uses += 1;
                self.top().assignments += 1;
            }
            Operator::GlobalGet { .. } | Operator::GlobalSet { .. } => self.global_accesses += 1,
            Operator::Block { blockty } => {
                self.carry(takes, gives);
                self.push(*blockty, FrameKind::Block, beneath);
            }
            Operator::Loop { blockty } => {
                self.carry(takes, gives);
                self.units += self.loops * self.loops;
                self.units += self.looks / LOOKS_PER_UNIT;
                self.loops += 1;
                self.begin_block(types);
                self.push(*blockty, FrameKind::Loop, beneath);
            }
            Operator::If { blockty } => {
                self.carry(takes, gives);
                self.begin_block(types);
                self.push(*blockty, FrameKind::If, beneath);
            }
            Operator::Else => {
                self.carry(takes, gives);
                self.begin_block(types);
                self.top().branches += 1;
                self.height = self.top().height + gives;
                return Ok(());
            }
            Operator::End => {
                self.carry(takes, gives);
                self.begin_block(types);
                self.pop(gives);
                return Ok(());
            }
            Operator::Br { relative_depth } => {
                self.carry(takes, gives);
                self.branch(*relative_depth);
                self.unreachable();
                return Ok(());
            }
            Operator::BrIf { relative_depth } => {
                self.carry(takes, gives);
                self.begin_block(types);
                self.branch(*relative_depth);
            }
            Operator::BrTable { targets } => {
                self.branch(targets.default());
                self.carry(takes, 0);
                for target in targets.targets() {
                    let target = target?;
                    self.units += 1 + CARRIED * self.label_arity(target, types);
                    self.branch(target);
                }
                self.begin_block(types);
                self.unreachable();
                return Ok(());
            }
            Operator::Return
            | Operator::Unreachable
            | Operator::ReturnCall { .. }
            | Operator::ReturnCallIndirect { .. } => {
                self.carry(takes, gives);
                self.unreachable();
                return Ok(());
            }
            Operator::Call { .. } | Operator::CallIndirect { .. } => self.carry(takes, gives),
            _ => {}
        }
        self.height = beneath + gives;
        Ok(())
    }

    fn arity(&self, operator: &Operator<'_>, types: &impl FunctionTypes) -> (u64, u64) {
        let arity = operator.operator_arity(&self.control(types));
        let (takes, gives) = arity.unwrap_or((0, 0));
        (takes.into(), gives.into())
    }

    /// The number of values that a branch to a label carries.
    fn label_arity(&self, label: u32, types: &impl FunctionTypes) -> u64 {
        let branch = Operator::Br {
            relative_depth: label,
        };
        self.arity(&branch, types).0
    }

    fn control<'a, T: FunctionTypes>(&'a self, types: &'a T) -> Control<'a, T> {
        Control {
            frames: &self.frames,
            types,
        }
    }

    fn carry(&mut self, takes: u64, gives: u64) {
        self.units += CARRIED * (takes + gives);
    }

    /// Counts a look at the stop word, which [`rewrite`](crate::rewrite) inserts.
    fn look(&mut self) {
        self.looks += 1;
        self.units += LOOK + self.looks / LOOKS_PER_UNIT;
    }

    /// Counts the beginning of a basic block.
    fn begin_block(&mut self, types: &impl FunctionTypes) {
        self.blocks += 1;
        self.units += self.blocks / BLOCKS_PER_UNIT;
        let globals = self.global_accesses.min(types.globals() as u64);
        self.units += (self.locals + globals) / LOCALS_PER_UNIT + self.height / STACK_PER_UNIT;
    }

    fn push(&mut self, block: BlockType, kind: FrameKind, height: u64) {
        self.frames.push(Frame {
            block,
            kind,
            height,
            branches: 0,
            assignments: 0,
            uses: 0,
        });
    }

    /// Ends the innermost block, which leaves as many values.
    fn pop(&mut self, results: u64) {
        let Some(ended) = self.frames.pop() else {
            return;
        };
        let mut carried = ended.assignments;
        if ended.kind == FrameKind::Loop {
            self.loops -= 1;
            carried = ended.uses.min(self.locals);
            self.units += carried * carried / PAIRS_PER_UNIT;
        }
        // The last block is the function, from which no local comes out.
        if let Some(outer) = self.frames.last_mut() {
            outer.assignments += ended.assignments;
            outer.uses += ended.uses;
            self.units += carried.min(self.locals) * (ended.branches + 1);
        }
        self.height = ended.height + results;
    }

    /// Counts a branch to a label.
    fn branch(&mut self, label: u32) {
        let depth = self.frames.len().checked_sub(label as usize + 1);
        if let Some(frame) = depth.and_then(|depth| self.frames.get_mut(depth)) {
            frame.branches += 1;
        }
    }

    fn unreachable(&mut self) {
        self.height = self.top().height;
    }

    /// The innermost block. The validator refuses operators outside any block.
    fn top(&mut self) -> &mut Frame {
        if self.frames.is_empty() {
            self.push(BlockType::Empty, FrameKind::Block, 0);
        }
        let last = self.frames.len() - 1;
        &mut self.frames[last]
    }
}

/// Tells wasmparser the arities of types and labels, from which it derives those of operators.
struct Control<'a, T> {
    frames: &'a [Frame],
    types: &'a T,
}

impl<T: FunctionTypes> ModuleArity for Control<'_, T> {
    fn sub_type_at(&self, index: u32) -> Option<&SubType> {
        self.types.ty(index)
    }

    fn tag_type_arity(&self, _: u32) -> Option<(u32, u32)> {
        None
    }

    fn type_index_of_function(&self, function: u32) -> Option<u32> {
        self.types.type_of(function)
    }

    fn func_type_of_cont_type(&self, _: &ContType) -> Option<&FuncType> {
        None
    }

    fn sub_type_of_ref_type(&self, _: &RefType) -> Option<&SubType> {
        None
    }

    fn control_stack_height(&self) -> u32 {
        u32::try_from(self.frames.len()).unwrap_or(u32::MAX)
    }

    fn label_block(&self, depth: u32) -> Option<(BlockType, FrameKind)> {
        let index = self.frames.len().checked_sub(depth as usize + 1)?;
        let frame = self.frames.get(index)?;
        Some((frame.block, frame.kind))
    }
}
