//! Libraries with targets of the C ABI, which `cargo xtask ptx --libraries` builds from
//! `guests/cuda`.

use std::sync::Arc;

use anyhow::Result;
use callbox::call::ApiVersion;
use callbox::cuda::{Buffers, CudaModule, LibraryTarget};

use super::{Manner, trusted};
use crate::module::repository;

/// A guest's libraries.
#[derive(Debug)]
pub(super) struct Libraries {
    /// The guest.
    pub(super) guest: &'static str,
    /// The file for leaves.
    leaves: &'static str,
    /// The file for preorder. Arrays alone have the same pointers in both.
    preorder: &'static str,
    /// The targets, each with its convention, which a library does not record.
    targets: &'static [(&'static str, ApiVersion)],
}

use ApiVersion::{Original, StatusReturning};

/// All of them.
pub(super) static LIBRARIES: [Libraries; 4] = [
    Libraries {
        guest: "do_custom_call",
        leaves: "do_custom_call.so",
        preorder: "do_custom_call.so",
        targets: &[("do_custom_call", Original)],
    },
    Libraries {
        guest: "do_custom_call_status",
        leaves: "do_custom_call_status.so",
        preorder: "do_custom_call_status.so",
        targets: &[
            ("do_custom_call", StatusReturning),
            ("ignores_status", StatusReturning),
        ],
    },
    Libraries {
        guest: "do_custom_call_tuples",
        leaves: "do_custom_call_tuples.so",
        preorder: "do_custom_call_tuples_preorder.so",
        targets: &[("do_custom_call", Original)],
    },
    Libraries {
        guest: "conventions",
        leaves: "conventions.so",
        preorder: "conventions_preorder.so",
        targets: &[
            ("ones", Original),
            ("ones_status", StatusReturning),
            ("ones_unified", StatusReturning),
            ("regroup", Original),
            ("regroup_status", StatusReturning),
            ("regroup_unified", StatusReturning),
            ("scratch", Original),
            ("scratch_status", StatusReturning),
            ("scratch_unified", StatusReturning),
            ("in_place", Original),
            ("in_place_status", StatusReturning),
            ("in_place_unified", StatusReturning),
            ("do_custom_call_sized", Original),
            ("set_status", StatusReturning),
            ("report_failure", StatusReturning),
            ("echo_opaque", StatusReturning),
            ("fail_with_opaque", StatusReturning),
            ("empty_tuple_and_token", Original),
            ("empty_tuple_and_token_status", StatusReturning),
            ("empty_tuple_and_token_unified", StatusReturning),
        ],
    },
];

/// Targets that exist for preorder only: an empty tuple has no leaf.
const PREORDER_ALONE: &str = "empty_tuple_and_token";

/// A guest's libraries, if it has any.
pub(super) fn of(guest: &str) -> Option<&'static Libraries> {
    LIBRARIES.iter().find(|libraries| libraries.guest == guest)
}

/// Whether a guest's target is a function of the C ABI.
pub(super) fn has(guest: &str, target: &str) -> bool {
    let targets = of(guest)
        .into_iter()
        .flat_map(|libraries| libraries.targets);
    targets.into_iter().any(|(name, _)| *name == target)
}

/// The manner in which a target is called, if this one is asked for.
pub(super) fn manner_of(target: &str, manner: Manner) -> Manner {
    match manner {
        Manner::Leaves if target.starts_with(PREORDER_ALONE) => Manner::Preorder,
        manner => manner,
    }
}

impl Libraries {
    /// Loads the library for this manner.
    ///
    /// # Errors
    /// A library that was not built.
    pub(super) fn load(&self, manner: Manner) -> Result<Arc<CudaModule>> {
        let buffers = manner.buffers();
        let file = match buffers {
            Buffers::Leaves => self.leaves,
            Buffers::Preorder => self.preorder,
        };
        let path = repository().join("target/guests").join(file);
        let has = |name: &str| buffers == Buffers::Preorder || !name.starts_with(PREORDER_ALONE);
        let targets = self.targets.iter().filter(|(name, _)| has(name));
        let targets = targets.map(|&(name, api_version)| LibraryTarget {
            name: name.to_owned(),
            api_version,
            buffers,
        });
        let module = trusted::library(&path, &targets.collect::<Vec<_>>())?;
        Ok(module.with_conventions(manner.conventions()))
    }
}
