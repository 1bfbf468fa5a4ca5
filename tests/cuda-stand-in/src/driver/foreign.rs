//! The caller's memory, as argument types of the C functions. This crate never creates values of
//! these types itself.

use std::ffi::{CStr, c_char};

use cudarc::driver::sys::CUresult;

/// A place for one result: null or valid for a write, as the driver API requires of callers.
#[repr(transparent)]
pub(super) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes the result. A null place is an error.
    pub(super) fn put(self, value: T) -> Result<(), CUresult> {
        self.put_if_asked(value)
            .then_some(())
            .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// Writes the result unless the place is null. Returns whether it was written.
    pub(super) fn put_if_asked(self, value: T) -> bool {
        if self.0.is_null() {
            return false;
        }
        // SAFETY: the pointer is not null, and only a C caller creates an `Out`, which guarantees
        // its validity.
        unsafe { self.0.write_unaligned(value) };
        true
    }

    pub(super) fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

impl<T: Copy> Out<T> {
    /// Replaces the current value.
    pub(super) fn replace(
        self,
        with: impl FnOnce(T) -> Result<T, CUresult>,
    ) -> Result<(), CUresult> {
        if self.0.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the pointer is not null, and only a C caller creates an `Out` that is read, which
        // guarantees an initialised value.
        let value = unsafe { self.0.read_unaligned() };
        self.put(with(value)?)
    }
}

/// An array of the caller's: null, or valid for the number of elements in another argument.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Array<T>(*mut T);

impl<T: Copy> Array<T> {
    pub(super) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Reads `length` elements. Returns `None` for a null array.
    pub(super) fn read(&self, length: usize) -> Option<Vec<T>> {
        if self.0.is_null() {
            return (length == 0).then(Vec::new);
        }
        // SAFETY: the pointer is not null, and only a C caller creates an `Array`, which guarantees
        // `length` elements.
        Some(
            (0..length)
                .map(|index| unsafe { self.0.add(index).read_unaligned() })
                .collect(),
        )
    }

    /// Writes elements, at most as many as the caller requested.
    pub(super) fn write(&self, values: &[T]) {
        if self.0.is_null() {
            return;
        }
        for (index, value) in values.iter().enumerate() {
            // SAFETY: the pointer is not null, and only a C caller creates an `Array`, which
            // guarantees the requested elements.
            unsafe { self.0.add(index).write_unaligned(*value) };
        }
    }
}

/// A C string: null, or valid up to its NUL.
#[repr(transparent)]
pub(super) struct Text(*const c_char);

impl Text {
    pub(super) fn read(&self) -> Result<String, CUresult> {
        let bytes = self.bytes()?;
        String::from_utf8(bytes).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// Returns the bytes before the NUL.
    pub(super) fn bytes(&self) -> Result<Vec<u8>, CUresult> {
        if self.0.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the pointer is not null, and only a C caller creates a `Text`, which guarantees
        // the NUL.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_bytes().to_vec())
    }
}

/// Pageable host memory, which no driver call allocated. Only an address.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Host(*mut u8);

impl Host {
    /// Returns the address, by which pinned memory is recognised.
    pub(super) fn address(self) -> u64 {
        self.0.expose_provenance() as u64
    }

    /// Wraps an address that was passed as a number.
    pub(super) fn at(address: u64) -> Host {
        Host(std::ptr::with_exposed_provenance_mut(
            usize::try_from(address).unwrap_or(0),
        ))
    }

    /// Reads `length` bytes.
    ///
    /// # Safety
    /// The caller of the C function named this address and length as the source of a copy.
    pub(super) unsafe fn read(self, length: usize) -> Result<Vec<u8>, CUresult> {
        if self.0.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the caller guarantees it; the driver API requires memory of that length.
        Ok(unsafe { std::slice::from_raw_parts(self.0, length) }.to_vec())
    }

    /// Writes bytes.
    ///
    /// # Safety
    /// The caller of the C function named this address and length as the destination of a copy.
    pub(super) unsafe fn write(self, bytes: &[u8]) -> Result<(), CUresult> {
        if self.0.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the caller guarantees it; the driver API requires memory of that length, and
        // `bytes` is owned by this crate.
        unsafe { self.0.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }
}
