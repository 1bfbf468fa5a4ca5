//! Faults that safe Rust cannot cause: those of wrong pointers, wrong instructions and other
//! languages.
//!
//! This is the guest's only file with unsafe code, which is wrong on purpose. Each function does
//! what its name says because the compiler cannot see the wrong value. The conformance tests check
//! the status that the host reports for each.
#![allow(
    unsafe_code,
    reason = "a module that tests a sandbox has to cause faults that safe code cannot"
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

/// The highest aligned address of a 32-bit memory. Only a memory of the maximum size includes it.
const LAST_WORD: usize = 0xffff_fffc;

/// Executes the instruction `unreachable`.
pub(crate) fn unreachable() {
    core::arch::wasm32::unreachable();
}

/// Reads four bytes that no memory smaller than 4 GiB has.
pub(crate) fn read_out_of_bounds() -> u32 {
    let address = ptr::without_provenance::<u32>(black_box(LAST_WORD));
    // SAFETY: none; the fault is intended. The volatile access compiles to the load, which traps.
    unsafe { address.read_volatile() }
}

/// Writes four bytes that no memory smaller than 4 GiB has.
pub(crate) fn write_out_of_bounds() {
    let address = ptr::without_provenance_mut::<u32>(black_box(LAST_WORD));
    // SAFETY: none; the fault is intended. The volatile access compiles to the store, which traps.
    unsafe { address.write_volatile(0xdead_beef) }
}

/// Executes `i32.div_u` with a divisor of zero, which Rust would check first.
#[inline(never)]
pub(crate) fn divide_by_zero() -> u32 {
    let divisor = black_box(0_u32);
    // SAFETY: none; the fault is intended. The false hint removes Rust's check, and `black_box`
    // hides the zero.
    unsafe { assert_unchecked(divisor != 0) };
    black_box(black_box(1_u32) / divisor)
}

/// Allocates one page at a time until the host refuses. Returns the number of pages then.
pub(crate) fn grow_memory() -> usize {
    while core::arch::wasm32::memory_grow::<0>(1) != usize::MAX {}
    core::arch::wasm32::memory_size::<0>()
}

/// Returns a number that is not a status code.
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

/// The metadata of the two targets above, which the macro would write.
#[used]
#[unsafe(link_section = "callbox.targets")]
static METADATA: [u8; include_bytes!("raw.jsonl").len()] = *include_bytes!("raw.jsonl");
