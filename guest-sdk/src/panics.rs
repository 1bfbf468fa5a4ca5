//! How a panic reaches the host: its text and place become the call's failure, before the guest traps.

#[cfg(all(target_arch = "wasm32", feature = "std"))]
pub(crate) use hook::install;

#[cfg(not(all(target_arch = "wasm32", feature = "std")))]
pub(crate) use no_hook::install;

/// Text of bounded length, written without an allocator: the panic may be about one.
#[cfg(any(test, target_arch = "wasm32"))]
pub(crate) struct Message {
    bytes: [u8; Self::CAPACITY],
    len: usize,
}

#[cfg(any(test, target_arch = "wasm32"))]
impl Message {
    /// In bytes.
    const CAPACITY: usize = 4096;

    pub(crate) const fn new() -> Self {
        Self {
            bytes: [0; Self::CAPACITY],
            len: 0,
        }
    }

    /// What was written, cut at the capacity.
    pub(crate) fn as_str(&self) -> &str {
        str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

#[cfg(any(test, target_arch = "wasm32"))]
impl core::fmt::Write for Message {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let room = Self::CAPACITY - self.len;
        let text = &text[..text.floor_char_boundary(room)];
        self.bytes[self.len..][..text.len()].copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

/// Sets the call's failure to what a panic says: `panicked at src/lib.rs:12:5: the text`.
#[cfg(all(target_arch = "wasm32", any(feature = "std", feature = "runtime")))]
fn report(location: Option<&core::panic::Location<'_>>, text: &dyn core::fmt::Display) {
    let mut message = Message::new();
    // `Message` takes what fits and never fails.
    let _ = match location {
        Some(location) => {
            core::fmt::write(&mut message, format_args!("panicked at {location}: {text}"))
        }
        None => core::fmt::write(&mut message, format_args!("panicked: {text}")),
    };
    crate::abi::set_failure(crate::StatusCode::Aborted, message.as_str(), false);
}

#[cfg(all(target_arch = "wasm32", feature = "std"))]
mod hook {
    use core::sync::atomic::{AtomicBool, Ordering};
    use std::panic::PanicHookInfo;

    static IS_INSTALLED: AtomicBool = AtomicBool::new(false);

    /// Sees to it that panics are reported. The first call of an instance does it.
    #[inline]
    pub(crate) fn install() {
        if !IS_INSTALLED.load(Ordering::Relaxed) {
            set();
        }
    }

    #[cold]
    fn set() {
        IS_INSTALLED.store(true, Ordering::Relaxed);
        std::panic::set_hook(std::boxed::Box::new(|info: &PanicHookInfo<'_>| {
            let text = info.payload_as_str().unwrap_or("a value that is no text");
            super::report(info.location(), &text);
        }));
    }
}

#[cfg(not(all(target_arch = "wasm32", feature = "std")))]
mod no_hook {
    /// Does nothing: a `no_std` guest has a panic handler, and natively the panic is the test's.
    #[inline]
    pub(crate) fn install() {}
}

/// What the panic handler of a `no_std` guest does.
#[cfg(all(target_arch = "wasm32", feature = "runtime", not(feature = "std")))]
pub fn handle(info: &core::panic::PanicInfo<'_>) -> ! {
    report(info.location(), &info.message());
    core::arch::wasm32::unreachable()
}

#[cfg(test)]
mod tests {
    use super::Message;
    use core::fmt::Write;

    #[test]
    fn a_message_is_cut_between_characters() {
        let mut message = Message::new();
        for _ in 0..Message::CAPACITY {
            assert!(message.write_str("é§x").is_ok());
        }
        assert!(message.as_str().len() > Message::CAPACITY - 2);
        assert!(message.as_str().starts_with("é§x"));
    }
}
