//! The control functions of the shared library, which `control.rs` calls.

use super::codes::code;
use super::foreign::Array;
use super::state;
use crate::control::Leaks;
use crate::state::memory::DEVICES;
use crate::state::{Injected, State};

#[unsafe(no_mangle)]
extern "C" fn callbox_stand_in_set_lazy(lazy: bool) {
    state().settings.lazy = lazy;
}

#[unsafe(no_mangle)]
extern "C" fn callbox_stand_in_set_reuse(reuse: bool) {
    state().memory.reuse = reuse;
}

#[unsafe(no_mangle)]
extern "C" fn callbox_stand_in_set_devices(devices: usize) -> bool {
    let mut state = state();
    let accepted = devices <= DEVICES && !state.initialised;
    if accepted {
        state.settings.devices = devices;
    }
    accepted
}

#[unsafe(no_mangle)]
extern "C" fn callbox_stand_in_set_memory(device: usize, bytes: u64) {
    state().settings.memory.insert(device, bytes);
}

#[unsafe(no_mangle)]
extern "C" fn callbox_stand_in_set_local_bytes(bytes: u32) {
    state().settings.local_bytes = bytes;
}

#[unsafe(no_mangle)]
extern "C" fn callbox_stand_in_set_capability(major: u32, minor: u32) {
    state().settings.capability = (major, minor);
}

#[unsafe(no_mangle)]
extern "C" fn callbox_stand_in_set_driver_version(version: i32) {
    state().settings.driver_version = version;
}

#[unsafe(no_mangle)]
extern "C" fn callbox_stand_in_fail_nth(n: u64, number: u32, of: u64) {
    let code = code(number).filter(|_| number != 0 && n > 0);
    state().log.injected = code.map(|code| Injected {
        left: n,
        of: (of != 0).then_some(of),
        code,
    });
}

#[unsafe(no_mangle)]
extern "C" fn callbox_stand_in_clear_calls() {
    state().log.calls.clear();
}

#[unsafe(no_mangle)]
extern "C" fn callbox_stand_in_leaks(leaks: &mut Leaks) {
    *leaks = state().leaks();
}

#[unsafe(no_mangle)]
extern "C" fn callbox_stand_in_reset() {
    *state() = State::new();
}

#[unsafe(no_mangle)]
unsafe extern "C" fn callbox_stand_in_calls(place: Array<u8>, room: usize) -> usize {
    show(&state().log.calls.join("\n"), &place, room)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn callbox_stand_in_last_fault(place: Array<u8>, room: usize) -> usize {
    show(&state().log.fault, &place, room)
}

/// Writes as much of a text as fits, and returns its full length in bytes.
fn show(text: &str, place: &Array<u8>, room: usize) -> usize {
    let bytes = text.as_bytes();
    place.write(&bytes[..bytes.len().min(room)]);
    bytes.len()
}
