//! Reports a panic to the host: its message and location become the call's failure, and the guest
//! traps.

#[cfg(all(target_arch = "wasm32", feature = "std"))]
pub(crate) use hook::install;

#[cfg(not(all(target_arch = "wasm32", feature = "std")))]
pub(crate) use no_hook::install;

#[cfg(any(test, target_arch = "wasm32"))]
use crate::text::digits;

/// A text of bounded length. It needs no allocator, because the allocator may be what panicked.
#[cfg(any(test, target_arch = "wasm32"))]
pub(crate) struct Message {
    bytes: [u8; Self::CAPACITY],
    len: usize,
}

#[cfg(any(test, target_arch = "wasm32"))]
impl Message {
    /// The largest length in bytes.
    const CAPACITY: usize = 4096;

    pub(crate) const fn new() -> Self {
        Self {
            bytes: [0; Self::CAPACITY],
            len: 0,
        }
    }

    /// Returns the text, truncated at the capacity.
    pub(crate) fn as_str(&self) -> &str {
        let text = self.bytes.get(..self.len).unwrap_or_default();
        str::from_utf8(text).unwrap_or_default()
    }

    /// Appends what fits.
    pub(crate) fn push(&mut self, text: &str) {
        let room = self.bytes.get_mut(self.len..).unwrap_or_default();
        let text = text.as_bytes();
        let mut len = text.len().min(room.len());
        // Cuts between characters.
        while text.get(len).is_some_and(|byte| byte & 0xc0 == 0x80) {
            len -= 1;
        }
        for (to, from) in room.iter_mut().zip(text.iter().take(len)) {
            *to = *from;
        }
        self.len += len;
    }

    /// Appends the digits of a number.
    pub(crate) fn push_number(&mut self, number: u32) {
        self.push(digits(u64::from(number), &mut [0; 20]));
    }
}

/// Sets the call's failure to the panic's message: `panicked at src/lib.rs:12:5: the text`.
#[cfg(all(target_arch = "wasm32", any(feature = "std", feature = "runtime")))]
fn report(location: Option<&core::panic::Location<'_>>, text: &str) {
    let mut message = Message::new();
    message.push("panicked");
    if let Some(location) = location {
        message.push(" at ");
        message.push(location.file());
        for number in [location.line(), location.column()] {
            message.push(":");
            message.push_number(number);
        }
    }
    message.push(": ");
    message.push(text);
    crate::abi::set_failure(crate::StatusCode::Aborted, message.as_str(), false);
}

#[cfg(all(target_arch = "wasm32", feature = "std"))]
mod hook {
    use core::sync::atomic::{AtomicBool, Ordering};
    use std::panic::PanicHookInfo;

    static IS_INSTALLED: AtomicBool = AtomicBool::new(false);

    /// Installs the panic hook, on the first call of an instance.
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
            super::report(info.location(), text);
        }));
    }
}

#[cfg(not(all(target_arch = "wasm32", feature = "std")))]
mod no_hook {
    /// Does nothing: a `no_std` guest has a panic handler, and a native panic is the test's.
    #[inline]
    pub(crate) fn install() {}
}

/// Handles a panic of a `no_std` guest. A message that contains values is left out: it would bring
/// the formatting machinery into every guest.
#[cfg(all(target_arch = "wasm32", feature = "runtime", not(feature = "std")))]
pub fn handle(info: &core::panic::PanicInfo<'_>) -> ! {
    let text = info.message().as_str();
    report(
        info.location(),
        text.unwrap_or("a message with values, which needs the feature `std`"),
    );
    core::arch::wasm32::unreachable()
}

#[cfg(test)]
mod tests {
    use super::Message;

    #[test]
    fn a_message_is_cut_between_characters() {
        let mut message = Message::new();
        for _ in 0..Message::CAPACITY {
            message.push("é§x");
        }
        assert!(message.as_str().len() > Message::CAPACITY - 2);
        assert!(message.as_str().starts_with("é§x"));
    }

    #[test]
    fn a_message_takes_texts_and_numbers() {
        let mut message = Message::new();
        message.push("at ");
        message.push_number(4_294_967_295);
        message.push("");
        message.push_number(0);
        assert_eq!(message.as_str(), "at 42949672950");
    }
}
