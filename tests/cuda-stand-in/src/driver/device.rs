//! Initialisation and device properties.

use std::ffi::{c_char, c_int};

use cudarc::driver::sys::{CUdevice_attribute, CUresult, CUuuid};

use super::foreign::{Array, Out};
use super::{Guard, Needs, call};

/// The name of every device, which cannot be mistaken for a GPU's.
const NAME: &str = "callbox stand-in (not a GPU)";

#[unsafe(no_mangle)]
unsafe extern "C" fn cuInit(flags: u32) -> CUresult {
    call("cuInit", Needs::Nothing, |mut guard| {
        if flags != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        if guard.settings.devices == 0 {
            return Err(CUresult::CUDA_ERROR_NO_DEVICE);
        }
        guard.initialised = true;
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDriverGetVersion(version: Out<c_int>) -> CUresult {
    call("cuDriverGetVersion", Needs::Nothing, |guard| {
        version.put(guard.settings.driver_version)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(count: Out<c_int>) -> CUresult {
    call("cuDeviceGetCount", Needs::Initialised, |guard| {
        count.put(c_int::try_from(guard.settings.devices).unwrap_or(c_int::MAX))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(device: Out<c_int>, ordinal: c_int) -> CUresult {
    call("cuDeviceGet", Needs::Initialised, |guard| {
        known(&guard, ordinal)?;
        device.put(ordinal)
    })
}

/// Returns the device of a handle, which is its number.
pub(super) fn known(guard: &Guard, device: c_int) -> Result<usize, CUresult> {
    let number = usize::try_from(device)
        .ok()
        .filter(|number| *number < guard.settings.devices);
    number.ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetName(
    name: Array<c_char>,
    length: c_int,
    device: c_int,
) -> CUresult {
    call("cuDeviceGetName", Needs::Initialised, |guard| {
        known(&guard, device)?;
        let room = usize::try_from(length)
            .ok()
            .filter(|room| *room > 0 && !name.is_null())
            .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let mut text: Vec<c_char> = NAME
            .bytes()
            .take(room - 1)
            .map(|byte| byte.cast_signed())
            .collect();
        text.push(0);
        name.write(&text);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: Out<CUuuid>, device: c_int) -> CUresult {
    call("cuDeviceGetUuid_v2", Needs::Initialised, |guard| {
        let number = known(&guard, device)?;
        let mut bytes = [0; 16];
        for (to, from) in bytes.iter_mut().zip(b"callbox-stand-in") {
            *to = from.cast_signed();
        }
        bytes[15] = i8::try_from(number).unwrap_or(i8::MAX);
        uuid.put(CUuuid { bytes })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: c_int) -> CUresult {
    call("cuDeviceTotalMem_v2", Needs::Initialised, |guard| {
        let number = known(&guard, device)?;
        bytes.put(usize::try_from(guard.settings.capacity(number)).unwrap_or(usize::MAX))
    })
}

/// Dynamic shared memory in bytes: available to every kernel, and available to kernels that opt in.
pub(super) const SHARED: u32 = 48 << 10;
pub(super) const SHARED_OPTIN: u32 = 227 << 10;
/// Maximum number of threads per block.
pub(super) const THREADS: u32 = 1024;
/// Maximum block and grid sizes in x, y and z.
pub(super) const BLOCK: [u32; 3] = [1024, 1024, 64];
pub(super) const GRID: [u32; 3] = [i32::MAX.cast_unsigned(), 65535, 65535];

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetAttribute(
    value: Out<c_int>,
    attribute: u32,
    device: c_int,
) -> CUresult {
    use CUdevice_attribute as A;
    call("cuDeviceGetAttribute", Needs::Initialised, |guard| {
        known(&guard, device)?;
        let (major, minor) = guard.settings.capability;
        let table = [
            (A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, THREADS),
            (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, BLOCK[0]),
            (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, BLOCK[1]),
            (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, BLOCK[2]),
            (A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, GRID[0]),
            (A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, GRID[1]),
            (A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, GRID[2]),
            (A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, SHARED),
            (
                A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                SHARED_OPTIN,
            ),
            (A::CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32),
            (A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 1),
            (A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, major),
            (A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, minor),
            (A::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1),
            (A::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1),
            (A::CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1),
            // Support for `cuMemAllocAsync`.
            (A::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1),
        ];
        let found = table.iter().find(|(known, _)| *known as u32 == attribute);
        // Features outside the table are absent.
        let found = found.map_or(0, |(_, value)| *value);
        value.put(found.cast_signed())
    })
}
