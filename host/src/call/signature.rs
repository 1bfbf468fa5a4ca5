//! Signatures: what a target declares of itself.

mod check;
pub(crate) mod dimensions;
mod infer;
pub(crate) mod json;

use std::fmt;

pub use self::dimensions::Dimension;
use self::dimensions::{ELEMENTWISE, Extent, PURE};
use super::{ApiVersion, CallSite};
use crate::values::{ArrayShape, ElementType, Result, Status};

/// A stage of a call: XLA FFI's execution stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Stage {
    /// Once for each call site, when an instance first serves it.
    Instantiate = 0,
    /// Once for each execution.
    Prepare = 1,
    /// Once for each execution, after every `prepare`.
    Initialize = 2,
    /// Each call.
    Execute = 3,
}

impl Stage {
    /// All stages, in the order in which they run.
    pub const ALL: [Self; 4] = [
        Self::Instantiate,
        Self::Prepare,
        Self::Initialize,
        Self::Execute,
    ];

    /// The name: `execute`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Instantiate => "instantiate",
            Self::Prepare => "prepare",
            Self::Initialize => "initialize",
            Self::Execute => "execute",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a target declares of itself. A target that declares nothing has only a name and the API versions that its function's type
/// allows.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// The target's name.
    pub name: String,
    /// The conventions by which it can be called.
    pub api_versions: Vec<ApiVersion>,
    /// The stages that it has.
    pub stages: Vec<Stage>,
    /// The operands' leaves, if declared.
    pub operands: Option<Vec<BufferSignature>>,
    /// Whether it takes any number of operands after those.
    pub remaining_operands: bool,
    /// The results' leaves, if declared.
    pub results: Option<Vec<BufferSignature>>,
    /// Whether it takes any number of results after those.
    pub remaining_results: bool,
    /// The attributes, if declared: `None` is any, an empty list none. As in XLA, [`check`](Self::check) lets a call site have any then too.
    pub attributes: Option<Vec<AttributeSignature>>,
    /// The documentation: the guest's text, untrusted.
    pub documentation: String,
    /// Traits such as `pure` and `elementwise`.
    pub traits: Vec<String>,
}

/// What a target declares of an operand or result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferSignature {
    /// Its name, for people.
    pub name: String,
    /// The element types that it may have. Empty: any.
    pub element_types: Vec<ElementType>,
    /// Its rank, also where the dimensions say it. `None`: any.
    pub rank: Option<usize>,
    /// Its dimensions. `None`: any.
    pub dimensions: Option<Vec<Dimension>>,
    /// Whether it can be left out, with those after it.
    pub optional: bool,
}

/// What a target declares of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeSignature {
    /// Its name.
    pub name: String,
    /// Its kind: `scalar`, `array`, `string`, `dictionary` or `function`.
    pub kind: String,
    /// The element type of a scalar or array.
    pub element_type: Option<ElementType>,
    /// Whether it can be left out.
    pub optional: bool,
}

impl Signature {
    /// Whether the target has this trait. One that is elementwise is pure, whether or not it says so.
    #[must_use]
    pub fn has_trait(&self, name: &str) -> bool {
        let is_said = |name: &str| self.traits.iter().any(|t| t == name);
        is_said(name) || name == PURE && is_said(ELEMENTWISE)
    }

    /// Writes down the traits that others imply, and holds the trait `elementwise` against what else is declared.
    ///
    /// # Errors
    /// What was expected and what was found, if the target declares something that no elementwise target has.
    pub(crate) fn with_implied_traits(mut self) -> Result<Self, String> {
        dimensions::check_elementwise(&self)?;
        if self.has_trait(PURE) && !self.traits.iter().any(|t| t == PURE) {
            self.traits.push(PURE.to_owned());
        }
        Ok(self)
    }

    /// Checks a call site against what is declared.
    ///
    /// # Errors
    /// INVALID_ARGUMENT in XLA's words (`Handler::Call` in xla/ffi/api/api.h): for a wrong number of operands, results or attributes
    /// this alone, and otherwise all that is wrong.
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

    /// The shapes of the results of a call with operands of these shapes, as far as the target declares them: their dimensions and element types.
    /// The results have no layout. Those that a call can lack are left out.
    ///
    /// A result that declares several element types has that of the first operand that declares the same ones. One of an elementwise target
    /// has the dimensions of the first operand that is not of rank 0, whether or not it declares any.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the operands do not fit what is declared, in the words of [`Signature::check`], and if something that is needed to
    /// know the results is not declared.
    pub fn infer_results(&self, operands: &[ArrayShape]) -> Result<Vec<ArrayShape>> {
        infer::infer(self, operands)
    }
}

impl fmt::Display for BufferSignature {
    /// For people: `x: f32[?,?]`, `y: f32|f64[...]`, `w: f32[.., n]`, `z: f32[?], optional`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types: Vec<_> = self.element_types.iter().map(|t| t.lower_name()).collect();
        let types = match types.is_empty() {
            true => "any type".to_owned(),
            false => types.join("|"),
        };
        write!(f, "{}: {types}{}", self.name, Extent(self))?;
        f.write_str(if self.optional { ", optional" } else { "" })
    }
}
