//! `callbox_fuzz::targets::bundle` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let _ = (callbox_fuzz::targets::bundle::TARGET.run)(input);
});
