//! A case as its JSON says it. Unknown keys are errors: a misspelt one would otherwise be a test that tests nothing.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::limits::LimitsText;
use crate::literal::LiteralText;
use crate::module::ModuleText;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseText {
    pub(super) origin: String,
    pub(super) program: Option<ProgramText>,
    pub(super) call: Option<CallText>,
    pub(super) load: Option<ModuleText>,
    #[serde(default)]
    pub(super) targets: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) operands: Vec<LiteralText>,
    pub(super) function: Option<FunctionText>,
    pub(super) deadline_ms: Option<u64>,
    pub(super) limits: Option<LimitsText>,
    pub(super) isolation: Option<IsolationText>,
    pub(super) expect: ExpectText,
    #[serde(default)]
    pub(super) then: Vec<StepText>,
    pub(super) unsupported: Option<ReasonText>,
    pub(super) expected_failure: Option<ReasonText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProgramText {
    pub(super) file: Option<String>,
    pub(super) text: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallText {
    pub(super) module: ModuleText,
    pub(super) target: String,
    /// The operands' shapes, where they are not those of the case's operands.
    pub(super) operands: Option<Vec<String>>,
    #[serde(default)]
    pub(super) results: Vec<String>,
    #[serde(default)]
    pub(super) attributes: BTreeMap<String, AttributeText>,
    pub(super) api_version: Option<String>,
    #[serde(default)]
    pub(super) opaque: String,
    #[serde(default)]
    pub(super) aliasing: Vec<AliasText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AttributeText {
    #[serde(rename = "type")]
    pub(super) ty: String,
    pub(super) value: serde_json::Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AliasText {
    pub(super) result: Vec<usize>,
    pub(super) operand: usize,
    #[serde(default)]
    pub(super) operand_index: Vec<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum FunctionText {
    Ordinal(usize),
    Name(String),
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum IsolationText {
    #[default]
    Executable,
    Fresh,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StepText {
    #[serde(default)]
    pub(super) operands: Vec<LiteralText>,
    pub(super) function: Option<FunctionText>,
    pub(super) deadline_ms: Option<u64>,
    pub(super) expect: ExpectText,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectText {
    pub(super) results: Option<Vec<LiteralText>>,
    pub(super) ulps: Option<UlpsText>,
    pub(super) status: Option<StatusText>,
    pub(super) targets: Option<Vec<String>>,
    pub(super) log: Option<Vec<LogText>>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum UlpsText {
    All(u64),
    Each(Vec<u64>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StatusText {
    pub(super) code: String,
    pub(super) message: Option<String>,
    pub(super) contains: Option<OneOrMore>,
    pub(super) recoverable: Option<bool>,
    pub(super) blame: Option<String>,
    pub(super) phase: Option<String>,
    pub(super) backtrace: Option<OneOrMore>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMore {
    One(String),
    More(Vec<String>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogText {
    pub(super) level: String,
    pub(super) message: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReasonText {
    pub(super) reason: String,
}

impl From<OneOrMore> for Vec<String> {
    fn from(text: OneOrMore) -> Self {
        match text {
            OneOrMore::One(text) => vec![text],
            OneOrMore::More(texts) => texts,
        }
    }
}

impl From<IsolationText> for callbox::wasm::Isolation {
    fn from(text: IsolationText) -> Self {
        match text {
            IsolationText::Executable => Self::Executable,
            IsolationText::Fresh => Self::Fresh,
        }
    }
}
