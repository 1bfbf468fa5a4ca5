//! Tensors of other libraries, by the protocol DLPack.
//!
//! An object with `__dlpack__` and `__dlpack_device__` hands out a capsule with a struct that
//! describes its memory. The consumer of the struct renames the capsule, and calls the
//! struct's deleter in the end. Since version 1.0 the struct has a version and flags.
#![allow(
    unsafe_code,
    reason = "reads the structs and the memory that other libraries hand out by DLPack"
)]

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use callbox::ElementType;
use pyo3::exceptions::{PyBufferError, PyMemoryError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::buffers::RawArray;

/// The major version of DLPack that this file declares. Minor versions only add flags and codes.
const MAJOR: u32 = 1;

/// The flag of memory that must not be written.
const READ_ONLY: u64 = 1;

/// The devices whose memory the CPU reads: its own, and what CUDA and ROCm have pinned.
const READABLE: [i32; 3] = [1, 3, 11];

/// More dimensions than a struct has unless it is none.
const MOST_DIMENSIONS: i32 = 64;

#[repr(C)]
#[derive(Clone, Copy)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct Description {
    data: *mut u8,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    dtype: DataType,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

#[repr(C)]
struct Unversioned {
    tensor: Description,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
    flags: u64,
    tensor: Description,
}

/// A struct that was taken from its capsule.
enum Owned {
    Unversioned(NonNull<Unversioned>),
    Versioned(NonNull<Versioned>),
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the producer's struct is valid until its deleter is called, which happens here
        // only, because taking the struct renames its capsule.
        unsafe {
            match *self {
                Self::Unversioned(managed) => {
                    if let Some(deleter) = managed.as_ref().deleter {
                        deleter(managed.as_ptr());
                    }
                }
                Self::Versioned(managed) => {
                    if let Some(deleter) = managed.as_ref().deleter {
                        deleter(managed.as_ptr());
                    }
                }
            }
        }
    }
}

impl Owned {
    /// The tensor and its flags.
    fn description(&self) -> PyResult<(&Description, u64)> {
        match self {
            // SAFETY: the struct is valid until `self` is dropped.
            Self::Unversioned(managed) => Ok((unsafe { &managed.as_ref().tensor }, 0)),
            Self::Versioned(managed) => {
                // SAFETY: as above. The version is at the same place in all versions, and the rest
                // is used only if it is this one.
                let managed = unsafe { managed.as_ref() };
                if managed.major == MAJOR {
                    return Ok((&managed.tensor, managed.flags));
                }
                Err(PyBufferError::new_err(format!(
                    "expected DLPack {MAJOR}, found {}.{}",
                    managed.major, managed.minor
                )))
            }
        }
    }
}

/// A tensor in the CPU's memory.
pub(crate) struct Tensor {
    #[expect(dead_code, reason = "keeps the memory alive")]
    owned: Owned,
    data: *mut u8,
    element_type: ElementType,
    dimensions: Vec<usize>,
    /// In elements. None for row-major order.
    strides: Option<Vec<isize>>,
    is_read_only: bool,
}

impl Tensor {
    /// Takes an object's memory.
    ///
    /// # Errors
    /// What the object's methods raise. BufferError for memory of a device, TypeError for elements
    /// that have no element type.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let device = object.call_method0("__dlpack_device__")?;
        // Producers use enumerations for the type.
        let part = |i: usize| device.get_item(i)?.call_method0("__index__")?.extract();
        let (device, number): (i32, i32) = (part(0)?, part(1)?);
        if !READABLE.contains(&device) {
            return Err(PyBufferError::new_err(format!(
                "expected an array in the CPU's memory, found one on {} {number}: copy it there",
                device_name(device)
            )));
        }
        // PyTorch's capsules do not say that the numbers in memory are to be negated.
        if object.hasattr("is_neg")? && object.call_method0("is_neg")?.is_truthy()? {
            return Err(PyBufferError::new_err(
                "expected a tensor without the negative bit: call resolve_neg()",
            ));
        }
        let owned = take(&capsule(object)?)?;
        let (tensor, flags) = owned.description()?;
        let element_type = element_type(tensor.dtype)?;
        let (dimensions, strides) = layout(tensor)?;
        let strides = strides.filter(|strides| !is_row_major(&dimensions, strides));
        let offset = usize::try_from(tensor.byte_offset).map_err(|_| invalid("offset"))?;
        if !READABLE.contains(&tensor.device_type) {
            return Err(invalid("device"));
        }
        // An empty tensor may have no memory.
        if tensor.data.is_null() && !dimensions.contains(&0) {
            return Err(invalid("pointer"));
        }
        let start = NonNull::new(tensor.data).unwrap_or(NonNull::dangling());
        let data = start.as_ptr().wrapping_add(offset);
        let is_read_only = flags & READ_ONLY != 0 || !is_mutable(object, &owned)?;
        Ok(Self {
            owned,
            data,
            element_type,
            dimensions,
            strides,
            is_read_only,
        })
    }

    /// The type of the elements.
    pub(crate) fn element_type(&self) -> ElementType {
        self.element_type
    }

    /// The dimensions.
    pub(crate) fn dimensions(&self) -> &[usize] {
        &self.dimensions
    }

    /// Whether the memory must not be written.
    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Whether the elements are in row-major order without gaps.
    pub(crate) fn is_contiguous(&self) -> bool {
        self.strides.is_none()
    }

    /// The memory of a contiguous tensor.
    pub(crate) fn raw(&self) -> RawArray {
        RawArray::new(self.data, self.byte_size())
    }

    /// Copies the elements in row-major order.
    ///
    /// # Errors
    /// MemoryError: strides of 0 let a small tensor have any number of elements.
    pub(crate) fn to_bytes(&self) -> PyResult<Vec<u8>> {
        let width = self.element_type.byte_width();
        let rank = self.dimensions.len();
        let strides = self.strides.as_deref().unwrap_or_default();
        let size = self.byte_size();
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(size).map_err(|_| {
            PyMemoryError::new_err(format!(
                "out of memory while trying to allocate {size} bytes"
            ))
        })?;
        bytes.resize(size, 0);
        let mut index = vec![0_usize; rank];
        for target in bytes.chunks_exact_mut(width) {
            let offsets = index.iter().zip(strides);
            let offset: isize = offsets.map(|(i, stride)| i.cast_signed() * stride).sum();
            // SAFETY: the index is inside the dimensions, so that the producer vouches for the
            // element, and for as long as `owned` exists. `target` is memory of this function.
            unsafe {
                let element = self.data.offset(offset * width.cast_signed());
                std::ptr::copy_nonoverlapping(element, target.as_mut_ptr(), width);
            }
            for (i, size) in index.iter_mut().zip(&self.dimensions).rev() {
                *i += 1;
                if *i < *size {
                    break;
                }
                *i = 0;
            }
        }
        Ok(bytes)
    }

    fn byte_size(&self) -> usize {
        self.dimensions.iter().product::<usize>() * self.element_type.byte_width()
    }
}

/// Asks an object for a capsule, of version 1 if it knows versions.
fn capsule<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let arguments = PyDict::new(py);
    arguments.set_item("max_version", (MAJOR, 0))?;
    match object.call_method("__dlpack__", (), Some(&arguments)) {
        // Objects from before version 1 have no such parameter.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => object.call_method0("__dlpack__"),
        other => other,
    }
}

/// Takes the struct of a capsule.
fn take(capsule: &Bound<'_, PyAny>) -> PyResult<Owned> {
    let wrong = || PyBufferError::new_err("expected a DLPack capsule that was not used yet");
    let capsule = capsule.cast::<PyCapsule>().map_err(|_| wrong())?;
    let rename = |name: &'static CStr| {
        // SAFETY: the capsule is alive, and the name is static.
        match unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), name.as_ptr()) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(capsule.py())),
        }
    };
    if capsule.is_valid_checked(Some(c"dltensor_versioned")) {
        let pointer = capsule.pointer_checked(Some(c"dltensor_versioned"))?;
        rename(c"used_dltensor_versioned")?;
        Ok(Owned::Versioned(pointer.cast()))
    } else if capsule.is_valid_checked(Some(c"dltensor")) {
        let pointer = capsule.pointer_checked(Some(c"dltensor"))?;
        rename(c"used_dltensor")?;
        Ok(Owned::Unversioned(pointer.cast()))
    } else {
        Err(wrong())
    }
}

/// Whether an object may be written to that is not flagged as read-only. JAX's arrays are
/// immutable.
fn is_mutable(object: &Bound<'_, PyAny>, owned: &Owned) -> PyResult<bool> {
    let modules = object.py().import("sys")?.getattr("modules")?;
    if let Ok(jax) = modules.get_item("jax")
        && let Ok(class) = jax.getattr("Array")
        && object.is_instance(&class)?
    {
        return Ok(false);
    }
    match owned {
        Owned::Versioned(_) => Ok(true),
        Owned::Unversioned(_) => object.hasattr("__setitem__"),
    }
}

fn invalid(part: &str) -> PyErr {
    PyBufferError::new_err(format!(
        "expected a DLPack tensor, found one with an invalid {part}"
    ))
}

/// The dimensions of a tensor, and its strides if it has any.
fn layout(tensor: &Description) -> PyResult<(Vec<usize>, Option<Vec<isize>>)> {
    if !(0..=MOST_DIMENSIONS).contains(&tensor.ndim) {
        return Err(invalid("number of dimensions"));
    }
    let rank = usize::try_from(tensor.ndim).map_err(|_| invalid("number of dimensions"))?;
    let numbers = |from: *const i64| {
        // SAFETY: the producer's arrays have a number for each dimension. An array of rank 0 may be
        // a null pointer, which is not read.
        (0..rank).map(move |i| unsafe { from.add(i).read() })
    };
    if rank > 0 && tensor.shape.is_null() {
        return Err(invalid("shape"));
    }
    let mut dimensions = Vec::with_capacity(rank);
    let mut count = 16_usize;
    for size in numbers(tensor.shape) {
        let size = usize::try_from(size).map_err(|_| invalid("shape"))?;
        count = count
            .checked_mul(size.max(1))
            .ok_or_else(|| invalid("shape"))?;
        dimensions.push(size);
    }
    if tensor.strides.is_null() {
        return Ok((dimensions, None));
    }
    let mut strides = Vec::with_capacity(rank);
    for stride in numbers(tensor.strides) {
        strides.push(isize::try_from(stride).map_err(|_| invalid("stride"))?);
    }
    Ok((dimensions, Some(strides)))
}

fn is_row_major(dimensions: &[usize], strides: &[isize]) -> bool {
    if dimensions.contains(&0) {
        return true;
    }
    let mut expected = 1;
    dimensions.iter().zip(strides).rev().all(|(size, stride)| {
        let is_next = *size == 1 || *stride == expected;
        expected *= size.cast_signed();
        is_next
    })
}

/// The element type of a DLPack type.
fn element_type(dtype: DataType) -> PyResult<ElementType> {
    use ElementType as T;
    let DataType { code, bits, lanes } = dtype;
    let found = match (code, bits) {
        (0, 8) => Some(T::S8),
        (0, 16) => Some(T::S16),
        (0, 32) => Some(T::S32),
        (0, 64) => Some(T::S64),
        (1, 8) => Some(T::U8),
        (1, 16) => Some(T::U16),
        (1, 32) => Some(T::U32),
        (1, 64) => Some(T::U64),
        (2, 16) => Some(T::F16),
        (2, 32) => Some(T::F32),
        (2, 64) => Some(T::F64),
        (4, 16) => Some(T::Bf16),
        (5, 64) => Some(T::C64),
        (5, 128) => Some(T::C128),
        (6, 8) => Some(T::Pred),
        (7, 8) => Some(T::F8e3m4),
        (8, 8) => Some(T::F8e4m3),
        (9, 8) => Some(T::F8e4m3b11fnuz),
        (10, 8) => Some(T::F8e4m3fn),
        (11, 8) => Some(T::F8e4m3fnuz),
        (12, 8) => Some(T::F8e5m2),
        (13, 8) => Some(T::F8e5m2fnuz),
        (14, 8) => Some(T::F8e8m0fnu),
        _ => None,
    };
    found.filter(|_| lanes == 1).ok_or_else(|| {
        PyTypeError::new_err(format!(
            "expected an array of numbers or booleans, found the DLPack type with code {code}, \
             {bits} bits and {lanes} lanes"
        ))
    })
}

fn device_name(device: i32) -> &'static str {
    match device {
        2 | 13 => "CUDA device",
        4 => "OpenCL device",
        7 => "Vulkan device",
        8 => "Metal device",
        10 => "ROCm device",
        14 => "oneAPI device",
        _ => "another device",
    }
}
