//! Generates inputs, from scratch and by mutation. The same seed gives the same inputs.

use fastrand::Rng;

/// Boundary values.
const EDGES: [u64; 14] = [
    0,
    1,
    2,
    7,
    63,
    64,
    127,
    128,
    255,
    256,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    u64::MAX,
];

/// The generator of inputs.
#[derive(Debug)]
pub struct Mutator {
    random: Rng,
    max_len: usize,
    words: &'static [&'static str],
}

impl Mutator {
    /// Makes a generator for inputs of at most `max_len` bytes, with these tokens.
    #[must_use]
    pub fn new(seed: u64, max_len: usize, words: &'static [&'static str]) -> Self {
        Self {
            random: Rng::with_seed(seed),
            max_len,
            words,
        }
    }

    /// Generates an input: occasionally from scratch, otherwise by mutation of one from the corpus.
    pub fn input(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut input = if corpus.is_empty() || self.random.u32(..20) == 0 {
            self.bytes()
        } else {
            // Half of the time, one of the most recent inputs.
            let most = if self.random.bool() { 64 } else { corpus.len() };
            let back = self.random.usize(..corpus.len().min(most));
            corpus[corpus.len() - 1 - back].clone()
        };
        let most = 1 << self.random.u32(1..5);
        let changes = 1 + self.random.usize(..most);
        for _ in 0..changes {
            self.change(&mut input, corpus);
        }
        input.truncate(self.max_len);
        input
    }

    fn bytes(&mut self) -> Vec<u8> {
        let most = self.max_len.min(1 << self.random.u32(2..13));
        let length = self.random.usize(..=most);
        (0..length).map(|_| self.random.u8(..)).collect()
    }

    fn change(&mut self, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        match self.random.u32(..13) {
            0 => self.flip(input),
            1 => self.overwrite(input),
            2 => self.insert_bytes(input),
            3 => self.remove(input),
            4 => self.repeat(input),
            5 => self.swap(input),
            6 | 7 => self.insert_word(input),
            8 => self.digits(input),
            9 => self.splice(input, corpus),
            10 | 11 => self.exchange_token(input, corpus),
            _ => self.edge(input),
        }
    }

    /// Chooses a range of an input.
    fn part(&mut self, input: &[u8]) -> std::ops::Range<usize> {
        if input.is_empty() {
            return 0..0;
        }
        let start = self.random.usize(..input.len());
        let most = (input.len() - start).min(1 << self.random.u32(..9));
        start..start + self.random.usize(..=most)
    }

    fn flip(&mut self, input: &mut [u8]) {
        if !input.is_empty() {
            let at = self.random.usize(..input.len());
            input[at] ^= 1 << self.random.u32(..8);
        }
    }

    fn overwrite(&mut self, input: &mut [u8]) {
        if !input.is_empty() {
            let at = self.random.usize(..input.len());
            input[at] = self.random.u8(..);
        }
    }

    fn insert_bytes(&mut self, input: &mut Vec<u8>) {
        let at = self.random.usize(..=input.len());
        let count = self.random.usize(1..8);
        let new: Vec<u8> = (0..count).map(|_| self.random.u8(..)).collect();
        input.splice(at..at, new);
    }

    fn remove(&mut self, input: &mut Vec<u8>) {
        let part = self.part(input);
        input.drain(part);
    }

    fn repeat(&mut self, input: &mut Vec<u8>) {
        let part = self.part(input);
        let (at, times) = (part.end, 1 + self.random.usize(..4));
        let copy = input[part].repeat(times);
        if input.len() + copy.len() <= self.max_len {
            input.splice(at..at, copy);
        }
    }

    fn swap(&mut self, input: &mut [u8]) {
        let (one, other) = (self.part(input), self.part(input));
        let (one, other) = if one.start <= other.start {
            (one, other)
        } else {
            (other, one)
        };
        if one.end <= other.start {
            let length = one.len().min(other.len());
            let (front, back) = input.split_at_mut(other.start);
            front[one.start..one.start + length].swap_with_slice(&mut back[..length]);
        }
    }

    fn insert_word(&mut self, input: &mut Vec<u8>) {
        if let Some(word) = self.random.choice(self.words) {
            let at = self.random.usize(..=input.len());
            let replaced = if self.random.bool() {
                word.len().min(input.len() - at)
            } else {
                0
            };
            input.splice(at..at + replaced, word.bytes());
        }
    }

    /// Replaces a decimal number.
    fn digits(&mut self, input: &mut Vec<u8>) {
        let starts: Vec<usize> = (0..input.len())
            .filter(|&i| input[i].is_ascii_digit() && (i == 0 || !input[i - 1].is_ascii_digit()))
            .collect();
        if let Some(&start) = self.random.choice(&starts) {
            let digits = input[start..].iter().take_while(|b| b.is_ascii_digit());
            let end = start + digits.count();
            let number = if self.random.bool() {
                self.random.u64(..20)
            } else {
                EDGES[self.random.usize(..EDGES.len())]
            };
            input.splice(start..end, number.to_string().bytes());
        }
    }

    /// Inserts a part of another input.
    fn splice(&mut self, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        if let Some(other) = self.random.choice(corpus) {
            let part = self.part(other);
            let place = self.part(input);
            input.splice(place, other[part].iter().copied());
        }
    }

    /// Replaces a token by one of another input.
    fn exchange_token(&mut self, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        if let Some(other) = self.random.choice(corpus) {
            let (place, token) = (self.token(input), self.token(other));
            input.splice(place, other[token].iter().copied());
        }
    }

    /// Chooses a word or a number, or one byte that belongs to neither.
    fn token(&mut self, text: &[u8]) -> std::ops::Range<usize> {
        let in_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.%@".contains(byte);
        let Some(at) = text
            .len()
            .checked_sub(1)
            .map(|most| self.random.usize(..=most))
        else {
            return 0..0;
        };
        if !in_word(&text[at]) {
            return at..at + 1;
        }
        let before = text[..at].iter().rev().take_while(|byte| in_word(byte));
        let after = text[at..].iter().take_while(|byte| in_word(byte));
        at - before.count()..at + after.count()
    }

    /// Writes a boundary value of some width.
    fn edge(&mut self, input: &mut [u8]) {
        let width = 1 << self.random.usize(..4);
        if let Some(last) = input.len().checked_sub(width) {
            let at = self.random.usize(..=last);
            let number = EDGES[self.random.usize(..EDGES.len())];
            input[at..at + width].copy_from_slice(&number.to_le_bytes()[..width]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_inputs() {
        let corpus = vec![b"f32[12] 34".to_vec(), b"abc".to_vec(), vec![]];
        let inputs = |seed| {
            let mut mutator = Mutator::new(seed, 64, &["add", "("]);
            (0..2000)
                .map(|_| mutator.input(&corpus))
                .collect::<Vec<_>>()
        };
        assert_eq!(inputs(1), inputs(1));
        assert_ne!(inputs(1), inputs(2));
        assert!(inputs(1).iter().all(|input| input.len() <= 64));
        let different: std::collections::HashSet<_> = inputs(1).into_iter().collect();
        assert!(different.len() > 1000, "found {}", different.len());
    }
}
