//! Modules, and the kernels in them.
#![allow(unsafe_code, reason = "calls the driver")]

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::{Arc, Mutex};

use callbox_core::locks::locked;

use cudarc::driver::sys::{self, CUfunction, CUfunction_attribute, CUjit_option, CUmodule};

use super::{Context, Outcome, Stream};
use crate::failure::DriverFailure;
use crate::manifest::PlannedLaunch;

/// The code of a module.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Image<'a> {
    /// PTX, which the driver compiles.
    Ptx(&'a str),
    /// A cubin or a fatbin.
    Binary(&'a [u8]),
}

/// A loaded module.
#[derive(Debug)]
pub(crate) struct Module {
    raw: CUmodule,
    context: Arc<Context>,
    /// The limits on dynamic shared memory that have been set, by the kernel's name.
    shared_limits: Mutex<HashMap<String, u32>>,
}

// SAFETY: a module may be used from any thread, and the driver locks its own state.
unsafe impl Send for Module {}
// SAFETY: as for `Send`; no method changes the handle.
unsafe impl Sync for Module {}

/// The most bytes that are kept of the driver's compilation log.
const MAX_LOG: usize = 8 << 10;

impl Module {
    /// Loads a module. The error includes the log of the driver's PTX compiler.
    ///
    /// # Safety
    /// The image is native code, which may access all memory of the device and the host memory that
    /// is shared with it. The caller must have been promised that it is sound.
    pub(crate) unsafe fn load(
        context: &Arc<Context>,
        image: Image<'_>,
    ) -> Result<Self, (DriverFailure, String)> {
        let bytes = match image {
            // The driver reads text up to a NUL.
            Image::Ptx(text) => [text.as_bytes(), &[0]].concat(),
            Image::Binary(bytes) => bytes.to_vec(),
        };
        let mut log = vec![0_u8; MAX_LOG];
        let mut options = [
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        let log_size = ptr::without_provenance_mut(MAX_LOG);
        let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), log_size];
        let mut raw: CUmodule = ptr::null_mut();
        let loaded = context.call("cuModuleLoadDataEx", || {
            let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
            // SAFETY: the image is complete and its text ends with NUL; there are two options and
            // two values; and the log has the size that is passed.
            unsafe {
                sys::cuModuleLoadDataEx(&raw mut raw, bytes.as_ptr().cast(), 2, options, values)
            }
        });
        match loaded {
            Ok(()) => Ok(Self {
                raw,
                context: Arc::clone(context),
                shared_limits: Mutex::default(),
            }),
            Err(failure) => {
                let end = log.iter().position(|&byte| byte == 0).unwrap_or(MAX_LOG);
                Err((failure, String::from_utf8_lossy(&log[..end]).into_owned()))
            }
        }
    }

    /// Finds a kernel by its name.
    pub(crate) fn function(self: &Arc<Self>, kernel: &str) -> Outcome<Function> {
        const NOT_FOUND: u32 = 500;
        let call = "cuModuleGetFunction";
        let name = CString::new(kernel).map_err(|_| DriverFailure {
            call,
            code: NOT_FOUND,
        })?;
        let mut raw: CUfunction = ptr::null_mut();
        self.context.call(call, || {
            // SAFETY: the module is alive, the name ends with NUL, and the driver writes `raw`.
            unsafe { sys::cuModuleGetFunction(&raw mut raw, self.raw, name.as_ptr()) }
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
        // SAFETY: this value owns the module. Every function of it holds this value.
        self.context
            .free(|| unsafe { sys::cuModuleUnload(self.raw) });
    }
}

/// A kernel.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    raw: CUfunction,
    name: String,
    module: Arc<Module>,
}

// SAFETY: as for its module.
unsafe impl Send for Function {}
// SAFETY: as for its module.
unsafe impl Sync for Function {}

impl Function {
    /// The offset and the size in bytes of each parameter.
    pub(crate) fn parameters(&self) -> Outcome<Vec<(usize, usize)>> {
        const INVALID_VALUE: u32 = 1;
        let mut parameters = Vec::new();
        loop {
            let (index, mut offset, mut size) = (parameters.len(), 0, 0);
            let asked = self.module.context.call("cuFuncGetParamInfo", || {
                // SAFETY: the function is alive, and the driver writes both sizes.
                unsafe { sys::cuFuncGetParamInfo(self.raw, index, &raw mut offset, &raw mut size) }
            });
            match asked {
                Ok(()) => parameters.push((offset, size)),
                Err(failure) if failure.code == INVALID_VALUE => return Ok(parameters),
                Err(failure) => return Err(failure),
            }
        }
    }

    /// The bytes of local memory of each thread: those of variables and of registers that were
    /// spilled.
    pub(crate) fn local_bytes(&self) -> Outcome<u64> {
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES;
        let mut bytes = 0;
        self.module.context.call("cuFuncGetAttribute", || {
            // SAFETY: the function is alive, and the driver writes the value.
            unsafe { sys::cuFuncGetAttribute(&raw mut bytes, attribute, self.raw) }
        })?;
        Ok(u64::try_from(bytes).unwrap_or(0))
    }

    /// Allows this much dynamic shared memory for each block, and loads the kernel, so that its
    /// first launch does not have to.
    pub(crate) fn make_ready(&self, shared_bytes: u32) -> Outcome<()> {
        let context = &self.module.context;
        // Call sites share the kernel: the limit only grows.
        let mut limits = locked(&self.module.shared_limits);
        let limit = limits.entry(self.name.clone()).or_default();
        if shared_bytes > *limit {
            let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let bytes = i32::try_from(shared_bytes).unwrap_or(i32::MAX);
            context.call("cuFuncSetAttribute", || {
                // SAFETY: the function is alive.
                unsafe { sys::cuFuncSetAttribute(self.raw, attribute, bytes) }
            })?;
            *limit = shared_bytes;
        }
        drop(limits);
        context.call("cuFuncLoad", || {
            // SAFETY: the function is alive.
            unsafe { sys::cuFuncLoad(self.raw) }
        })
    }

    /// Launches the kernel. The driver copies the parameters before this returns.
    ///
    /// # Safety
    /// The parameters must be those that the kernel takes. The addresses among them must be valid
    /// for its accesses until the stream has passed the launch.
    pub(crate) unsafe fn launch(
        &self,
        stream: &Stream,
        launch: &PlannedLaunch,
        parameters: &mut [*mut c_void],
    ) -> Outcome<()> {
        let ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]) = (launch.grid, launch.block);
        stream.context().call("cuLaunchKernel", || {
            // SAFETY: the caller promises the parameters.
            unsafe {
                sys::cuLaunchKernel(
                    self.raw,
                    grid_x,
                    grid_y,
                    grid_z,
                    block_x,
                    block_y,
                    block_z,
                    launch.shared_bytes,
                    stream.raw(),
                    parameters.as_mut_ptr(),
                    ptr::null_mut(),
                )
            }
        })
    }
}
