//! The records of a call frame in the guest's memory, as the canonical ABI lays them out for
//! 32 bits.
//!
//! Padding is explicit, so that every byte of a record is initialised.

use core::mem::{align_of, offset_of, size_of};

/// A `list<T>`: a byte offset into the guest's memory, and a count of elements.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct List {
    /// The offset of the first element. It is arbitrary for an empty list.
    pub offset: u32,
    /// The number of elements.
    pub count: u32,
}

/// An `option<u32>`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct OptionU32 {
    /// 1 if there is a value, 0 if there is none.
    pub is_some: u8,
    /// Unused.
    pub padding: [u8; 3],
    /// The value.
    pub value: u32,
}

/// The record `buffer`: one operand or result.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Buffer {
    /// The elements' bytes, in the order that `minor_to_major` gives.
    pub data: List,
    /// The dimensions, a list of `i64`.
    pub dimensions: List,
    /// The layout, a list of `i64`: dimension numbers from the fastest-varying to the slowest.
    pub minor_to_major: List,
    /// The number of an [`ElementType`](crate::ElementType).
    pub element_type: u8,
    /// 1 if the guest must not write to `data`, otherwise 0.
    pub read_only: u8,
    /// Unused.
    pub padding: [u8; 2],
    /// For a result: the index of the operand whose memory it shares.
    pub aliased_operand: OptionU32,
}

/// The record `attribute`: a named value that is fixed when the program is compiled.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Attribute {
    /// The name, UTF-8.
    pub name: List,
    /// The value's bytes.
    pub value: List,
    /// The dimensions of an array, a list of `i64`; empty for other kinds.
    pub dimensions: List,
    /// The number of an [`AttributeKind`](crate::AttributeKind).
    pub kind: u8,
    /// The number of a scalar's or an array's [`ElementType`](crate::ElementType), otherwise 0.
    pub element_type: u8,
    /// Unused.
    pub padding: [u8; 2],
}

/// The fields of the record `call-frame` that version 1.0 of the contract has.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct BaseCallFrame {
    /// The size of the whole frame in bytes, which tells the host's version.
    pub size: u32,
    /// The number of a [`Stage`](crate::Stage).
    pub stage: u8,
    /// Unused.
    pub padding: [u8; 3],
    /// The operands' leaves, a list of [`Buffer`].
    pub operands: List,
    /// The results' leaves, a list of [`Buffer`].
    pub results: List,
    /// The attributes, a list of [`Attribute`] sorted by name.
    pub attributes: List,
    /// The call site's opaque bytes.
    pub opaque: List,
    /// The state word that the stage `instantiate` left.
    pub instantiate_state: u32,
    /// The state word that the stage `prepare` left.
    pub prepare_state: u32,
    /// The state word that the stage `initialize` left.
    pub initialize_state: u32,
}

/// The record `call-frame` of version 1.1. A host of version 1.0 writes [`BaseCallFrame`] only.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CallFrame {
    /// The fields since version 1.0.
    pub base: BaseCallFrame,
    /// The leaves of the call site's literal, a list of [`Buffer`].
    pub literal: List,
    /// The call site's called computations, a list of `u32`.
    pub functions: List,
}

// On every machine that compiles this crate, the records lie as they do in a guest.
const _: () = {
    assert!(size_of::<Buffer>() == 36 && align_of::<Buffer>() == 4);
    assert!(size_of::<Attribute>() == 28 && align_of::<Attribute>() == 4);
    assert!(size_of::<BaseCallFrame>() == 52 && align_of::<BaseCallFrame>() == 4);
    assert!(size_of::<CallFrame>() == 68 && align_of::<CallFrame>() == 4);
    assert!(offset_of!(OptionU32, value) == 4);
};

impl List {
    /// A list of no elements.
    pub const EMPTY: Self = Self {
        offset: 0,
        count: 0,
    };
}

impl From<Option<u32>> for OptionU32 {
    fn from(option: Option<u32>) -> Self {
        Self {
            is_some: u8::from(option.is_some()),
            padding: [0; 3],
            value: option.unwrap_or_default(),
        }
    }
}

impl From<OptionU32> for Option<u32> {
    fn from(option: OptionU32) -> Self {
        (option.is_some != 0).then_some(option.value)
    }
}
