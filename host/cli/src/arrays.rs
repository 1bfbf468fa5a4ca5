//! The arrays that a command line names.

use std::fmt;
use std::path::PathBuf;

use crate::files::{ReadError, npy, tensors};
use callbox::{ElementType, Literal};

use super::failure::Outcome;
use super::regular_file;

/// An array in a file.
#[derive(Clone, Debug)]
pub(super) enum ArrayFile {
    /// A file in NumPy's format: every argument that names no tensor.
    Npy(PathBuf),
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
        let (Self::Npy(path) | Self::Tensor { path, .. }) = self;
        let file = regular_file::open(path)?;
        let read = match self {
            Self::Npy(_) => npy::read(file, expected),
            Self::Tensor { name, .. } => tensors::read(file, name, expected),
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
            Self::Tensor { path, name } => write!(f, "{}#{name}", path.display()),
        }
    }
}
