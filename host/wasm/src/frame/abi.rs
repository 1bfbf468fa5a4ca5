//! Sizes and field offsets of the records of `callbox-abi`, in bytes, for code that writes and
//! reads them in guest memory.

#[cfg(feature = "maths")]
pub(crate) use callbox_abi::Number;
pub(crate) use callbox_abi::{
    API_MODULE, JAX_FFI_API, JAX_FFI_ORDERS, JAX_FFI_RECORDS_ORDERS, MAJOR, MATHS_MODULE,
    MATHS_VERSION, METADATA_SECTION, MINOR, REALLOC, VERSION,
};

/// The record `buffer`.
pub(crate) mod buffer {
    use callbox_abi::Buffer;
    use std::mem::offset_of;

    pub(crate) const DATA: usize = offset_of!(Buffer, data);
    pub(crate) const DIMENSIONS: usize = offset_of!(Buffer, dimensions);
    pub(crate) const MINOR_TO_MAJOR: usize = offset_of!(Buffer, minor_to_major);
    pub(crate) const ELEMENT_TYPE: usize = offset_of!(Buffer, element_type);
    pub(crate) const READ_ONLY: usize = offset_of!(Buffer, read_only);
    pub(crate) const ALIASED_OPERAND: usize = offset_of!(Buffer, aliased_operand);
    pub(crate) const SIZE: usize = size_of::<Buffer>();
}

/// The record `attribute`, and the numbers of `attribute-kind`.
pub(crate) mod attribute {
    use callbox_abi::{Attribute, AttributeKind};
    use std::mem::offset_of;

    pub(crate) const NAME: usize = offset_of!(Attribute, name);
    pub(crate) const VALUE: usize = offset_of!(Attribute, value);
    pub(crate) const DIMENSIONS: usize = offset_of!(Attribute, dimensions);
    pub(crate) const KIND: usize = offset_of!(Attribute, kind);
    pub(crate) const ELEMENT_TYPE: usize = offset_of!(Attribute, element_type);
    pub(crate) const SIZE: usize = size_of::<Attribute>();

    pub(crate) const KIND_ARRAY: u8 = AttributeKind::Array.number();
    pub(crate) const KIND_DICTIONARY: u8 = AttributeKind::Dictionary.number();
    pub(crate) const KIND_SCALAR: u8 = AttributeKind::Scalar.number();
    pub(crate) const KIND_STRING: u8 = AttributeKind::String.number();
    pub(crate) const KIND_FUNCTION: u8 = AttributeKind::Function.number();
}

/// The record `call-frame`.
pub(crate) mod call_frame {
    use callbox_abi::CallFrame;
    use std::mem::offset_of;

    pub(crate) const SIZE_FIELD: usize = offset_of!(CallFrame, base.size);
    pub(crate) const STAGE: usize = offset_of!(CallFrame, base.stage);
    pub(crate) const OPERANDS: usize = offset_of!(CallFrame, base.operands);
    pub(crate) const RESULTS: usize = offset_of!(CallFrame, base.results);
    pub(crate) const ATTRIBUTES: usize = offset_of!(CallFrame, base.attributes);
    pub(crate) const OPAQUE: usize = offset_of!(CallFrame, base.opaque);
    pub(crate) const INSTANTIATE_STATE: usize = offset_of!(CallFrame, base.instantiate_state);
    pub(crate) const LITERAL: usize = offset_of!(CallFrame, literal);
    pub(crate) const FUNCTIONS: usize = offset_of!(CallFrame, functions);
    pub(crate) const SIZE: usize = size_of::<CallFrame>();
}

/// The record `matrices` of the interface `maths`.
#[cfg(feature = "maths")]
pub(crate) mod matrices {
    use callbox_abi::Matrices;
    use std::mem::offset_of;

    pub(crate) const DATA: usize = offset_of!(Matrices, data);
    pub(crate) const BATCH_STRIDE: usize = offset_of!(Matrices, batch_stride);
    pub(crate) const ROW_STRIDE: usize = offset_of!(Matrices, row_stride);
    pub(crate) const COLUMN_STRIDE: usize = offset_of!(Matrices, column_stride);
}

/// The record `product` of the interface `maths`.
#[cfg(feature = "maths")]
pub(crate) mod product {
    use callbox_abi::Product;
    use std::mem::offset_of;

    pub(crate) const A: usize = offset_of!(Product, a);
    pub(crate) const B: usize = offset_of!(Product, b);
    pub(crate) const C: usize = offset_of!(Product, c);
    pub(crate) const BATCH: usize = offset_of!(Product, batch);
    pub(crate) const ROWS: usize = offset_of!(Product, rows);
    pub(crate) const COLUMNS: usize = offset_of!(Product, columns);
    pub(crate) const DEPTH: usize = offset_of!(Product, depth);
    pub(crate) const NUMBER: usize = offset_of!(Product, number);
    pub(crate) const ALPHA: usize = offset_of!(Product, alpha);
    pub(crate) const BETA: usize = offset_of!(Product, beta);
    pub(crate) const SIZE: usize = size_of::<Product>();
    pub(crate) const ALIGNMENT: usize = align_of::<Product>();
}
