//! A healthy guest, which runs on an engine after a hostile one.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use callbox::call::{CallOptions, CallSite};
use callbox::{ArrayShape, Deadline, ElementType};

use super::Backend;

/// Doubles an s32. It fits into every limit that a case of a hostile guest sets: one page of
/// memory, two short functions.
const MODULE: &str = r#"(module
  (memory (export "memory") 1)
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
  (func (export "healthy") (param $frame i32) (result i32)
    (i32.store (i32.load (i32.load offset=16 (local.get $frame)))
      (i32.mul (i32.const 2) (i32.load (i32.load (i32.load offset=8 (local.get $frame))))))
    (i32.const 0)))"#;

/// Replaces the call limit of the case's policy, which is meant for the hostile guest.
const DEADLINE: Duration = Duration::from_secs(60);

/// Loads the guest anew and calls it.
pub(super) fn run(backend: &Backend) -> Result<()> {
    let what = "expected a healthy guest to work afterwards";
    let module = backend.load(&wat::parse_str(MODULE)?).context(what)?;
    let shape = ArrayShape::new(ElementType::S32, &[])?;
    let mut site = CallSite::new("healthy", vec![shape.clone().into()], shape.into());
    site.name = "the healthy guest".to_owned();
    let prepared = module.prepare_call(site).context(what)?;
    let mut result = [0; 4];
    let options = CallOptions {
        deadline: Some(Deadline::After(DEADLINE)),
        ..CallOptions::default()
    };
    let operand = 21_i32.to_le_bytes();
    prepared
        .call_with(&options, &[&operand], &mut [&mut result])
        .context(what)?;
    let found = i32::from_le_bytes(result);
    ensure!(found == 42, "{what}, found {found} in place of 42");
    Ok(())
}
