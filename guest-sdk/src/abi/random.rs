//! The functions through which the crate getrandom asks for random bytes, and WASI's.

use core::slice;

use crate::random;

/// Serves getrandom 0.3 and 0.4. They pass a buffer of `len` bytes that nothing else refers to.
#[cfg(feature = "getrandom")]
#[unsafe(no_mangle)]
unsafe extern "Rust" fn __getrandom_v03_custom(
    bytes: *mut u8,
    len: usize,
) -> Result<(), getrandom::Error> {
    // SAFETY: getrandom upholds what `fill` requires.
    if unsafe { fill(bytes, len) } {
        Ok(())
    } else {
        Err(getrandom::Error::UNSUPPORTED)
    }
}

/// Serves getrandom 0.2, which takes 0 for success.
#[cfg(feature = "getrandom")]
#[unsafe(no_mangle)]
unsafe extern "Rust" fn __getrandom_custom(bytes: *mut u8, len: usize) -> u32 {
    /// `getrandom::Error::UNSUPPORTED` of version 0.2.
    const UNSUPPORTED: u32 = 1 << 31;
    // SAFETY: getrandom upholds what `fill` requires.
    if unsafe { fill(bytes, len) } {
        0
    } else {
        UNSUPPORTED
    }
}

/// Fills a buffer with random bytes. Returns whether there are any.
///
/// # Safety
/// `bytes` points to `len` bytes, which may be uninitialised and which nothing else refers to.
#[cfg(feature = "getrandom")]
unsafe fn fill(bytes: *mut u8, len: usize) -> bool {
    // SAFETY: the caller guarantees that the bytes are writable.
    unsafe { bytes.write_bytes(0, len) };
    // SAFETY: the caller guarantees exclusive access to the bytes, which are initialised now.
    let bytes = unsafe { slice::from_raw_parts_mut(bytes, len) };
    random::fill(bytes).is_ok()
}

#[cfg(feature = "granted-randomness")]
#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn random_get(bytes: *mut u8, len: usize) -> u32;
}

/// Fills a slice with the policy's random bytes. Returns whether the host gave them.
#[cfg(feature = "granted-randomness")]
pub(crate) fn granted_random_bytes(bytes: &mut [u8]) -> bool {
    // SAFETY: the host writes `len` bytes at this address, which the slice has.
    let errno = unsafe { random_get(bytes.as_mut_ptr(), bytes.len()) };
    errno == 0
}
