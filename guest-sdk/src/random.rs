//! Random bytes for crates that ask `getrandom` for them, such as `rand`.
//!
//! WebAssembly has no random bytes. With the feature `getrandom` of this crate, `getrandom` gets
//! them from a generator that the target seeds, for example by an attribute, so that a call gives
//! the same results wherever it runs:
//!
#![cfg_attr(not(feature = "getrandom"), doc = "```ignore")]
#![cfg_attr(feature = "getrandom", doc = "```")]
//! use callbox_guest::{Failure, ResultBuffer, random, target};
//!
//! /// Fills `y` with random bytes.
//! #[target(pure)]
//! fn noise(y: &mut ResultBuffer<u8>, #[attr] seed: u64) -> Result<(), Failure> {
//!     random::seed(seed);
//!     random::fill(y)
//! }
//! # let bytes = |seed: u64| {
//! #     let mut call = callbox_guest::native::Call::new();
//! #     call.result::<u8>(&[11]).attribute("seed", seed);
//! #     assert_eq!(call.run::<noise>(), Ok(()));
//! #     call.result_elements::<u8>(0).to_vec()
//! # };
//! # assert_eq!(bytes(3), bytes(3));
//! # assert_ne!(bytes(3), bytes(4));
//! ```
//!
//! With the feature `granted-randomness`, bytes without a seed are those of the grant `randomness`
//! of the policy: the system's (`"randomness": "system"`), or those of the policy's own seed
//! (`"randomness": {"seed": 3}`). A module with this feature loads only with the grant.
//!
//! `getrandom` 0.3 and 0.4 find this crate by the flag `--cfg getrandom_backend="custom"`, which is
//! in the `.cargo/config.toml` of `callbox new`. For `getrandom` 0.2, also depend on that version
//! with its feature `custom`.
//!
//! `rand::rng()` asks for bytes once, and keeps its state from call to call. A target whose results
//! follow from the seed makes a generator in each call: `StdRng::from_os_rng()`.
//!
//! In native builds, `getrandom` asks the operating system.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::{Failure, StatusCode};

/// The state of the generator.
static STATE: AtomicU64 = AtomicU64::new(0);

static IS_SEEDED: AtomicBool = AtomicBool::new(false);

/// Seeds the generator. From then on, random bytes follow from the seed alone, also in later calls
/// of this instance. They are good enough for simulations, and not for keys.
///
/// A target seeds the generator at the beginning of each call: how many calls an instance has
/// served is up to the host.
///
/// ```
/// use callbox_guest::random;
///
/// let mut first = [0; 4];
/// let mut second = [0; 4];
/// random::seed(3);
/// random::fill(&mut first)?;
/// random::seed(3);
/// random::fill(&mut second)?;
/// assert_eq!(first, second);
/// # Ok::<(), callbox_guest::Failure>(())
/// ```
pub fn seed(seed: u64) {
    STATE.store(seed, Relaxed);
    IS_SEEDED.store(true, Relaxed);
}

/// Fills a slice with random bytes.
///
/// # Errors
/// FAILED_PRECONDITION without a seed, where the kernel has no granted bytes either.
///
/// ```
/// use callbox_guest::random;
///
/// let mut bytes = [0; 4];
/// random::seed(3);
/// random::fill(&mut bytes)?;
/// assert_ne!(bytes, [0; 4]);
/// # Ok::<(), callbox_guest::Failure>(())
/// ```
pub fn fill(bytes: &mut [u8]) -> Result<(), Failure> {
    if IS_SEEDED.load(Relaxed) {
        for chunk in bytes.chunks_mut(8) {
            let number = next().to_le_bytes();
            chunk.copy_from_slice(&number[..chunk.len()]);
        }
        return Ok(());
    }
    #[cfg(all(feature = "granted-randomness", target_arch = "wasm32"))]
    if crate::abi::granted_random_bytes(bytes) {
        return Ok(());
    }
    Err(Failure::new(
        StatusCode::FailedPrecondition,
        "random bytes need a seed: call `callbox_guest::random::seed` first",
    ))
}

/// SplitMix64, by Guy Steele, Doug Lea and Christine Flood.
fn next() -> u64 {
    let state = STATE.load(Relaxed).wrapping_add(0x9e37_79b9_7f4a_7c15);
    STATE.store(state, Relaxed);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn bytes_follow_from_the_seed() {
        let mut bytes = [0; 12];
        assert_eq!(
            fill(&mut bytes).unwrap_err().code(),
            StatusCode::FailedPrecondition
        );
        seed(1_234_567);
        fill(&mut bytes).unwrap();
        // The first numbers of the reference implementation, xoshiro.di.unimi.it/splitmix64.c.
        assert_eq!(bytes[..8], 6_457_827_717_110_365_317_u64.to_le_bytes());
        assert_eq!(bytes[8..], 3_203_168_211_198_807_973_u64.to_le_bytes()[..4]);
    }
}
