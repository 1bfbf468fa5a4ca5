//! Failures of a batch's elements.

use std::ops::Range;

use super::{At, Batch};
use crate::call::{CallOptions, Delays};
use crate::values::{Blame, Result, Status, StatusCode};

/// Handles the failure of elements: takes the buffers, the elements and the failure. `Err` ends the
/// call.
pub type Failed<'a, B> = dyn FnMut(&mut B, Range<usize>, Status) -> Result<()> + 'a;

/// Whether the call as a whole is out of time or fuel, or cancelled. In the deterministic mode the
/// elements share its fuel, and one that was refused what others take leaves another part of it
/// than it would alone: the call is over.
pub(super) fn is_over(status: &Status, options: &CallOptions) -> bool {
    if status.is_lack() && options.fuel.is_some() {
        return true;
    }
    let is_stopped = matches!(
        status.code(),
        StatusCode::DeadlineExceeded | StatusCode::Cancelled
    );
    // The guest of a call that is blamed on the caller did not run.
    is_stopped && (status.blame() == Blame::Caller || options.is_over())
}

/// The failure of a part of a call, which is not the first if `number` is not 0.
pub(in crate::call) fn of_part(number: usize, status: Status, options: &CallOptions) -> Status {
    if number == 0 {
        status
    } else {
        of_later_part(status, options)
    }
}

/// The failure of a part that is called after others. If no time was left for it, it was not
/// called, because the target took it in the parts before, unless they waited for most of it.
pub(in crate::call) fn of_later_part(status: Status, options: &CallOptions) -> Status {
    let is_late = status.code() == StatusCode::DeadlineExceeded && status.blame() == Blame::Caller;
    if !is_late || options.delays.as_ref().is_some_and(Delays::are_to_blame) {
        return status;
    }
    let message = format!("{}: the calls before it took that long", status.message());
    Status::new(status.code(), Blame::Guest, message)
}

impl Batch {
    /// Reports the failure of an element, and returns whether others are to be called. If the call
    /// is over, the failure of all that follow is reported at once: refusing each would take long.
    pub(in crate::call) fn report(
        &self,
        options: &CallOptions,
        number: usize,
        status: Status,
        mut failed: impl FnMut(Range<usize>, Status) -> Result<()>,
    ) -> Result<bool> {
        let is_over = is_over(&status, options);
        let status = of_part(number, status, options);
        let (position, next, last) = (self.position(number), number + 1, self.count - 1);
        let status = if self.sizes.is_empty() {
            status
        } else {
            status.context(format_args!("batch element {}", At(&position)))
        };
        if is_over && next < self.count {
            let elements = match (self.position(next), self.position(last)) {
                (next, last) if next == last => format!("batch element {} was", At(&next)),
                (next, last) => format!("batch elements {} to {} were", At(&next), At(&last)),
            };
            let message = format!("{elements} not called: {}", status.message());
            let rest = Status::new(status.code(), status.blame(), message);
            failed(number..next, status)?;
            failed(next..self.count, rest)?;
        } else {
            failed(number..next, status)?;
        }
        Ok(!is_over)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::call::Fuel;

    #[test]
    fn a_later_part_is_not_to_blame_where_the_call_waited_for_most_of_its_time() {
        let delays = Delays::begin();
        let options = CallOptions {
            delays: Some(delays.clone()),
            ..CallOptions::default()
        };
        let late = || Status::new(StatusCode::DeadlineExceeded, Blame::Caller, "late");
        let blame = |number, options| of_part(number, late(), options).blame();
        assert_eq!(blame(0, &options), Blame::Caller);
        assert_eq!(blame(1, &options), Blame::Guest);
        delays.add(Duration::from_secs(3600));
        assert_eq!(blame(1, &options), Blame::Caller);
        assert_eq!(blame(1, &CallOptions::default()), Blame::Guest);
    }

    #[test]
    fn a_lack_ends_a_call_that_shares_fuel() {
        let lack = |blame| Status::new(StatusCode::ResourceExhausted, blame, "lack");
        let options = CallOptions {
            fuel: Some(Fuel::new(1)),
            ..CallOptions::default()
        };
        assert!(is_over(&lack(Blame::Caller), &options));
        assert!(!is_over(&lack(Blame::Guest), &options));
        assert!(!is_over(&lack(Blame::Caller), &CallOptions::default()));
    }
}
