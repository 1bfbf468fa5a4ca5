//! NVRTC: CUDA source compiled to PTX, in this process and without a device.
//!
//! The library is looked for where people have it, once, when it is first asked for ([`find`]); nothing else needs it. It is opened by the
//! path that was found, and not by cudarc: that opens the first of a list of names that the loader knows, and panics where there is none.
//!
//! Compiling reads the headers that a source includes and nothing else; what comes out is PTX for the driver, which is as much trusted as the
//! source's author is.

mod cache;
mod library;
mod places;

use std::ffi::{CString, OsStr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use sha2::{Digest, Sha256};

use self::cache::Cache;
use self::library::{Failure, Library};
use self::places::Place;
use crate::values::{Blame, Result, Status, StatusCode};

/// The options that every source is compiled with, after its architecture: C++17; no multiplication and addition contracted into one, so that a
/// kernel and its CPU twin have the same bits (`__fmaf_rn` says it where it is wanted); and no header but those of the folders that are
/// named, where NVRTC's default takes those of the process's working directory as well. All else is as `nvcc` has it: divisions and
/// square roots are IEEE 754's, denormal numbers are kept.
pub const OPTIONS: &[&str] = &["--std=c++17", "--fmad=false", "--no-source-include"];

/// How many compiled sources are kept.
const MOST_KEPT: usize = 64;

/// How much of a compiler's log a message has, in bytes.
const MAX_LOG: usize = 16 << 10;

/// The NVRTC that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its file; or its name alone, where the loader knew the path.
    pub path: PathBuf,
    /// Its version: `(13, 0)`.
    pub version: (u32, u32),
}

/// Finds NVRTC. It is looked for once for the process: what is installed later is not found.
///
/// If the environment variable `CALLBOX_NVRTC` is set, it is the file or the folder that it names. Otherwise, in this order: what the loader
/// knows; NVIDIA's packages from PyPI in the virtual environment, the conda environment, the user's packages and the system's; the CUDA
/// toolkit's folder.
///
/// # Errors
/// UNAVAILABLE with every place that was looked at and how to get it.
pub fn find() -> Result<Found> {
    library().map(|library| library.found.clone())
}

/// Compiles CUDA source to PTX for the virtual architecture of a device's compute capability, such as `(9, 0)`: for the newest that NVRTC
/// knows and that is not above it, since the driver brings PTX of older architectures to newer devices. `name` stands in messages of the
/// compiler. `includes` are the folders of headers.
///
/// What was compiled is kept, the newest 64 by source, name, architecture, folders and NVRTC's version; headers are taken not to change while the
/// process runs. Threads that ask for the same at once wait for one compilation.
///
/// # Errors
/// INVALID_ARGUMENT with the compiler's log, cut to 16 KiB, for a source that does not compile; and for a NUL in the source, its name or a
/// folder's, and for an architecture older than NVRTC has. UNAVAILABLE without NVRTC.
pub fn compile(
    name: &str,
    source: &str,
    arch: (u32, u32),
    includes: &[PathBuf],
) -> Result<Arc<str>> {
    static COMPILED: OnceLock<Cache<Arc<str>>> = OnceLock::new();
    let c_name = without_nul("the source's name", name.as_bytes())?;
    let c_source = without_nul(&format!("source {name:?}"), source.as_bytes())?;
    let folders: Vec<_> = includes
        .iter()
        .map(|folder| include(folder))
        .collect::<Result<_>>()?;
    let library = library()?;
    let arch = architecture(arch, library)?;
    let mut options = vec![format!("--gpu-architecture=compute_{arch}").into_bytes()];
    options.extend(OPTIONS.iter().map(|option| option.as_bytes().to_vec()));
    options.extend(folders);
    let key = key(name, source, &options, library.found.version);
    let cache = COMPILED.get_or_init(|| Cache::new(MOST_KEPT));
    cache.get(key, || {
        let options = options.into_iter().map(|o| without_nul("an option", &o));
        let options: Vec<_> = options.collect::<Result<_>>()?;
        let ptx = library
            .compile(&c_name, &c_source, &options)
            .map_err(|failure| report(name, &failure))?;
        let ptx = String::from_utf8(ptx)
            .map_err(|_| Status::internal("expected PTX of NVRTC, found bytes that are no text"))?;
        Ok(ptx.into())
    })
}

/// The library, opened when it is first needed.
fn library() -> Result<&'static Library> {
    static LIBRARY: OnceLock<Result<Library>> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| open(&places::ambient()));
    library.as_ref().map_err(Clone::clone)
}

/// Opens the first library that is at one of the places.
fn open(places: &[Place]) -> Result<Library> {
    let mut missing = Vec::new();
    for place in places {
        match Library::open(place) {
            Ok(library) => return Ok(library),
            Err(why) => missing.push(format!("  {place}: {why}")),
        }
    }
    Err(Status::new(
        StatusCode::Unavailable,
        Blame::Host,
        format!(
            "expected NVRTC, to compile CUDA source, found none; `pip install nvidia-cuda-nvrtc` gets it, and {} can name its folder. Looked at:\n{}",
            places::VARIABLE,
            missing.join("\n")
        ),
    ))
}

fn without_nul(what: &str, bytes: &[u8]) -> Result<CString> {
    CString::new(bytes).map_err(|error| {
        let position = error.nul_position();
        let line = 1 + bytes[..position].iter().filter(|&&b| b == b'\n').count();
        Status::invalid_argument(format!(
            "{what}: expected text without NUL, found one at byte {position}, on line {line}"
        ))
    })
}

fn include(folder: &Path) -> Result<Vec<u8>> {
    let bytes = OsStr::as_encoded_bytes(folder.as_os_str());
    without_nul("a folder of headers", bytes)?;
    Ok([b"--include-path=", bytes].concat())
}

/// The newest architecture that NVRTC has and that is not above a device's, as `90`.
fn architecture((major, minor): (u32, u32), library: &Library) -> Result<u32> {
    let known = library.architectures();
    let wanted = major.saturating_mul(10).saturating_add(minor);
    let best = known.iter().filter(|&&arch| arch <= wanted).max();
    best.copied().ok_or_else(|| {
        let known: Vec<_> = known.iter().map(u32::to_string).collect();
        let (first, second) = library.found.version;
        Status::invalid_argument(format!(
            "expected a compute capability that NVRTC {first}.{second} compiles for ({}), found {major}.{minor}",
            known.join(", ")
        ))
    })
}

fn key(name: &str, source: &str, options: &[Vec<u8>], version: (u32, u32)) -> [u8; 32] {
    let mut hash = Sha256::new();
    let version = format!("{}.{}", version.0, version.1);
    let texts = [version.as_bytes(), name.as_bytes(), source.as_bytes()];
    for bytes in texts.into_iter().chain(options.iter().map(Vec::as_slice)) {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    }
    hash.finalize().into()
}

/// NVRTC's failure as a status. The codes are those of `nvrtcResult`.
fn report(name: &str, failure: &Failure) -> Status {
    let log = crate::wasm::sanitize(&failure.log, failure.log.len(), MAX_LOG);
    let (code, blame) = match failure.code {
        // NVRTC_ERROR_COMPILATION
        6 => (StatusCode::InvalidArgument, Blame::Guest),
        // NVRTC_ERROR_OUT_OF_MEMORY
        1 => (StatusCode::ResourceExhausted, Blame::Host),
        _ => (StatusCode::Internal, Blame::Host),
    };
    let expected = match code {
        StatusCode::InvalidArgument => "expected CUDA source that compiles",
        _ => "expected NVRTC to compile it",
    };
    let found = &failure.name;
    let end = if log.is_empty() { "" } else { ":\n" };
    Status::new(
        code,
        blame,
        format!(
            "source {name:?}: {expected}, found {found}{end}{}",
            log.trim_end()
        ),
    )
}

#[cfg(test)]
mod tests;
