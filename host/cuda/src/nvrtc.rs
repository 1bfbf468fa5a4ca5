//! NVRTC: CUDA source compiled to PTX in this process, without a device.
//!
//! A manifest may name CUDA source (`.cu`) as an image. A user who has NVIDIA's runtime packages,
//! as JAX and PyTorch install them, then needs no CUDA toolkit to run a kernel. The library is
//! searched for once, when it is first needed ([`find`]), and opened by the path that was found:
//! cudarc opens the first of a list of names, and panics without one.
//!
//! A source is compiled once for each device, because the device keeps the module. The resulting
//! PTX is trusted as the source is.

mod library;

use std::ffi::CString;
use std::path::PathBuf;
use std::sync::OnceLock;

use callbox_core::untrusted_text::sanitize;
use callbox_core::values::{Blame, Result, Status, StatusCode};

use self::library::{Failure, Library};
use crate::places::{self, SearchPlace, Sought, SystemSearch};

/// The options for every source, besides its architecture.
///
/// The language is C++17. Multiplications and additions are not contracted, so that a kernel and
/// its CPU twin have the same bits (`__fmaf_rn` contracts explicitly), and headers are not searched
/// for in the working directory, as they are by default. Everything else is as in `nvcc`: divisions
/// and square roots are IEEE 754's, and denormal numbers are kept.
pub const OPTIONS: &[&str] = &["--std=c++17", "--fmad=false", "--no-source-include"];

/// The search for the library.
const SOUGHT: Sought = Sought {
    variable: "CALLBOX_NVRTC",
    system: SystemSearch::Loader,
    packages: &["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"],
    toolkit: "lib64",
    conda: "lib",
};

/// The most bytes of the compiler's log in a message.
const MAX_LOG: usize = 16 << 10;

/// The library NVRTC, as found on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The library's file, or only its name if the loader found it.
    pub path: PathBuf,
    /// The version, such as `(13, 0)`.
    pub version: (u32, u32),
}

/// Finds NVRTC. The answer stays the same for the life of the process.
///
/// If the environment variable `CALLBOX_NVRTC` is set, it names the library's file or folder.
/// Otherwise the search goes through the loader's path, NVIDIA's packages from PyPI (in the virtual
/// environment, the conda environment, the user's packages and the system's), and the CUDA
/// toolkit's folder.
///
/// # Errors
/// UNAVAILABLE, with every place that was searched and how to install NVRTC.
pub fn find() -> Result<Found> {
    library().map(|library| library.found.clone())
}

/// Compiles CUDA source to PTX for a compute capability such as `(9, 0)`. `name` stands in the
/// compiler's messages.
///
/// The virtual architecture is the newest that NVRTC knows and that is not above the compute
/// capability: the driver runs PTX of older architectures on newer devices.
///
/// # Errors
/// INVALID_ARGUMENT, with the compiler's log, for a source that does not compile; for a NUL in the
/// source or its name; and for a compute capability below those of NVRTC. UNAVAILABLE without
/// NVRTC.
pub fn compile(name: &str, source: &str, compute_capability: (u32, u32)) -> Result<String> {
    let c_name = without_nul("the source's name", name)?;
    let c_source = without_nul(&format!("source {name:?}"), source)?;
    let library = library()?;
    let arch = architecture(compute_capability, library)?;
    let arch = format!("--gpu-architecture=compute_{arch}");
    let options = OPTIONS.iter().copied().chain([arch.as_str()]);
    let options = options.map(|option| without_nul("an option", option));
    let options = options.collect::<Result<Vec<_>>>()?;
    let ptx = library.compile(&c_name, &c_source, &options);
    let ptx = ptx.map_err(|failure| report(name, &failure))?;
    String::from_utf8(ptx).map_err(|_| Status::internal("NVRTC returned PTX that is not UTF-8"))
}

/// Opens the library, once.
fn library() -> Result<&'static Library> {
    static LIBRARY: OnceLock<Result<Library>> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| open(&places::ambient(&SOUGHT)));
    library.as_ref().map_err(Clone::clone)
}

/// Opens the first library that is at one of the places.
fn open(places: &[SearchPlace]) -> Result<Library> {
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
            SOUGHT.variable,
            missing.join("\n")
        ),
    ))
}

fn without_nul(what: &str, text: &str) -> Result<CString> {
    CString::new(text).map_err(|error| {
        let position = error.nul_position();
        let line = 1 + text[..position].matches('\n').count();
        Status::invalid_argument(format!(
            "{what}: expected text without NUL, found one at byte {position}, on line {line}"
        ))
    })
}

/// The newest architecture of NVRTC that is not above a device's, such as `90`.
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

/// NVRTC's failure as a status.
fn report(name: &str, failure: &Failure) -> Status {
    let log = sanitize(&failure.log, failure.log.len(), MAX_LOG);
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
