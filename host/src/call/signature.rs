//! Signatures: what a target declares of itself, and whether a call site fits it.

use std::fmt;

use super::{ApiVersion, CallSite};
use crate::values::{ArrayShape, Attribute, ElementType, Result, Status};

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
    /// The results' leaves, if declared.
    pub results: Option<Vec<BufferSignature>>,
    /// The attributes, if declared.
    pub attributes: Option<Vec<AttributeSignature>>,
    /// The documentation: the guest's text, untrusted.
    pub documentation: String,
    /// Traits such as `pure`.
    pub traits: Vec<String>,
}

/// What a target declares of an operand or result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferSignature {
    /// Its name, for people.
    pub name: String,
    /// The element types that it may have. Empty: any.
    pub element_types: Vec<ElementType>,
    /// Its rank. `None`: any.
    pub rank: Option<usize>,
}

/// What a target declares of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeSignature {
    /// Its name.
    pub name: String,
    /// Its kind: `scalar`, `array`, `string` or `dictionary`.
    pub kind: String,
    /// The element type of a scalar or array.
    pub element_type: Option<ElementType>,
    /// Whether it can be left out.
    pub optional: bool,
}

impl Signature {
    /// Whether the target has this trait.
    #[must_use]
    pub fn has_trait(&self, name: &str) -> bool {
        self.traits.iter().any(|t| t == name)
    }

    /// Checks a call site against what is declared.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with all that is wrong, in XLA's words (xla/ffi/api/api.h).
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
        let operands: Vec<_> = site.operands.iter().flat_map(|s| s.leaves()).collect();
        let mut problems = Vec::new();
        check_buffers(
            "operands",
            "arguments",
            self.operands.as_deref(),
            &operands,
            &mut problems,
        );
        check_buffers(
            "results",
            "results",
            self.results.as_deref(),
            &site.result.leaves(),
            &mut problems,
        );
        self.check_attributes(site, &mut problems);
        match problems.is_empty() {
            true => Ok(()),
            false => Err(Status::invalid_argument(problems.join("; "))),
        }
    }

    /// XLA's rules: a target that binds no attribute ignores all; one that binds some takes no others.
    fn check_attributes(&self, site: &CallSite, problems: &mut Vec<String>) {
        let Some(declared) = self.attributes.as_deref().filter(|d| !d.is_empty()) else {
            return;
        };
        for (name, value) in &site.attributes {
            match declared.iter().find(|a| a.name == *name) {
                Some(attribute) => problems.extend(attribute.mismatch(value)),
                None => problems.push(format!("Unexpected attribute: {name}")),
            }
        }
        for attribute in declared.iter().filter(|a| !a.optional) {
            if !site.attributes.contains_key(&attribute.name) {
                problems.push(format!("Missing attribute: {}", attribute.name));
            }
        }
    }
}

impl AttributeSignature {
    fn mismatch(&self, value: &Attribute) -> Option<String> {
        let kind = value.kind();
        if kind != self.kind {
            return Some(format!(
                "Wrong attribute type: expected {} but got {kind} (attribute {})",
                self.kind, self.name
            ));
        }
        let found = match value {
            Attribute::Scalar(literal) | Attribute::Array(literal) => {
                literal.shape().as_array().map(ArrayShape::element_type)
            }
            Attribute::String(_) | Attribute::Dictionary(_) => None,
        };
        match (self.element_type, found) {
            (Some(expected), Some(found)) if expected != found => Some(format!(
                "Wrong attribute dtype: expected {} but got {} (attribute {})",
                expected.upper_name(),
                found.upper_name(),
                self.name
            )),
            _ => None,
        }
    }
}

/// Adds what is wrong with buffers to `problems`.
fn check_buffers(
    plural: &str,
    counted_as: &str,
    declared: Option<&[BufferSignature]>,
    found: &[&ArrayShape],
    problems: &mut Vec<String>,
) {
    let Some(declared) = declared else {
        return;
    };
    if declared.len() != found.len() {
        problems.push(format!(
            "Wrong number of {counted_as}: expected {} but got {}",
            declared.len(),
            found.len()
        ));
        return;
    }
    let wrong: Vec<_> = std::iter::zip(declared, found)
        .enumerate()
        .filter_map(|(i, (declared, found))| Some((i, declared.mismatch(found)?)))
        .collect();
    if !wrong.is_empty() {
        let positions: Vec<_> = wrong.iter().map(|(i, _)| i.to_string()).collect();
        problems.push(format!(
            "Failed to decode all FFI handler {plural} (bad {plural} at: {})",
            positions.join(", ")
        ));
        problems.extend(wrong.into_iter().map(|(_, problem)| problem));
    }
}

impl BufferSignature {
    fn mismatch(&self, found: &ArrayShape) -> Option<String> {
        if !self.element_types.is_empty() && !self.element_types.contains(&found.element_type()) {
            let expected: Vec<_> = self.element_types.iter().map(|t| t.upper_name()).collect();
            return Some(format!(
                "Wrong buffer dtype: expected {} but got {}",
                expected.join(" or "),
                found.element_type().upper_name()
            ));
        }
        match self.rank {
            Some(rank) if rank != found.rank() => Some(format!(
                "Wrong buffer rank: expected {rank} but got {}",
                found.rank()
            )),
            _ => None,
        }
    }
}

impl fmt::Display for BufferSignature {
    /// For people: `x: f32[?,?]`, `y: f32|f64, any rank`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types: Vec<_> = self.element_types.iter().map(|t| t.lower_name()).collect();
        let types = match types.is_empty() {
            true => "any type".to_owned(),
            false => types.join("|"),
        };
        match self.rank {
            Some(rank) => write!(f, "{}: {types}[{}]", self.name, vec!["?"; rank].join(",")),
            None => write!(f, "{}: {types}[...]", self.name),
        }
    }
}
