//! Capsules: a call in one file, with everything that repeating it takes and how it ended.
//!
//! A capsule is a `.safetensors` file, so that other tools can read its arrays: `capsule` is JSON,
//! `module` the module, and `operand.N` and `result.N` are the arrays. Capsules are untrusted: a
//! stranger may attach one to a report.

mod record;

use std::fs::File;
use std::path::{Path, PathBuf};

use callbox::policy::{Grants, Policy};
use callbox::{ArrayShape, Blame, CallSite, ElementType, Literal, Result, Status, StatusCode};
use sha2::{Digest, Sha256};

use self::record::Record;
pub(super) use self::record::StatusRecord;
use super::failure::{Failure, Outcome};
use super::files::ReadError;
use super::files::tensors::{self, Tensors};
use super::{regular_file, write_file};

/// The most bytes that the arrays and the module of a capsule have together.
const MOST_BYTES: usize = 1 << 30;

/// The longest JSON.
const MOST_JSON: usize = 16 << 20;

/// A call and how it ended.
#[derive(Debug)]
pub(super) struct Capsule {
    /// The name of the module's file, for messages.
    pub(super) file: String,
    pub(super) module: Vec<u8>,
    pub(super) policy: Policy,
    /// The deadline of the caller, in milliseconds.
    pub(super) deadline_ms: Option<u64>,
    pub(super) site: CallSite,
    pub(super) operands: Vec<Literal>,
    pub(super) outcome: std::result::Result<Vec<Vec<u8>>, StatusRecord>,
    /// The version of callbox that made the call.
    pub(super) version: String,
}

impl Capsule {
    /// Writes the capsule to a folder. `show` gets the path and what the file will have before it
    /// is written.
    ///
    /// # Errors
    /// UNIMPLEMENTED if the call had grants that a capsule cannot carry; RESOURCE_EXHAUSTED if the
    /// arrays are too large; wrong usage if the file cannot be written.
    pub(super) fn write(&self, folder: &Path, show: impl FnOnce(&str)) -> Outcome<PathBuf> {
        check_grants(&self.policy, &self.site.target)?;
        let size = self.module.len()
            + self
                .operands
                .iter()
                .filter_map(Literal::bytes)
                .map(<[u8]>::len)
                .sum::<usize>()
            + self.outcome.iter().flatten().map(Vec::len).sum::<usize>();
        if size > MOST_BYTES {
            let message = format!("expected a call of at most {MOST_BYTES} bytes, found {size}");
            return Err(Status::new(StatusCode::ResourceExhausted, Blame::Caller, message).into());
        }
        let record = Record::of(self);
        let json = record.to_json()?;
        let bytes = |bytes: &[u8]| ArrayShape::new(ElementType::U8, &[bytes.len()]);
        let (json_shape, module_shape) = (bytes(&json)?, bytes(&self.module)?);
        let mut arrays = vec![
            ("capsule".to_owned(), &json_shape, json.as_slice()),
            ("module".to_owned(), &module_shape, self.module.as_slice()),
        ];
        let operands = self.operands.iter().flat_map(Literal::leaves);
        for (i, (shape, bytes)) in operands.enumerate() {
            arrays.push((format!("operand.{i}"), shape, bytes));
        }
        let results = self.outcome.iter().flatten();
        for (i, (shape, bytes)) in self
            .site
            .result
            .leaves()
            .into_iter()
            .zip(results)
            .enumerate()
        {
            arrays.push((format!("result.{i}"), shape, bytes));
        }
        let file = tensors::file(&arrays)?;
        let digest = hex::encode(Sha256::digest(&file));
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let name = self.site.target.chars().take(40);
        let name: String = name.map(|c| if is_plain(c) { c } else { '-' }).collect();
        let path = folder.join(format!("{name}-{}.capsule", &digest[..12]));
        show(&record.describe(&path, file.len()));
        write_file::write(&path, &[&file])?;
        Ok(path)
    }

    /// Reads a capsule.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the file is no capsule, or its module has another digest; wrong usage if
    /// it cannot be read.
    pub(super) fn read(path: &Path) -> Outcome<Self> {
        let mut arrays = Arrays::open(path)?;
        let json = into_bytes(arrays.read("capsule", ElementType::U8)?);
        let in_file = |status: Status| status.context(path.display());
        if json.len() > MOST_JSON {
            let message = format!("expected at most {MOST_JSON} bytes of JSON");
            let status = Status::new(StatusCode::ResourceExhausted, Blame::Caller, message);
            return Err(in_file(status).into());
        }
        let record = Record::from_json(&json).map_err(in_file)?;
        let module = into_bytes(arrays.read("module", ElementType::U8)?);
        record.check_module(&module).map_err(in_file)?;
        let site = record.site().map_err(in_file)?;
        let mut operands = Vec::new();
        for (i, shape) in site.operands.iter().enumerate() {
            let shape = shape.as_array().ok_or_else(|| {
                in_file(Status::invalid_argument(format!(
                    "operand {i} is not an array"
                )))
            })?;
            let found = arrays.read(&format!("operand.{i}"), shape.element_type())?;
            operands.push(Literal::from_bytes(shape.clone(), into_bytes(found)).map_err(in_file)?);
        }
        let outcome = match record.status.clone() {
            Some(status) => Err(status),
            None => {
                let mut results = Vec::new();
                for (i, shape) in site.result.leaves().into_iter().enumerate() {
                    let found = arrays.read(&format!("result.{i}"), shape.element_type())?;
                    results.push(into_bytes(found));
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

/// The arrays of a capsule, which is opened once: another file may take its path meanwhile.
struct Arrays<'a> {
    path: &'a Path,
    tensors: Tensors<File>,
}

impl<'a> Arrays<'a> {
    /// Opens a file and checks its size before anything of it is read.
    fn open(path: &'a Path) -> Outcome<Self> {
        // The call, its JSON, and the header of the file.
        const MOST: u64 = MOST_BYTES as u64 + 2 * MOST_JSON as u64;
        let file = regular_file::open(path)?;
        let metadata = file.metadata();
        let size = metadata
            .map_err(|error| regular_file::cannot(path, &error))?
            .len();
        if size > MOST {
            let message = format!("expected a capsule of at most {MOST} bytes, found {size}");
            let status = Status::new(StatusCode::ResourceExhausted, Blame::Caller, message);
            return Err(status.context(path.display()).into());
        }
        let tensors = Tensors::open(file).map_err(|error| not_read(path, error))?;
        Ok(Self { path, tensors })
    }

    fn read(&mut self, name: &str, element_type: ElementType) -> Outcome<Literal> {
        let read = self.tensors.read(name, Some(element_type));
        read.map_err(|error| not_read(self.path, error))
    }
}

fn not_read(path: &Path, error: ReadError) -> Failure {
    match error {
        ReadError::Io(error) => regular_file::cannot(path, &error),
        ReadError::Status(status) => status.context(path.display()).into(),
    }
}

fn into_bytes(array: Literal) -> Vec<u8> {
    array.bytes().unwrap_or_default().to_vec()
}

/// Checks that a call has only grants that another machine can give, too.
pub(super) fn check_grants(policy: &Policy, target: &str) -> Result<()> {
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
