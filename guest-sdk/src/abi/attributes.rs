//! The attributes of a call frame.

use super::{Attribute, List, Memory};
use crate::AttributeKind;

/// The attributes of one dictionary, sorted by name. Each is decoded when it is asked for.
#[derive(Clone, Copy)]
pub(crate) struct Attributes<'a> {
    records: &'a [Attribute],
    memory: Memory,
}

/// The fields of one attribute.
#[derive(Clone, Copy)]
pub(crate) struct AttributeParts<'a> {
    pub(crate) kind: u8,
    pub(crate) element_type: u8,
    pub(crate) dimensions: &'a [i64],
    /// The bytes of a scalar, an array, a string or a function; empty for a dictionary.
    pub(crate) bytes: &'a [u8],
    /// The attributes of a dictionary; empty for other kinds.
    pub(crate) nested: Attributes<'a>,
}

impl<'a> AttributeParts<'a> {
    /// Wraps these attributes in a dictionary.
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
    /// Returns the attributes in a list of records.
    ///
    /// # Safety
    /// The list must be one of a call frame's, and nothing may write to it or to the lists that it
    /// refers to for `'a`.
    pub(super) unsafe fn new(memory: Memory, list: List) -> Self {
        // SAFETY: the host lays the list out, and the caller guarantees that nothing writes to it.
        let records = unsafe { memory.slice(list) };
        Self { records, memory }
    }

    /// Returns the number of attributes.
    pub(crate) fn len(self) -> usize {
        self.records.len()
    }

    /// Returns the name of the attribute at this index.
    pub(crate) fn name(self, index: usize) -> Option<&'a [u8]> {
        // SAFETY: the host lays the name out as a list of bytes, and nothing writes to it during a
        // call.
        self.records
            .get(index)
            .map(|record| unsafe { self.memory.slice(record.name) })
    }

    /// Returns the attribute at this index.
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
        // SAFETY: the host lays these lists out, each with the element type that the attribute's
        // kind prescribes, and nothing writes to them during a call.
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
