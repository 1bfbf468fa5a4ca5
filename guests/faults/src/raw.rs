//! Faults that safe Rust does not have: what a wrong pointer, a wrong instruction or another language does.
//!
//! This is the guest's one file with unsafe code. It is wrong on purpose. What makes each function do what its name says,
//! and nothing else, is that the compiler cannot see the value that is wrong; the conformance tests hold the host's
//! status against each.
#![allow(
    unsafe_code,
    reason = "a module for testing a sandbox does what only unsafe code can"
)]

use core::hint::{assert_unchecked, black_box};
use core::ptr;

mod api {
    #[link(wasm_import_module = "callbox:ffi/api@1.0.0")]
    unsafe extern "C" {
        #[link_name = "set-failure"]
        pub(crate) fn set_failure(code: u32, message: *const u8, len: usize, recoverable: u32);
    }
}

/// The highest aligned address of a 32-bit memory. A memory that has it is as large as can be.
const LAST_WORD: usize = 0xffff_fffc;

/// The instruction `unreachable`.
pub(crate) fn unreachable() {
    core::arch::wasm32::unreachable();
}

/// Reads four bytes that no memory of less than 4 GiB has.
pub(crate) fn read_out_of_bounds() -> u32 {
    let address = ptr::without_provenance::<u32>(black_box(LAST_WORD));
    // SAFETY: none. A volatile access to what is no Rust object is the instruction itself, and that traps.
    unsafe { address.read_volatile() }
}

/// Writes four bytes that no memory of less than 4 GiB has.
pub(crate) fn write_out_of_bounds() {
    let address = ptr::without_provenance_mut::<u32>(black_box(LAST_WORD));
    // SAFETY: none. A volatile access to what is no Rust object is the instruction itself, and that traps.
    unsafe { address.write_volatile(0xdead_beef) }
}

/// The instruction `i32.div_u` with a divisor of zero, before which Rust would panic.
#[inline(never)]
pub(crate) fn divide_by_zero() -> u32 {
    let divisor = black_box(0_u32);
    // SAFETY: none. It is a lie that keeps Rust's own check out; `black_box` keeps the compiler from seeing that.
    unsafe { assert_unchecked(divisor != 0) };
    black_box(black_box(1_u32) / divisor)
}

/// Asks for a page at a time until the host refuses. Returns how many pages there are then.
pub(crate) fn grow_memory() -> usize {
    while core::arch::wasm32::memory_grow::<0>(1) != usize::MAX {}
    core::arch::wasm32::memory_size::<0>()
}

/// Returns a number that is no status code.
#[unsafe(export_name = "wrong_status_code")]
extern "C" fn wrong_status_code(_frame: u32) -> u32 {
    99
}

/// Fails with a message that is not UTF-8.
#[unsafe(export_name = "non_utf8_message")]
extern "C" fn non_utf8_message(_frame: u32) -> u32 {
    const INVALID_ARGUMENT: u32 = 3;
    let message = b"not UTF-8: \xff\xfe \xc3( end";
    // SAFETY: the message is a slice of this memory, which the host only reads.
    unsafe { api::set_failure(INVALID_ARGUMENT, message.as_ptr(), message.len(), 0) };
    INVALID_ARGUMENT
}

/// What the macro would write of the two targets above.
#[used]
#[unsafe(link_section = "callbox.targets")]
static METADATA: [u8; include_bytes!("raw.jsonl").len()] = *include_bytes!("raw.jsonl");
