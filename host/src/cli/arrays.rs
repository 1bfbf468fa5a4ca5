//! Arrays in files: .npy, and tensors of .safetensors.

pub(super) mod npy;
pub(super) mod tensors;

use std::fmt;
use std::fs::File;
use std::path::PathBuf;

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

/// Why an array could not be read: the file, or what it holds.
#[derive(Debug)]
pub(super) enum ReadError {
    Io(std::io::Error),
    Status(callbox::Status),
}

impl From<std::io::Error> for ReadError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<callbox::Status> for ReadError {
    fn from(status: callbox::Status) -> Self {
        Self::Status(status)
    }
}

/// What is wrong with what a file holds.
fn wrong(message: impl Into<String>) -> ReadError {
    ReadError::Status(callbox::Status::invalid_argument(message))
}

/// The elements in row-major order, of an array whose dimensions vary in this order, fastest first. Its size is that of a shape.
pub(super) fn to_row_major(
    bytes: &[u8],
    width: usize,
    dimensions: &[usize],
    minor_to_major: &[usize],
) -> Vec<u8> {
    let mut strides = vec![0; dimensions.len()];
    let mut stride = width;
    for &dimension in minor_to_major {
        strides[dimension] = stride;
        stride *= dimensions[dimension];
    }
    let mut index = vec![0; dimensions.len()];
    let mut at = 0;
    let mut elements = Vec::with_capacity(bytes.len());
    while elements.len() < bytes.len() {
        elements.extend_from_slice(&bytes[at..at + width]);
        for dimension in (0..dimensions.len()).rev() {
            index[dimension] += 1;
            at += strides[dimension];
            if index[dimension] < dimensions[dimension] {
                break;
            }
            at -= strides[dimension] * dimensions[dimension];
            index[dimension] = 0;
        }
    }
    elements
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_put_in_row_major_order() {
        // [[0, 1, 2], [3, 4, 5]] by columns.
        let columns = [0, 3, 1, 4, 2, 5];
        assert_eq!(
            to_row_major(&columns, 1, &[2, 3], &[0, 1]),
            [0, 1, 2, 3, 4, 5]
        );
        assert_eq!(to_row_major(&columns, 1, &[2, 3], &[1, 0]), columns);
        assert_eq!(to_row_major(&[1, 2], 2, &[], &[]), [1, 2]);
        assert!(to_row_major(&[], 4, &[3, 0], &[0, 1]).is_empty());
        // f[i][j][k] = 4i + 2j + k, with j fastest, then i, then k.
        let mixed = [0, 2, 4, 6, 1, 3, 5, 7];
        assert_eq!(
            to_row_major(&mixed, 1, &[2, 2, 2], &[1, 0, 2]),
            [0, 1, 2, 3, 4, 5, 6, 7]
        );
    }
}
