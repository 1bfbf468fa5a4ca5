//! The JSON of a capsule.

use callbox_core::call::{Alias, ApiVersion};
use callbox_core::json;
use callbox_core::policy::{Grants, Policy};
use callbox_core::text::shortened;
use callbox_core::{
    Blame, CallSite, Result, Shape, StaticInfo, Status, StatusCode, attributes_from_mlir,
    attributes_to_mlir,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Capsule, one_line};

/// The version of the format.
const FORMAT: u64 = 1;

/// The memory that the lists and objects of the JSON may take.
const MOST_MEMORY: usize = 64 << 20;

/// Everything but the arrays and the module.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    format: u64,
    /// The version of callbox.
    pub(super) callbox: String,
    pub(super) module: ModuleRecord,
    target: String,
    /// The name of the instruction, if the call was one of a program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    instruction: Option<String>,
    api_version: String,
    /// The attributes in MLIR's notation.
    attributes: String,
    /// The opaque bytes in hexadecimal.
    opaque: String,
    /// The static information in hexadecimal, if it is by value.
    static_info: Option<String>,
    operands: Vec<String>,
    result: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    aliasing: Vec<Alias>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    scratch: Vec<usize>,
    pub(super) deadline_ms: Option<u64>,
    pub(super) policy: Policy,
    /// The failure. `null` if the call succeeded.
    pub(super) status: Option<StatusRecord>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ModuleRecord {
    pub(super) file: String,
    sha256: String,
}

/// How a call failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatusRecord {
    /// The name of the status code.
    pub code: String,
    /// The message.
    pub message: String,
    /// Whether a later call with other inputs can succeed.
    pub recoverable: bool,
    /// The name of the blame.
    pub blame: String,
    /// The functions of the backtrace, innermost first.
    pub backtrace: Vec<String>,
}

impl From<&Status> for StatusRecord {
    fn from(status: &Status) -> Self {
        let frames = status.backtrace().map(|backtrace| backtrace.frames());
        Self {
            code: status.code().name().to_owned(),
            message: status.message().to_owned(),
            recoverable: status.recoverable(),
            blame: status.blame().name().to_owned(),
            backtrace: frames
                .into_iter()
                .flatten()
                .map(ToString::to_string)
                .collect(),
        }
    }
}

impl Record {
    pub(super) fn of(capsule: &Capsule) -> Self {
        let (policy, site) = (&capsule.policy, &capsule.site);
        let grants = policy.targets.get(&site.target).unwrap_or(&policy.grants);
        Self {
            format: FORMAT,
            callbox: capsule.version.clone(),
            module: ModuleRecord {
                file: capsule.file.clone(),
                sha256: hex::encode(Sha256::digest(&capsule.module)),
            },
            target: site.target.clone(),
            instruction: (site.name != site.target).then(|| site.name.clone()),
            api_version: site.api_version.name().to_owned(),
            attributes: attributes_to_mlir(&site.attributes),
            opaque: hex::encode(&site.opaque),
            static_info: match &site.static_info {
                Some(StaticInfo::Value(bytes)) => Some(hex::encode(bytes)),
                _ => None,
            },
            operands: site.operands.iter().map(Shape::to_string).collect(),
            result: site.result.to_string(),
            aliasing: site.aliasing.clone(),
            scratch: site.scratch.clone(),
            deadline_ms: capsule.deadline_ms,
            policy: Policy {
                grants: Grants {
                    maths: grants.maths,
                    ..Grants::default()
                },
                targets: Default::default(),
                ..policy.clone()
            },
            status: capsule.outcome.as_ref().err().cloned(),
        }
    }

    pub(super) fn to_json(&self) -> Result<Vec<u8>> {
        serde_json::to_vec_pretty(self).map_err(|error| Status::internal(error.to_string()))
    }

    pub(super) fn from_json(text: &[u8]) -> Result<Self> {
        let wrong = |error: String| {
            let error = one_line(&shortened(&error));
            Status::invalid_argument(format!("the capsule is wrong: {error}"))
        };
        json::check_memory(text, json::MAP, MOST_MEMORY).map_err(|error| {
            let message = format!("the capsule is too large: {error}");
            Status::new(StatusCode::ResourceExhausted, Blame::Caller, message)
        })?;
        let record: Self =
            serde_json::from_slice(text).map_err(|error| wrong(error.to_string()))?;
        if record.format == FORMAT {
            return Ok(record);
        }
        Err(Status::invalid_argument(format!(
            "expected `format` {FORMAT}, found {}: another callbox wrote this capsule",
            record.format
        )))
    }

    /// Checks the digest of the module.
    pub(super) fn check_module(&self, module: &[u8]) -> Result<()> {
        let found = hex::encode(Sha256::digest(module));
        if found == self.module.sha256 {
            return Ok(());
        }
        Err(Status::invalid_argument(format!(
            "expected a module with SHA-256 {}, found {found}",
            one_line(&shortened(&self.module.sha256))
        )))
    }

    /// The call site.
    pub(super) fn site(&self) -> Result<CallSite> {
        let bytes = |text: &str| {
            hex::decode(text).map_err(|error| Status::invalid_argument(format!("opaque: {error}")))
        };
        let operands = self.operands.iter().map(|shape| shape.parse());
        let operands = operands.collect::<Result<_>>()?;
        let mut site = CallSite::new(&self.target, operands, self.result.parse()?)
            .with_attributes(attributes_from_mlir(&self.attributes)?);
        site.api_version = self.api_version.parse::<ApiVersion>()?;
        site.opaque = bytes(&self.opaque)?;
        let info = self.static_info.as_deref().map(bytes).transpose()?;
        site.static_info = info.map(StaticInfo::Value);
        if let Some(instruction) = &self.instruction {
            site.name = instruction.clone();
        }
        site.aliasing = self.aliasing.clone();
        site.scratch = self.scratch.clone();
        Ok(site)
    }

    /// What a capsule has, for a person.
    pub(super) fn describe(&self) -> String {
        let operands: Vec<_> = self.operands.iter().map(|shape| one_line(shape)).collect();
        let ending = self.status.as_ref().map_or("OK", |status| &status.code);
        format!(
            "the module {}, the operands ({}) and the attributes {} of `{}`, the policy, and how \
             the call ended: {ending}",
            one_line(&self.module.file),
            operands.join(", "),
            one_line(&self.attributes),
            one_line(&self.target),
        )
    }
}
