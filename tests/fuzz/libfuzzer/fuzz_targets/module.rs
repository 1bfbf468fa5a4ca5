//! `callbox_fuzz::targets::module` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let _ = (callbox_fuzz::targets::module::TARGET.run)(input);
});
