//! Bulk memory instructions that may take long.

use std::collections::BTreeSet;

use wasmparser::{BinaryReaderError, DataKind, Operator, Payload};

/// The bytes that are moved between looks: some 30 µs of work, even where each page is touched for
/// the first time.
pub(super) const PIECE: u32 = 64 << 10;

/// A bulk memory instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Fill,
    Copy,
    /// Copies from the data segment of this index.
    Init(u32),
}

/// Finds the bulk memory instructions that may take long, operator by operator.
#[derive(Debug, Default)]
pub(super) struct Finder {
    /// Whether the operator before pushed a short length.
    is_short: bool,
}

impl Finder {
    #[inline]
    pub(super) fn next(&mut self, operator: &Operator<'_>) -> Option<Operation> {
        let operation = match *operator {
            Operator::MemoryFill { mem: 0 } => Some(Operation::Fill),
            Operator::MemoryCopy {
                dst_mem: 0,
                src_mem: 0,
            } => Some(Operation::Copy),
            Operator::MemoryInit { mem: 0, data_index } => Some(Operation::Init(data_index)),
            _ => None,
        };
        let is_long = !self.is_short;
        self.is_short = matches!(*operator, Operator::I32Const { value } if value as u32 <= PIECE);
        operation.filter(|_| is_long)
    }
}

/// Collects the long bulk memory instructions of a module while it is read.
#[derive(Default)]
pub(super) struct LongOperations {
    finder: Finder,
    operations: BTreeSet<Operation>,
    /// Passive data segments longer than a piece.
    long_segments: BTreeSet<u32>,
}

impl LongOperations {
    /// Reads a section.
    pub(super) fn section(&mut self, payload: &Payload<'_>) -> Result<(), BinaryReaderError> {
        if let Payload::DataSection(segments) = payload {
            for (index, segment) in (0..).zip(segments.clone()) {
                let segment = segment?;
                // An active segment is dropped before anything runs.
                let is_passive = matches!(segment.kind, DataKind::Passive);
                if is_passive && segment.data.len() > PIECE as usize {
                    self.long_segments.insert(index);
                }
            }
        }
        Ok(())
    }

    /// Reads the next operator of a function body.
    #[inline]
    pub(super) fn operator(&mut self, operator: &Operator<'_>) {
        if let Some(operation) = self.finder.next(operator) {
            self.operations.insert(operation);
        }
    }
    /// The operations, in order. A copy from a short segment traps or is short.
    pub(super) fn into_operations(self) -> impl Iterator<Item = Operation> {
        let segments = self.long_segments;
        let operations = self.operations.into_iter();
        operations.filter(move |operation| match operation {
            Operation::Init(segment) => segments.contains(segment),
            _ => true,
        })
    }
}
