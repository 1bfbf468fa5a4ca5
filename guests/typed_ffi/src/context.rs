//! The call's context: literal, user data and scratch memory.

use callbox_guest::{Context, Failure, Operand, RemainingResults, ResultBuffer, target};

use crate::buffers::copy;

/// Returns the user data under the name in the attribute `name`.
#[target]
fn user_data(
    context: &Context,
    y: &mut ResultBuffer<u8, 1>,
    #[attr] name: &str,
) -> Result<(), Failure> {
    let Some(bytes) = context.user_data(name) else {
        return Err(Failure::not_found(format!("no user data {name:?}")));
    };
    y.expect_dimensions(&[bytes.len() as i64])?;
    y.copy_from_slice(&bytes);
    Ok(())
}

/// Copies the leaves of the call's literal to the results.
#[target]
fn literal(context: &Context, mut results: RemainingResults) -> Result<(), Failure> {
    let leaves = context.literal()?;
    if leaves.len() != results.len() {
        return Err(Failure::invalid_argument(format!(
            "expected a result for each of the literal's {} leaves, found {}",
            leaves.len(),
            results.len()
        )));
    }
    for (leaf, result) in leaves.iter().zip(results.as_mut_slice()) {
        copy(leaf, result)?;
    }
    Ok(())
}

/// Reverses `x` in scratch memory, and allocates another `kib` KiB of it. Then fails if the
/// attribute `fails` is set.
#[target]
fn scratch(
    context: &Context,
    x: &Operand<f32, 1>,
    y: &mut ResultBuffer<f32, 1>,
    #[attr] kib: u32,
    #[attr] fails: bool,
) -> Result<(), Failure> {
    let room = context.scratch(kib as usize * 1024, 64)?;
    let last = room.len().saturating_sub(1);
    if let Some(last) = room.get_mut(last) {
        *last = 1;
    }
    let copy = context.scratch_elements::<f32>(x.len())?;
    copy.copy_from_slice(x);
    copy.reverse();
    if fails {
        return Err(Failure::aborted("with scratch memory in hand"));
    }
    y.expect_dimensions(x.dimensions())?;
    y.copy_from_slice(copy);
    Ok(())
}

/// Allocates `size` bytes of scratch memory, and returns whether `alignment` divides its address.
#[target]
fn scratch_alignment(
    context: &Context,
    y: &mut ResultBuffer<i32, 0>,
    #[attr] size: u32,
    #[attr] alignment: u32,
) -> Result<(), Failure> {
    let (size, alignment) = (size as usize, alignment as usize);
    let memory = context.scratch(size, alignment)?;
    let is_so = memory.len() == size
        && memory.as_ptr().addr() % alignment == 0
        && memory.iter().all(|byte| *byte == 0);
    y.set(i32::from(is_so));
    Ok(())
}
