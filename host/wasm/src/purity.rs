//! Checks targets that declare themselves pure: two calls in fresh instances must give equal bits.
//!
//! This finds results that depend on the instance's memory, random bytes or clocks. It proves
//! nothing: an impure target can give equal bits twice.

use super::instance::Caller;
use super::prepared::Sites;
use callbox_core::call::CallBuffers;
use callbox_core::values::{Blame, Result, Status, StatusCode, untouched};

/// A caller's buffers with results of their own.
struct ResultsApart<'a, B> {
    buffers: &'a B,
    results: Vec<Vec<u8>>,
}

impl<B: CallBuffers> CallBuffers for ResultsApart<'_, B> {
    fn operands(&self) -> usize {
        self.buffers.operands()
    }

    fn operand_size(&self, operand: usize) -> usize {
        self.buffers.operand_size(operand)
    }

    fn read(&self, operand: usize, at: usize, into: &mut [u8]) {
        self.buffers.read(operand, at, into);
    }

    fn results(&self) -> usize {
        self.buffers.results()
    }

    fn result_size(&self, result: usize) -> usize {
        self.buffers.result_size(result)
    }

    fn write(&mut self, result: usize, at: usize, bytes: &[u8]) {
        self.results[result][at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// Whether a failure depends on the target alone, rather than on time or room.
fn is_the_targets_own(status: &Status) -> bool {
    status.blame() == Blame::Guest
        && !matches!(
            status.code(),
            StatusCode::Cancelled | StatusCode::DeadlineExceeded | StatusCode::ResourceExhausted
        )
}

/// Makes a call twice, in fresh instances. Writes the results if both calls gave the same bits.
///
/// # Errors
/// The failure of the call; INTERNAL, blamed on the guest, if the target is not pure.
pub(super) fn call_twice<B: CallBuffers>(
    sites: &Sites,
    index: usize,
    caller: Caller<'_>,
    buffers: &mut B,
) -> Result<()> {
    // One deadline is for both.
    let policy = &sites.module.shared.policy;
    let options = &caller.options.begun_under(Some(policy));
    let caller = Caller { options, ..caller };
    let first = call_once(sites, index, caller, buffers);
    if let Err(status) = &first
        && !is_the_targets_own(status)
    {
        return first.map(drop);
    }
    let impure = |found: &str| Err(impure(&sites.module.label, sites.what(index), found));
    match (first, call_once(sites, index, caller, buffers)) {
        (_, Err(status)) if !is_the_targets_own(&status) => Err(status),
        (Ok(first), Ok(second)) => match difference(&first, &second) {
            Some(found) => impure(&found),
            None => {
                for (result, bytes) in first.iter().enumerate() {
                    buffers.write(result, 0, bytes);
                }
                Ok(())
            }
        },
        (Err(first), Err(second)) if first.code() == second.code() => Err(first),
        (Err(first), Err(second)) => impure(&format!(
            "{} the first time and {} the second",
            first.code(),
            second.code()
        )),
        (Err(status), Ok(_)) | (Ok(_), Err(status)) => {
            impure(&format!("results once and {status} once"))
        }
    }
}

/// Makes the call, and returns its results apart from the caller's buffers, which may share memory
/// with the operands.
fn call_once<B: CallBuffers>(
    sites: &Sites,
    index: usize,
    caller: Caller<'_>,
    buffers: &B,
) -> Result<Vec<Vec<u8>>> {
    // The sizes of the call site: the caller's are checked before anything is written.
    let sizes = sites.sites.get(index).map(|site| &site.result_sizes);
    let results = sizes
        .into_iter()
        .flat_map(|sizes| sizes.iter())
        .map(|&size| untouched(size));
    let mut apart = ResultsApart {
        buffers,
        results: results.collect::<Result<_>>()?,
    };
    sites.call_fresh(index, caller, &mut apart)?;
    Ok(apart.results)
}

/// Describes how the results of two calls differ.
fn difference(first: &[Vec<u8>], second: &[Vec<u8>]) -> Option<String> {
    let pairs = std::iter::zip(first, second).enumerate();
    pairs
        .filter(|(_, (first, second))| first != second)
        .find_map(|(i, (first, second))| {
            let at = std::iter::zip(first, second).position(|(first, second)| first != second)?;
            Some(format!("result {i} with other bits from byte {at} on"))
        })
}

fn impure(label: &str, what: &str, found: &str) -> Status {
    Status::new(
        StatusCode::Internal,
        Blame::Guest,
        format!(
            "{label}: {what}: expected a target that is declared pure to give the same twice, found {found}"
        ),
    )
}
