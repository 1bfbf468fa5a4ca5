//! Modules and launches.

use std::ffi::{CString, c_void};
use std::ptr::null_mut;

use cudarc::driver::sys::{
    self, CUfunction, CUgraphExec, CUgraphNode, CUmodule, CUresult, CUstream,
};

use super::{Outcome, code, driver, out};

/// Threads per block.
const BLOCK: u32 = 64;

pub(crate) fn load(ptx: &str) -> Outcome<CUmodule> {
    let text = CString::new(ptx).unwrap();
    out(null_mut(), |place| {
        driver!(sys::cuModuleLoadData(place, text.as_ptr().cast()))
    })
}

pub(crate) fn unload(module: CUmodule) -> Outcome<()> {
    code(driver!(sys::cuModuleUnload(module)))
}

pub(crate) fn function(module: CUmodule, name: &str) -> Outcome<CUfunction> {
    let name = CString::new(name).unwrap();
    out(null_mut(), |place| {
        driver!(sys::cuModuleGetFunction(place, module, name.as_ptr()))
    })
}

pub(crate) fn global(module: CUmodule, name: &str) -> Outcome<(u64, usize)> {
    let name = CString::new(name).unwrap();
    let mut bytes = 0;
    let address = out(0, |place| {
        driver!(sys::cuModuleGetGlobal_v2(
            place,
            &mut bytes,
            module,
            name.as_ptr()
        ))
    })?;
    Ok((address, bytes))
}

/// The arguments of `axpb`.
#[derive(Clone, Copy)]
pub(crate) struct Axpb {
    pub(crate) x: u64,
    pub(crate) y: u64,
    pub(crate) a: u32,
    pub(crate) b: u32,
    pub(crate) n: u32,
}

impl Axpb {
    /// Returns pointers to the arguments.
    pub(crate) fn places(&mut self) -> [*mut c_void; 5] {
        let Axpb { x, y, a, b, n } = self;
        let (x, y): (*mut u64, *mut u64) = (x, y);
        let (a, b, n): (*mut u32, *mut u32, *mut u32) = (a, b, n);
        [x.cast(), y.cast(), a.cast(), b.cast(), n.cast()]
    }

    pub(crate) fn launch(mut self, function: CUfunction, stream: CUstream) -> Outcome<()> {
        let mut places = self.places();
        let grid = self.n.div_ceil(BLOCK);
        code(driver!(sys::cuLaunchKernel(
            function,
            grid,
            1,
            1,
            BLOCK,
            1,
            1,
            0,
            stream,
            places.as_mut_ptr(),
            null_mut()
        )))
    }

    /// Replaces the arguments of a node of an executable graph.
    pub(crate) fn update(
        mut self,
        exec: CUgraphExec,
        node: CUgraphNode,
        function: CUfunction,
    ) -> Outcome<()> {
        let mut places = self.places();
        let parameters = sys::CUDA_KERNEL_NODE_PARAMS {
            func: function,
            gridDimX: self.n.div_ceil(BLOCK),
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: BLOCK,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            kernelParams: places.as_mut_ptr(),
            extra: null_mut(),
            kern: null_mut(),
            ctx: null_mut(),
        };
        code(driver!(sys::cuGraphExecKernelNodeSetParams_v2(
            exec,
            node,
            &parameters
        )))
    }
}

/// Launches a kernel without parameters.
pub(crate) fn launch(
    function: CUfunction,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    stream: CUstream,
) -> Outcome<()> {
    let [x, y, z] = grid;
    let [u, v, w] = block;
    code(driver!(sys::cuLaunchKernel(
        function,
        x,
        y,
        z,
        u,
        v,
        w,
        shared_bytes,
        stream,
        null_mut(),
        null_mut()
    )))
}

/// Enqueues a host function.
pub(crate) fn host(
    stream: CUstream,
    function: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
) -> Outcome<()> {
    code(driver!(sys::cuLaunchHostFunc(stream, Some(function), data)))
}

/// Returns the error log of a rejected module.
pub(crate) fn load_log(ptx: &str) -> (CUresult, String) {
    let text = CString::new(ptx).unwrap();
    let mut module = null_mut();
    let mut log = [0u8; 64];
    let mut options = [
        sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
        sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
    ];
    let mut values = [
        log.as_mut_ptr().cast(),
        std::ptr::without_provenance_mut(log.len()),
    ];
    let code = driver!(sys::cuModuleLoadDataEx(
        &mut module,
        text.as_ptr().cast(),
        2,
        options.as_mut_ptr(),
        values.as_mut_ptr()
    ));
    let length = log.iter().position(|byte| *byte == 0).unwrap();
    (code, String::from_utf8_lossy(&log[..length]).into_owned())
}

pub(crate) fn load_bytes(bytes: &[u8]) -> Outcome<CUmodule> {
    assert_eq!(bytes.last(), Some(&0), "the driver reads up to a NUL");
    out(null_mut(), |place| {
        driver!(sys::cuModuleLoadData(place, bytes.as_ptr().cast()))
    })
}

pub(crate) fn parameter(function: CUfunction, index: usize) -> Outcome<(usize, usize)> {
    let mut size = 0;
    let offset = out(0, |place| {
        driver!(sys::cuFuncGetParamInfo(function, index, place, &mut size))
    })?;
    Ok((offset, size))
}

/// Launches with a null argument array.
pub(crate) fn launch_without_arguments(function: CUfunction, stream: CUstream) -> Outcome<()> {
    launch(function, [1, 1, 1], [1, 1, 1], 0, stream)
}
