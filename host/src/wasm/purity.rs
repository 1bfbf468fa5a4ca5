//! Whether a target that declares itself pure is: the same operands give the same bits, whatever was called before.

use super::instance::Caller;
use super::prepared::Sites;
use crate::call::CallBuffers;
use crate::values::{Blame, Result, Status, StatusCode, zeroed};

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

/// Whether a failure says something of the target, and not of how much time or room there was.
fn is_the_targets_word(status: &Status) -> bool {
    status.blame() == Blame::Guest
        && !matches!(
            status.code(),
            StatusCode::Cancelled | StatusCode::DeadlineExceeded | StatusCode::ResourceExhausted
        )
}

impl Sites {
    /// Runs a call twice, in instances that nothing else has used, and gives its results if both times gave the same bits.
    ///
    /// # Errors
    /// What the call fails with; INTERNAL, the guest's doing, if it is not as pure as it says.
    pub(super) fn call_twice<B: CallBuffers>(
        &self,
        index: usize,
        caller: Caller<'_>,
        buffers: &mut B,
    ) -> Result<()> {
        let first = self.call_once(index, caller, buffers);
        if let Err(status) = &first
            && !is_the_targets_word(status)
        {
            return first.map(drop);
        }
        let second = self.call_once(index, caller, buffers);
        match (first, second) {
            (_, Err(status)) if !is_the_targets_word(&status) => Err(status),
            (Ok(first), Ok(second)) => {
                self.compare(index, &first, &second)?;
                for (result, bytes) in first.iter().enumerate() {
                    buffers.write(result, 0, bytes);
                }
                Ok(())
            }
            (Err(first), Err(second)) if first.code() == second.code() => Err(first),
            (Err(first), Err(second)) => Err(self.impure(
                index,
                &format!(
                    "{} the first time and {} the second",
                    first.code(),
                    second.code()
                ),
            )),
            (Err(status), Ok(_)) | (Ok(_), Err(status)) => {
                Err(self.impure(index, &format!("results once and {status} once")))
            }
        }
    }

    /// The results, which the caller's buffers do not have yet: they may be where the operands are.
    fn call_once<B: CallBuffers>(
        &self,
        index: usize,
        caller: Caller<'_>,
        buffers: &B,
    ) -> Result<Vec<Vec<u8>>> {
        // As long as the call site says: whether the caller's are is looked at before anything is written.
        let sizes = self.sites.get(index).map(|site| &site.result_sizes);
        let results = sizes.into_iter().flatten().map(|&size| zeroed(size));
        let mut apart = ResultsApart {
            buffers,
            results: results.collect::<Result<_>>()?,
        };
        self.call_fresh(index, caller, &mut apart)?;
        Ok(apart.results)
    }

    fn compare(&self, index: usize, first: &[Vec<u8>], second: &[Vec<u8>]) -> Result<()> {
        for (i, (first, second)) in std::iter::zip(first, second).enumerate() {
            let mut pairs = std::iter::zip(first, second);
            if let Some(at) = pairs.position(|(first, second)| first != second) {
                let found = format!("result {i} with other bits from byte {at} on");
                return Err(self.impure(index, &found));
            }
        }
        Ok(())
    }

    fn impure(&self, index: usize, found: &str) -> Status {
        let what = self.what(index);
        Status::new(
            StatusCode::Internal,
            Blame::Guest,
            format!(
                "{what}: expected a target that is declared pure to give the same twice, found {found}"
            ),
        )
    }
}
