//! The caller's memory, as arguments: the C functions take these types, and nothing in this crate makes one.

use std::ffi::{CStr, c_char};

use cudarc::driver::sys::CUresult;

/// A place for one result. Null, or valid for a write: the driver API asks that of its callers.
#[repr(transparent)]
pub(super) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes the result. A null place is an error.
    pub(super) fn put(self, value: T) -> Result<(), CUresult> {
        self.put_if_asked(value)
            .then_some(())
            .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// Writes the result, unless the place is null. Says whether it was written.
    pub(super) fn put_if_asked(self, value: T) -> bool {
        if self.0.is_null() {
            return false;
        }
        // SAFETY: Not null, and only a C caller makes an `Out`, who vouches for the rest.
        unsafe { self.0.write_unaligned(value) };
        true
    }

    pub(super) fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

impl<T: Copy> Out<T> {
    /// Replaces what is there.
    pub(super) fn replace(
        self,
        with: impl FnOnce(T) -> Result<T, CUresult>,
    ) -> Result<(), CUresult> {
        if self.0.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: Not null, and only a C caller makes an `Out` that is read, who vouches for a value in it.
        let value = unsafe { self.0.read_unaligned() };
        self.put(with(value)?)
    }
}

/// An array that the caller lends for the call. Null, or valid for as many elements as another argument says.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Array<T>(*mut T);

impl<T: Copy> Array<T> {
    pub(super) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Reads `length` elements. A null array has none.
    pub(super) fn read(&self, length: usize) -> Option<Vec<T>> {
        if self.0.is_null() {
            return (length == 0).then(Vec::new);
        }
        // SAFETY: Not null; only a C caller makes an `Array`, who vouches for `length` elements.
        Some(
            (0..length)
                .map(|index| unsafe { self.0.add(index).read_unaligned() })
                .collect(),
        )
    }

    /// Writes elements, of which the caller has asked for at least as many.
    pub(super) fn write(&self, values: &[T]) {
        if self.0.is_null() {
            return;
        }
        for (index, value) in values.iter().enumerate() {
            // SAFETY: Not null; only a C caller makes an `Array`, who vouches for the elements that were asked for.
            unsafe { self.0.add(index).write_unaligned(*value) };
        }
    }
}

/// A C string. Null, or valid up to its NUL.
#[repr(transparent)]
pub(super) struct Text(*const c_char);

impl Text {
    pub(super) fn read(&self) -> Result<String, CUresult> {
        let bytes = self.bytes()?;
        String::from_utf8(bytes).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// Everything before the NUL.
    pub(super) fn bytes(&self) -> Result<Vec<u8>, CUresult> {
        if self.0.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: Not null, and only a C caller makes a `Text`, who vouches for a NUL at its end.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_bytes().to_vec())
    }
}

/// Bytes of the host that no driver call allocated: pageable memory. An address and nothing more.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Host(*mut u8);

impl Host {
    /// The address. Pinned memory is recognised by it.
    pub(super) fn address(self) -> u64 {
        self.0.expose_provenance() as u64
    }

    /// The pageable memory at an address that came as a number, of a copy between any two places.
    pub(super) fn at(address: u64) -> Host {
        Host(std::ptr::with_exposed_provenance_mut(
            usize::try_from(address).unwrap_or(0),
        ))
    }

    /// Reads `length` bytes.
    ///
    /// # Safety
    /// The caller of the C function named this address and this length as the source of a copy.
    pub(super) unsafe fn read(self, length: usize) -> Result<Vec<u8>, CUresult> {
        if self.0.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: As the caller vouches; the driver API asks it for memory of that length.
        Ok(unsafe { std::slice::from_raw_parts(self.0, length) }.to_vec())
    }

    /// Writes bytes.
    ///
    /// # Safety
    /// The caller of the C function named this address and this length as the destination of a copy.
    pub(super) unsafe fn write(self, bytes: &[u8]) -> Result<(), CUresult> {
        if self.0.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: As the caller vouches; the driver API asks it for memory of that length, and `bytes` is ours.
        unsafe { self.0.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }
}
