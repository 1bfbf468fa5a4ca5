//! How a call that lacks room looks for it.

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
