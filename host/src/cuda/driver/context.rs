//! Contexts: a device's primary one, which XLA and PyTorch use as well.
#![allow(unsafe_code, reason = "calls the driver")]

use std::ffi::CStr;
use std::ptr;

use cudarc::driver::sys::{self, CUcontext, CUdevice, CUdevice_attribute};

use super::{Outcome, check};
use crate::cuda::failure::DriverFailure;

/// A device's primary context, kept for as long as this is there.
#[derive(Debug)]
pub(in crate::cuda) struct Context {
    raw: CUcontext,
    device: CUdevice,
}

// SAFETY: a context may be current on any number of threads at one time, and the driver locks what it shares.
unsafe impl Send for Context {}
// SAFETY: as above; no method changes the handle.
unsafe impl Sync for Context {}

impl Context {
    /// The primary context of the device with this number.
    pub(in crate::cuda) fn retain(ordinal: usize) -> Outcome<Self> {
        let number = i32::try_from(ordinal).unwrap_or(i32::MAX);
        let mut device: CUdevice = 0;
        let mut raw: CUcontext = ptr::null_mut();
        // SAFETY: the driver was initialised, and both pointers are to variables of the types that it writes.
        unsafe {
            check("cuDeviceGet", sys::cuDeviceGet(&raw mut device, number))?;
            check(
                "cuDevicePrimaryCtxRetain",
                sys::cuDevicePrimaryCtxRetain(&raw mut raw, device),
            )?;
        }
        let context = Self { raw, device };
        context.bind()?;
        Ok(context)
    }

    /// Makes it the calling thread's context, which most calls go by.
    pub(in crate::cuda) fn bind(&self) -> Outcome<()> {
        let mut current: CUcontext = ptr::null_mut();
        // SAFETY: the context is retained for as long as `self` is there.
        unsafe {
            check("cuCtxGetCurrent", sys::cuCtxGetCurrent(&raw mut current))?;
            match current == self.raw {
                true => Ok(()),
                false => check("cuCtxSetCurrent", sys::cuCtxSetCurrent(self.raw)),
            }
        }
    }

    /// The same for giving something back, which is tried whatever comes of this: it fails for a context that is lost, and then there is nothing to give.
    pub(in crate::cuda) fn bind_anyway(&self) {
        if self.bind().is_err() {
            // SAFETY: as above.
            let _ = unsafe { sys::cuCtxSetCurrent(self.raw) };
        }
    }

    /// Waits for all work in it.
    pub(in crate::cuda) fn synchronize(&self) -> Outcome<()> {
        self.bind()?;
        // SAFETY: the context is current.
        check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
    }

    /// A number that the driver says of the device.
    pub(in crate::cuda) fn attribute(&self, attribute: CUdevice_attribute) -> Outcome<i32> {
        let mut value = 0;
        // SAFETY: the device is there, and `value` is the int that is written.
        let result = unsafe { sys::cuDeviceGetAttribute(&raw mut value, attribute, self.device) };
        check("cuDeviceGetAttribute", result)?;
        Ok(value)
    }

    /// The device's name.
    pub(in crate::cuda) fn name(&self) -> Outcome<String> {
        let mut bytes = [0_u8; 256];
        // SAFETY: as many bytes are writable as the call is told.
        let result = unsafe { sys::cuDeviceGetName(bytes.as_mut_ptr().cast(), 255, self.device) };
        check("cuDeviceGetName", result)?;
        let name = CStr::from_bytes_until_nul(&bytes);
        Ok(name.map_or_else(
            |_| String::new(),
            |name| name.to_string_lossy().into_owned(),
        ))
    }

    /// Free and total bytes of the device's memory.
    pub(in crate::cuda) fn memory(&self) -> Outcome<(usize, usize)> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the context is current, and both are the sizes that are written.
        let result = unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) };
        check("cuMemGetInfo_v2", result)?;
        Ok((free, total))
    }

    /// Whether a stream of somebody else's belongs to this context.
    pub(in crate::cuda) fn owns_stream(&self, stream: sys::CUstream) -> Outcome<bool> {
        self.bind()?;
        let mut context: CUcontext = ptr::null_mut();
        // SAFETY: whoever handed the stream over promised that it is one.
        let result = unsafe { sys::cuStreamGetCtx(stream, &raw mut context) };
        check("cuStreamGetCtx", result)?;
        Ok(context == self.raw)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained once, and nothing that was made in it outlives it: all of that holds it.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// The number of the device that a stream of somebody else's is of, among this many.
///
/// # Safety
/// It must be a stream.
pub(in crate::cuda) unsafe fn ordinal_of(
    stream: sys::CUstream,
    devices: usize,
) -> Outcome<Option<usize>> {
    let mut device: CUdevice = 0;
    // SAFETY: the driver was initialised, the caller promises the stream, and `device` is the handle that is written.
    check("cuStreamGetDevice", unsafe {
        sys::cuStreamGetDevice(stream, &raw mut device)
    })?;
    for ordinal in 0..devices {
        let number = i32::try_from(ordinal).unwrap_or(i32::MAX);
        let mut found: CUdevice = 0;
        // SAFETY: as above.
        check("cuDeviceGet", unsafe {
            sys::cuDeviceGet(&raw mut found, number)
        })?;
        if found == device {
            return Ok(Some(ordinal));
        }
    }
    Ok(None)
}

/// Initialises the driver, and says its version and how many devices there are.
pub(in crate::cuda) fn initialize() -> Outcome<(i32, usize)> {
    let (mut version, mut count) = (0, 0);
    // SAFETY: the library is there, which the caller has looked at, and both are the ints that are written.
    unsafe {
        check("cuInit", sys::cuInit(0))?;
        check(
            "cuDriverGetVersion",
            sys::cuDriverGetVersion(&raw mut version),
        )?;
        check("cuDeviceGetCount", sys::cuDeviceGetCount(&raw mut count))?;
    }
    match usize::try_from(count) {
        Ok(count) if count > 0 => Ok((version, count)),
        _ => Err(DriverFailure {
            call: "cuDeviceGetCount",
            code: 100,
        }),
    }
}

/// Whether a driver's library can be opened.
pub(in crate::cuda) fn is_library_present() -> bool {
    // SAFETY: opening a driver's library runs its initialisers, as any program that uses CUDA does.
    unsafe { sys::is_culib_present() }
}

/// Whether the library has this function: older drivers lack newer ones, and cudarc panics for want of one.
pub(in crate::cuda) fn has_function(name: &str) -> bool {
    // SAFETY: the library is there; the symbol is not called, only looked for.
    unsafe { sys::culib().get::<*const ()>(name.as_bytes()).is_ok() }
}
