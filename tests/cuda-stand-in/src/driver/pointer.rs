//! Pointer attributes.

use std::ffi::{c_int, c_void};

use cudarc::driver::sys::{CUmemorytype, CUpointer_attribute, CUresult};

use super::foreign::{Array, Host};
use super::{Guard, Needs, call};
use crate::state::memory::Place;

/// Returns an attribute of driver-allocated memory as bytes.
fn attribute(guard: &Guard, attribute: u32, address: u64) -> Result<Vec<u8>, CUresult> {
    use CUpointer_attribute as A;
    let found = guard
        .memory
        .find(address)
        .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let kind = match found.place {
        Place::Device => CUmemorytype::CU_MEMORYTYPE_DEVICE,
        Place::Host => CUmemorytype::CU_MEMORYTYPE_HOST,
    };
    let is = |wanted: A| wanted as u32 == attribute;
    let bytes = if is(A::CU_POINTER_ATTRIBUTE_CONTEXT) {
        found.context.to_ne_bytes().to_vec()
    } else if is(A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
        (kind as u32).to_ne_bytes().to_vec()
    } else if is(A::CU_POINTER_ATTRIBUTE_DEVICE_POINTER)
        || is(A::CU_POINTER_ATTRIBUTE_HOST_POINTER) && found.place == Place::Host
    {
        address.to_ne_bytes().to_vec()
    } else if is(A::CU_POINTER_ATTRIBUTE_BUFFER_ID) || is(A::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
    {
        // Addresses are never reused, so the address serves as the unique number.
        found.base.to_ne_bytes().to_vec()
    } else if is(A::CU_POINTER_ATTRIBUTE_IS_MANAGED) {
        vec![0; 4]
    } else if is(A::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
        c_int::try_from(found.device)
            .unwrap_or(c_int::MAX)
            .to_ne_bytes()
            .to_vec()
    } else if is(A::CU_POINTER_ATTRIBUTE_RANGE_SIZE) {
        found.size.to_ne_bytes().to_vec()
    } else if is(A::CU_POINTER_ATTRIBUTE_MAPPED) {
        1i32.to_ne_bytes().to_vec()
    } else {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    };
    Ok(bytes)
}

/// Returns the size of an attribute in bytes.
fn width(attribute: u32) -> usize {
    use CUpointer_attribute as A;
    let short = [
        A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        A::CU_POINTER_ATTRIBUTE_IS_MANAGED,
        A::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        A::CU_POINTER_ATTRIBUTE_MAPPED,
    ];
    if short.iter().any(|short| *short as u32 == attribute) {
        4
    } else {
        8
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuPointerGetAttribute(data: Array<u8>, wanted: u32, address: u64) -> CUresult {
    call("cuPointerGetAttribute", Needs::Context, |guard| {
        if data.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        data.write(&attribute(&guard, wanted, address)?);
        Ok(())
    })
}

/// Queries several attributes. Unlike the call for one attribute, it returns zeros for unknown
/// memory.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuPointerGetAttributes(
    count: u32,
    attributes: Array<u32>,
    data: Array<*mut c_void>,
    address: u64,
) -> CUresult {
    call("cuPointerGetAttributes", Needs::Context, |guard| {
        let bad = CUresult::CUDA_ERROR_INVALID_VALUE;
        let attributes = attributes.read(count as usize).ok_or(bad)?;
        let places = data.read(count as usize).ok_or(bad)?;
        let known = guard.memory.find(address).is_some();
        for (wanted, place) in attributes.into_iter().zip(places) {
            let bytes = if known {
                attribute(&guard, wanted, address)?
            } else {
                vec![0; width(wanted)]
            };
            let place = Host::at(place.expose_provenance() as u64);
            // SAFETY: the call names this place as the destination of the attribute, whose type
            // determines its size.
            unsafe { place.write(&bytes) }?;
        }
        Ok(())
    })
}
