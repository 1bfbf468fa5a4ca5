//! Room on the stack for readers of untrusted files: they descend into what nests, and threads of
//! Python can have 32 KiB.

/// What the deepest reader takes, twice.
const NEEDED: usize = 256 << 10;

/// Calls a function with enough stack, on a new one if what is left of the thread's is too short.
pub(crate) fn on_enough<T>(function: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(NEEDED, 1 << 20, function)
}
