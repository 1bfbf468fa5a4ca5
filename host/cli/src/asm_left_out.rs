//! `callbox bench --asm` on other processors than x86-64, whose code callbox does not read.

use callbox::wasm::FunctionCode;

pub(super) const IS_SUPPORTED: bool = false;

/// No lines. `bench` refuses the flag.
pub(super) fn describe(_: &[FunctionCode], _: &[&str]) -> String {
    String::new()
}
