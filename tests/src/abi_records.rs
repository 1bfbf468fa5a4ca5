//! The layout of `callbox-abi`'s records, with the names of `wit/callbox-ffi.wit`.

use std::mem::offset_of;

use callbox_abi::{Attribute, Buffer, CallFrame};

/// The layout of a record.
#[derive(Debug, PartialEq, Eq)]
pub struct Record {
    /// The name in the `.wit` file.
    pub name: String,
    /// The size in bytes.
    pub size: usize,
    /// The alignment in bytes.
    pub alignment: usize,
    /// The names and offsets of the fields, in order.
    pub fields: Vec<(String, usize)>,
}

macro_rules! record {
    ($name:literal, $record:ty, $($field:literal => $($path:ident).+,)*) => {
        Record {
            name: $name.to_owned(),
            size: size_of::<$record>(),
            alignment: align_of::<$record>(),
            fields: vec![$(($field.to_owned(), offset_of!($record, $($path).+))),*],
        }
    };
}

/// Returns all records, in the order of the `.wit` file.
#[must_use]
pub fn records() -> Vec<Record> {
    let buffer = record!("buffer", Buffer,
        "data" => data,
        "dimensions" => dimensions,
        "minor-to-major" => minor_to_major,
        "element-type" => element_type,
        "read-only" => read_only,
        "aliased-operand" => aliased_operand,
    );
    let attribute = record!("attribute", Attribute,
        "name" => name,
        "value" => value,
        "dimensions" => dimensions,
        "kind" => kind,
        "element-type" => element_type,
    );
    let call_frame = record!("call-frame", CallFrame,
        "size" => base.size,
        "stage" => base.stage,
        "operands" => base.operands,
        "results" => base.results,
        "attributes" => base.attributes,
        "opaque" => base.opaque,
        "instantiate-state" => base.instantiate_state,
        "prepare-state" => base.prepare_state,
        "initialize-state" => base.initialize_state,
        "literal" => literal,
        "functions" => functions,
    );
    vec![buffer, attribute, call_frame]
}
