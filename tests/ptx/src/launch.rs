//! Launches as test data: `kernels.json`, and the first lines of hostile kernels.

use std::path::Path;

use anyhow::{Context, Result};
use callbox_ptx::verify::{Launch, Param};
use serde::Deserialize;

/// The launches of this repository's kernels, relative to its root.
pub const KERNELS: &str = "tests/ptx/kernels.json";

/// A launch.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchData {
    /// The number of blocks in each dimension.
    #[serde(default = "one")]
    pub grid: [u32; 3],
    /// The number of threads of a block in each dimension.
    #[serde(default = "one")]
    pub block: [u32; 3],
    /// The dynamic shared memory, in bytes.
    #[serde(default)]
    pub shared_bytes: u32,
    /// The parameters, in order.
    #[serde(default)]
    pub params: Vec<ParamData>,
    /// Whether the kernel may read clocks.
    #[serde(default)]
    pub has_clock: bool,
}

/// A kernel of this repository, and a launch.
#[derive(Clone, Debug, Deserialize)]
pub struct KernelData {
    /// The file, relative to the root.
    pub file: String,
    /// The kernel's name.
    pub entry: String,
    /// The launch.
    #[serde(flatten)]
    pub launch: LaunchData,
}

/// A parameter.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum ParamData {
    /// A buffer that the kernel may read.
    Read {
        /// The size in bytes.
        read: u64,
        /// The alignment of the address, in bytes.
        #[serde(default = "usual_align")]
        align: u32,
    },
    /// A buffer that the kernel may read and write.
    Write {
        /// The size in bytes.
        write: u64,
        /// The alignment of the address, in bytes.
        #[serde(default = "usual_align")]
        align: u32,
    },
    /// A number of 8 bytes.
    U64 {
        /// The number.
        u64: u64,
    },
    /// A number of 4 bytes.
    U32 {
        /// The number.
        u32: u32,
    },
    /// A floating-point number of 4 bytes.
    F32 {
        /// The number.
        f32: f32,
    },
    /// A structure, or a scalar of another size.
    Bytes {
        /// The bytes.
        bytes: Vec<u8>,
    },
}

fn one() -> [u32; 3] {
    [1; 3]
}

fn usual_align() -> u32 {
    256
}

impl LaunchData {
    /// The launch, as the verifier takes it.
    pub fn launch(&self) -> Launch {
        Launch {
            grid: self.grid,
            block: self.block,
            shared_bytes: self.shared_bytes,
            params: self.params.iter().map(ParamData::param).collect(),
            has_clock: self.has_clock,
        }
    }
}

impl ParamData {
    fn param(&self) -> Param {
        let buffer = |bytes: u64, writable: bool, align: u32| Param::Buffer {
            bytes,
            writable,
            align,
        };
        match self {
            Self::Read { read, align } => buffer(*read, false, *align),
            Self::Write { write, align } => buffer(*write, true, *align),
            Self::U64 { u64 } => Param::Value(u64.to_le_bytes().to_vec()),
            Self::U32 { u32 } => Param::Value(u32.to_le_bytes().to_vec()),
            Self::F32 { f32 } => Param::Value(f32.to_le_bytes().to_vec()),
            Self::Bytes { bytes } => Param::Value(bytes.clone()),
        }
    }
}

/// Reads the launches of this repository's kernels.
///
/// # Errors
/// A file that is missing or malformed.
pub fn kernels(root: &Path) -> Result<Vec<KernelData>> {
    let text = std::fs::read_to_string(root.join(KERNELS)).with_context(|| KERNELS)?;
    serde_json::from_str(&text).with_context(|| KERNELS)
}
