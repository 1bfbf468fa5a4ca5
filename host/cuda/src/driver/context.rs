//! Contexts: a device's primary context, which XLA and PyTorch use as well.
#![allow(unsafe_code, reason = "calls the driver")]

use std::ffi::CStr;
use std::ptr;

use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdevice_attribute, CUresult, CUstreamCaptureStatus,
};

use super::{Outcome, check};
use crate::failure::DriverFailure;

/// A device's primary context, retained for the life of this value.
#[derive(Debug)]
pub(crate) struct Context {
    raw: CUcontext,
    device: CUdevice,
}

// SAFETY: a context may be current on several threads at once, and the driver locks its own state.
unsafe impl Send for Context {}
// SAFETY: as for `Send`; no method changes the handle.
unsafe impl Sync for Context {}

impl Context {
    /// The primary context of the device with this number.
    pub(crate) fn retain(ordinal: usize) -> Outcome<Self> {
        let number = i32::try_from(ordinal).unwrap_or(i32::MAX);
        let mut device: CUdevice = 0;
        let mut raw: CUcontext = ptr::null_mut();
        // SAFETY: the driver is initialised, and writes both variables.
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

    /// Makes it the calling thread's context, which most driver calls depend on.
    pub(crate) fn bind(&self) -> Outcome<()> {
        let mut current: CUcontext = ptr::null_mut();
        // SAFETY: the driver writes `current`, and this value keeps the context retained.
        unsafe {
            check("cuCtxGetCurrent", sys::cuCtxGetCurrent(&raw mut current))?;
            if current == self.raw {
                Ok(())
            } else {
                check("cuCtxSetCurrent", sys::cuCtxSetCurrent(self.raw))
            }
        }
    }

    /// Makes a driver call with this context current.
    pub(super) fn call(&self, name: &'static str, call: impl FnOnce() -> CUresult) -> Outcome<()> {
        self.bind()?;
        check(name, call())
    }

    /// Makes a driver call that frees something, with this context current if possible.
    ///
    /// Errors are discarded: binding and freeing fail if the context is lost, and then nothing is
    /// left to free.
    pub(super) fn free(&self, call: impl FnOnce() -> CUresult) {
        if self.bind().is_err() {
            // SAFETY: this value keeps the context retained.
            let _ = unsafe { sys::cuCtxSetCurrent(self.raw) };
        }
        let _ = call();
    }

    /// Waits for all work in the context.
    pub(crate) fn synchronize(&self) -> Outcome<()> {
        self.call("cuCtxSynchronize", || {
            // SAFETY: the call has no arguments.
            unsafe { sys::cuCtxSynchronize() }
        })
    }

    /// An attribute of the device.
    pub(crate) fn attribute(&self, attribute: CUdevice_attribute) -> Outcome<i32> {
        let mut value = 0;
        // SAFETY: the device exists, and the driver writes `value`.
        let result = unsafe { sys::cuDeviceGetAttribute(&raw mut value, attribute, self.device) };
        check("cuDeviceGetAttribute", result)?;
        Ok(value)
    }

    /// The device's name.
    pub(crate) fn name(&self) -> Outcome<String> {
        let mut bytes = [0_u8; 256];
        // SAFETY: the driver writes at most 255 of the 256 bytes.
        let result = unsafe { sys::cuDeviceGetName(bytes.as_mut_ptr().cast(), 255, self.device) };
        check("cuDeviceGetName", result)?;
        let name = CStr::from_bytes_until_nul(&bytes);
        Ok(name.map_or_else(
            |_| String::new(),
            |name| name.to_string_lossy().into_owned(),
        ))
    }

    /// Free and total bytes of the device's memory.
    pub(crate) fn memory(&self) -> Outcome<(usize, usize)> {
        let (mut free, mut total) = (0, 0);
        self.call("cuMemGetInfo_v2", || {
            // SAFETY: the driver writes both sizes.
            unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) }
        })?;
        Ok((free, total))
    }

    /// Whether a stream belongs to this context.
    ///
    /// The driver does not tell the context of a stream that is being captured. Such a stream is
    /// taken to be of the calling thread's current context, in which its framework captures.
    ///
    /// # Safety
    /// The handle must be a stream's.
    pub(crate) unsafe fn owns_stream(&self, stream: sys::CUstream) -> Outcome<bool> {
        let mut context: CUcontext = ptr::null_mut();
        // SAFETY: the caller promises that the handle is a stream's.
        if unsafe { is_capturing(stream) }? {
            // SAFETY: the driver writes `context`.
            check("cuCtxGetCurrent", unsafe {
                sys::cuCtxGetCurrent(&raw mut context)
            })?;
        } else {
            self.call("cuStreamGetCtx", || {
                // SAFETY: the caller promises that the handle is a stream's; the driver writes
                // `context`.
                unsafe { sys::cuStreamGetCtx(stream, &raw mut context) }
            })?;
        }
        Ok(context == self.raw)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained once. Every object that was made in the context holds this value.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// Whether a stream is being captured. The calling thread must have a current context.
///
/// # Safety
/// The handle must be a stream's.
unsafe fn is_capturing(stream: sys::CUstream) -> Outcome<bool> {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the caller promises that the handle is a stream's; the driver writes `status`.
    check("cuStreamIsCapturing", unsafe {
        sys::cuStreamIsCapturing(stream, &raw mut status)
    })?;
    Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
}

/// The number of the device that a stream belongs to, among this many.
///
/// For a stream that is being captured, it is the device of the calling thread's current context:
/// the driver refuses the question about the stream (error 900), and that would end the capture.
///
/// # Safety
/// The handle must be a stream's.
pub(crate) unsafe fn ordinal_of(stream: sys::CUstream, devices: usize) -> Outcome<Option<usize>> {
    let mut device: CUdevice = 0;
    // SAFETY: the caller promises that the handle is a stream's; the driver writes `device`.
    unsafe {
        if is_capturing(stream)? {
            check("cuCtxGetDevice", sys::cuCtxGetDevice(&raw mut device))?;
        } else {
            let found = sys::cuStreamGetDevice(stream, &raw mut device);
            check("cuStreamGetDevice", found)?;
        }
    }
    for ordinal in 0..devices {
        let number = i32::try_from(ordinal).unwrap_or(i32::MAX);
        let mut found: CUdevice = 0;
        // SAFETY: the driver writes `found`.
        check("cuDeviceGet", unsafe {
            sys::cuDeviceGet(&raw mut found, number)
        })?;
        if found == device {
            return Ok(Some(ordinal));
        }
    }
    Ok(None)
}

/// Initialises the driver, and returns its version and the number of devices.
pub(crate) fn initialize() -> Outcome<(i32, usize)> {
    let (mut version, mut count) = (0, 0);
    // SAFETY: `probe` has found the library; the driver writes both variables.
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
pub(crate) fn is_library_present() -> bool {
    // SAFETY: opening NVIDIA's driver runs its initialisers, which have no preconditions.
    unsafe { sys::is_culib_present() }
}

/// Whether the driver's library has this function. cudarc panics if a missing one is called.
pub(crate) fn has_function(name: &str) -> bool {
    // SAFETY: `probe` has found the library, and the symbol is not called.
    unsafe { sys::culib().get::<*const ()>(name.as_bytes()).is_ok() }
}
