//! The parts of a call site that Python hands over as text.

use callbox::traced::{CallText, InfoText, to_hex};
use callbox::{Attribute, Dictionary, attributes_from_mlir};
use pyo3::prelude::*;

/// Static information that a guest makes itself, for the JAX FFI proposal's convention.
///
/// The target gets it by reference. Plain bytes are static information by value.
#[pyclass(frozen, module = "callbox")]
#[derive(Clone, Debug)]
pub(crate) struct StaticInfo(pub(crate) InfoText);

#[pymethods]
impl StaticInfo {
    /// The object that the export `constructor` makes of `argument` in each instance.
    ///
    /// `constructor` is `(data, size) -> object`; the export `destructor` frees the object.
    #[staticmethod]
    fn reference(constructor: String, destructor: String, argument: &[u8]) -> Self {
        Self(InfoText::Reference {
            constructor,
            destructor,
            argument: to_hex(argument),
        })
    }

    fn __repr__(&self) -> String {
        match &self.0 {
            InfoText::Value(value) => format!("StaticInfo({} bytes)", value.len() / 2),
            InfoText::Reference {
                constructor,
                destructor,
                argument,
            } => format!(
                "StaticInfo.reference({constructor:?}, {destructor:?}, <{} bytes>)",
                argument.len() / 2
            ),
        }
    }
}

/// The copies of a call site's texts and arrays.
const COPIES: usize = 5;

/// The parts of a call site that are text in a program.
#[derive(Clone, Copy)]
pub(crate) struct SiteText<'a> {
    pub(crate) call: &'a CallText,
    /// The attributes in MLIR's syntax.
    pub(crate) attributes: &'a str,
    /// The same, if the caller has them already.
    pub(crate) parsed: Option<&'a Dictionary>,
}

impl SiteText<'_> {
    /// Estimates the memory of the copies of all texts, and of the attributes that were read.
    pub(super) fn bytes(self, attributes: &Dictionary) -> usize {
        let info = match &self.call.static_info {
            None => 0,
            Some(InfoText::Value(bytes)) => bytes.len(),
            Some(InfoText::Reference { argument, .. }) => argument.len(),
        };
        let length = self.attributes.len() + self.call.opaque.len() + info;
        COPIES * length + bytes_of(attributes)
    }

    pub(super) fn dictionary(self) -> callbox::Result<Dictionary> {
        match self.parsed {
            Some(parsed) => Ok(parsed.clone()),
            None => attributes_from_mlir(self.attributes),
        }
    }
}

/// Estimates the memory of the copies of a dictionary, beyond its text.
fn bytes_of(dictionary: &Dictionary) -> usize {
    /// A node has room for several entries.
    const NODE: usize = 2000;
    const ENTRY: usize = 400;
    let inner = dictionary.values().map(|value| match value {
        Attribute::Dictionary(inner) => bytes_of(inner),
        // It may be a single element in the text.
        Attribute::Array(array) => COPIES * array.bytes().map_or(0, <[u8]>::len),
        _ => 0,
    });
    NODE + ENTRY * dictionary.len() + inner.sum::<usize>()
}
