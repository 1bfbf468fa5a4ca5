//! The custom sections of a package.

use std::collections::BTreeMap;
use std::ops::Range;

use callbox_core::untrusted_text::shown_name;
use callbox_core::values::{Blame, Result, Status, StatusCode};
use sha2::{Digest, Sha256};
use wasm_encoder::Encode;
use wasmparser::{CustomSectionReader, Encoding, Parser, Payload};

use crate::header::Header;
use crate::path::{self, Paths};
use crate::signature::Signatures;

/// The custom section with the header.
pub(crate) const HEADER: &str = "callbox.package";

/// The beginning of the names of custom sections with files.
const FILE: &str = "callbox.file/";

/// The first bytes of a WebAssembly module.
const MAGIC: &[u8] = b"\0asm";

/// The sizes that a package may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The bytes of the package with all that it carries.
    pub package_bytes: usize,
    /// The bytes of the header's JSON.
    pub header_bytes: usize,
    /// The number of files.
    pub files: usize,
    /// The bytes of a file's path.
    pub path_bytes: usize,
}

impl Default for Limits {
    /// 64 MiB, which is also the default policy's limit on a module, 64 KiB of header, and 1024
    /// files with paths of 200 bytes.
    fn default() -> Self {
        Self {
            package_bytes: 64 << 20,
            header_bytes: 64 << 10,
            files: 1024,
            path_bytes: 200,
        }
    }
}

/// A package that was read.
#[derive(Clone, Debug)]
pub struct Package<'a> {
    bytes: &'a [u8],
    module: &'a [u8],
    header: Header,
    files: BTreeMap<&'a str, &'a [u8]>,
}

impl<'a> Package<'a> {
    /// The name, version and origin.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The author's module, without what the package adds.
    #[must_use]
    pub fn module(&self) -> &'a [u8] {
        self.module
    }

    /// The bytes of the whole package.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The file with this path.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<&'a [u8]> {
        self.files.get(path).copied()
    }

    /// The files with their paths, in order.
    pub fn files(&self) -> impl ExactSizeIterator<Item = (&'a str, &'a [u8])> {
        self.files.iter().map(|(path, bytes)| (*path, *bytes))
    }

    /// SHA-256 of the package in hexadecimal: its identity, which `sha256sum` prints too.
    #[must_use]
    pub fn sha256(&self) -> String {
        hex::encode(Sha256::digest(self.bytes))
    }
}

/// Packs a module with a header and files, by their paths.
///
/// # Errors
/// As for [`read`], but blamed on the caller; INVALID_ARGUMENT if the module is a package already.
pub fn pack(
    module: &[u8],
    header: &Header,
    files: &BTreeMap<String, Vec<u8>>,
    limits: &Limits,
) -> Result<Vec<u8>> {
    let blamed =
        |status: Status| Status::new(status.code(), Blame::Caller, status.message().to_owned());
    if find(module, limits).map_err(blamed)?.is_some() {
        return Err(Status::invalid_argument(
            "the module is a package already: pack the module that it was made from",
        ));
    }
    if Signatures::read(module).map_err(blamed)?.is_signed() {
        return Err(Status::invalid_argument(
            "the module is signed, and a package has further contents: pack the module without \
             signatures, and sign the package",
        ));
    }
    let json = header.to_json().map_err(Status::invalid_argument)?;
    let size = files.values().map(Vec::len).sum::<usize>();
    let mut packed = Vec::with_capacity(module.len() + json.len() + size);
    packed.extend_from_slice(module);
    append(&mut packed, HEADER, &json)?;
    for (path, bytes) in files {
        append(&mut packed, &format!("{FILE}{path}"), bytes)?;
    }
    read(&packed, limits).map_err(blamed)?;
    Ok(packed)
}

fn append(packed: &mut Vec<u8>, name: &str, data: &[u8]) -> Result<()> {
    packed.extend(section_start(name, data.len())?);
    packed.extend_from_slice(data);
    Ok(())
}

/// The bytes of a custom section before its data: the id, the size and the name, each number in as
/// few bytes as it takes.
fn section_start(name: &str, data: usize) -> Result<Vec<u8>> {
    let mut encoded_name = Vec::new();
    name.encode(&mut encoded_name);
    let size = u32::try_from(encoded_name.len() + data)
        .map_err(|_| exhausted("expected a section of less than 4 GiB".to_owned()))?;
    let mut start = vec![0];
    size.encode(&mut start);
    start.extend(encoded_name);
    Ok(start)
}

/// Reads a package. Nothing of it is run, and the module is not validated.
///
/// # Errors
/// Blamed on the guest: INVALID_ARGUMENT if it is not a package in the form that [`pack`] writes,
/// RESOURCE_EXHAUSTED past a limit.
pub fn read<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Package<'a>> {
    find(bytes, limits)?.ok_or_else(|| {
        invalid(format!(
            "the module is not a package: it has no section `{HEADER}`"
        ))
    })
}

/// Reads a module that may be a package. `None` if it carries nothing of a package.
///
/// # Errors
/// As for [`read`].
pub fn find<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Option<Package<'a>>> {
    if bytes.len() > limits.package_bytes {
        return Err(exhausted(format!(
            "expected a package of at most {} bytes (`package_bytes`), found {}",
            limits.package_bytes,
            bytes.len()
        )));
    }
    if !bytes.starts_with(MAGIC) {
        return Err(invalid(
            "expected a WebAssembly module, which starts with \\0asm".to_owned(),
        ));
    }
    let mut reader = Reader {
        bytes,
        limits,
        end: 0,
        module: None,
        header: None,
        paths: Paths::default(),
        files: BTreeMap::new(),
    };
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.map_err(|error| {
            invalid(format!(
                "expected a WebAssembly module: {} at byte {}",
                shown_name(error.message()),
                error.offset()
            ))
        })?;
        reader.payload(&payload)?;
    }
    Ok(reader.finish())
}

/// What was read of a package so far.
struct Reader<'a, 'l> {
    bytes: &'a [u8],
    limits: &'l Limits,
    /// The end of the last section.
    end: usize,
    /// The module, once its last section was read.
    module: Option<&'a [u8]>,
    header: Option<Header>,
    paths: Paths<'a>,
    files: BTreeMap<&'a str, &'a [u8]>,
}

impl<'a> Reader<'a, '_> {
    fn payload(&mut self, payload: &Payload<'a>) -> Result<()> {
        if let Payload::Version {
            encoding: Encoding::Component,
            ..
        } = payload
        {
            return Err(invalid(
                "expected a core WebAssembly module, found a component".to_owned(),
            ));
        }
        if let Payload::Version { range, .. } = payload {
            self.end = range.end;
        }
        // The bodies of functions lie inside a section that was seen already.
        let Some((_, range)) = payload.as_section() else {
            return Ok(());
        };
        match payload {
            Payload::CustomSection(section) if is_of_package(section.name()) => {
                self.section(section, &range)?;
            }
            _ if self.module.is_some() => {
                return Err(invalid(format!(
                    "expected nothing after the sections of the package, found a section at byte {}",
                    self.end
                )));
            }
            _ => {}
        }
        self.end = range.end;
        Ok(())
    }

    /// Reads a section of the package.
    fn section(&mut self, section: &CustomSectionReader<'a>, range: &Range<usize>) -> Result<()> {
        let (name, data) = (section.name(), section.data());
        let start = section_start(name, data.len())?;
        if !self.bytes[self.end..range.end].starts_with(&start) {
            return Err(invalid(format!(
                "the section `{}` is not encoded as `callbox pack` does it",
                shown_name(name)
            )));
        }
        if self.module.is_none() {
            self.module = Some(&self.bytes[..self.end]);
        }
        match name.strip_prefix(FILE) {
            Some(path) => self.file(path, data),
            None if name == HEADER => self.header(data),
            None => Err(invalid(format!(
                "the section `{}` is unknown: a newer callbox wrote this package",
                shown_name(name)
            ))),
        }
    }

    fn header(&mut self, data: &[u8]) -> Result<()> {
        if self.header.is_some() {
            return Err(invalid(format!("the section `{HEADER}` occurs twice")));
        }
        if data.len() > self.limits.header_bytes {
            return Err(exhausted(format!(
                "expected a header of at most {} bytes (`header_bytes`), found {}",
                self.limits.header_bytes,
                data.len()
            )));
        }
        let header = Header::from_json(data).map_err(invalid)?;
        if header.to_json().map_err(invalid)? != data {
            return Err(invalid(format!(
                "the section `{HEADER}` is not encoded as `callbox pack` does it"
            )));
        }
        self.header = Some(header);
        Ok(())
    }

    fn file(&mut self, path: &'a str, data: &'a [u8]) -> Result<()> {
        if self.header.is_none() {
            return Err(invalid(format!(
                "expected the section `{HEADER}` before the file \"{}\"",
                shown_name(path)
            )));
        }
        if self.files.len() >= self.limits.files {
            return Err(exhausted(format!(
                "expected at most {} files (`files`), found more",
                self.limits.files
            )));
        }
        path::check(path, self.limits.path_bytes).map_err(invalid)?;
        self.paths.add(path).map_err(invalid)?;
        if let Some((&last, _)) = self
            .files
            .last_key_value()
            .filter(|(last, _)| **last > path)
        {
            return Err(invalid(format!(
                "expected files in the order of their paths, found \"{path}\" after \"{last}\""
            )));
        }
        if data.starts_with(MAGIC) {
            return Err(invalid(format!(
                "the file \"{path}\" is a WebAssembly module: a package holds one module"
            )));
        }
        self.files.insert(path, data);
        Ok(())
    }

    fn finish(self) -> Option<Package<'a>> {
        Some(Package {
            bytes: self.bytes,
            module: self.module?,
            header: self.header?,
            files: self.files,
        })
    }
}

/// Whether a custom section belongs to a package.
fn is_of_package(name: &str) -> bool {
    name == HEADER || name.starts_with("callbox.package.") || name.starts_with(FILE)
}

fn invalid(message: String) -> Status {
    Status::new(StatusCode::InvalidArgument, Blame::Guest, message)
}

fn exhausted(message: String) -> Status {
    Status::new(StatusCode::ResourceExhausted, Blame::Guest, message)
}
