//! Random bytes.

use sha2::{Digest, Sha256};

use callbox_core::policy::Randomness;

/// The prefix of the hashed blocks, which separates them from other uses of SHA-256.
const DOMAIN: &[u8] = b"callbox seeded random bytes 1";

/// The bytes of a block.
const BLOCK: usize = 32;

/// The source of an instance's random bytes.
#[derive(Debug)]
pub(super) enum RandomSource {
    /// The operating system.
    System,
    /// SHA-256 of the seed and a counter: the same bytes on every machine and in every release.
    Seeded {
        seed: u64,
        /// The bytes given so far. How a guest splits its requests makes no difference.
        given: u64,
    },
}

impl RandomSource {
    pub(super) fn new(randomness: Randomness) -> Self {
        match randomness {
            Randomness::System => Self::System,
            Randomness::Seed(seed) => Self::Seeded { seed, given: 0 },
        }
    }

    /// Fills the buffer.
    ///
    /// # Errors
    /// The operating system's.
    pub(super) fn fill(&mut self, buffer: &mut [u8]) -> Result<(), getrandom::Error> {
        match self {
            Self::System => getrandom::fill(buffer),
            Self::Seeded { seed, given } => {
                fill_seeded(*seed, given, buffer);
                Ok(())
            }
        }
    }
}

fn fill_seeded(seed: u64, given: &mut u64, mut buffer: &mut [u8]) {
    while !buffer.is_empty() {
        let counter = *given / BLOCK as u64;
        let mut digest = Sha256::new();
        digest.update(DOMAIN);
        digest.update(seed.to_le_bytes());
        digest.update(counter.to_le_bytes());
        let block = digest.finalize();
        let block = &block[(*given % BLOCK as u64) as usize..];
        let length = block.len().min(buffer.len());
        let (now, later) = buffer.split_at_mut(length);
        now.copy_from_slice(&block[..length]);
        *given += length as u64;
        buffer = later;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    /// The first bytes are the SHA-256 of `callbox seeded random bytes 1`, then 7 and 0 as
    /// little-endian numbers of eight bytes.
    #[test]
    fn a_seed_gives_the_same_bytes_however_requests_are_split() {
        let mut whole = [0; 100];
        let mut source = RandomSource::new(Randomness::Seed(7));
        source.fill(&mut whole).unwrap();
        assert_eq!(
            hex::encode(&whole[..32]),
            "6735863b3caefa55b01c0438039dcee0caa4818341ca2050aa6e6475d508bd55"
        );
        let mut parts = [0; 100];
        let mut source = RandomSource::new(Randomness::Seed(7));
        for part in parts.chunks_mut(7) {
            source.fill(part).unwrap();
        }
        assert_eq!(whole, parts);
        let mut other = [0; 100];
        RandomSource::new(Randomness::Seed(8))
            .fill(&mut other)
            .unwrap();
        assert_ne!(whole, other);
    }
}
