//! How buffers are handed to targets of the C ABI.

use std::fmt;

use callbox::cuda::{Buffers, Conventions};

/// How targets of the C ABI are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Manner {
    /// With a pointer for each leaf.
    Leaves,
    /// With a pointer for each sub-buffer, as far as its address is known.
    Preorder,
    /// The same with null pointers for all sub-buffers of operands.
    Nulls,
    /// The same, and the result's tables are looked at afterwards.
    CheckedNulls,
}

impl Manner {
    /// All of them.
    pub(super) const ALL: [Self; 4] = [
        Self::Leaves,
        Self::Preorder,
        Self::Nulls,
        Self::CheckedNulls,
    ];

    pub(super) const fn buffers(self) -> Buffers {
        match self {
            Self::Leaves => Buffers::Leaves,
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
        })
    }
}
