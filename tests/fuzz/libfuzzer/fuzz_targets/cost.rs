//! `callbox_fuzz::targets::cost` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let _ = (callbox_fuzz::targets::cost::TARGET.run)(input);
});
