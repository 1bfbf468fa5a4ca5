//! `callbox_fuzz::targets::hlo_text` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let _ = (callbox_fuzz::targets::hlo_text::TARGET.run)(input);
});
