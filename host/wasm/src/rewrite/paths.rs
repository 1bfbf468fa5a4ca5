//! Counts the work since the last look, along the paths through a body.
//!
//! A count along the bytes would take a look that a branch passes by for one that runs: 26,000
//! stores beside branches that are never taken ran 100 ms past a deadline.

use wasmparser::{BinaryReaderError, Operator};

/// The maximum work between two looks.
const MOST: u32 = 1 << 12;

/// The work of an access. One of memory may fault in a page, which the system fills with zeros:
/// 25,000 stores in a straight line took 100 ms. One of functions, tables and segments calls
/// wasmtime: 130,000 `ref.func` took 9 ms. A branch by a table reads it, and goes where the
/// processor does not expect: 77,000 behind calls took 30 ms.
const ACCESS: u32 = 64;

/// The work of another branch. On the way out of 15,500 calls, seven behind each call, to code that
/// was not in the cache, took 24 ms.
const BRANCH: u32 = 6;

/// The work that may follow a call without a look. The callee looks when it begins, and not when it
/// ends: the frames of a deep recursion have what follows their calls one after the other. 63
/// stores behind each of 4,000 calls ran for a second.
const AFTER_CALL: u32 = 16;

/// The state at a place in a body.
pub(crate) struct Paths {
    /// The number of imported functions.
    imports: u32,
    /// The most work since a look, on all paths that lead here.
    work: u32,
    /// The blocks around this place.
    blocks: Vec<Block>,
}

#[derive(Default)]
struct Block {
    /// Branches lead to the head, where a look is.
    is_loop: bool,
    /// The work at an `if`, until its `else`.
    passed_by: Option<u32>,
    /// The most work on the paths that lead to the end.
    at_end: u32,
}

impl Paths {
    /// The state at a body's first instruction, behind its look.
    pub(crate) fn new(imports: u32) -> Self {
        Self {
            imports,
            work: 0,
            blocks: Vec::new(),
        }
    }

    /// Counts the next operator, and returns whether a look is due before it.
    ///
    /// # Errors
    /// wasmparser's, for a `br_table` that is not valid.
    pub(crate) fn next(&mut self, operator: &Operator<'_>) -> Result<bool, BinaryReaderError> {
        let work = match operator {
            Operator::Br { .. } | Operator::BrIf { .. } | Operator::If { .. } => BRANCH,
            _ if self.is_access(operator) => ACCESS,
            _ => 1,
        };
        let is_due = self.work + work > MOST && !has_look(operator);
        if is_due || has_look(operator) {
            self.work = 0;
        }
        self.work += work;
        self.follow(operator)?;
        Ok(is_due)
    }

    fn is_access(&self, operator: &Operator<'_>) -> bool {
        match operator {
            Operator::RefFunc { .. }
            | Operator::TableGet { .. }
            | Operator::TableSet { .. }
            | Operator::ElemDrop { .. }
            | Operator::DataDrop { .. }
            | Operator::BrTable { .. }
            | Operator::CallIndirect { .. } => true,
            Operator::Call { function_index } => *function_index < self.imports,
            _ => accesses_memory(operator),
        }
    }

    /// Follows the control flow of an operator.
    fn follow(&mut self, operator: &Operator<'_>) -> Result<(), BinaryReaderError> {
        match operator {
            Operator::Block { .. } => self.blocks.push(Block::default()),
            Operator::Loop { .. } => self.blocks.push(Block {
                is_loop: true,
                ..Block::default()
            }),
            Operator::If { .. } => self.blocks.push(Block {
                passed_by: Some(self.work),
                ..Block::default()
            }),
            Operator::Else => {
                if let Some(block) = self.blocks.last_mut() {
                    block.at_end = block.at_end.max(self.work);
                    self.work = block.passed_by.take().unwrap_or_default();
                }
            }
            Operator::End => {
                if let Some(block) = self.blocks.pop() {
                    let passed_by = block.passed_by.unwrap_or_default();
                    self.work = self.work.max(block.at_end).max(passed_by);
                }
            }
            Operator::BrIf { relative_depth } => self.branch(*relative_depth),
            Operator::Br { relative_depth } => {
                self.branch(*relative_depth);
                self.work = 0;
            }
            Operator::BrTable { targets } => {
                for depth in targets.targets() {
                    self.branch(depth?);
                }
                self.branch(targets.default());
                self.work = 0;
            }
            // No path leads on.
            Operator::Return
            | Operator::Unreachable
            | Operator::ReturnCall { .. }
            | Operator::ReturnCallIndirect { .. } => self.work = 0,
            Operator::Call { function_index } if *function_index < self.imports => {}
            Operator::Call { .. } | Operator::CallIndirect { .. } => self.work = MOST - AFTER_CALL,
            _ => {}
        }
        Ok(())
    }

    /// A path leads from here to the end of a block, or to the head of a loop.
    fn branch(&mut self, relative_depth: u32) {
        let outer = self.blocks.len().checked_sub(1 + relative_depth as usize);
        // The body itself is not among the blocks: its end is a return.
        if let Some(block) = outer.and_then(|index| self.blocks.get_mut(index))
            && !block.is_loop
        {
            block.at_end = block.at_end.max(self.work);
        }
    }
}

/// Whether the operator itself has a look: at the head of a loop behind it, otherwise before it.
pub(crate) fn has_look(operator: &Operator<'_>) -> bool {
    matches!(
        operator,
        Operator::Loop { .. }
            | Operator::MemoryGrow { .. }
            | Operator::MemoryFill { .. }
            | Operator::MemoryCopy { .. }
            | Operator::MemoryInit { .. }
            | Operator::TableGrow { .. }
            | Operator::TableFill { .. }
            | Operator::TableCopy { .. }
            | Operator::TableInit { .. }
    )
}

/// Whether an operator accesses memory at an address.
pub(super) fn accesses_memory(operator: &Operator<'_>) -> bool {
    macro_rules! is_access {
        (memarg $($others:ident)*) => {
            true
        };
        ($($others:ident)*) => {
            false
        };
    }
    macro_rules! accesses {
        ($( @$proposal:ident $op:ident $({ $($field:ident: $ty:ty),* })? => $visit:ident ($($arity:tt)*) )*) => {
            match operator {
                $(Operator::$op { .. } => is_access!($($($field)*)?),)*
                _ => false,
            }
        };
    }
    wasmparser::for_each_operator!(accesses)
}
