//! Tokens by byte-pair encoding.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use callbox_guest::{Failure, Operand, ResultBuffer, target};
use gallery::{invalid, row_major};

/// No token.
const NONE: usize = usize::MAX;

/// Merges the bytes of `text` to tokens. Merge `i` makes token `256 + i` of the pair of tokens in
/// row `i` of `merges`. The lowest merge that applies anywhere is next, from left to right.
///
/// The text is not cut into words first: call the target for each word. `tokens` has room for one
/// token for each byte, and is -1 behind the first `count`.
#[target(pure)]
fn byte_pair_encode(
    #[dimensions(n)] text: &Operand<u8, 1>,
    #[dimensions(m, 2)] merges: &Operand<i32, 2>,
    #[dimensions(n)] tokens: &mut ResultBuffer<i32, 1>,
    count: &mut ResultBuffer<i32, 0>,
) -> Result<(), Failure> {
    row_major(&[("merges", merges.shape())])?;
    let mut ranks = HashMap::with_capacity(merges.len() / 2);
    for (rank, pair) in merges.chunks_exact(2).enumerate() {
        let limit = 256 + rank as i32;
        if !pair.iter().all(|token| (0..limit).contains(token)) {
            return Err(invalid(format!(
                "expected tokens below {limit} in merge {rank}, found {pair:?}"
            )));
        }
        ranks.entry((pair[0], pair[1])).or_insert(rank);
    }
    let merged = Chain::new(text).merge(&ranks);
    tokens.fill(-1);
    tokens[..merged.len()].copy_from_slice(&merged);
    count.set(merged.len() as i32);
    Ok(())
}

/// A linked list of tokens. A merged pair stays at the place of its first token.
struct Chain {
    tokens: Vec<i32>,
    next: Vec<usize>,
    previous: Vec<usize>,
}

impl Chain {
    fn new(text: &[u8]) -> Self {
        let length = text.len();
        Self {
            tokens: text.iter().map(|&byte| i32::from(byte)).collect(),
            next: (1..=length)
                .map(|i| if i < length { i } else { NONE })
                .collect(),
            previous: (0..length)
                .map(|i| if i > 0 { i - 1 } else { NONE })
                .collect(),
        }
    }

    /// Returns the rank of the merge of the token at `place` with the next one.
    fn rank(&self, place: usize, ranks: &HashMap<(i32, i32), usize>) -> Option<usize> {
        let next = *self.tokens.get(*self.next.get(place)?)?;
        ranks.get(&(self.tokens[place], next)).copied()
    }

    /// Merges until no merge applies, and returns the tokens.
    fn merge(mut self, ranks: &HashMap<(i32, i32), usize>) -> Vec<i32> {
        let mut waiting = BinaryHeap::new();
        for place in 0..self.tokens.len() {
            waiting.extend(self.rank(place, ranks).map(|rank| Reverse((rank, place))));
        }
        while let Some(Reverse((rank, place))) = waiting.pop() {
            // An entry is stale if one of its tokens was merged since.
            if self.tokens[place] < 0 || self.rank(place, ranks) != Some(rank) {
                continue;
            }
            let taken = self.next[place];
            self.tokens[place] = 256 + rank as i32;
            self.tokens[taken] = -1;
            self.next[place] = self.next[taken];
            if let Some(previous) = self.previous.get_mut(self.next[place]) {
                *previous = place;
            }
            for place in [self.previous[place], place] {
                if place != NONE {
                    waiting.extend(self.rank(place, ranks).map(|rank| Reverse((rank, place))));
                }
            }
        }
        self.tokens.retain(|&token| token >= 0);
        self.tokens
    }
}
