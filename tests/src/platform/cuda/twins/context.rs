//! Twins of `guests/typed_ffi/src/context.rs`: user data, literals and scratch memory.

use callbox::cuda::{CudaCall, CudaTarget};
use callbox::{Result, StatusCode};

use super::results::{expect_alike, give, give_bytes, give_one};
use super::twin;
use super::words::{asked, attribute, failure, find, invalid_argument, scalar, text};

pub(super) fn twins() -> Vec<(&'static str, CudaTarget)> {
    vec![
        twin("user_data", |call| {
            let name = attribute("name", find(call.attributes(), "name").and_then(text))?;
            match call.user_data(name) {
                Some(bytes) => {
                    let bytes = bytes.to_vec();
                    give(call, 0, &bytes)
                }
                None => Err(failure(
                    StatusCode::NotFound,
                    format!("no user data {name:?}"),
                )),
            }
        }),
        twin("literal", literal),
        twin("scratch_alignment", scratch_alignment),
    ]
}

fn literal(call: &mut CudaCall<'_>) -> Result<()> {
    let literal = call.site().literal.as_ref();
    let leaves: Vec<_> = literal
        .into_iter()
        .flat_map(|literal| literal.leaves())
        .collect();
    let results = call.results().len();
    if leaves.len() != results {
        return Err(invalid_argument(format!(
            "expected a result for each of the literal's {} leaves, found {results}",
            leaves.len()
        )));
    }
    for (number, (shape, bytes)) in leaves.into_iter().enumerate() {
        expect_alike(shape, call.results()[number].shape())?;
        give_bytes(call, number, bytes)?;
    }
    Ok(())
}

/// A device's memory is aligned to 256 bytes: for a larger alignment, more memory is allocated.
/// Only modules promise zeroed memory.
fn scratch_alignment(call: &mut CudaCall<'_>) -> Result<()> {
    const LEAST: u64 = 256;
    let size = asked(call.attributes(), "size", scalar::<u32>)?;
    let alignment = asked(call.attributes(), "alignment", scalar::<u32>)?;
    if !alignment.is_power_of_two() {
        return Err(invalid_argument("Unsupported alignment"));
    }
    let alignment = u64::from(alignment);
    let room = u64::from(size) + alignment.saturating_sub(LEAST);
    let memory = call.scratch(room as usize)?;
    let begin = memory.address().next_multiple_of(alignment);
    let is_so = begin + u64::from(size) <= memory.address() + room;
    give_one(call, 0, i32::from(is_so))
}
