//! Modules and the kernels in them.
#![allow(unsafe_code, reason = "calls the driver")]

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::{Arc, Mutex};

use cudarc::driver::sys::{self, CUfunction, CUfunction_attribute, CUjit_option, CUmodule};

use super::{Context, Outcome, Stream, check};
use crate::cuda::failure::DriverFailure;
use crate::cuda::guard::locked;

/// What a module is loaded from.
#[derive(Clone, Copy, Debug)]
pub(in crate::cuda) enum Image<'a> {
    /// PTX, which the driver compiles.
    Ptx(&'a str),
    /// A cubin or a fatbin.
    Binary(&'a [u8]),
}

/// A loaded module.
#[derive(Debug)]
pub(in crate::cuda) struct Module {
    raw: CUmodule,
    context: Arc<Context>,
    /// The dynamic shared memory that blocks of its kernels may have, by the kernel's name.
    shared: Mutex<HashMap<String, u32>>,
}

// SAFETY: a module may be used from any thread, and the driver locks what it shares.
unsafe impl Send for Module {}
// SAFETY: as above; no method changes the handle.
unsafe impl Sync for Module {}

/// How much of the compiler's log is kept.
const LOG: usize = 8 << 10;

impl Module {
    /// Loads a module. The second of the error is what the driver's compiler says of PTX.
    ///
    /// # Safety
    /// It is native code of a device, and can do to its memory, and to the host's where that is shared, what it likes: somebody must have
    /// said that this image is trusted.
    pub(in crate::cuda) unsafe fn load(
        context: &Arc<Context>,
        image: Image<'_>,
    ) -> Result<Self, (DriverFailure, String)> {
        context.bind().map_err(|failure| (failure, String::new()))?;
        // The driver reads text up to its NUL.
        let bytes = match image {
            Image::Ptx(text) => {
                let mut bytes = text.as_bytes().to_vec();
                bytes.push(0);
                bytes
            }
            Image::Binary(bytes) => bytes.to_vec(),
        };
        let mut log = vec![0_u8; LOG];
        let mut options = [
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        let mut values: [*mut c_void; 2] =
            [log.as_mut_ptr().cast(), ptr::without_provenance_mut(LOG)];
        let mut raw: CUmodule = ptr::null_mut();
        // SAFETY: the context is current; the image is whole and its text ends with NUL; the options are as many as said, and the buffer as large.
        let result = unsafe {
            sys::cuModuleLoadDataEx(
                &raw mut raw,
                bytes.as_ptr().cast(),
                2,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        match check("cuModuleLoadDataEx", result) {
            Ok(()) => Ok(Self {
                raw,
                context: Arc::clone(context),
                shared: Mutex::default(),
            }),
            Err(failure) => {
                let end = log.iter().position(|&byte| byte == 0).unwrap_or(LOG);
                Err((failure, String::from_utf8_lossy(&log[..end]).into_owned()))
            }
        }
    }

    /// A kernel of this name.
    pub(in crate::cuda) fn function(self: &Arc<Self>, kernel: &str) -> Outcome<Function> {
        const NOT_FOUND: u32 = 500;
        let call = "cuModuleGetFunction";
        let name = CString::new(kernel).map_err(|_| DriverFailure {
            call,
            code: NOT_FOUND,
        })?;
        self.context.bind()?;
        let mut raw: CUfunction = ptr::null_mut();
        // SAFETY: the module is alive, and the name ends with NUL.
        check(call, unsafe {
            sys::cuModuleGetFunction(&raw mut raw, self.raw, name.as_ptr())
        })?;
        Ok(Function {
            raw,
            name: kernel.to_owned(),
            module: Arc::clone(self),
        })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        self.context.bind_anyway();
        // SAFETY: no function of it is left, for each holds it.
        let _ = unsafe { sys::cuModuleUnload(self.raw) };
    }
}

/// A kernel.
#[derive(Clone, Debug)]
pub(in crate::cuda) struct Function {
    raw: CUfunction,
    name: String,
    module: Arc<Module>,
}

// SAFETY: as for its module.
unsafe impl Send for Function {}
// SAFETY: as for its module.
unsafe impl Sync for Function {}

impl Function {
    /// Where each of its parameters is among their bytes, and how large it is.
    pub(in crate::cuda) fn parameters(&self) -> Outcome<Vec<(usize, usize)>> {
        const INVALID_VALUE: u32 = 1;
        self.module.context.bind()?;
        let mut parameters = Vec::new();
        loop {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: the function is alive, and both are the sizes that are written.
            let result = unsafe {
                sys::cuFuncGetParamInfo(self.raw, parameters.len(), &raw mut offset, &raw mut size)
            };
            match check("cuFuncGetParamInfo", result) {
                Ok(()) => parameters.push((offset, size)),
                Err(failure) if failure.code == INVALID_VALUE => return Ok(parameters),
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Lets its blocks have this much dynamic shared memory at least, and loads it now and not when it is first launched.
    pub(in crate::cuda) fn make_ready(&self, shared_bytes: u32) -> Outcome<()> {
        self.module.context.bind()?;
        // Call sites share the kernel: what one has been given is not taken back for another.
        let mut shared = locked(&self.module.shared);
        let most = shared.entry(self.name.clone()).or_default();
        if shared_bytes > *most {
            let what = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let bytes = i32::try_from(shared_bytes).unwrap_or(i32::MAX);
            // SAFETY: the function is alive.
            check("cuFuncSetAttribute", unsafe {
                sys::cuFuncSetAttribute(self.raw, what, bytes)
            })?;
            *most = shared_bytes;
        }
        drop(shared);
        // SAFETY: the function is alive.
        check("cuFuncLoad", unsafe { sys::cuFuncLoad(self.raw) })
    }

    /// Launches it. Each parameter is its bytes, which the driver copies before this returns.
    ///
    /// # Safety
    /// The parameters must be those that the kernel takes, and addresses among them good for what it does with them, until the stream
    /// has passed. That its code is trusted was said when its module was loaded.
    pub(in crate::cuda) unsafe fn launch(
        &self,
        stream: &Stream,
        grid: [u32; 3],
        block: [u32; 3],
        shared_bytes: u32,
        parameters: &mut [*mut c_void],
    ) -> Outcome<()> {
        stream.context().bind()?;
        // SAFETY: the caller's promise.
        check("cuLaunchKernel", unsafe {
            sys::cuLaunchKernel(
                self.raw,
                grid[0],
                grid[1],
                grid[2],
                block[0],
                block[1],
                block[2],
                shared_bytes,
                stream.raw(),
                parameters.as_mut_ptr(),
                ptr::null_mut(),
            )
        })
    }
}
