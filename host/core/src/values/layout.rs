//! Layouts: the order of an array's elements in memory.

use std::fmt;
use std::sync::Arc;

use super::{Result, Status};

/// The order of an array's dimensions in memory, from the fastest-varying to the slowest: XLA's
/// minor-to-major. Elements are dense. Tiles and memory spaces are not supported.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    minor_to_major: Arc<[usize]>,
}

impl Layout {
    /// The layout with this minor-to-major order.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it is not a permutation of the numbers below its length.
    pub fn new(minor_to_major: &[usize]) -> Result<Self> {
        let mut seen = vec![false; minor_to_major.len()];
        for &dimension in minor_to_major {
            match seen.get_mut(dimension) {
                Some(seen) if !*seen => *seen = true,
                _ => {
                    return Err(Status::invalid_argument(format!(
                        "expected a layout that names each of {} dimensions once, found {}",
                        minor_to_major.len(),
                        Text(minor_to_major)
                    )));
                }
            }
        }
        Ok(Self {
            minor_to_major: minor_to_major.into(),
        })
    }

    /// XLA's default layout of an array of this rank: row-major, the last dimension fastest.
    #[must_use]
    pub fn row_major(rank: usize) -> Self {
        Self {
            minor_to_major: (0..rank).rev().collect(),
        }
    }

    /// The dimension numbers, from the fastest-varying to the slowest.
    #[must_use]
    pub fn minor_to_major(&self) -> &[usize] {
        &self.minor_to_major
    }

    /// The number of dimensions.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.minor_to_major.len()
    }

    /// Whether it is the default layout.
    #[must_use]
    pub fn is_row_major(&self) -> bool {
        self.minor_to_major.iter().rev().copied().eq(0..self.rank())
    }
}

impl fmt::Display for Layout {
    /// Prints it as XLA does: `{1,0}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Text(&self.minor_to_major).fmt(f)
    }
}

/// Numbers in braces.
struct Text<'a>(&'a [usize]);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (i, dimension) in self.0.iter().enumerate() {
            write!(f, "{}{dimension}", if i == 0 { "" } else { "," })?;
        }
        f.write_str("}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_permutations_are_layouts() {
        assert_eq!(
            Layout::new(&[1, 0]).map(|l| l.to_string()),
            Ok("{1,0}".into())
        );
        assert!(Layout::new(&[]).is_ok_and(|l| l.is_row_major()));
        for wrong in [&[0, 0][..], &[1], &[0, 2], &[usize::MAX]] {
            assert!(Layout::new(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn row_major_is_recognised() {
        assert!(Layout::row_major(3).is_row_major());
        assert!(Layout::new(&[0, 1]).is_ok_and(|l| !l.is_row_major()));
    }
}
