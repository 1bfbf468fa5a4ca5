//! Faults at the boundary, for tests: a schedule alters values that the host reads from a guest.
//!
//! A schedule holds for one thread and one run ([`with`]). It counts the reads, decides which of
//! them are altered and how, and records the alterations. A failure can be reproduced from its
//! schedule alone, because the reads before the first alteration are always the same.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;

/// How a value came from the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A function of the guest returned it.
    Returned,
    /// The guest passed it to an import.
    Parameter,
    /// It was read from the guest's memory.
    Memory,
    /// It is the size of the guest's memory.
    Size,
}

/// A way to alter a value, given as its little-endian bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Flips the bit of this number, modulo the number of bits.
    Flip(u64),
    /// Replaces the value by this one, cut or repeated to its size.
    Value(u64),
    /// Adds to the number in the first eight bytes, or fewer if the value is shorter.
    Add(i64),
    /// Replaces all bytes by random ones, from this seed.
    Random(u64),
    /// Replaces the value by an earlier one of the same purpose, or else of the same kind.
    Older,
}

/// The reads that are altered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// None: reads are only recorded.
    Observe,
    /// The read of this number.
    Only {
        /// The number, from 0.
        read: u64,
        /// The alteration.
        mutation: Mutation,
    },
    /// A random selection.
    Random {
        /// The seed.
        seed: u64,
        /// Alters about one read in this many, which is at least 1.
        one_in: u64,
    },
}

/// A value that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// How it came from the guest.
    pub kind: Kind,
    /// Its purpose: the name of the import, the function, or the data.
    pub what: String,
    /// Its size in bytes.
    pub size: usize,
}

/// A value that was altered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Altered {
    /// The number of the read.
    pub read: u64,
    /// The value that was read.
    pub seen: Seen,
    /// The alteration.
    pub mutation: Mutation,
    /// The first bytes of the guest's value.
    pub from: Vec<u8>,
    /// The first bytes of the host's value.
    pub to: Vec<u8>,
}

/// The outcome of a schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The number of values read.
    pub reads: u64,
    /// The values that changed.
    pub altered: Vec<Altered>,
    /// The first [`MOST_SEEN`] of them, for [`Schedule::Observe`].
    pub seen: Vec<Seen>,
}

/// The most reads that are recorded and kept for [`Mutation::Older`]: some guests cause millions.
pub const MOST_SEEN: usize = 10_000;

/// The bytes of a value that are kept for [`Mutation::Older`].
const KEPT: usize = 4096;

/// The bytes of a value in the record.
const SHOWN: usize = 16;

struct Active {
    schedule: Schedule,
    random: u64,
    record: Record,
    /// The last value of each purpose, and of each kind.
    by_purpose: HashMap<(Kind, String), Vec<u8>>,
    by_kind: HashMap<Kind, Vec<u8>>,
}

thread_local! {
    static ACTIVE: RefCell<Option<Active>> = const { RefCell::new(None) };
}

/// Runs `run` under a schedule for everything that this thread reads from guests. An outer schedule
/// is suspended.
pub fn with<R>(schedule: Schedule, run: impl FnOnce() -> R) -> (R, Record) {
    /// Restores the outer schedule, even if `run` panics.
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

/// Alters bytes of memory by the schedule.
pub(super) fn bytes<'a>(what: &str, bytes: &'a [u8]) -> Cow<'a, [u8]> {
    altered(Kind::Memory, what, bytes).map_or(Cow::Borrowed(bytes), Cow::Owned)
}

/// A number of any width.
pub(crate) trait Word: Copy {
    /// Alters the number by the schedule.
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

    /// Counts a read, and returns its bytes if they are altered.
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

    /// The alteration of the read of this number.
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

/// Fills bytes with words of eight.
fn fill(bytes: &mut [u8], mut word: impl FnMut(usize) -> u64) {
    for (i, chunk) in bytes.chunks_mut(8).enumerate() {
        let word = word(i).to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

impl Mutation {
    /// Boundary values: of integers and their signs, of pages, and of the status codes.
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

    /// Small differences: an element, the arena's alignment, or a page.
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

/// The next number of SplitMix64.
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
