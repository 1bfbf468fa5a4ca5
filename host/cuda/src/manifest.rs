//! Kernels described as data: the manifest `callbox.json`.
//!
//! A manifest is a file beside the images that it names: PTX, cubins, fatbins and CUDA sources. It
//! lists the kernels that a target launches, with their parameters and numbers of threads, so that
//! no code of the author runs on the host.
//!
//! A manifest is parsed once ([`Manifest::parse`]), and each call site gets a plan of numbers
//! ([`KernelTarget::plan`]): its shapes and attributes are known before it runs. Nothing in this
//! module uses a driver. A target's checks are evaluated with the plan, but fail the call, as the
//! checks of a target on the Host platform do.
//!
//! `guests/MANIFEST.md` describes the format, and `host/cuda/callbox.schema.json` is its JSON
//! Schema. With a [grant](crate::NativeGrants) of its [`digest`] the kernels are loaded as native
//! code, and PTX without a grant is fenced.

mod digest;
mod document;
mod fenced;
mod launch;
mod locate;
mod message;
mod parameter;
mod plan;
mod read;
mod target;

use callbox_core::call::Signature;
use callbox_core::values::StatusCode;

pub use self::digest::{ManifestDigest, digest};
pub(crate) use self::document::MAX_LENGTH;
pub use self::fenced::FencedLaunch;
use self::message::Message;
use self::parameter::Parameter;
pub use self::parameter::{PlannedParameter, check_parameters};
pub use self::plan::{PlannedCall, PlannedLaunch};
use super::expression::Expression;

/// The version of the format.
pub const FORMAT: u64 = 1;

/// A parsed manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The files with the kernels. Names are unique.
    pub images: Vec<Image>,
    /// The targets. Names are unique.
    pub targets: Vec<KernelTarget>,
}

/// A file with kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The name that launches refer to.
    pub name: String,
    /// The path from the manifest's folder, with `/` between names. It stays inside that folder.
    pub file: String,
    /// The kind of its content.
    pub kind: ImageKind,
    /// The path of the CUDA source that it was compiled from, if the manifest names one.
    pub source: Option<String>,
    /// The SHA-256 digest of that source, in lower-case hexadecimal digits.
    pub source_sha256: Option<String>,
}

/// The kind of an image, by its file's extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ImageKind {
    /// `.ptx`: text, which the driver compiles.
    Ptx,
    /// `.cubin`: code of one architecture.
    Cubin,
    /// `.fatbin`: code of several architectures.
    Fatbin,
    /// `.cu`: CUDA source, which NVRTC compiles.
    Source,
}

impl ImageKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Ptx, Self::Cubin, Self::Fatbin, Self::Source];

    /// The extension of such files, without the dot.
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

/// A target: its declaration, and the kernels that a call launches.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelTarget {
    /// The declared name, operands, results and attributes.
    pub signature: Signature,
    /// The launches of a call, in order.
    pub launches: Vec<Launch>,
    checks: Vec<Check>,
    /// The sizes of the scratch memory, in bytes.
    scratch: Vec<Expression>,
}

/// A launch of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// The number of the image with the kernel.
    pub image: usize,
    /// The kernel's name in the image.
    pub entry: String,
    when: Option<Expression>,
    parameters: Vec<Parameter>,
    grid: Vec<Expression>,
    block: Vec<Expression>,
    shared_memory: Option<Expression>,
}

/// A condition that a call site must fulfil.
#[derive(Clone, Debug, PartialEq)]
struct Check {
    require: Expression,
    code: StatusCode,
    recoverable: bool,
    message: Message,
}

#[cfg(test)]
mod tests;
