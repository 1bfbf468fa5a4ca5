//! Call sites: everything in a custom-call instruction except the data.

use std::borrow::Cow;
use std::sync::Arc;

use callbox_abi::ApiVersion;
use serde::{Deserialize, Serialize};

use crate::untrusted_text::label;
use crate::values::{Dictionary, Literal, Result, Shape, ShapeIndex, Status};

/// A result leaf that shares its memory with an operand leaf: an entry of HLO's
/// `output_to_operand_aliasing`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alias {
    /// The index of the leaf in the result.
    pub result_index: ShapeIndex,
    /// The operand's number.
    pub operand: usize,
    /// The index of the leaf in the operand.
    pub operand_index: ShapeIndex,
}

/// Static information for a target of the JAX FFI proposal, from when its call was traced ("Passing
/// in custom descriptors").
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StaticInfo {
    /// By value: the target gets a pointer to these bytes.
    Value(Vec<u8>),
    /// By reference: the target gets an object that the guest constructed from `argument`. Each
    /// instance constructs its own, and destroys it at its end.
    Reference {
        /// The export that constructs the object: `(data, size) -> object`.
        constructor: String,
        /// The export that destroys the object: `(object)`.
        destructor: String,
        /// The bytes for the constructor.
        argument: Vec<u8>,
    },
}

/// A function of the running program that a target may call back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionReference {
    /// Its name in the program.
    pub name: String,
    /// Its number for [`Functions::call`](super::Functions::call).
    pub id: usize,
    /// The shapes of its parameters.
    pub parameters: Vec<Shape>,
    /// The shape of its result.
    pub result: Shape,
}

/// A custom-call instruction without its data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallSite {
    /// The instruction's name, for messages.
    pub name: String,
    /// The name of the module's target.
    pub target: String,
    /// The calling convention.
    #[serde(with = "serial::api_version")]
    pub api_version: ApiVersion,
    /// The operands' shapes. Data is in their layouts; without a layout, in row-major order.
    pub operands: Vec<Shape>,
    /// The result's shape. Data is in its layout; without a layout, in row-major order.
    pub result: Shape,
    /// The attributes, for typed FFI.
    pub attributes: Dictionary,
    /// The opaque bytes, for the older conventions.
    pub opaque: Vec<u8>,
    /// The static information, for the JAX FFI proposal's convention.
    pub static_info: Option<StaticInfo>,
    /// The results that share memory with operands.
    pub aliasing: Vec<Alias>,
    /// The unread result leaves, by number in preorder: scratch memory of the target, which is not
    /// copied out. In ascending order: see [`check_scratch`](Self::check_scratch).
    pub scratch: Vec<usize>,
    /// The instruction's `literal`.
    pub literal: Option<Literal>,
    /// The functions that the target may call back: those that attributes name, and the called
    /// computations.
    #[serde(with = "serial::functions")]
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

    /// Whether a leaf of the result, by its number, is scratch memory.
    #[must_use]
    pub fn is_scratch(&self, leaf: usize) -> bool {
        self.scratch.binary_search(&leaf).is_ok()
    }

    /// Checks that scratch memory stands for leaves of the result, in order.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it does not.
    pub fn check_scratch(&self) -> Result<()> {
        let leaves = self.result.leaf_count();
        if let Some(leaf) = self.scratch.iter().find(|&&leaf| leaf >= leaves) {
            return Err(Status::invalid_argument(format!(
                "expected scratch to name one of the {leaves} leaves of the result, found {leaf}"
            )));
        }
        match self.scratch.windows(2).find(|pair| pair[0] > pair[1]) {
            Some(pair) => Err(Status::invalid_argument(format!(
                "expected scratch in ascending order, found {} after {}",
                pair[1], pair[0]
            ))),
            None => Ok(()),
        }
    }

    /// The name with which messages begin. A call outside of a program has that of its target,
    /// which the module's author chose: one that could be read as text of callbox is quoted.
    #[must_use]
    pub fn label(&self) -> Cow<'_, str> {
        if self.name != self.target {
            return Cow::Borrowed(&self.name);
        }
        label(&self.name)
    }

    /// The same call site with these attributes.
    #[must_use]
    pub fn with_attributes(mut self, attributes: Dictionary) -> Self {
        self.attributes = attributes;
        self
    }
}

/// Fields of a [`CallSite`] in serialized data: the API version is its number.
mod serial {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{ApiVersion, Arc, FunctionReference};

    pub(super) mod api_version {
        use super::*;

        pub(in super::super) fn serialize<S: Serializer>(
            version: &ApiVersion,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            (*version as u8).serialize(serializer)
        }

        pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<ApiVersion, D::Error> {
            let number = u8::deserialize(deserializer)?;
            let mut versions = ApiVersion::ALL.into_iter();
            versions
                .find(|&version| version as u8 == number)
                .ok_or_else(|| D::Error::custom("expected the number of an API version"))
        }
    }

    pub(super) mod functions {
        use super::*;

        pub(in super::super) fn serialize<S: Serializer>(
            functions: &[Arc<FunctionReference>],
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            serializer.collect_seq(functions.iter().map(Arc::as_ref))
        }

        pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Vec<Arc<FunctionReference>>, D::Error> {
            let functions = Vec::deserialize(deserializer)?;
            Ok(functions.into_iter().map(Arc::new).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::values::ElementType;

    #[test]
    fn a_guests_name_does_not_read_as_text_of_callbox() {
        let shape = Shape::array(ElementType::F32, &[]).unwrap();
        for (name, expected) in [
            ("rms_norm", "rms_norm"),
            ("org/kernels.v2-$a", "org/kernels.v2-$a"),
            ("other.wasm: ran past", "\"other.wasm: ran past\""),
            ("a\" b", "\"a\\\" b\""),
            ("line\nOK", "\"line\\nOK\""),
            ("", ""),
        ] {
            let site = CallSite::new(name, Vec::new(), shape.clone());
            assert_eq!(site.label(), expected);
        }
        let mut site = CallSite::new("add: n", Vec::new(), shape.clone());
        site.name = "%custom-call.1 of add".to_owned();
        assert_eq!(site.label(), "%custom-call.1 of add");
    }
}
