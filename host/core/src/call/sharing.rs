//! Shares the numbered parts of one call among several threads, each with an instance of its own.
//!
//! A part is an element of a batch or a piece of arrays, of a pure target: the results are the same
//! bits whichever thread computes them. Threads claim parts in order. If a part fails, threads that
//! are at later parts are stopped, and those at earlier ones go on, so that the failure of the
//! first part that fails is the one that the caller gets.
//!
//! A thread that helps takes only room that no other call needs, and is stopped in the middle of
//! its part where one does. A part that finds no room or is stopped is for the calling thread,
//! which can wait for room: calls end alike with threads that help and without.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::batch::of_later_part;
use super::prepared::{BufferExecution, DirectCalls};
use super::{CallOptions, CancelToken, Threads, team};
use crate::locks::locked;
use crate::values::{Result, Status};

/// The bytes in and out that a call without much to compute copies in a microsecond.
const BYTES_IN_A_MICROSECOND: u128 = 20 << 10;

/// The time between two looks of a thread that helps at whether another call needs its room.
const BETWEEN_LOOKS: Duration = Duration::from_micros(100);

/// The threads that share a call.
#[derive(Clone, Copy)]
pub(super) struct Sharing<'a> {
    pub(super) threads: &'a dyn Threads,
    /// The most threads, the calling one included.
    pub(super) most: usize,
}

/// The state of one thread that claims parts of a call.
pub(super) struct Worker<'w, 'c, C: DirectCalls + 'c> {
    calls: &'c C,
    /// The execution in this thread's instance. `None` after a call broke it.
    pub(super) run: Option<C::Run<'c>>,
    pub(super) options: CallOptions,
    claims: &'w Claims,
    number: usize,
    /// When it began the one part that it is at, where parts take long.
    begun: Option<Instant>,
    /// Whether it calls parts that others gave back, after later ones.
    goes_back: bool,
}

impl<'c, C: DirectCalls> Worker<'_, 'c, C> {
    /// The execution, or a new one.
    ///
    /// # Errors
    /// As for [`DirectCalls::begin_run`].
    pub(super) fn run(&mut self) -> Result<&mut C::Run<'c>> {
        match &mut self.run {
            Some(run) => Ok(run),
            none => Ok(none.insert(self.calls.begin_run(&self.options)?)),
        }
    }

    /// Claims parts for the calling thread, those first that others gave back. One that was stopped
    /// begins anew for these.
    fn next(&mut self) -> Option<Range<usize>> {
        let returned = (!self.is_stopped()).then(|| self.claims.take_returned(self.number));
        if let Some(range) = returned.flatten() {
            self.goes_back = true;
            return Some(range);
        }
        self.claims.take(self.number)
    }

    /// Calls a range of parts on a thread that helps, until another call needs its room more, or
    /// until `step` returns false. Returns whether the thread goes on.
    fn help(
        &mut self,
        range: Range<usize>,
        step: impl Fn(&mut Self, Range<usize>) -> bool,
    ) -> bool {
        let (mut next, mut size) = (range.start, 1);
        while next < range.end {
            let (end, begun) = (range.end.min(next + size), Instant::now());
            self.begun = (end - next == 1).then_some(begun);
            if !step(self, next..end) {
                return false;
            }
            next = end;
            if self.run.as_ref().is_some_and(BufferExecution::is_awaited) {
                self.claims.give_back(self.number, next, Duration::ZERO);
                return false;
            }
            if begun.elapsed() < BETWEEN_LOOKS {
                size *= 2;
            }
        }
        true
    }

    /// Goes on, on the calling thread, with parts that others gave back. Its execution ends if a
    /// part broke it, which would go on with another instance beside that one, or if the failure of
    /// an earlier part has stopped it.
    fn go_on(&mut self, options: &CallOptions) {
        self.goes_back = true;
        if self.run.as_mut().is_some_and(BufferExecution::has_broken) {
            self.run = None;
        }
        if self.is_stopped() {
            self.run = None;
            (self.number, self.options) = self.claims.join(options);
        }
    }

    fn is_stopped(&self) -> bool {
        let token = self.options.cancel.as_ref();
        token.is_some_and(CancelToken::is_cancelled)
    }

    /// Notes the failure of a part. Returns whether the thread goes on.
    pub(super) fn fail(&self, part: usize, status: Status) -> bool {
        if self.options.helps && (status.is_lack() || self.is_stopped()) {
            let lost = self.begun.map_or(Duration::ZERO, |begun| begun.elapsed());
            self.claims.give_back(self.number, part, lost);
            return false;
        }
        let status = if self.goes_back {
            of_later_part(status, &self.options)
        } else {
            status
        };
        self.claims.fail(part, status)
    }
}

/// Calls `step` for growing ranges of parts until the rest is worth waking threads for, or until it
/// returns false. Returns the number of the first part that is left to call.
///
/// # Errors
/// The failure of `step`.
pub(super) fn begin_alone<E>(
    threads: &dyn Threads,
    parts: Range<usize>,
    bytes: usize,
    mut step: impl FnMut(Range<usize>) -> Result<bool, E>,
) -> Result<usize, E> {
    let waking = threads.waking();
    if bytes as u128 >= waking.as_micros() * BYTES_IN_A_MICROSECOND {
        return Ok(parts.start);
    }
    let began = Instant::now();
    let (mut next, mut size) = (parts.start, 1);
    while next < parts.end && began.elapsed() < waking {
        let end = parts.end.min(next + size);
        if !step(next..end)? {
            return Ok(parts.end);
        }
        (next, size) = (end, size * 2);
    }
    Ok(next)
}

impl Sharing<'_> {
    /// Calls `step` for ranges of all parts on the calling thread and on others, each until `step`
    /// returns false. With `ends_at_failure` no part after one that failed is begun.
    ///
    /// Returns the failures in the order of parts.
    ///
    /// # Errors
    /// The failure to begin an execution on the calling thread. No part has been called then.
    pub(super) fn call<'c, C: DirectCalls>(
        self,
        calls: &'c C,
        options: &CallOptions,
        parts: Range<usize>,
        ends_at_failure: bool,
        step: impl Fn(&mut Worker<'_, 'c, C>, Range<usize>) -> bool + Sync,
    ) -> Result<Vec<(usize, Status)>> {
        let threads = self.most.min(parts.len());
        let claims = Claims::new(parts, threads, ends_at_failure);
        let (number, own) = claims.join(options);
        let mut worker = Worker {
            calls,
            run: Some(calls.begin_run(&own)?),
            options: own,
            claims: &claims,
            number,
            begun: None,
            goes_back: false,
        };
        let help = || {
            let (number, mut own) = claims.join(options);
            // The calling thread does not stop one that joins later.
            if claims.is_done() {
                return;
            }
            own.helps = true;
            // The calling thread's are compared with the time on the clock.
            own.delays = None;
            let Some(run) = calls.begin_help(&own) else {
                return;
            };
            let mut worker = Worker {
                calls,
                run: Some(run),
                options: own,
                claims: &claims,
                number,
                begun: None,
                goes_back: false,
            };
            while let Some(range) = claims.take(number)
                && worker.help(range, &step)
            {}
        };
        let done = team::share(self.threads, threads.saturating_sub(1), &help, || {
            while let Some(range) = worker.next()
                && step(&mut worker, range)
            {}
            claims.stop_beginners(number);
            Instant::now()
        });
        // Where the time is over, the failure of the part that took it is that of the call.
        let is_late = ends_at_failure && claims.has_failed() && options.is_over();
        if !is_late && claims.has_returned() {
            // It may have waited for what is made again.
            if let Some(delays) = &options.delays {
                delays.add(done.elapsed().min(claims.lost()));
            }
            worker.go_on(options);
            while let Some(range) = claims.take_returned(worker.number)
                && step(&mut worker, range)
            {}
        }
        drop(worker);
        Ok(claims.into_failures())
    }
}

/// The parts that threads have yet to claim.
struct Claims {
    state: Mutex<State>,
    threads: usize,
    ends_at_failure: bool,
}

struct State {
    /// The parts that no thread has claimed.
    left: Range<usize>,
    /// The parts that threads gave back, the last ones first.
    returned: Vec<Range<usize>>,
    /// The most time that a thread spent on a part that it gave back.
    lost: Duration,
    failures: Vec<(usize, Status)>,
    /// For each thread the parts that it claimed last, and its token.
    workers: Vec<(Range<usize>, CancelToken)>,
}

impl State {
    /// Notes that a thread has claimed these parts.
    fn claim(&mut self, worker: usize, parts: Range<usize>) -> Range<usize> {
        if let Some((current, _)) = self.workers.get_mut(worker) {
            *current = parts.clone();
        }
        parts
    }
}

impl Claims {
    fn new(parts: Range<usize>, threads: usize, ends_at_failure: bool) -> Self {
        Self {
            state: Mutex::new(State {
                left: parts,
                returned: Vec::new(),
                lost: Duration::ZERO,
                failures: Vec::new(),
                workers: Vec::new(),
            }),
            threads,
            ends_at_failure,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Adds a thread. Returns its number and the options of its calls.
    fn join(&self, options: &CallOptions) -> (usize, CallOptions) {
        let token = CancelToken::within(options.cancel.as_ref());
        let mut state = self.state();
        state.workers.push((0..0, token.clone()));
        let options = CallOptions {
            cancel: Some(token),
            helps: false,
            ..options.clone()
        };
        (state.workers.len() - 1, options)
    }

    fn is_done(&self) -> bool {
        self.state().left.is_empty()
    }

    /// Claims parts for a thread: a fraction of those left, so that all threads end at about the
    /// same time.
    fn take(&self, worker: usize) -> Option<Range<usize>> {
        let mut state = self.state();
        if state.left.is_empty() {
            return None;
        }
        let first = state.left.start;
        let count = (state.left.len() / (4 * self.threads)).max(1);
        state.left.start += count;
        Some(state.claim(worker, first..first + count))
    }

    /// Gives back the rest of the parts that a thread has claimed, from one on that it did not
    /// call, or on which it spent the time that is lost.
    fn give_back(&self, worker: usize, part: usize, lost: Duration) {
        let mut state = self.state();
        state.lost = state.lost.max(lost);
        let is_needed = !self.ends_at_failure || state.failures.iter().all(|(at, _)| *at > part);
        if let Some((current, _)) = state.workers.get(worker)
            && is_needed
        {
            let rest = part..current.end;
            if !rest.is_empty() {
                state.returned.push(rest);
                state.returned.sort_by_key(|range| Reverse(range.start));
            }
        }
    }

    fn lost(&self) -> Duration {
        self.state().lost
    }

    fn has_failed(&self) -> bool {
        !self.state().failures.is_empty()
    }

    fn has_returned(&self) -> bool {
        !self.state().returned.is_empty()
    }

    /// Claims the first parts that were given back.
    fn take_returned(&self, worker: usize) -> Option<Range<usize>> {
        let mut state = self.state();
        let range = state.returned.pop()?;
        Some(state.claim(worker, range))
    }

    /// Notes a failure. If it ends the call, stops the threads at later parts. Returns whether the
    /// thread goes on.
    fn fail(&self, part: usize, status: Status) -> bool {
        let mut state = self.state();
        state.failures.push((part, status));
        if !self.ends_at_failure {
            return true;
        }
        state.left.end = state.left.start;
        state.returned.retain(|range| range.start < part);
        let workers = state.workers.iter();
        let later = workers.filter(|(current, _)| current.start > part);
        later.for_each(|(_, token)| token.cancel());
        false
    }

    /// Stops the threads but this one that have claimed nothing: the start of an instance may take
    /// long.
    fn stop_beginners(&self, worker: usize) {
        let state = self.state();
        let others = state.workers.iter().enumerate();
        let others = others.filter(|(number, _)| *number != worker);
        let beginners = others.filter(|(_, (parts, _))| parts.is_empty());
        beginners.for_each(|(_, (_, token))| token.cancel());
    }

    /// The failures in the order of parts.
    fn into_failures(self) -> Vec<(usize, Status)> {
        let state = self.state.into_inner();
        let mut failures = state.unwrap_or_else(PoisonError::into_inner).failures;
        failures.sort_by_key(|(part, _)| *part);
        failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Status {
        Status::internal("failed")
    }

    #[test]
    fn parts_that_are_given_back_come_in_order() {
        let claims = Claims::new(0..32, 2, false);
        let [(first, _), (second, _), (caller, _)] =
            [(); 3].map(|()| claims.join(&CallOptions::default()));
        assert_eq!(claims.take(first), Some(0..4));
        assert_eq!(claims.take(second), Some(4..7));
        claims.give_back(second, 5, Duration::from_secs(2));
        claims.give_back(first, 0, Duration::from_secs(1));
        // Nothing is left of these.
        assert_eq!(claims.take(caller), Some(7..10));
        claims.give_back(caller, 10, Duration::ZERO);
        assert_eq!(claims.take_returned(caller), Some(0..4));
        assert_eq!(claims.take_returned(caller), Some(5..7));
        assert!(!claims.has_returned());
        assert_eq!(claims.lost(), Duration::from_secs(2));
    }

    #[test]
    fn a_failure_ends_the_later_ones_of_those_given_back() {
        let claims = Claims::new(0..32, 2, true);
        let [(first, _), (second, token), (third, _)] = [(); 3].map(|()| {
            let (number, options) = claims.join(&CallOptions::default());
            (number, options.cancel)
        });
        for (worker, parts) in [(first, 0..4), (second, 4..7), (third, 7..10)] {
            assert_eq!(claims.take(worker), Some(parts));
        }
        claims.give_back(first, 2, Duration::ZERO);
        assert!(!claims.fail(5, status()));
        // A later part is not needed.
        claims.give_back(third, 8, Duration::ZERO);
        assert_eq!(claims.take_returned(first), Some(2..4));
        assert!(!claims.has_returned() && claims.is_done());
        assert!(token.is_some_and(|token| !token.is_cancelled()));
        assert_eq!(claims.into_failures(), [(5, status())]);
    }

    #[test]
    fn threads_that_have_claimed_nothing_are_stopped() {
        let claims = Claims::new(0..8, 1, true);
        let [(caller, own), (busy, working), (_, beginning)] =
            [(); 3].map(|()| claims.join(&CallOptions::default()));
        assert_eq!(claims.take(busy), Some(0..2));
        claims.stop_beginners(caller);
        let is_stopped =
            |options: CallOptions| options.cancel.is_some_and(|token| token.is_cancelled());
        assert_eq!(
            [own, working, beginning].map(is_stopped),
            [false, false, true]
        );
    }
}
