//! Call sites: a custom-call instruction's share of what a target is called with.

use std::fmt;

use crate::values::{Dictionary, Result, Shape, ShapeIndex, Status};

/// The convention by which a target is called: XLA's `CustomCallApiVersion` (xla/service/hlo.proto).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ApiVersion {
    /// `(out, ins)`.
    Original = 1,
    /// `(out, ins, status)`.
    StatusReturning = 2,
    /// `(out, ins, opaque, opaque_len, status)`.
    StatusReturningUnified = 3,
    /// `(call_frame) -> status`.
    TypedFfi = 4,
}

impl ApiVersion {
    /// All versions that a call can have, in the order of their numbers.
    pub const ALL: [Self; 4] = [
        Self::Original,
        Self::StatusReturning,
        Self::StatusReturningUnified,
        Self::TypedFfi,
    ];

    /// The name in HLO text.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Original => "API_VERSION_ORIGINAL",
            Self::StatusReturning => "API_VERSION_STATUS_RETURNING",
            Self::StatusReturningUnified => "API_VERSION_STATUS_RETURNING_UNIFIED",
            Self::TypedFfi => "API_VERSION_TYPED_FFI",
        }
    }
}

impl fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for ApiVersion {
    type Err = Status;

    /// Reads the name that HLO text has.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for any other name.
    fn from_str(name: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|version| version.name() == name)
            .ok_or_else(|| {
                Status::invalid_argument(format!(
                    "expected an api_version such as API_VERSION_TYPED_FFI, found {name}"
                ))
            })
    }
}

/// A result leaf that shares its memory with an operand leaf: an entry of HLO's `output_to_operand_aliasing`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    /// Which part of the result.
    pub result_index: ShapeIndex,
    /// Which operand.
    pub operand: usize,
    /// Which part of that operand.
    pub operand_index: ShapeIndex,
}

/// What a custom-call instruction says of a call: all but the data.
#[derive(Clone, Debug, PartialEq)]
pub struct CallSite {
    /// The instruction's name, for messages.
    pub name: String,
    /// The name of the module's target.
    pub target: String,
    /// The convention by which it is called.
    pub api_version: ApiVersion,
    /// The operands' shapes. Layouts say how data is handed over; row-major where there is none.
    pub operands: Vec<Shape>,
    /// The result's shape. Layouts say how data is handed over; row-major where there is none.
    pub result: Shape,
    /// The attributes, for typed FFI.
    pub attributes: Dictionary,
    /// The opaque bytes, for the older conventions.
    pub opaque: Vec<u8>,
    /// The results that share memory with operands.
    pub aliasing: Vec<Alias>,
}

impl CallSite {
    /// A typed-FFI call site without attributes or aliasing.
    #[must_use]
    pub fn new(target: impl Into<String>, operands: Vec<Shape>, result: Shape) -> Self {
        let target = target.into();
        Self {
            name: target.clone(),
            target,
            api_version: ApiVersion::TypedFfi,
            operands,
            result,
            attributes: Dictionary::new(),
            opaque: Vec::new(),
            aliasing: Vec::new(),
        }
    }

    /// The same call site with these attributes.
    #[must_use]
    pub fn with_attributes(mut self, attributes: Dictionary) -> Self {
        self.attributes = attributes;
        self
    }
}
