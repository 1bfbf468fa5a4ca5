//! Module files: read, hashed and validated once.
//!
//! A single pass over the file checks it against the limits, validates it and collects everything
//! that the rest of the crate needs to know: what the module imports, exports and declares, and the
//! proposals that it needs. Each section and each operator is checked before the validator reads
//! it, so that a file's bytes and the limit `module_work` bound the time of the pass. wasmtime
//! validates once more what it compiles, within the same bounds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wasmparser::{
    BinaryReader, BinaryReaderError, Encoding, FuncValidator, FuncValidatorAllocations,
    FunctionBody, OperatorsReader, Parser, Payload, ValType, ValidPayload, Validator,
    ValidatorResources,
};

use callbox_core::policy::Limits;
use callbox_core::untrusted_text::{clean_line, shown_name};
use callbox_core::values::Result;

use crate::budget::Budget;
use crate::compiler;
use crate::failure::{exhausted, invalid};
use crate::features::{self, NeededFeatures};
use crate::info::ModuleInfo;
use crate::metadata;
use crate::processor_time;
use crate::sections::{ReadError, Sections};
use crate::work::FunctionWork;

/// A module's file, read, hashed and validated, but not compiled.
///
/// [`Engine::load_file`](crate::Engine::load_file) loads it without reading it again, with any
/// grants and into any engine whose limits on files are the same. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct ModuleFile {
    bytes: Arc<Vec<u8>>,
    digest: [u8; 32],
    pub(crate) info: Arc<ModuleInfo>,
    /// The number of functions: the index of the first helper.
    functions: u32,
    /// Whether an instance begins with a function or with data of the module.
    pub(crate) starts: bool,
    /// Whether it begins with a function.
    pub(crate) has_start: bool,
    /// [`Sections::record_bytes`].
    pub(crate) record_bytes: u64,
    pub(crate) code_bytes: usize,
    name: Option<Arc<str>>,
    limits: FileLimits,
    depth: Depth,
    /// The time that reading took, which counts towards the limit on compiling, and the processor
    /// time of it.
    read_in: Duration,
    read_used: Duration,
}

/// The result of a pass over a file.
struct Contents {
    digest: [u8; 32],
    info: ModuleInfo,
    functions: u32,
    starts: bool,
    has_start: bool,
    record_bytes: u64,
    code_bytes: usize,
}

/// The limits that reading a file depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileLimits([u64; 15]);

impl FileLimits {
    fn of(limits: &Limits) -> Self {
        let sizes = [
            limits.module_bytes,
            limits.functions,
            limits.function_bytes,
            limits.types,
            limits.type_values,
            limits.imports,
            limits.exports,
            limits.globals,
            limits.segments,
            limits.table_elements,
            limits.name_bytes,
            limits.metadata_bytes,
            limits.metadata_depth,
        ];
        let mut all = [limits.function_work, limits.module_work]
            .into_iter()
            .chain(sizes.map(|size| size as u64));
        Self(std::array::from_fn(|_| all.next().unwrap_or_default()))
    }
}

impl ModuleFile {
    /// Reads a module's file.
    ///
    /// A module with imports that are not granted, or with too large a memory, is read all the
    /// same: see [`ModuleInfo::check`].
    ///
    /// # Errors
    /// Blamed on the guest: INVALID_ARGUMENT if it is not a valid core module or its metadata is
    /// wrong, RESOURCE_EXHAUSTED past a limit, DEADLINE_EXCEEDED past the limit `compile_time_ms`.
    pub fn read(bytes: Vec<u8>, limits: &Limits) -> Result<Self> {
        Self::read_to(Depth::Validated, Arc::new(bytes), limits)
    }

    /// Reads a module's file without validating its functions, for a module that another process
    /// loads. [`Engine::load_file`](crate::Engine::load_file) validates them later.
    ///
    /// # Errors
    /// As for [`ModuleFile::read`], but an invalid function may pass.
    pub fn describe(bytes: Vec<u8>, limits: &Limits) -> Result<Self> {
        Self::read_to(Depth::Described, Arc::new(bytes), limits)
    }

    fn read_to(depth: Depth, bytes: Arc<Vec<u8>>, limits: &Limits) -> Result<Self> {
        let (begun, used) = (Instant::now(), processor_time::of_this_thread());
        let contents = Contents::read(&bytes, limits, depth)?;
        let read_in = begun.elapsed();
        let now = processor_time::of_this_thread();
        let read_used = now.zip(used).map(|(now, used)| now.saturating_sub(used));
        Ok(Self {
            read_in,
            // If the system does not tell, the clock decides.
            read_used: read_used.unwrap_or(read_in).min(read_in),
            bytes,
            digest: contents.digest,
            info: Arc::new(contents.info),
            functions: contents.functions,
            starts: contents.starts,
            has_start: contents.has_start,
            record_bytes: contents.record_bytes,
            code_bytes: contents.code_bytes,
            name: None,
            limits: FileLimits::of(limits),
            depth,
        })
    }

    /// The same file with a name, which messages about the module's calls begin with. Without one
    /// they begin with the first digits of the digest.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(shown_name(name).into());
        self
    }

    /// The name of the module in messages: the file's name, or `module 0123abcd`.
    #[must_use]
    pub fn label(&self) -> String {
        match &self.name {
            Some(name) => name.to_string(),
            None => format!("module {}", &self.info.sha256[..8]),
        }
    }

    /// The file's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// SHA-256 of the bytes.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// A description of the module.
    #[must_use]
    pub fn info(&self) -> &ModuleInfo {
        &self.info
    }

    /// Whether the file was read within these limits, as far as they concern files.
    #[must_use]
    pub fn is_within(&self, limits: &Limits) -> bool {
        self.limits == FileLimits::of(limits)
    }

    /// This file if it was validated and read within these limits, or else the file read anew.
    pub(crate) fn within(self, limits: &Limits) -> Result<Self> {
        if self.depth == Depth::Validated && self.is_within(limits) {
            return Ok(self);
        }
        let mut read = Self::read_to(Depth::Validated, self.bytes, limits)?;
        read.name = self.name;
        Ok(read)
    }

    /// Frees the bytes, unless they are shared. The description remains.
    pub(crate) fn drop_bytes(&mut self) {
        self.bytes = Arc::default();
    }

    /// The module as it is compiled, for measurements.
    ///
    /// # Errors
    /// INTERNAL if the module cannot be rewritten.
    #[doc(hidden)]
    pub fn rewritten(&self) -> Result<Vec<u8>> {
        compiler::rewritten(&self.bytes)
    }

    /// The bytes, for a thread that may outlive this file.
    pub(crate) fn shared_bytes(&self) -> Arc<Vec<u8>> {
        Arc::clone(&self.bytes)
    }

    /// The functions of the compiled module from this index on are helpers.
    pub(crate) fn helpers_from(&self) -> u32 {
        self.functions
    }

    /// The time that reading the file took, which counts towards `compile_time_ms`.
    #[must_use]
    pub fn read_in(&self) -> Duration {
        self.read_in
    }

    /// The processor time that reading the file took.
    pub(crate) fn read_used(&self) -> Duration {
        self.read_used
    }
}

/// Describes a module without keeping its bytes.
///
/// # Errors
/// As for [`ModuleFile::read`].
pub fn inspect(wasm: &[u8], limits: &Limits) -> Result<ModuleInfo> {
    Contents::read(wasm, limits, Depth::Validated).map(|contents| contents.info)
}

/// The checks that a file has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// Everything but the types of operands in functions.
    Described,
    /// Everything.
    Validated,
}

/// Checks the size, and that the file is a core module as far as its first bytes tell.
fn check_beginning(wasm: &[u8], limits: &Limits) -> Result<()> {
    if wasm.len() > limits.module_bytes {
        return Err(exhausted(format!(
            "expected a module of at most {} bytes, found {}",
            limits.module_bytes,
            wasm.len()
        )));
    }
    if !wasm.starts_with(b"\0asm") {
        let found = match wasm {
            [] => "an empty file".to_owned(),
            _ => format!("\"{}\"", wasm[..wasm.len().min(8)].escape_ascii()),
        };
        return Err(invalid(format!(
            "expected a WebAssembly module, which starts with \\0asm, found {found}"
        )));
    }
    match Parser::new(0).parse_all(wasm).next() {
        Some(Ok(Payload::Version {
            encoding: Encoding::Component,
            ..
        })) => Err(invalid(
            "expected a core WebAssembly module, found a component; a target is a function of a core module",
        )),
        _ => Ok(()),
    }
}

impl Contents {
    fn read(wasm: &[u8], limits: &Limits, depth: Depth) -> Result<Self> {
        check_beginning(wasm, limits)
            .and_then(|()| Self::pass(wasm, limits, depth))
            .map_err(|status| clean_line(status, limits.message_bytes))
    }

    fn pass(wasm: &[u8], limits: &Limits, depth: Depth) -> Result<Self> {
        let mut pass = Pass {
            wasm,
            depth,
            validator: Validator::new_with_features(features::allowed()),
            allocations: FuncValidatorAllocations::default(),
            sections: Sections::new(limits),
            needed: NeededFeatures::new(),
            budget: Budget::new(limits),
        };
        pass.run()?;
        let digest = pass.budget.digest(wasm)?;
        let sections = pass.sections;
        Ok(Self {
            digest,
            functions: sections.functions.len() as u32,
            starts: sections.starts,
            has_start: sections.has_start,
            record_bytes: sections.record_bytes(),
            code_bytes: sections.code_bytes,
            info: ModuleInfo {
                sha256: hex::encode(digest),
                size: wasm.len(),
                targets: match &sections.metadata {
                    Some(bytes) => metadata::read(bytes, &sections.exports, limits.metadata_depth)?,
                    None => metadata::from_types(&sections.exports),
                },
                has_metadata: sections.metadata.is_some(),
                features: pass.needed.names(),
                imports: sections.imports,
                exports: sections.exports,
                memory: sections.memory,
                tables: sections.tables,
            },
        })
    }
}

/// The pass over a file.
struct Pass<'a> {
    wasm: &'a [u8],
    depth: Depth,
    validator: Validator,
    /// Reused from one function to the next.
    allocations: FuncValidatorAllocations,
    sections: Sections<'a>,
    needed: NeededFeatures,
    budget: Budget,
}

impl Pass<'_> {
    /// Checks the limits of each section, validates it, and only then reads it.
    fn run(&mut self) -> Result<(), ReadError> {
        let mut parser = Parser::new(0);
        parser.set_features(features::allowed());
        for payload in parser.parse_all(self.wasm) {
            let payload = payload?;
            self.sections.check(&payload, self.wasm, &mut self.budget)?;
            let end = match &payload {
                // Its functions come one by one.
                Payload::CodeSectionStart { .. } => 0,
                section => section.as_section().map_or(0, |(_, range)| range.end),
            };
            let valid = self.validator.payload(&payload)?;
            self.needed.section(&payload)?;
            self.sections.read(payload)?;
            self.budget.look(end)?;
            if let ValidPayload::Func(function, body) = valid {
                let index = function.index;
                let mut validator = match self.depth {
                    Depth::Described => None,
                    Depth::Validated => {
                        Some(function.into_validator(std::mem::take(&mut self.allocations)))
                    }
                };
                self.body(index, validator.as_mut(), &body)?;
                if let Some(validator) = validator {
                    self.allocations = validator.into_allocations();
                }
            }
        }
        Ok(())
    }

    fn body(
        &mut self,
        index: u32,
        mut validator: Option<&mut FuncValidator<ValidatorResources>>,
        body: &FunctionBody<'_>,
    ) -> Result<(), ReadError> {
        let ty = self.sections.functions.get(index as usize).copied();
        let mut work = FunctionWork::new(ty.unwrap_or(u32::MAX), &self.sections);
        for local in body.get_locals_reader()? {
            let (count, ty) = local?;
            work.add_locals(count);
            self.needed.value_type(ty);
        }
        self.budget.check(&work, index, body.range().start)?;
        let mut reader = body.get_binary_reader();
        match &mut validator {
            Some(validator) => validator.read_locals(&mut reader)?,
            None => skip_locals(&mut reader)?,
        }
        reader.set_features(features::allowed());
        let mut operators = OperatorsReader::new(reader);
        while !operators.eof() {
            let start = operators.original_position();
            let operator = operators.read()?;
            work.operator(&operator, &self.sections)?;
            self.budget.check(&work, index, start)?;
            if let Some(validator) = &mut validator {
                validator.op(start, &operator)?;
            }
            let bytes = &self.wasm[start..operators.original_position()];
            self.needed.operator(&operator, bytes);
        }
        self.budget.end_function(&work);
        Ok(operators.finish()?)
    }
}

/// Moves a reader of a function body past the declarations of locals.
fn skip_locals(reader: &mut BinaryReader<'_>) -> Result<(), BinaryReaderError> {
    for _ in 0..reader.read_var_u32()? {
        reader.read::<u32>()?;
        reader.read::<ValType>()?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn data_and_names_are_no_code() {
        let code_bytes = |rest: &str| {
            let text =
                format!(r#"(module (memory 1) (func (export "f") (drop (i32.const 7))) {rest})"#);
            let wasm = wat::parse_str(text).unwrap();
            ModuleFile::read(wasm, &Limits::default())
                .unwrap()
                .code_bytes
        };
        let alone = code_bytes("");
        let data = format!(r#"(data (i32.const 0) "{}")"#, "x".repeat(10_000));
        assert_eq!(code_bytes(&data), alone);
        let name = format!("(func ${})", "x".repeat(10_000));
        // An empty function: its size, no locals, and the end.
        assert_eq!(code_bytes(&name), alone + 3);
        assert!(alone < 16, "{alone}");
    }
}
