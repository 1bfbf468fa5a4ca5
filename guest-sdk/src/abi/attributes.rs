//! The attributes of a call frame.

use super::{Attribute, List, Memory};
use crate::description::AttributeKind;

/// Attributes of one dictionary, sorted by name.
///
/// Each is read from the frame only when it is asked for.
#[derive(Clone, Copy)]
pub(crate) struct Attributes<'a> {
    records: &'a [Attribute],
    memory: Memory,
}

/// An attribute, parted.
#[derive(Clone, Copy)]
pub(crate) struct AttributeParts<'a> {
    pub(crate) kind: u8,
    pub(crate) element_type: u8,
    pub(crate) dimensions: &'a [i64],
    /// The elements or the characters; empty for a dictionary.
    pub(crate) bytes: &'a [u8],
    /// A dictionary's attributes; empty for any other.
    pub(crate) nested: Attributes<'a>,
}

impl<'a> AttributeParts<'a> {
    /// A dictionary of these attributes.
    pub(crate) const fn of_dictionary(nested: Attributes<'a>) -> Self {
        Self {
            kind: AttributeKind::Dictionary as u8,
            element_type: 0,
            dimensions: &[],
            bytes: &[],
            nested,
        }
    }
}

impl<'a> Attributes<'a> {
    /// The attributes in a list of records.
    ///
    /// # Safety
    /// The list is one of a frame's, and nothing writes to what it leads to for `'a`.
    pub(super) unsafe fn new(memory: Memory, list: List) -> Self {
        // SAFETY: the caller's promise.
        let records = unsafe { memory.slice(list) };
        Self { records, memory }
    }

    /// How many there are.
    pub(crate) fn len(self) -> usize {
        self.records.len()
    }

    /// The name of the attribute with this number.
    pub(crate) fn name(self, index: usize) -> Option<&'a [u8]> {
        // SAFETY: an attribute's name is a list of bytes that nothing writes to during a call.
        self.records
            .get(index)
            .map(|record| unsafe { self.memory.slice(record.name) })
    }

    /// The attribute with this number.
    pub(crate) fn get(self, index: usize) -> Option<AttributeParts<'a>> {
        let record = self.records.get(index)?;
        let (bytes, nested) = if record.kind == AttributeKind::Dictionary as u8 {
            let count = record.value.count / size_of::<Attribute>() as u32;
            (
                List::EMPTY,
                List {
                    count,
                    ..record.value
                },
            )
        } else {
            (record.value, List::EMPTY)
        };
        // SAFETY: lists of a frame's, each of what the attribute's kind says that it holds. Nothing writes to them during a
        // call.
        unsafe {
            Some(AttributeParts {
                kind: record.kind,
                element_type: record.element_type,
                dimensions: self.memory.slice(record.dimensions),
                bytes: self.memory.slice(bytes),
                nested: Self::new(self.memory, nested),
            })
        }
    }
}
