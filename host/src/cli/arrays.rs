//! Arrays in files, as the command line names them.

use std::fmt;
use std::fs::File;
use std::path::PathBuf;

use callbox::arrays::{ReadError, npy, tensors};
use callbox::{ElementType, Literal};

use super::failure::{Failure, Outcome};

/// A file that holds an array, as the command line names it.
#[derive(Clone, Debug)]
pub(super) enum ArrayFile {
    /// `FILE.npy`: any name that is not that of a tensor.
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
    /// Reads the array. Some element types have no name in these formats and go by another: `expected` says which one is meant.
    pub(super) fn read(&self, expected: Option<ElementType>) -> Outcome<Literal> {
        let (Self::Npy(path) | Self::Tensor { path, .. }) = self;
        let cannot = |error| Failure::file(format!("expected to read {}", path.display()), &error);
        let file = File::open(path).map_err(cannot)?;
        let read = match self {
            Self::Npy(_) => npy::read(file, expected),
            Self::Tensor { name, .. } => tensors::read(file, name, expected),
        };
        read.map_err(|error| match error {
            ReadError::Io(error) => cannot(error),
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
