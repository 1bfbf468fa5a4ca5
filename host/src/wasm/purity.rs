//! Whether a target that declares itself pure is: the same operands give the same bits, whatever was called before.

use super::instance::Caller;
use super::prepared::Sites;
use crate::values::{Blame, Result, Status, StatusCode};

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
    pub(super) fn call_twice(
        &self,
        index: usize,
        caller: Caller<'_>,
        operands: &[&[u8]],
        results: &mut [&mut [u8]],
    ) -> Result<()> {
        let first = self.call_once(index, caller, operands, results);
        if let Err(status) = &first
            && !is_the_targets_word(status)
        {
            return first.map(drop);
        }
        let second = self.call_once(index, caller, operands, results);
        match (first, second) {
            (_, Err(status)) if !is_the_targets_word(&status) => Err(status),
            (Ok(first), Ok(second)) => {
                self.compare(index, &first, &second)?;
                for (result, bytes) in std::iter::zip(results, &first) {
                    result.copy_from_slice(bytes);
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

    fn call_once(
        &self,
        index: usize,
        caller: Caller<'_>,
        operands: &[&[u8]],
        results: &[&mut [u8]],
    ) -> Result<Vec<Vec<u8>>> {
        let mut bytes: Vec<_> = results.iter().map(|result| vec![0; result.len()]).collect();
        let mut buffers: Vec<_> = bytes.iter_mut().map(Vec::as_mut_slice).collect();
        self.call_fresh(index, caller, operands, &mut buffers)?;
        Ok(bytes)
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
