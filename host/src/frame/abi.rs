//! The records of `wit/callbox-ffi.wit` as the canonical ABI lays them out: sizes, alignments and field offsets in bytes.
//!
//! `tests/tests/abi_layout.rs` compares [`RECORDS`] with what the crate `wit-parser` computes from the `.wit` file.

/// The module name by which a guest imports the FFI API table, up to the version.
pub const API_MODULE: &str = "callbox:ffi/api@";

/// The contract's major version.
pub const MAJOR: u32 = 1;

/// The contract's minor version: the newest that this host has.
pub const MINOR: u32 = 1;

/// The contract's version, as the import `version` returns it: the major version in the upper 16 bits.
pub const VERSION: u32 = MAJOR << 16 | MINOR;

/// The export by which a guest hands out memory: the canonical ABI's `cabi_realloc`.
pub const REALLOC: &str = "cabi_realloc";

/// The export by which a guest hands out the API table of the JAX FFI proposal.
pub const JAX_FFI_API: &str = "jax-ffi-api";

/// The custom section that has the targets' metadata.
pub const METADATA_SECTION: &str = "callbox.targets";

/// A record's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its name in the `.wit` file.
    pub name: &'static str,
    /// Its size in bytes.
    pub size: usize,
    /// Its alignment in bytes.
    pub alignment: usize,
    /// Its fields' names and offsets in bytes, in order.
    pub fields: &'static [(&'static str, usize)],
}

/// All records.
pub const RECORDS: &[Record] = &[
    Record {
        name: "buffer",
        size: buffer::SIZE,
        alignment: 4,
        fields: &[
            ("data", buffer::DATA),
            ("dimensions", buffer::DIMENSIONS),
            ("minor-to-major", buffer::MINOR_TO_MAJOR),
            ("element-type", buffer::ELEMENT_TYPE),
            ("read-only", buffer::READ_ONLY),
            ("aliased-operand", buffer::ALIASED_OPERAND),
        ],
    },
    Record {
        name: "attribute",
        size: attribute::SIZE,
        alignment: 4,
        fields: &[
            ("name", attribute::NAME),
            ("value", attribute::VALUE),
            ("dimensions", attribute::DIMENSIONS),
            ("kind", attribute::KIND),
            ("element-type", attribute::ELEMENT_TYPE),
        ],
    },
    Record {
        name: "call-frame",
        size: call_frame::SIZE,
        alignment: 4,
        fields: &[
            ("size", call_frame::SIZE_FIELD),
            ("stage", call_frame::STAGE),
            ("operands", call_frame::OPERANDS),
            ("results", call_frame::RESULTS),
            ("attributes", call_frame::ATTRIBUTES),
            ("opaque", call_frame::OPAQUE),
            ("instantiate-state", call_frame::INSTANTIATE_STATE),
            ("prepare-state", call_frame::PREPARE_STATE),
            ("initialize-state", call_frame::INITIALIZE_STATE),
            ("literal", call_frame::LITERAL),
            ("functions", call_frame::FUNCTIONS),
        ],
    },
];

/// Field offsets of the record `buffer`.
pub mod buffer {
    /// `data: list<u8>`.
    pub const DATA: usize = 0;
    /// `dimensions: list<s64>`.
    pub const DIMENSIONS: usize = 8;
    /// `minor-to-major: list<s64>`.
    pub const MINOR_TO_MAJOR: usize = 16;
    /// `element-type: element-type`.
    pub const ELEMENT_TYPE: usize = 24;
    /// `read-only: bool`.
    pub const READ_ONLY: usize = 25;
    /// `aliased-operand: option<u32>`: a byte that says whether there is one, and at 4 its number.
    pub const ALIASED_OPERAND: usize = 28;
    /// The record's size.
    pub const SIZE: usize = 36;
}

/// Field offsets of the record `attribute`, and the numbers of `attribute-kind`.
pub mod attribute {
    /// `name: string`.
    pub const NAME: usize = 0;
    /// `value: list<u8>`.
    pub const VALUE: usize = 8;
    /// `dimensions: list<s64>`.
    pub const DIMENSIONS: usize = 16;
    /// `kind: attribute-kind`.
    pub const KIND: usize = 24;
    /// `element-type: element-type`.
    pub const ELEMENT_TYPE: usize = 25;
    /// The record's size.
    pub const SIZE: usize = 28;

    /// `attribute-kind.array`.
    pub const KIND_ARRAY: u8 = 1;
    /// `attribute-kind.dictionary`.
    pub const KIND_DICTIONARY: u8 = 2;
    /// `attribute-kind.scalar`.
    pub const KIND_SCALAR: u8 = 3;
    /// `attribute-kind.string`.
    pub const KIND_STRING: u8 = 4;
    /// `attribute-kind.function`.
    pub const KIND_FUNCTION: u8 = 5;
}

/// Field offsets of the record `call-frame`.
pub mod call_frame {
    /// `size: u32`.
    pub const SIZE_FIELD: usize = 0;
    /// `stage: stage`.
    pub const STAGE: usize = 4;
    /// `operands: list<buffer>`.
    pub const OPERANDS: usize = 8;
    /// `results: list<buffer>`.
    pub const RESULTS: usize = 16;
    /// `attributes: list<attribute>`.
    pub const ATTRIBUTES: usize = 24;
    /// `opaque: list<u8>`.
    pub const OPAQUE: usize = 32;
    /// `instantiate-state: u32`.
    pub const INSTANTIATE_STATE: usize = 40;
    /// `prepare-state: u32`.
    pub const PREPARE_STATE: usize = 44;
    /// `initialize-state: u32`.
    pub const INITIALIZE_STATE: usize = 48;
    /// `literal: list<buffer>`.
    pub const LITERAL: usize = 52;
    /// `functions: list<u32>`.
    pub const FUNCTIONS: usize = 60;
    /// The record's size.
    pub const SIZE: usize = 68;
}
