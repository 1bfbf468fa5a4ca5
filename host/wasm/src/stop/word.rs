//! The stop word.
//!
//! It has 64 bits, of which the guest reads the highest byte:
//!
//! | highest byte | the other bytes | meaning |
//! | --- | --- | --- |
//! | 0 | even | *idle*: no call |
//! | 0 | odd | *armed*: a call is running |
//! | 1 or 2 | odd | *stopped*: the call's deadline passed, or its caller cancelled it |
//!
//! Only the thread that has the instance advances the count: `arm` from an even number to the next
//! odd one, `disarm` from there to the next even one. Both are plain stores. The ticker changes the
//! word from *armed* to *stopped* only, by compare-and-swap from the value that it saw before it
//! read the call's deadline and token.
//!
//! Such a swap cannot hit another call:
//! - The count never returns to an earlier value. It has 56 bits: 35 years of calls at 60 ns.
//! - What describes a call is written after the call before it is disarmed, and before it is itself
//!   armed, by `Release` stores. A ticker that reads a value of a later call than it decides about,
//!   by an `Acquire` load, therefore also sees that the word has been disarmed, and its swap fails.
//!   A ticker that sees a call armed also sees at least that call's description.
//! - A store may overwrite a swap: then the call had ended, and its stop is lost with it.

#![allow(
    unsafe_code,
    reason = "wasmtime hands out the bytes of a shared memory as cells, which only a cast turns into an atomic, and keeps its address"
)]

use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use callbox_core::values::StatusCode;
use wasmtime::{MemoryType, SharedMemory};

use crate::rewrite::STOP_BYTE;

/// The bits below the byte that the guest reads.
const COUNT_BITS: u32 = 8 * STOP_BYTE as u32;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

/// Why a guest was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupted {
    /// Its deadline passed.
    Deadline = 1,
    /// Its caller cancelled it.
    Cancelled = 2,
}

impl Interrupted {
    /// The code of a call's status.
    pub(crate) fn code(self) -> StatusCode {
        match self {
            Self::Deadline => StatusCode::DeadlineExceeded,
            Self::Cancelled => StatusCode::Cancelled,
        }
    }

    /// The reason as the highest byte of a stop word.
    pub(crate) fn to_byte(self) -> u8 {
        self as u8
    }

    /// The reason in the highest byte of a stop word.
    #[inline]
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Deadline),
            2 => Some(Self::Cancelled),
            _ => None,
        }
    }
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deadline => "the deadline passed",
            Self::Cancelled => "the call was cancelled",
        })
    }
}

impl std::error::Error for Interrupted {}

/// The stop word of one instance, with its memory.
pub(super) struct StopWord {
    memory: SharedMemory,
    /// The first bytes of the memory.
    word: NonNull<AtomicU64>,
}

// SAFETY: the word is atomic, and its memory, which is `Send` and `Sync`, lives as long.
unsafe impl Send for StopWord {}
// SAFETY: as above.
unsafe impl Sync for StopWord {}

/// The value of a word that is armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Armed(u64);

impl StopWord {
    /// # Errors
    /// wasmtime's, if there is no address space left.
    pub(super) fn new(engine: &wasmtime::Engine) -> wasmtime::Result<Self> {
        let memory = SharedMemory::new(engine, MemoryType::shared(1, 1))?;
        let word = NonNull::from(memory.data()).cast();
        Ok(Self { memory, word })
    }

    /// The memory, which an instance imports.
    pub(super) fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// Arms the word. Only the thread that has the instance calls this.
    #[inline]
    pub(super) fn arm(&self) {
        let before = self.load();
        self.store(((before & COUNT) + 1) | 1, Ordering::Release);
    }

    /// Disarms the word, and returns why the call was stopped, if it was. Only the thread that has
    /// the instance calls this.
    #[inline]
    pub(super) fn disarm(&self) -> Option<Interrupted> {
        let before = self.load();
        self.store(((before & COUNT) | 1) + 1, Ordering::Relaxed);
        Interrupted::from_byte((before >> COUNT_BITS) as u8)
    }

    /// The word, as the thread that has the instance reads it.
    #[inline]
    fn load(&self) -> u64 {
        u64::from_le(self.word().load(Ordering::Relaxed))
    }

    #[inline]
    fn store(&self, count: u64, order: Ordering) {
        self.word().store((count & COUNT).to_le(), order);
    }

    /// The word, if it is armed.
    #[inline]
    pub(super) fn armed(&self) -> Option<Armed> {
        let word = u64::from_le(self.word().load(Ordering::Acquire));
        (word <= COUNT && word & 1 == 1).then_some(Armed(word))
    }

    /// Stops a call, unless it has ended.
    pub(super) fn stop(&self, Armed(armed): Armed, why: Interrupted) -> bool {
        let stopped = armed | (u64::from(why.to_byte()) << COUNT_BITS);
        let (from, to) = (armed.to_le(), stopped.to_le());
        self.word()
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    #[inline]
    fn word(&self) -> &AtomicU64 {
        // SAFETY: the memory has one page of 64 KiB, which is never moved, and whose bytes are
        // mapped, begin at a page's border and are `UnsafeCell`s, for as long as `self.memory`
        // lives. Every access is atomic: the host's is this one, and guests read a byte by
        // `i32.atomic.load8_u`, the only instruction that the rewriter gives them for this memory
        // besides one that always traps.
        unsafe { self.word.as_ref() }
    }
}
