//! Signatures: a target's declaration of its operands, results and attributes.

mod bindings;
mod check;
pub mod derivatives;
pub mod dimensions;
mod expression;
mod infer;
pub mod json;

use std::borrow::Cow;
use std::fmt;

use callbox_abi::Stage;

pub use self::derivatives::{DerivativeMode, DerivativeOf};
pub use self::dimensions::Dimension;
use self::dimensions::{BATCHED, ELEMENTWISE, Extent, PURE, ROWS};
pub use self::expression::Expression;
use super::{ApiVersion, CallSite};
use crate::untrusted_text::label;
use crate::values::{ArrayShape, Dictionary, ElementType, Result, Status};

/// A target's declaration of itself. Without any, it has a name and the API versions that its
/// function's type allows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Signature {
    /// The target's name.
    pub name: String,
    /// The conventions by which it can be called.
    pub api_versions: Vec<ApiVersion>,
    /// The stages that the target exports.
    pub stages: Vec<Stage>,
    /// The operands' leaves, if declared.
    pub operands: Option<Vec<BufferSignature>>,
    /// Whether it takes any number of further operands.
    pub remaining_operands: bool,
    /// The results' leaves, if declared.
    pub results: Option<Vec<BufferSignature>>,
    /// Whether it takes any number of further results.
    pub remaining_results: bool,
    /// The attributes, if declared. As in XLA, [`check`](Self::check) accepts any attributes for an
    /// empty list, too.
    pub attributes: Option<Vec<AttributeSignature>>,
    /// The documentation. Untrusted text of the guest.
    pub documentation: String,
    /// Traits such as `pure`, `elementwise`, `rows` and `batched`.
    pub traits: Vec<String>,
    /// The target whose derivatives this one computes.
    pub derivative_of: Option<DerivativeOf>,
}

/// The declaration of an operand or result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferSignature {
    /// The name, for messages and documentation.
    pub name: String,
    /// The allowed element types; empty allows all.
    pub element_types: Vec<ElementType>,
    /// The rank, also if the dimensions determine it; `None` allows all.
    pub rank: Option<usize>,
    /// The dimensions; `None` allows all.
    pub dimensions: Option<Vec<Dimension>>,
    /// Whether it can be left out, together with those after it.
    pub optional: bool,
}

/// The declaration of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeSignature {
    /// Its name.
    pub name: String,
    /// Its kind: `scalar`, `array`, `string`, `dictionary` or `function`.
    pub kind: String,
    /// The element type of a scalar or array.
    pub element_type: Option<ElementType>,
    /// The fields of a dictionary, if declared. They give untyped values their types. The target
    /// itself checks the fields of a call.
    pub fields: Option<Vec<Self>>,
    /// The names and numbers of an enum's variants, if declared. The target itself checks the
    /// number of a call.
    pub variants: Option<Vec<(String, i128)>>,
    /// Whether it can be left out.
    pub optional: bool,
}

impl Signature {
    /// The target's name in messages.
    #[must_use]
    pub fn label(&self) -> Cow<'_, str> {
        label(&self.name)
    }

    /// The index of the target with this name. A guest has its targets sorted, and may have many.
    #[must_use]
    pub(crate) fn find(targets: &[Self], name: &str) -> Option<usize> {
        let found = targets.binary_search_by(|target| target.name.as_str().cmp(name));
        let found = found.ok();
        found.or_else(|| targets.iter().position(|target| target.name == name))
    }

    /// Whether the target has this trait. A target of the trait `elementwise`, `rows` or `batched`
    /// is also pure.
    #[must_use]
    pub fn has_trait(&self, name: &str) -> bool {
        let is_said = |name: &str| self.traits.iter().any(|t| t == name);
        let implies_pure = [ELEMENTWISE, ROWS, BATCHED];
        is_said(name) || name == PURE && implies_pure.into_iter().any(is_said)
    }

    /// Whether the target may rely on a result that lies in an operand's memory, where a call site
    /// says that they share it.
    ///
    /// One of the trait `elementwise` or `rows` writes all elements of its results, and nothing
    /// depends on what their memory held, unless an operand and a result of one name are a
    /// parameter that is changed in place.
    #[must_use]
    pub fn works_in_place(&self) -> bool {
        if !self.has_trait(ELEMENTWISE) && !self.has_trait(ROWS) {
            return true;
        }
        let (Some(operands), Some(results)) = (&self.operands, &self.results) else {
            return false;
        };
        let is_named = |name: &str| operands.iter().any(|operand| operand.name == name);
        results.iter().any(|result| is_named(&result.name))
    }

    /// Adds implied traits, and checks the traits `elementwise`, `rows` and `batched` against the
    /// rest of the declaration, and that it determines the symbols of expressions.
    ///
    /// # Errors
    /// A message about the first declaration that a target of these traits cannot have.
    pub fn with_implied_traits(mut self) -> Result<Self, String> {
        dimensions::check_expressions(&self)?;
        dimensions::check_elementwise(&self)?;
        dimensions::check_rows(&self)?;
        dimensions::check_batched(&self)?;
        if self.has_trait(PURE) && !self.traits.iter().any(|t| t == PURE) {
            self.traits.push(PURE.to_owned());
        }
        Ok(self)
    }

    /// Checks a call site against the declaration.
    ///
    /// # Errors
    /// INVALID_ARGUMENT in XLA's words (`Handler::Call` in xla/ffi/api/api.h). A wrong number of
    /// operands, results or attributes is reported alone, other mismatches together.
    pub fn check(&self, site: &CallSite) -> Result<()> {
        if !self.api_versions.contains(&site.api_version) {
            let versions: Vec<_> = self.api_versions.iter().map(|v| v.name()).collect();
            return Err(Status::invalid_argument(format!(
                "expected an api_version that {:?} has ({}), found {}",
                self.name,
                versions.join(", "),
                site.api_version
            )));
        }
        if site.api_version != ApiVersion::TypedFfi {
            return Ok(());
        }
        check::check(self, site)
    }

    /// Checks the attributes alone of a typed FFI call site whose buffers fit.
    ///
    /// # Errors
    /// As for [`Signature::check`].
    pub fn check_attributes(&self, attributes: &Dictionary) -> Result<()> {
        check::check_attributes(self, attributes)
    }

    /// Infers the shapes of a call's results from the operands' shapes and the declaration.
    ///
    /// The shapes have no layouts. Optional results are left out. A result that declares several
    /// element types has the type of the first operand that declares the same ones. A result of an
    /// elementwise target has the dimensions of the first operand that is not a scalar.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the operands do not fit the declaration, as in [`Signature::check`], or
    /// if the declaration does not determine the results.
    pub fn infer_results(&self, operands: &[ArrayShape]) -> Result<Vec<ArrayShape>> {
        infer::infer(self, operands)
    }
}

impl fmt::Display for BufferSignature {
    /// `x: f32[?,?]`, `y: f32|f64[...]`, `w: f32[.., n]`, `z: f32[?], optional`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types: Vec<_> = self.element_types.iter().map(|t| t.lower_name()).collect();
        let types = if types.is_empty() {
            "any type".to_owned()
        } else {
            types.join("|")
        };
        write!(f, "{}: {types}{}", self.name, Extent(self))?;
        f.write_str(if self.optional { ", optional" } else { "" })
    }
}
