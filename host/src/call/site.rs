//! Call sites: a custom-call instruction's share of what a target is called with.

use std::fmt;
use std::sync::Arc;

use crate::values::{Dictionary, Literal, Result, Shape, ShapeIndex, Status};

/// The convention by which a target is called: XLA's `CustomCallApiVersion` (xla/service/hlo.proto), and one more.
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
    /// `(api, status, static_info, outputs, inputs)`: the JAX FFI proposal's, which XLA has no number for.
    JaxFfi = 255,
}

impl ApiVersion {
    /// All versions that a call can have, in the order of their numbers.
    pub const ALL: [Self; 5] = [
        Self::Original,
        Self::StatusReturning,
        Self::StatusReturningUnified,
        Self::TypedFfi,
        Self::JaxFfi,
    ];

    /// The name in HLO text.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Original => "API_VERSION_ORIGINAL",
            Self::StatusReturning => "API_VERSION_STATUS_RETURNING",
            Self::StatusReturningUnified => "API_VERSION_STATUS_RETURNING_UNIFIED",
            Self::TypedFfi => "API_VERSION_TYPED_FFI",
            Self::JaxFfi => "API_VERSION_JAX_FFI",
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

/// What a target of the JAX FFI proposal knows from when its call was traced ("Passing in custom descriptors").
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StaticInfo {
    /// By value: the target gets a pointer to these bytes.
    Value(Vec<u8>),
    /// By reference: the target gets the object that the guest made of `argument`. Each instance makes one, and takes it back when it goes.
    Reference {
        /// The export that makes the object: `(data, size) -> object`.
        constructor: String,
        /// The export that takes it back: `(object)`.
        destructor: String,
        /// What the constructor gets.
        argument: Vec<u8>,
    },
}

/// A function of the running program that a target may call back.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionReference {
    /// Its name in the program.
    pub name: String,
    /// By which [`Functions::call`](super::Functions::call) knows it.
    pub id: usize,
    /// The shapes of its parameters.
    pub parameters: Vec<Shape>,
    /// The shape of its result.
    pub result: Shape,
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
    /// The static information, for the JAX FFI proposal's convention.
    pub static_info: Option<StaticInfo>,
    /// The results that share memory with operands.
    pub aliasing: Vec<Alias>,
    /// Result leaves, by number in preorder, that nobody reads. They are the target's scratch memory, and are not copied out.
    pub scratch: Vec<usize>,
    /// The instruction's `literal`.
    pub literal: Option<Literal>,
    /// The functions that the target may call back: those that attributes name, and the called computations.
    pub functions: Vec<Arc<FunctionReference>>,
    /// The called computations, as numbers of `functions`.
    pub called_computations: Vec<usize>,
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
            static_info: None,
            aliasing: Vec::new(),
            scratch: Vec::new(),
            literal: None,
            functions: Vec::new(),
            called_computations: Vec::new(),
        }
    }

    /// The same call site with these attributes.
    #[must_use]
    pub fn with_attributes(mut self, attributes: Dictionary) -> Self {
        self.attributes = attributes;
        self
    }
}
