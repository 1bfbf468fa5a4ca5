//! Call sites: the text of a call in a program, and the call that is prepared from it.
//!
//! # Instances
//! An XLA handler is not told which executable calls it. Therefore an instance serves all calls of
//! one target with the same shapes and options. If the target has stages or static information, in
//! which an instance could hold state of the attributes, those are the same, too. With
//! `isolation="fresh"` an instance serves one call.
//!
//! # Batches
//! `vmap` is a loop here, in Rust, over a kernel that has no notion of batches. JAX's methods
//! `broadcast_all` and `expand_dims` would pass arrays of another rank to the kernel, which would
//! silently compute wrong values.
//!
//! # Statuses
//! XLA waits for all shards that take part in a collective, and ends the process if one failed.
//! Therefore a failure can be a result (`on_error="status"`), in one more array. The calls of a run
//! that are stopped share the limit's time ([`LateRuns`]).

mod late;
mod ready;
mod status;
mod text;

pub(crate) use self::late::LateRuns;
pub(crate) use self::ready::{Kept, Origin, Passage, Ready};
pub(crate) use self::status::{
    check_status, fill_with_status, last_failure, last_failures, no_status, note_failure, poison,
};
pub(crate) use self::text::{SiteText, StaticInfo};
pub(crate) use callbox::traced::{CallText, InfoText, Shapes, to_hex};
