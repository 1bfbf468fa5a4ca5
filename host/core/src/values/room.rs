//! Allocations whose size a program or a caller chooses.

use zerocopy::FromZeros;

use super::{Blame, Result, Status, StatusCode};

/// A vector of `count` default values.
///
/// # Errors
/// RESOURCE_EXHAUSTED if the memory cannot be allocated: a program may ask for any size.
pub fn zeroed<T: Default + Clone>(count: usize) -> Result<Vec<T>> {
    let mut elements = with_capacity(count)?;
    elements.resize(count, T::default());
    Ok(elements)
}

/// Zeros that take no physical memory, and hardly any time, until they are accessed.
///
/// # Errors
/// As for [`zeroed`].
pub fn untouched(count: usize) -> Result<Vec<u8>> {
    u8::new_vec_zeroed(count).map_err(|_| no_room::<u8>(count))
}

/// No elements yet, with memory for this number of them.
///
/// # Errors
/// RESOURCE_EXHAUSTED if there is no memory for them.
pub fn with_capacity<T>(count: usize) -> Result<Vec<T>> {
    let mut elements = Vec::new();
    elements
        .try_reserve_exact(count)
        .map_err(|_| no_room::<T>(count))?;
    Ok(elements)
}

/// The elements of an iterator.
///
/// # Errors
/// As for [`with_capacity`].
pub fn collected<T>(items: impl IntoIterator<Item = T>) -> Result<Vec<T>> {
    let items = items.into_iter();
    let (least, most) = items.size_hint();
    let mut elements = with_capacity(most.unwrap_or(least))?;
    for item in items {
        push(&mut elements, item)?;
    }
    Ok(elements)
}

/// Appends an element.
///
/// # Errors
/// As for [`with_capacity`].
pub fn push<T>(elements: &mut Vec<T>, element: T) -> Result<()> {
    if elements.len() == elements.capacity() {
        let more = elements.try_reserve(1);
        more.map_err(|_| no_room::<T>(elements.len()))?;
    }
    elements.push(element);
    Ok(())
}

fn no_room<T>(count: usize) -> Status {
    Status::new(
        StatusCode::ResourceExhausted,
        Blame::Caller,
        format!(
            "out of memory while trying to allocate {} bytes",
            count as u128 * size_of::<T>() as u128
        ),
    )
}
