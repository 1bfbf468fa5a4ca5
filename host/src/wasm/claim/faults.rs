//! Faults at the boundary, for tests: what the host reads from a guest can be altered by a schedule.
//!
//! A schedule holds for one thread and one run ([`with`]). It counts the reads, says which of them are altered and how, and records
//! what was altered, so that a failure can be run again from its schedule alone: the same case makes the same reads up to the
//! first that is altered, and from there on as that one has it.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A function of the guest returned it.
    Returned,
    /// The guest handed it to an import.
    Parameter,
    /// It was read from the guest's memory.
    Memory,
    /// How large the guest's memory is.
    Size,
}

/// How a value is altered. A value is its bytes, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// One bit is another: the one of this number, counted round.
    Flip(u64),
    /// The value is this one, cut to its size or repeated to fill it.
    Value(u64),
    /// The first eight bytes, or as many as there are, are a number that is this much larger.
    Add(i64),
    /// All bytes are random, from this seed.
    Random(u64),
    /// The value is what was read before for the same purpose, or else from the same kind of place.
    Older,
}

/// Which reads are altered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// None: they are only recorded.
    Observe,
    /// The read of this number.
    Only {
        /// The number, from 0.
        read: u64,
        /// How it is altered.
        mutation: Mutation,
    },
    /// About one in so many.
    Random {
        /// All that is random follows from it.
        seed: u64,
        /// One in so many, at least 1.
        one_in: u64,
    },
}

/// A value that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Where it comes from.
    pub kind: Kind,
    /// What it is to the host: the name of the import, of the function, or of what is read.
    pub what: String,
    /// How many bytes it has.
    pub size: usize,
}

/// A value that was altered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Altered {
    /// The number of the read.
    pub read: u64,
    /// What was read.
    pub seen: Seen,
    /// How it was altered.
    pub mutation: Mutation,
    /// What the guest gave, the first bytes of it.
    pub from: Vec<u8>,
    /// What the host got, the first bytes of it.
    pub to: Vec<u8>,
}

/// What a schedule came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// How many values were read.
    pub reads: u64,
    /// Which of them were altered: none that came out as it was.
    pub altered: Vec<Altered>,
    /// The first [`MOST_SEEN`] of them, for [`Schedule::Observe`].
    pub seen: Vec<Seen>,
}

/// As many reads are described, and remembered for [`Mutation::Older`]: some guests make millions.
pub const MOST_SEEN: usize = 10_000;

/// As many bytes of a value are kept, for the record and for [`Mutation::Older`].
const KEPT: usize = 4096;

/// As many bytes of a value are shown in the record.
const SHOWN: usize = 16;

struct Active {
    schedule: Schedule,
    random: u64,
    record: Record,
    /// The last value for each purpose, and for each kind of place.
    by_purpose: HashMap<(Kind, String), Vec<u8>>,
    by_kind: HashMap<Kind, Vec<u8>>,
}

thread_local! {
    static ACTIVE: RefCell<Option<Active>> = const { RefCell::new(None) };
}

/// Runs `run` with this schedule for all that this thread reads from guests. A schedule that held before is suspended.
pub fn with<R>(schedule: Schedule, run: impl FnOnce() -> R) -> (R, Record) {
    /// Puts back what held before, also when `run` panics.
    struct Restore(Option<Active>);
    impl Drop for Restore {
        fn drop(&mut self) {
            ACTIVE.set(self.0.take());
        }
    }
    let restore = Restore(ACTIVE.replace(Some(Active::new(schedule))));
    let result = run();
    let record = ACTIVE.take().map(|active| active.record);
    drop(restore);
    (result, record.unwrap_or_default())
}

/// Bytes of memory as the schedule has them.
pub(super) fn bytes<'a>(what: &str, bytes: &'a [u8]) -> Cow<'a, [u8]> {
    altered(Kind::Memory, what, bytes).map_or(Cow::Borrowed(bytes), Cow::Owned)
}

/// A number of any width.
pub(in crate::wasm) trait Word: Copy {
    /// The number as the schedule has it.
    fn altered(self, kind: Kind, what: &str) -> Self;
}

macro_rules! words {
    ($($ty:ty),*) => {
        $(impl Word for $ty {
            fn altered(self, kind: Kind, what: &str) -> Self {
                let bytes = altered(kind, what, &self.to_le_bytes());
                let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
                bytes.map_or(self, Self::from_le_bytes)
            }
        })*
    };
}

words!(u32, usize, i32, i64);

fn altered(kind: Kind, what: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    ACTIVE.with_borrow_mut(|active| active.as_mut()?.read(kind, what, bytes))
}

impl Active {
    fn new(schedule: Schedule) -> Self {
        Self {
            schedule,
            random: match schedule {
                Schedule::Random { seed, .. } => seed,
                _ => 0,
            },
            record: Record::default(),
            by_purpose: HashMap::new(),
            by_kind: HashMap::new(),
        }
    }

    /// Counts a read, and gives its bytes if they are to be others.
    fn read(&mut self, kind: Kind, what: &str, bytes: &[u8]) -> Option<Vec<u8>> {
        let read = self.record.reads;
        self.record.reads += 1;
        let seen = || Seen {
            kind,
            what: what.to_owned(),
            size: bytes.len(),
        };
        if self.schedule == Schedule::Observe {
            if self.record.seen.len() < MOST_SEEN {
                self.record.seen.push(seen());
            }
            return None;
        }
        let mutation = self.mutation(read);
        let to = mutation.and_then(|mutation| self.apply(mutation, kind, what, bytes));
        if read < MOST_SEEN as u64 {
            self.remember(kind, what, bytes);
        }
        let (mutation, to) = (mutation?, to.filter(|to| to != bytes)?);
        self.record.altered.push(Altered {
            read,
            seen: seen(),
            mutation,
            from: bytes[..bytes.len().min(SHOWN)].to_vec(),
            to: to[..to.len().min(SHOWN)].to_vec(),
        });
        Some(to)
    }

    /// What the schedule does to the read of this number.
    fn mutation(&mut self, read: u64) -> Option<Mutation> {
        match self.schedule {
            Schedule::Only {
                read: only,
                mutation,
            } => (read == only).then_some(mutation),
            Schedule::Random { one_in, .. } => {
                let is_altered = next(&mut self.random).is_multiple_of(one_in.max(1));
                is_altered.then(|| Mutation::random(&mut self.random))
            }
            Schedule::Observe => None,
        }
    }

    fn apply(&self, mutation: Mutation, kind: Kind, what: &str, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut to = bytes.to_vec();
        match mutation {
            _ if bytes.is_empty() => {}
            Mutation::Flip(bit) => {
                let bit = (bit % (8 * bytes.len() as u64)) as usize;
                to[bit / 8] ^= 1 << (bit % 8);
            }
            Mutation::Value(value) => fill(&mut to, |_| value),
            Mutation::Random(mut seed) => fill(&mut to, |_| next(&mut seed)),
            Mutation::Add(more) => {
                let width = to.len().min(8);
                let mut word = [0; 8];
                word[..width].copy_from_slice(&to[..width]);
                let sum = u64::from_le_bytes(word).wrapping_add_signed(more);
                to[..width].copy_from_slice(&sum.to_le_bytes()[..width]);
            }
            Mutation::Older => {
                let purpose = (kind, what.to_owned());
                let older = self.by_purpose.get(&purpose);
                let older = older.or_else(|| self.by_kind.get(&kind))?;
                for (to, from) in std::iter::zip(&mut to, older) {
                    *to = *from;
                }
            }
        }
        Some(to)
    }

    fn remember(&mut self, kind: Kind, what: &str, bytes: &[u8]) {
        let kept = bytes[..bytes.len().min(KEPT)].to_vec();
        self.by_kind.insert(kind, kept.clone());
        self.by_purpose.insert((kind, what.to_owned()), kept);
    }
}

/// Fills bytes with eight at a time.
fn fill(bytes: &mut [u8], mut word: impl FnMut(usize) -> u64) {
    for (i, chunk) in bytes.chunks_mut(8).enumerate() {
        let word = word(i).to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

impl Mutation {
    /// Values at which something changes: zero, the smallest, the largest, the sign, and both sides of a page's edge. The status codes'
    /// end, too.
    pub const EXTREMES: [Self; 14] = [
        Self::Value(0),
        Self::Value(1),
        Self::Value(16),
        Self::Value(17),
        Self::Value(64),
        Self::Value(0xffff),
        Self::Value(0x1_0000),
        Self::Value(0x1_0001),
        Self::Value(0x7fff_ffff),
        Self::Value(0x8000_0000),
        Self::Value(0xffff_ffc0),
        Self::Value(u64::MAX),
        Self::Value(1 << 63),
        Self::Value(u64::MAX >> 1),
    ];

    /// Numbers that are a little off, by an element, an arena's alignment or a page.
    pub const NEIGHBOURS: [Self; 8] = [
        Self::Add(1),
        Self::Add(-1),
        Self::Add(8),
        Self::Add(-8),
        Self::Add(64),
        Self::Add(-64),
        Self::Add(0x1_0000),
        Self::Add(-0x1_0000),
    ];

    fn random(random: &mut u64) -> Self {
        let one_of = |all: &[Self], number: u64| all[(number % all.len() as u64) as usize];
        let (class, number) = (next(random) % 5, next(random));
        match class {
            0 => Self::Flip(number),
            1 => one_of(&Self::EXTREMES, number),
            2 => one_of(&Self::NEIGHBOURS, number),
            3 => Self::Random(number),
            _ => Self::Older,
        }
    }
}

/// The next number of SplitMix64: short, and good enough for this.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(schedule: Schedule) -> (Vec<u32>, Record) {
        with(schedule, || {
            [7, 8, 9]
                .map(|value| value.altered(Kind::Returned, "f"))
                .to_vec()
        })
    }

    #[test]
    fn the_read_of_a_number_is_altered() {
        for (mutation, found) in [
            (Mutation::Flip(33), [7, 10, 9]),
            (Mutation::Value(u64::MAX), [7, u32::MAX, 9]),
            (Mutation::Add(-9), [7, u32::MAX, 9]),
            (Mutation::Older, [7, 7, 9]),
        ] {
            let (values, record) = numbers(Schedule::Only { read: 1, mutation });
            assert_eq!(values, found, "{mutation:?}");
            assert_eq!((record.reads, record.altered.len()), (3, 1));
            assert_eq!(record.altered[0].from, 8_u32.to_le_bytes());
        }
    }

    #[test]
    fn what_comes_out_as_it_was_is_not_counted() {
        let mutation = Mutation::Value(8);
        let (values, record) = numbers(Schedule::Only { read: 1, mutation });
        assert_eq!((values, record.altered), (vec![7, 8, 9], Vec::new()));
    }

    #[test]
    fn a_seed_says_all() {
        let random = |seed| numbers(Schedule::Random { seed, one_in: 2 });
        assert_eq!(random(1), random(1));
        assert!((0..20).any(|seed| random(seed) != random(1)));
        assert!((0..20).any(|seed| !random(seed).1.altered.is_empty()));
    }

    #[test]
    fn nothing_is_altered_without_a_schedule() {
        assert_eq!(7_u32.altered(Kind::Returned, "f"), 7);
        assert_eq!(&*bytes("x", b"abc"), b"abc");
        let (values, record) = numbers(Schedule::Observe);
        assert_eq!((values, record.seen.len()), (vec![7, 8, 9], 3));
    }
}
