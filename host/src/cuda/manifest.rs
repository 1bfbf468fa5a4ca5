//! Kernels described as data: the manifest `callbox.json`.
//!
//! A manifest lies beside the files that it names: PTX, cubins, fatbins and CUDA sources. It says which kernels a target launches, with which
//! parameters and on how many threads, so that no code of the author's runs on the host. Nothing here knows a driver: a manifest is read
//! once ([`Manifest::parse`]), and each call site gets a plan of numbers ([`KernelTarget::plan`]), for its shapes and attributes are known
//! before it runs.
//!
//! `guests/MANIFEST.md` describes the format, `host/callbox.schema.json` is its JSON Schema. The kernels are native code: whoever loads a
//! manifest's images trusts them, by the digest that [`digest`] makes of them.

mod digest;
mod document;
mod launch;
mod locate;
mod message;
mod parameter;
mod plan;
mod read;
mod target;

pub use self::digest::digest;
use self::message::Message;
use self::parameter::Parameter;
pub use self::parameter::{PlannedParameter, check_parameters};
pub use self::plan::{PlannedCall, PlannedLaunch};
use super::expression::Expression;
use crate::call::Signature;
use crate::values::StatusCode;

/// The version of the format that this host reads.
pub const FORMAT: u64 = 1;

/// A manifest that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The files with the kernels. Names are unique.
    pub images: Vec<Image>,
    /// The targets. Names are unique.
    pub targets: Vec<KernelTarget>,
}

/// A file with kernels in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// By which launches name it.
    pub name: String,
    /// Its path from the manifest's folder, with `/` between names. It does not lead out of that folder.
    pub file: String,
    /// What is in it.
    pub kind: ImageKind,
    /// The path of the CUDA source that it was compiled from, if the manifest says.
    pub source: Option<String>,
    /// The SHA-256 of that source, in lower-case hexadecimal digits.
    pub source_sha256: Option<String>,
}

/// What an image's file has in it, as its extension says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ImageKind {
    /// `.ptx`: text that the driver compiles.
    Ptx,
    /// `.cubin`: code for one architecture.
    Cubin,
    /// `.fatbin`: code for several.
    Fatbin,
    /// `.cu`: CUDA source, which NVRTC compiles.
    Source,
}

impl ImageKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Ptx, Self::Cubin, Self::Fatbin, Self::Source];

    /// The extension of its files, without the point.
    #[must_use]
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Ptx => "ptx",
            Self::Cubin => "cubin",
            Self::Fatbin => "fatbin",
            Self::Source => "cu",
        }
    }
}

/// A target: what it declares of itself, and the kernels that a call of it launches.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelTarget {
    /// What it declares.
    pub signature: Signature,
    /// What a call launches, one after the other.
    pub launches: Vec<Launch>,
    checks: Vec<Check>,
    /// The sizes in bytes of the memory that it works in.
    scratch: Vec<Expression>,
}

/// A kernel, its parameters, and on how many threads it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Which of the manifest's images has the kernel.
    pub image: usize,
    /// The kernel's name there.
    pub entry: String,
    when: Option<Expression>,
    parameters: Vec<Parameter>,
    grid: Vec<Expression>,
    block: Vec<Expression>,
    shared_memory: Option<Expression>,
}

/// What must hold for a call site.
#[derive(Clone, Debug, PartialEq)]
struct Check {
    require: Expression,
    code: StatusCode,
    recoverable: bool,
    message: Message,
}

#[cfg(test)]
mod tests;
