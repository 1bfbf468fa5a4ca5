//! The arrays that a command line names or holds.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use crate::files::{ReadError, npy, tensors};
use callbox::{ElementType, Literal};
use callbox_core::text::shortened;

use super::attribute::ListArgument;
use super::failure::Outcome;
use super::regular_file;

/// An array in a file, or in the command line itself.
#[derive(Clone, Debug)]
pub(super) enum ArrayFile {
    /// A file in NumPy's format: every argument that names no tensor.
    Npy(PathBuf),
    /// `-`: a .npy file from standard input.
    StandardInput,
    /// `[1,2,3]:f32`.
    List {
        /// The text, for messages.
        text: String,
        /// What it says.
        list: ListArgument,
    },
    /// `FILE.safetensors#TENSOR`.
    Tensor {
        /// The file.
        path: PathBuf,
        /// The tensor in it.
        name: String,
    },
}

impl ArrayFile {
    /// Reads the array. The formats lack names for some element types: `expected` tells which one
    /// an array stored as another type has.
    pub(super) fn read(&self, expected: Option<ElementType>) -> Outcome<Literal> {
        let (path, read) = match self {
            Self::Npy(path) => (
                path.as_path(),
                npy::read(regular_file::open(path)?, expected),
            ),
            Self::StandardInput => (Path::new("-"), npy::read(io::stdin().lock(), expected)),
            Self::List { list, .. } => {
                return Ok(list
                    .literal(expected)
                    .map_err(|status| status.context(self))?);
            }
            Self::Tensor { path, name } => {
                let file = regular_file::open(path)?;
                (path.as_path(), tensors::read(file, name, expected))
            }
        };
        read.map_err(|error| match error {
            ReadError::Io(error) => regular_file::cannot(path, &error),
            ReadError::Status(status) => status.context(self).into(),
        })
    }
}

impl fmt::Display for ArrayFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Npy(path) => path.display().fmt(f),
            Self::StandardInput => f.write_str("standard input"),
            Self::List { text, .. } => shortened(text).fmt(f),
            Self::Tensor { path, name } => write!(f, "{}#{name}", path.display()),
        }
    }
}
