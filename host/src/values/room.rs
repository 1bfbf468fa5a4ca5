//! Memory for as much as a program or a caller asks for, or a failure.

use super::{Blame, Result, Status, StatusCode};

/// As many zeros (or what else is the type's default).
///
/// # Errors
/// RESOURCE_EXHAUSTED if there is no memory for them: a program may ask for any size.
pub(crate) fn zeroed<T: Default + Clone>(count: usize) -> Result<Vec<T>> {
    let mut elements = Vec::new();
    elements.try_reserve_exact(count).map_err(|_| {
        Status::new(
            StatusCode::ResourceExhausted,
            Blame::Caller,
            format!(
                "expected {count} elements of {} bytes to fit into memory",
                size_of::<T>()
            ),
        )
    })?;
    elements.resize(count, T::default());
    Ok(elements)
}
