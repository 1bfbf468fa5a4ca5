//! How targets of the C ABI are passed their buffers, and whether kernels are fenced.

use std::fmt;

use callbox::cuda::{Buffers, Conventions};

/// How targets are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Manner {
    /// With a pointer for each leaf.
    Leaves,
    /// With a pointer for each sub-buffer, as far as its address is known.
    Preorder,
    /// The same with null pointers for all sub-buffers of operands.
    Nulls,
    /// The same, and the result's tables are checked after the call.
    CheckedNulls,
    /// With kernels that are not granted.
    Fenced,
}

impl Manner {
    /// Those of targets of the C ABI.
    pub(super) const OF_C: [Self; 4] = [
        Self::Leaves,
        Self::Preorder,
        Self::Nulls,
        Self::CheckedNulls,
    ];

    /// Those of kernels.
    pub(super) const OF_KERNELS: [Self; 2] = [Self::Leaves, Self::Fenced];

    pub(super) const fn buffers(self) -> Buffers {
        match self {
            Self::Leaves | Self::Fenced => Buffers::Leaves,
            Self::Preorder | Self::Nulls | Self::CheckedNulls => Buffers::Preorder,
        }
    }

    pub(super) const fn conventions(self) -> Conventions {
        Conventions {
            null_sub_buffers: matches!(self, Self::Nulls | Self::CheckedNulls),
            check_roots: matches!(self, Self::CheckedNulls),
        }
    }
}

impl fmt::Display for Manner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Leaves => "with a pointer for each leaf",
            Self::Preorder => "with pointers in preorder",
            Self::Nulls => "with pointers in preorder and nulls among them",
            Self::CheckedNulls => "with pointers in preorder, nulls among them and tables checked",
            Self::Fenced => "with fenced kernels",
        })
    }
}
