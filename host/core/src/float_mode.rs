//! The floating-point mode of a thread: rounding, denormals, and which exceptions trap.
//!
//! WebAssembly rounds to nearest, keeps denormals, and never traps on floating-point exceptions. So
//! do programs. A thread may have another mode: XLA's flush denormals to zero, and a thread that it
//! starts inherits that. Every entry into a guest and into a program's instructions therefore sets
//! WebAssembly's mode, and every import gives the thread its own mode back while the host runs.
//! Setting the mode is slow, so it is set only where it differs.
//!
//! On x86-64 the mode is in MXCSR, on AArch64 in FPCR. Elsewhere this module does nothing.

#![allow(
    unsafe_code,
    reason = "only these instructions reach the register with the floating-point mode"
)]

/// The floating-point mode of a thread: the value of its register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloatMode(u64);

/// Restores the previous mode when dropped.
#[derive(Debug)]
#[must_use]
pub struct ModeSet {
    before: Option<FloatMode>,
}

impl FloatMode {
    /// WebAssembly's mode, which is also the one that Rust code expects.
    pub const WASM: Self = Self(register::DEFAULT);

    /// A mode that differs, for tests: denormals are zero, and rounding is towards zero.
    pub const FLUSHING: Self = Self(register::FLUSHING);

    /// The mode of the current thread, without the flags of exceptions that have occurred.
    #[must_use]
    pub fn current() -> Self {
        Self(register::read() & register::MODE)
    }

    /// Sets this mode for the current thread.
    #[inline]
    pub fn set(self) -> ModeSet {
        let before = register::read();
        if (before ^ self.0) & register::MODE == 0 {
            return ModeSet { before: None };
        }
        register::write(self.0);
        ModeSet {
            before: Some(Self(before)),
        }
    }
}

impl ModeSet {
    /// The mode that the thread had before, if it differs.
    #[inline]
    #[must_use]
    pub fn before(&self) -> Option<FloatMode> {
        self.before
    }
}

impl Drop for ModeSet {
    #[inline]
    fn drop(&mut self) {
        if let Some(FloatMode(before)) = self.before {
            register::write(before);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod register {
    use std::arch::asm;

    /// All exceptions masked, rounding to nearest, denormals kept.
    pub(super) const DEFAULT: u64 = 0x1f80;

    /// The same with DAZ, FTZ and rounding towards zero.
    pub(super) const FLUSHING: u64 = 0xffc0;

    /// All bits but the flags of exceptions that have occurred, which every operation may set.
    pub(super) const MODE: u64 = 0xffff_ffc0;

    #[inline]
    pub(super) fn read() -> u64 {
        let mut word = 0_u32;
        // SAFETY: the instruction writes four bytes to `word`, which is exclusively borrowed.
        unsafe {
            asm!("stmxcsr [{}]", in(reg) &raw mut word, options(nostack, preserves_flags));
        }
        u64::from(word)
    }

    #[inline]
    pub(super) fn write(word: u64) {
        let word = word as u32;
        // SAFETY: the instruction reads four bytes of `word`. They are either the default, which is
        // the mode that compiled Rust expects, or `FLUSHING`, which sets defined bits alone, or
        // come from `read` on this thread, whose code ran with them before: `ModeSet` is dropped in
        // the reverse order. Reserved bits, which fault, are never set in what `stmxcsr` stores.
        unsafe {
            asm!("ldmxcsr [{}]", in(reg) &raw const word, options(nostack));
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod register {
    use std::arch::asm;

    /// No exception traps, rounding to nearest, denormals and NaNs kept.
    pub(super) const DEFAULT: u64 = 0;

    /// FZ and rounding towards zero.
    pub(super) const FLUSHING: u64 = 1 << 24 | 3 << 22;

    /// All bits of FPCR. The flags of exceptions are in another register.
    pub(super) const MODE: u64 = u64::MAX;

    #[inline]
    pub(super) fn read() -> u64 {
        let word: u64;
        // SAFETY: reads a register that programs may read, and no memory.
        unsafe {
            asm!("mrs {}, fpcr", out(reg) word, options(nomem, nostack, preserves_flags));
        }
        word
    }

    #[inline]
    pub(super) fn write(word: u64) {
        // SAFETY: sets the default, which is the mode that compiled Rust expects, `FLUSHING`, which
        // has defined bits alone, or a value of `read` on this thread, whose code ran with it
        // before: `ModeSet` is dropped in the reverse order.
        unsafe {
            asm!("msr fpcr, {}", in(reg) word, options(nostack));
        }
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod register {
    pub(super) const DEFAULT: u64 = 0;
    pub(super) const FLUSHING: u64 = 0;
    pub(super) const MODE: u64 = 0;

    pub(super) fn read() -> u64 {
        DEFAULT
    }

    pub(super) fn write(_: u64) {}
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use std::hint::black_box;

    use super::FloatMode;

    /// The sum of a denormal and zero, as the thread's mode has it.
    fn sum() -> f32 {
        black_box(1e-40_f32) + black_box(0.0)
    }

    #[test]
    fn a_mode_lasts_until_it_is_dropped() {
        let own = FloatMode::current();
        let other = FloatMode::FLUSHING.set();
        assert_eq!(sum().to_bits(), 0);
        assert!(FloatMode::FLUSHING.set().before().is_none());
        let wasm = FloatMode::WASM.set();
        assert_eq!(sum().to_bits(), 1e-40_f32.to_bits());
        let host = wasm.before().map(FloatMode::set);
        assert_eq!(sum().to_bits(), 0);
        drop(host);
        assert_eq!(sum().to_bits(), 1e-40_f32.to_bits());
        drop(wasm);
        assert_eq!(FloatMode::current(), FloatMode::FLUSHING);
        drop(other);
        assert_eq!(FloatMode::current(), own);
    }
}
