//! Compiles a loop for several widths of vectors, and runs the widest that the processor has.
//!
//! This file has `unsafe` code: calling a function that is compiled for a processor's features is
//! undefined behaviour on a processor without them. The features are detected right before the
//! call.

#![allow(
    unsafe_code,
    reason = "calls functions that are compiled for detected features of the processor"
)]

/// A loop that the compiler can turn into vector instructions. [`run`](Self::run) is always
/// inlined, so that each caller compiles it for its own features.
pub(crate) trait Vectorized {
    type Output;

    fn run(self) -> Self::Output;
}

/// Runs a loop with the widest vectors that the processor has.
#[cfg(target_arch = "x86_64")]
pub(crate) fn run<V: Vectorized>(work: V) -> V::Output {
    // Inlined into a caller with the same features, a loop can lose its vectors.
    #[inline(never)]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2")]
    fn avx512<V: Vectorized>(work: V) -> V::Output {
        work.run()
    }

    #[inline(never)]
    #[target_feature(enable = "avx2")]
    fn avx2<V: Vectorized>(work: V) -> V::Output {
        work.run()
    }

    let has_avx2 = std::is_x86_feature_detected!("avx2");
    let has_avx512 = has_avx2
        && std::is_x86_feature_detected!("avx512f")
        && std::is_x86_feature_detected!("avx512bw")
        && std::is_x86_feature_detected!("avx512dq")
        && std::is_x86_feature_detected!("avx512vl");
    if has_avx512 {
        // SAFETY: all features of `avx512` were detected above.
        return unsafe { avx512(work) };
    }
    if has_avx2 {
        // SAFETY: the feature of `avx2` was detected above.
        return unsafe { avx2(work) };
    }
    work.run()
}

/// Runs a loop with the vectors that every processor of this architecture has.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn run<V: Vectorized>(work: V) -> V::Output {
    work.run()
}
