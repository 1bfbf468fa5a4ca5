//! Arrays in files: numpy's .npy, and the tensors of .safetensors.
//!
//! Files are untrusted: the readers check a file's claims before they reserve memory for it.

pub mod npy;
pub mod tensors;

use callbox::Status;

/// Why an array could not be read.
#[derive(Debug)]
pub enum ReadError {
    /// The file could not be read.
    Io(std::io::Error),
    /// The file holds no array, or one whose element type XLA lacks.
    Status(Status),
}

impl From<std::io::Error> for ReadError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Status> for ReadError {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// An error in a file's contents.
fn wrong(message: impl Into<String>) -> ReadError {
    ReadError::Status(Status::invalid_argument(message))
}

/// Rearranges elements into row-major order. `minor_to_major` lists the dimensions of `bytes`, the
/// fastest first.
///
/// # Panics
/// Panics if `bytes` does not have the size of the dimensions, or `minor_to_major` does not list
/// each of them once.
#[must_use]
pub fn to_row_major(
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
    // An array can have two hundred dimensions of one element, which lead nowhere.
    let along = std::iter::zip(dimensions, strides).filter(|(size, _)| **size != 1);
    let mut along: Vec<_> = along.map(|(&size, stride)| (0, size, stride)).collect();
    let mut at = 0;
    let mut elements = Vec::with_capacity(bytes.len());
    while elements.len() < bytes.len() {
        elements.extend_from_slice(&bytes[at..at + width]);
        for (index, size, stride) in along.iter_mut().rev() {
            *index += 1;
            at += *stride;
            if *index < *size {
                break;
            }
            at -= *stride * *size;
            *index = 0;
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
        assert_eq!(
            to_row_major(&columns, 1, &[1, 2, 1, 3, 1], &[0, 1, 2, 3, 4]),
            [0, 1, 2, 3, 4, 5]
        );
        // f[i][j][k] = 4i + 2j + k, with j fastest, then i, then k.
        let mixed = [0, 2, 4, 6, 1, 3, 5, 7];
        assert_eq!(
            to_row_major(&mixed, 1, &[2, 2, 2], &[1, 0, 2]),
            [0, 1, 2, 3, 4, 5, 6, 7]
        );
    }
}
