//! `callbox_fuzz::targets::frame` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let _ = (callbox_fuzz::targets::frame::TARGET.run)(input);
});
