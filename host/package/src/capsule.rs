//! Capsules: a call in one file, with everything that repeating it takes and how it ended.
//!
//! A capsule is a `.safetensors` file, so that other tools can read its arrays: `capsule` is JSON,
//! `module` the module, and `operand.N` and `result.N` are the leaves of the operands and of the
//! results. Capsules are untrusted: a stranger may attach one to a report.

mod record;

use std::path::Path;

use callbox_core::policy::{Grants, Policy};
use callbox_core::untrusted_text::is_hidden;
use callbox_core::{
    ArrayShape, Blame, CallSite, ElementType, Literal, Result, Shape, StaticInfo, Status,
    StatusCode,
};
use sha2::{Digest, Sha256};

use self::record::Record;
pub use self::record::StatusRecord;
use crate::tensors;

/// The longest JSON.
const MOST_JSON: usize = 16 << 20;

/// A call and how it ended.
#[derive(Debug)]
pub struct Capsule {
    /// The name of the module's file, for messages.
    pub file: String,
    /// The module.
    pub module: Vec<u8>,
    /// The policy of the call.
    pub policy: Policy,
    /// The deadline of the caller, in milliseconds.
    pub deadline_ms: Option<u64>,
    /// The call site.
    pub site: CallSite,
    /// The leaves of the operands.
    pub operands: Vec<Literal>,
    /// The leaves of the results in row-major order, those of [`CallSite::scratch`] empty; or the
    /// failure.
    pub outcome: std::result::Result<Vec<Vec<u8>>, StatusRecord>,
    /// The version of callbox that made the call.
    pub version: String,
}

/// A capsule as a file.
#[derive(Clone, Debug)]
pub struct CapsuleFile {
    /// The name of the file: that of the target, and a digest.
    pub name: String,
    /// The contents.
    pub bytes: Vec<u8>,
    /// What the file holds.
    holds: String,
}

impl CapsuleFile {
    /// Says what the file holds, on one line.
    #[must_use]
    pub fn describe(&self, path: &Path) -> String {
        let (size, path) = (self.bytes.len(), path.display());
        format!("a capsule of {size} bytes, {path}, holds {}", self.holds)
    }
}

impl Capsule {
    /// The most bytes that the arrays and the module of a capsule have together.
    pub const MOST_BYTES: usize = 1 << 30;

    /// The most bytes of a file: the arrays, the JSON and the header.
    pub const MOST_FILE: usize = Self::MOST_BYTES + 2 * MOST_JSON;

    /// The capsule as a file.
    ///
    /// # Errors
    /// UNIMPLEMENTED if the call has something that a capsule cannot carry; RESOURCE_EXHAUSTED if
    /// the arrays are too large.
    pub fn to_file(&self) -> Result<CapsuleFile> {
        check_grants(&self.policy, &self.site.target)?;
        check_site(&self.site)?;
        let arrays = self.operands.iter().filter_map(Literal::bytes);
        let results = self.outcome.iter().flatten().map(Vec::as_slice);
        let size = arrays.chain(results).map(<[u8]>::len).sum::<usize>() + self.module.len();
        if size > Self::MOST_BYTES {
            let most = Self::MOST_BYTES;
            let message = format!("expected a call of at most {most} bytes, found {size}");
            return Err(exhausted(message));
        }
        let record = Record::of(self);
        let json = record.to_json()?;
        let bytes = self.file_of(&json)?;
        let digest = hex::encode(Sha256::digest(&bytes));
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let name = self.site.target.chars().take(40);
        let name: String = name.map(|c| if is_plain(c) { c } else { '-' }).collect();
        Ok(CapsuleFile {
            name: format!("{name}-{}.capsule", &digest[..12]),
            bytes,
            holds: record.describe(),
        })
    }

    /// The bytes of the file with this JSON.
    fn file_of(&self, json: &[u8]) -> Result<Vec<u8>> {
        let bytes = |bytes: &[u8]| ArrayShape::new(ElementType::U8, &[bytes.len()]);
        let (json_shape, module_shape) = (bytes(json)?, bytes(&self.module)?);
        let mut arrays = vec![
            ("capsule".to_owned(), &json_shape, json),
            ("module".to_owned(), &module_shape, self.module.as_slice()),
        ];
        let operands = self.operands.iter().flat_map(Literal::leaves);
        for (i, (shape, bytes)) in operands.enumerate() {
            arrays.push((format!("operand.{i}"), shape, bytes));
        }
        let leaves = self.site.result.leaves();
        let results = self.outcome.iter().flatten();
        for (i, (shape, bytes)) in leaves.into_iter().zip(results).enumerate() {
            if !self.site.is_scratch(i) {
                arrays.push((format!("result.{i}"), shape, bytes));
            }
        }
        tensors::file(&arrays)
    }

    /// Reads a capsule from its arrays, each of which `read` returns as bytes.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if they are not a capsule's, or the module has another digest; the failure
    /// of `read`.
    pub fn from_arrays<E: From<Status>>(
        mut read: impl FnMut(&str, ElementType) -> std::result::Result<Vec<u8>, E>,
    ) -> std::result::Result<Self, E> {
        let json = read("capsule", ElementType::U8)?;
        if json.len() > MOST_JSON {
            let message = format!("expected at most {MOST_JSON} bytes of JSON");
            return Err(exhausted(message).into());
        }
        let record = Record::from_json(&json)?;
        let module = read("module", ElementType::U8)?;
        record.check_module(&module)?;
        let site = record.site()?;
        check_site(&site)?;
        let mut operands = Vec::new();
        let leaves = site.operands.iter().flat_map(Shape::leaves);
        for (i, shape) in leaves.enumerate() {
            let found = read(&format!("operand.{i}"), shape.element_type())?;
            operands.push(Literal::from_bytes(shape.clone(), found)?);
        }
        let outcome = match record.status {
            Some(status) => Err(status),
            None => {
                let mut results = Vec::new();
                for (i, shape) in site.result.leaves().into_iter().enumerate() {
                    results.push(if site.is_scratch(i) {
                        Vec::new()
                    } else {
                        read(&format!("result.{i}"), shape.element_type())?
                    });
                }
                Ok(results)
            }
        };
        Ok(Self {
            file: record.module.file,
            module,
            policy: record.policy,
            deadline_ms: record.deadline_ms,
            site,
            operands,
            outcome,
            version: record.callbox,
        })
    }
}

fn exhausted(message: String) -> Status {
    Status::new(StatusCode::ResourceExhausted, Blame::Caller, message)
}

/// Checks that a call has only grants that another machine can give, too.
///
/// # Errors
/// UNIMPLEMENTED if it has others.
pub fn check_grants(policy: &Policy, target: &str) -> Result<()> {
    let grants = policy.targets.get(target).unwrap_or(&policy.grants);
    let Grants {
        log,
        maths,
        ref sha256,
        ..
    } = *grants;
    let plain = Grants {
        sha256: sha256.clone(),
        log,
        maths,
        ..Grants::default()
    };
    if *grants == plain {
        return Ok(());
    }
    Err(Status::unimplemented(
        "a capsule cannot carry directories, clocks or random bytes, which the call was granted",
    ))
}

/// Checks that a call site is one that can be called outside its program.
fn check_site(site: &CallSite) -> Result<()> {
    site.check_scratch()?;
    let operands = site.operands.iter().flat_map(Shape::leaves);
    let mut arrays = operands.clone().chain(site.result.leaves());
    let refused = if !site.functions.is_empty() {
        "functions of the program, which the target can call"
    } else if site.literal.is_some() {
        "the literal of an instruction"
    } else if matches!(site.static_info, Some(StaticInfo::Reference { .. })) {
        "static information by reference"
    } else if arrays.any(|shape| shape.element_type() == ElementType::Token) {
        "tokens"
    } else if operands.clone().any(|shape| !shape.is_row_major()) {
        "operands that are not in row-major order"
    } else {
        return Ok(());
    };
    Err(Status::unimplemented(format!(
        "a capsule cannot carry {refused}"
    )))
}

/// A text of a stranger on one line, cut if it is long.
fn one_line(text: &str) -> String {
    const MOST: usize = 1024;
    let mut shown = String::new();
    for c in text.chars() {
        if shown.len() >= MOST {
            shown.push_str("...");
            break;
        }
        if is_hidden(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}
