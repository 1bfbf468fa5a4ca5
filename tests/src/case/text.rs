//! The JSON schema of a case. Unknown keys are errors, because a misspelt key would test nothing.

use std::collections::BTreeMap;

use anyhow::Result;
use callbox::policy::Policy;
use serde::Deserialize;

use crate::literal::{self, LiteralText};
use crate::module::ModuleText;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseText {
    pub(super) origin: String,
    pub(super) program: Option<ProgramText>,
    pub(super) call: Option<CallText>,
    pub(super) ffi_call: Option<FfiCallText>,
    pub(super) load: Option<ModuleText>,
    #[serde(default)]
    pub(super) targets: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) operands: Vec<LiteralText>,
    pub(super) function: Option<FunctionText>,
    pub(super) deadline_ms: Option<u64>,
    #[serde(default)]
    pub(super) user_data: BTreeMap<String, BytesText>,
    pub(super) policy: Option<Policy>,
    pub(super) expect: ExpectText,
    #[serde(default)]
    pub(super) then: Vec<StepText>,
    pub(super) platforms: Option<PlatformsText>,
    pub(super) stress: Option<StressText>,
    pub(super) unsupported: Option<MarkText>,
    pub(super) expected_failure: Option<MarkText>,
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
    /// The call site's operand shapes, where they differ from the shapes of the case's operands.
    pub(super) operands: Option<Vec<String>>,
    #[serde(default)]
    pub(super) results: Vec<String>,
    #[serde(default)]
    pub(super) attributes: BTreeMap<String, AttributeText>,
    pub(super) api_version: Option<String>,
    #[serde(default)]
    pub(super) opaque: BytesText,
    pub(super) static_info: Option<StaticInfoText>,
    #[serde(default)]
    pub(super) aliasing: Vec<AliasText>,
    #[serde(default)]
    pub(super) scratch: Vec<usize>,
    pub(super) literal: Option<LiteralText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FfiCallText {
    /// The module that exports the function.
    pub(super) module: ModuleText,
    /// The function's name in the module.
    pub(super) function: String,
    #[serde(default = "cpu")]
    pub(super) platform: String,
    pub(super) static_info: Option<StaticInfoText>,
    /// The shape of an unbatched call's result.
    pub(super) result: String,
    /// For each operand, the dimension that is the batch.
    pub(super) vmap: Option<Vec<Option<usize>>>,
}

fn cpu() -> String {
    "cpu".to_owned()
}

/// Bytes, as text or in hexadecimal.
#[derive(Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub(super) enum BytesText {
    Text(String),
    Hex { hex: String },
}

impl Default for BytesText {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

impl BytesText {
    /// Returns the bytes.
    pub(super) fn read(self) -> Result<Vec<u8>> {
        match self {
            Self::Text(text) => Ok(text.into_bytes()),
            Self::Hex { hex } => literal::bytes_of_hex(&hex),
        }
    }
}

/// Static information, by value or by reference.
#[derive(Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub(super) enum StaticInfoText {
    Value {
        value: BytesText,
    },
    Reference {
        constructor: String,
        destructor: String,
        #[serde(default)]
        argument: BytesText,
    },
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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StepText {
    #[serde(default)]
    pub(super) operands: Vec<LiteralText>,
    pub(super) function: Option<FunctionText>,
    pub(super) deadline_ms: Option<u64>,
    #[serde(default)]
    pub(super) user_data: BTreeMap<String, BytesText>,
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
    ByType(BTreeMap<String, u64>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StatusText {
    pub(super) code: String,
    pub(super) message: Option<String>,
    pub(super) contains: Option<OneOrMore>,
    pub(super) pattern: Option<String>,
    pub(super) says: Option<String>,
    pub(super) recoverable: Option<bool>,
    pub(super) blame: Option<String>,
    pub(super) phase: Option<String>,
    pub(super) backtrace: Option<OneOrMore>,
    pub(super) frames: Option<usize>,
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
#[serde(untagged)]
pub(super) enum PlatformsText {
    Names(Vec<String>),
    Only(OnlyText),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OnlyText {
    pub(super) only: Vec<String>,
    pub(super) reason: String,
}

/// The key is the mode, the value is the reason.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StressText {
    Separate(String),
    Judged(String),
    Skip(String),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MarkText {
    pub(super) reason: String,
    pub(super) platforms: Option<Vec<String>>,
}

impl From<OneOrMore> for Vec<String> {
    fn from(text: OneOrMore) -> Self {
        match text {
            OneOrMore::One(text) => vec![text],
            OneOrMore::More(texts) => texts,
        }
    }
}
