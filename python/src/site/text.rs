//! The parts of a call site that Python hands over as text.

use callbox::traced::{CallText, InfoText, to_hex};
use callbox::{Dictionary, attributes_from_mlir};
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
    pub(super) fn dictionary(self) -> callbox::Result<Dictionary> {
        match self.parsed {
            Some(parsed) => Ok(parsed.clone()),
            None => attributes_from_mlir(self.attributes),
        }
    }
}
