//! Stops guests whose deadline has passed or whose caller cancelled.
//!
//! Each instance has a *watch*, leased from the engine: a stop word, which lies in a memory that
//! the instance imports, and the deadline and token of its current call. The guest looks at the
//! word at each loop's head and each function's entry ([`rewrite`](crate::rewrite)). The ticker
//! visits all watches once a millisecond and sets the words of calls that are over.
//!
//! - **One memory for each instance**, so that a look reads a constant address. A page for all
//!   instances would need the instance's offset in a register as well, and an explicit bounds check
//!   at each look. The engine reuses the memories, because reserving one takes as long as making
//!   several fresh instances.
//! - **A shared memory**, imported: only such a memory outlives every store, so that a late access
//!   of the ticker always finds it mapped, and a start function can be stopped. The host's accesses
//!   are atomic, as are the guest's.
//! - **Only stores on the path of a call.** A call writes the word when it begins and ends. It
//!   takes no lock, except to publish a cancel token, and reads no clock.
//!
//! A stop that comes late must not hit the next call of the same instance. The word therefore
//! counts the calls, and the ticker sets it by compare-and-swap from the count that it has decided
//! about: see [`word`].

mod pool;
mod watch;
mod word;

pub(crate) use self::pool::{Lease, Watches};
pub(crate) use self::watch::Watch;
pub(crate) use self::word::Interrupted;

#[cfg(test)]
mod tests;
