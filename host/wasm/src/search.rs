//! How a call that lacks room looks for it, and for how long.

use std::time::{Duration, Instant};

use crate::discard::Discarder;

/// The most time that a call waits for threads that help with others, and for memory that is being
/// freed.
pub(crate) const LONGEST: Duration = Duration::from_secs(60);

/// How long a call waits for room.
///
/// Others may take what becomes free, so that it waits for some time. On a busy machine the threads
/// that free memory, and those that help and are stopped, may run late: what is being freed when
/// the time is over is waited for as well.
pub(crate) struct Patience {
    end: Instant,
    last: Instant,
    /// The number of instances that will have been taken back then, once `end` is over.
    late: Option<u64>,
}

impl Patience {
    /// Patience until `end` or, for those that are late, for the longest time that `within` makes
    /// of it.
    pub(crate) fn new(most: Duration, within: impl Fn(Duration) -> Instant) -> Self {
        Self {
            end: within(most),
            last: within(LONGEST),
            late: None,
        }
    }

    /// Whether it is over. Threads that help are waited for until the last.
    pub(crate) fn is_over(&mut self, discarder: &Discarder, is_beside_helpers: bool) -> bool {
        let now = Instant::now();
        if now >= self.last {
            return true;
        }
        if is_beside_helpers || now < self.end {
            return false;
        }
        if self.late.is_none() {
            self.late = discarder.freed_with_all();
        }
        self.late.is_none_or(|all| discarder.freed() >= all)
    }

    /// The end of the next wait.
    pub(crate) fn end(&self, is_beside_helpers: bool) -> Instant {
        if is_beside_helpers || self.late.is_some() {
            self.last
        } else {
            self.end
        }
    }
}

/// A call's search for room. It waits for an instance that is being taken back, and evicts an idle
/// one, in turns: others may take what becomes free, and go on to do so.
pub(crate) struct Search {
    /// Whether it evicts next.
    evicts: bool,
}

impl Search {
    pub(crate) fn new(evicts: bool) -> Self {
        Self { evicts }
    }

    /// Makes room, and returns false if neither can.
    pub(crate) fn next(&mut self, evict: impl Fn() -> bool, wait: impl FnOnce() -> bool) -> bool {
        let has_evicted = self.evicts && evict();
        let has_waited = !has_evicted && wait();
        let has_evicted = has_evicted || !has_waited && !self.evicts && evict();
        self.evicts = has_waited;
        has_evicted || has_waited
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::Search;

    /// What a search finds: an idle instance (`i`), one that is being freed (`f`), or nothing.
    fn found(search: &mut Search, is_idle: bool, is_freeing: bool) -> char {
        let found = Cell::new('-');
        let find = |what, is_there| {
            if is_there {
                assert_eq!(found.replace(what), '-');
            }
            is_there
        };
        let has_found = search.next(|| find('i', is_idle), || find('f', is_freeing));
        assert_eq!(has_found, found.get() != '-');
        found.get()
    }

    #[test]
    fn it_evicts_and_waits_in_turns() {
        let there = [
            (true, true),
            (true, true),
            (true, true),
            (true, false),
            (false, true),
            (false, true),
            (true, true),
            (false, false),
            (true, false),
        ];
        let all = |mut search: Search| -> String {
            let each = there.iter();
            each.map(|(is_idle, is_freeing)| found(&mut search, *is_idle, *is_freeing))
                .collect()
        };
        assert_eq!(all(Search::new(true)), "ifiiffi-i");
        assert_eq!(all(Search::new(false)), "fififfi-i");
    }
}
