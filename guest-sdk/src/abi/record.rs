//! The records of `wit/callbox-ffi.wit`, laid out as the component model's canonical ABI lays them out for 32 bits.
//!
//! Padding is spelt out, so that every byte of a record is initialised.

use core::mem::{align_of, offset_of, size_of};

/// A `list<T>`: a byte offset and a count of elements.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct List {
    pub(super) offset: u32,
    pub(super) count: u32,
}

/// An `option<u32>`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct OptionU32 {
    pub(super) is_some: u8,
    pub(super) padding: [u8; 3],
    pub(super) value: u32,
}

/// The record `buffer`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Buffer {
    pub(super) data: List,
    pub(super) dimensions: List,
    pub(super) minor_to_major: List,
    pub(super) element_type: u8,
    pub(super) read_only: u8,
    pub(super) padding: [u8; 2],
    pub(super) aliased_operand: OptionU32,
}

/// The record `attribute`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Attribute {
    pub(super) name: List,
    pub(super) value: List,
    pub(super) dimensions: List,
    pub(super) kind: u8,
    pub(super) element_type: u8,
    pub(super) padding: [u8; 2],
}

/// The fields that the record `call-frame` has since version 1.0 of the contract.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct CallFrame10 {
    pub(super) size: u32,
    pub(super) stage: u8,
    pub(super) padding: [u8; 3],
    pub(super) operands: List,
    pub(super) results: List,
    pub(super) attributes: List,
    pub(super) opaque: List,
    pub(super) instantiate_state: u32,
    pub(super) prepare_state: u32,
    pub(super) initialize_state: u32,
}

/// The record `call-frame`, as of version 1.1 of the contract. An older host's has its beginning only.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct CallFrame {
    pub(super) first: CallFrame10,
    pub(super) literal: List,
    pub(super) functions: List,
}

/// Every field of every record: the record's and the field's name in `wit/callbox-ffi.wit`, and the field's offset.
pub const LAYOUT: &[(&str, &str, usize)] = &[
    ("buffer", "data", offset_of!(Buffer, data)),
    ("buffer", "dimensions", offset_of!(Buffer, dimensions)),
    (
        "buffer",
        "minor-to-major",
        offset_of!(Buffer, minor_to_major),
    ),
    ("buffer", "element-type", offset_of!(Buffer, element_type)),
    ("buffer", "read-only", offset_of!(Buffer, read_only)),
    (
        "buffer",
        "aliased-operand",
        offset_of!(Buffer, aliased_operand),
    ),
    ("attribute", "name", offset_of!(Attribute, name)),
    ("attribute", "value", offset_of!(Attribute, value)),
    ("attribute", "dimensions", offset_of!(Attribute, dimensions)),
    ("attribute", "kind", offset_of!(Attribute, kind)),
    (
        "attribute",
        "element-type",
        offset_of!(Attribute, element_type),
    ),
    ("call-frame", "size", offset_of!(CallFrame, first.size)),
    ("call-frame", "stage", offset_of!(CallFrame, first.stage)),
    (
        "call-frame",
        "operands",
        offset_of!(CallFrame, first.operands),
    ),
    (
        "call-frame",
        "results",
        offset_of!(CallFrame, first.results),
    ),
    (
        "call-frame",
        "attributes",
        offset_of!(CallFrame, first.attributes),
    ),
    ("call-frame", "opaque", offset_of!(CallFrame, first.opaque)),
    (
        "call-frame",
        "instantiate-state",
        offset_of!(CallFrame, first.instantiate_state),
    ),
    (
        "call-frame",
        "prepare-state",
        offset_of!(CallFrame, first.prepare_state),
    ),
    (
        "call-frame",
        "initialize-state",
        offset_of!(CallFrame, first.initialize_state),
    ),
    ("call-frame", "literal", offset_of!(CallFrame, literal)),
    ("call-frame", "functions", offset_of!(CallFrame, functions)),
];

/// Every record: its name in `wit/callbox-ffi.wit`, its size and its alignment in bytes.
pub const RECORDS: &[(&str, usize, usize)] = &[
    ("buffer", size_of::<Buffer>(), align_of::<Buffer>()),
    ("attribute", size_of::<Attribute>(), align_of::<Attribute>()),
    (
        "call-frame",
        size_of::<CallFrame>(),
        align_of::<CallFrame>(),
    ),
];

/// Where the payload of an `option<u32>` lies.
pub const OPTION_PAYLOAD: usize = offset_of!(OptionU32, value);

const _: () = {
    assert!(size_of::<Buffer>() == 36 && align_of::<Buffer>() == 4);
    assert!(size_of::<Attribute>() == 28 && align_of::<Attribute>() == 4);
    assert!(size_of::<CallFrame10>() == 52 && align_of::<CallFrame10>() == 4);
    assert!(size_of::<CallFrame>() == 68 && align_of::<CallFrame>() == 4);
    assert!(offset_of!(Buffer, element_type) == 24 && offset_of!(Buffer, read_only) == 25);
    assert!(offset_of!(Buffer, aliased_operand) == 28 && OPTION_PAYLOAD == 4);
    assert!(offset_of!(Attribute, kind) == 24 && offset_of!(Attribute, element_type) == 25);
    assert!(offset_of!(CallFrame, first.stage) == 4 && offset_of!(CallFrame, first.operands) == 8);
    assert!(offset_of!(CallFrame, first.instantiate_state) == 40);
    assert!(offset_of!(CallFrame, literal) == 52 && offset_of!(CallFrame, functions) == 60);
};

impl List {
    pub(super) const EMPTY: Self = Self {
        offset: 0,
        count: 0,
    };
}

impl Buffer {
    /// Whether it is a result that shares the memory of this operand.
    pub(super) fn shares(&self, operand: usize) -> bool {
        self.aliased_operand.is_some != 0 && self.aliased_operand.value as usize == operand
    }
}
