//! The driver without callbox: the baselines, and the memory and timers of both sides of a
//! comparison. It and `raw/kernel.rs` hold all unsafe code of this program.
#![allow(unsafe_code, reason = "calls the driver, and launches a kernel")]

mod kernel;

use std::ffi::c_void;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use callbox::call::DeviceBuffer;
use callbox::cuda::{CudaDevice, CudaQueue};
use cudarc::driver::sys::{self, CUevent_flags, CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaGraph, CudaSlice, CudaStream, DevicePtr, LaunchConfig,
    PinnedHostSlice, PushKernelArg, result,
};
use cudarc::nvrtc::Ptx;

pub(crate) use self::kernel::{End, Kernel, Record};

/// A device's primary context, which callbox uses as well, and a stream in it.
///
/// Create it only after callbox has found a driver: cudarc panics without one.
#[derive(Debug)]
pub(crate) struct Raw {
    device: Arc<CudaDevice>,
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
}

/// Device memory. It is freed in the order of its own stream; users in other streams wait before
/// dropping it.
pub(crate) struct Memory {
    slice: CudaSlice<u8>,
    address: u64,
    buffer: DeviceBuffer,
}

/// A callbox queue on a raw stream, which outlives the queue.
pub(crate) struct RawQueue {
    /// Declared first, so that it is dropped before the stream.
    pub(crate) queue: CudaQueue,
    _stream: Arc<CudaStream>,
}

/// Pinned host memory.
pub(crate) struct Pinned(PinnedHostSlice<u8>);

/// The kernel `add_n` of `guests/add_n`, which alternates between two arrays of floats.
pub(crate) struct AddN {
    raw: Arc<Raw>,
    function: CudaFunction,
    arrays: [Arc<Memory>; 2],
    elements: u64,
    n: f32,
}

/// A graph of its launches. It borrows the kernel, so the arrays outlive the graph.
pub(crate) struct RawGraph<'k> {
    graph: CudaGraph,
    _kernel: &'k AddN,
}

/// Threads per block, as in the manifest of `add_n`.
const BLOCK: u32 = 256;

impl Raw {
    /// Opens a device.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn open(device: &Arc<CudaDevice>) -> Result<Arc<Self>> {
        let context = CudaContext::new(device.ordinal())?;
        // SAFETY: cudarc need not order streams, because every user of memory in two streams waits
        // in between.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream()?;
        let device = Arc::clone(device);
        Ok(Arc::new(Self {
            device,
            context,
            stream,
        }))
    }

    /// Waits for all work on the device.
    ///
    /// # Errors
    /// The error of the work.
    pub(crate) fn wait(&self) -> Result<()> {
        Ok(self.context.synchronize()?)
    }

    /// Makes a callbox queue on this stream.
    ///
    /// # Errors
    /// A status of callbox.
    pub(crate) fn queue(&self, device: &Arc<CudaDevice>) -> Result<RawQueue> {
        // SAFETY: the stream is valid, and `RawQueue` drops it after the queue. Sections allocate
        // no memory in such a queue.
        let queue = unsafe { device.queue_on(self.stream.cu_stream()) }?;
        Ok(RawQueue {
            queue,
            _stream: Arc::clone(&self.stream),
        })
    }

    /// Allocates zeroed device memory.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn memory(&self, size: usize) -> Result<Arc<Memory>> {
        let slice = self.stream.alloc_zeros::<u8>(size)?;
        let (address, guard) = slice.device_ptr(&self.stream);
        drop(guard);
        // Wait, so that other streams see the zeros.
        self.stream.synchronize()?;
        // SAFETY: the bytes live as long as the `Memory`, which sections hold until they have
        // waited for the device.
        let buffer = unsafe { self.device.borrow_memory(address, size) }?;
        Ok(Arc::new(Memory {
            slice,
            address,
            buffer,
        }))
    }

    /// Allocates device memory with these contents.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn memory_with(&self, bytes: &[u8]) -> Result<Arc<Memory>> {
        let memory = self.memory(bytes.len())?;
        self.copy_in(bytes, &memory)?;
        self.stream.synchronize()?;
        Ok(memory)
    }

    /// Reads `size` bytes from offset `start` after all work in the stream.
    ///
    /// # Errors
    /// A driver error, or bytes past the memory's end.
    pub(crate) fn read(&self, memory: &Memory, start: usize, size: usize) -> Result<Vec<u8>> {
        let end = start.checked_add(size).filter(|end| *end <= memory.size());
        let end = end.context("expected bytes inside the memory, found bytes past its end")?;
        let bytes = self.stream.clone_dtoh(&memory.slice.slice(start..end))?;
        self.stream.synchronize()?;
        Ok(bytes)
    }

    /// Enqueues a copy from the host. Sizes must match. For pageable memory the driver may wait.
    ///
    /// # Errors
    /// A driver error, or different sizes.
    pub(crate) fn copy_in(&self, from: &[u8], to: &Memory) -> Result<()> {
        ensure!(from.len() == to.size(), "expected memory of equal sizes");
        self.context.bind_to_thread()?;
        // SAFETY: both sizes were compared, and both sides outlive the copy, because callers wait
        // for it.
        unsafe { result::memcpy_htod_async(to.address, from, self.stream.cu_stream()) }?;
        Ok(self.stream.synchronize()?)
    }

    /// Enqueues a copy to the host.
    ///
    /// # Errors
    /// As for [`Raw::copy_in`].
    pub(crate) fn copy_out(&self, from: &Memory, to: &mut [u8]) -> Result<()> {
        ensure!(from.size() == to.len(), "expected memory of equal sizes");
        self.context.bind_to_thread()?;
        // SAFETY: as in `copy_in`.
        unsafe { result::memcpy_dtoh_async(to, from.address, self.stream.cu_stream()) }?;
        Ok(self.stream.synchronize()?)
    }

    /// Enqueues a copy on the device.
    ///
    /// # Errors
    /// A driver error, or different sizes.
    pub(crate) fn copy(&self, from: &Memory, to: &Memory) -> Result<()> {
        ensure!(from.size() == to.size(), "expected memory of equal sizes");
        ensure!(
            from.address != to.address,
            "expected two separate allocations"
        );
        self.context.bind_to_thread()?;
        let stream = self.stream.cu_stream();
        // SAFETY: both sizes were compared, and both allocations are freed in stream order.
        unsafe { result::memcpy_dtod_async(to.address, from.address, from.size(), stream) }?;
        Ok(())
    }

    /// Allocates zeroed pinned host memory, not write-combined.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn pinned(&self, size: usize) -> Result<Pinned> {
        // SAFETY: the memory is zeroed below, before it is read.
        let mut slice = unsafe { self.context.alloc_pinned_with_flags::<u8>(size, 0) }?;
        let start = slice.as_mut_ptr()?;
        // SAFETY: the slice has `size` bytes, and this function has exclusive access.
        unsafe { start.write_bytes(0, size) };
        Ok(Pinned(slice))
    }

    /// Measures with two events how long the device takes for the enqueued work, in milliseconds.
    ///
    /// # Errors
    /// The error of the work.
    pub(crate) fn device_ms(&self, enqueue: impl FnOnce() -> Result<()>) -> Result<f64> {
        let timed = Some(CUevent_flags::CU_EVENT_DEFAULT);
        let begun = self.stream.record_event(timed)?;
        enqueue()?;
        let ended = self.stream.record_event(timed)?;
        ended.synchronize()?;
        Ok(f64::from(begun.elapsed_ms(&ended)?))
    }

    /// Loads PTX and unloads it.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn load(&self, ptx: &str) -> Result<()> {
        drop(self.context.load_module(Ptx::from_src(ptx))?);
        Ok(())
    }
}

impl Memory {
    /// Returns the size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.slice.len()
    }

    /// Returns the memory as callbox's type, which does not own it: hold the memory until the
    /// device is idle.
    pub(crate) fn buffer(&self) -> DeviceBuffer {
        Arc::clone(&self.buffer)
    }

    /// Returns how many floats fit.
    fn floats(&self) -> u64 {
        (self.slice.len() / 4) as u64
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:#x}", self.size(), self.address)
    }
}

impl Pinned {
    /// Returns the bytes, after waiting for the device's work on them.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn bytes(&mut self) -> Result<&mut [u8]> {
        Ok(self.0.as_mut_slice()?)
    }
}

impl AddN {
    /// Loads the kernel from `add_n.ptx`, for two arrays of equal length. The first launch reads
    /// the first array and writes the second.
    ///
    /// # Errors
    /// PTX that cannot be read or whose kernel has other parameters; arrays of different sizes.
    pub(crate) fn new(
        raw: &Arc<Raw>,
        ptx: &Path,
        arrays: [Arc<Memory>; 2],
        n: f32,
    ) -> Result<Self> {
        let text = std::fs::read_to_string(ptx);
        let text = text.with_context(|| format!("cannot read {}", ptx.display()))?;
        let module = raw.context.load_module(Ptx::from_src(text))?;
        let function = module.load_function("add_n")?;
        let found = parameter_sizes(&function)?;
        ensure!(
            found == [8, 8, 8, 4],
            "expected a kernel add_n with parameters of [8, 8, 8, 4] bytes, found {found:?}"
        );
        let elements = arrays[0].floats();
        ensure!(
            elements == arrays[1].floats(),
            "expected arrays of one size"
        );
        Ok(Self {
            raw: Arc::clone(raw),
            function,
            arrays,
            elements,
            n,
        })
    }

    fn grid(&self) -> u32 {
        u32::try_from(self.elements.div_ceil(u64::from(BLOCK))).unwrap_or(u32::MAX)
    }

    /// Launches once through `cuLaunchKernel`, without wrappers.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn launch(&self) -> Result<()> {
        self.launch_from(0)
    }

    /// Launches from array `from`, 0 or 1, to the other.
    fn launch_from(&self, from: usize) -> Result<()> {
        let mut x = self.arrays[from].address;
        let mut y = self.arrays[1 - from].address;
        let (mut elements, mut n) = (self.elements, self.n);
        let mut parameters: [*mut c_void; 4] = [
            (&raw mut x).cast(),
            (&raw mut y).cast(),
            (&raw mut elements).cast(),
            (&raw mut n).cast(),
        ];
        let stream = self.raw.stream.cu_stream();
        // SAFETY: `new` checked that the parameters have the kernel's sizes.
        // `guests/add_n/add_n.cu` reads and writes `elements` floats, which both arrays have, and
        // the arrays are freed in stream order.
        unsafe {
            result::launch_kernel(
                self.function.cu_function(),
                (self.grid(), 1, 1),
                (BLOCK, 1, 1),
                0,
                stream,
                &mut parameters,
            )
        }?;
        Ok(())
    }

    /// Launches once through cudarc's builder.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn launch_built(&self) -> Result<()> {
        let [x, y] = self.arrays.each_ref().map(|array| array.address);
        let mut builder = self.raw.stream.launch_builder(&self.function);
        builder.arg(&x).arg(&y).arg(&self.elements).arg(&self.n);
        let configuration = LaunchConfig {
            grid_dim: (self.grid(), 1, 1),
            block_dim: (BLOCK, 1, 1),
            shared_mem_bytes: 0,
        };
        // SAFETY: as in `launch_from`.
        unsafe { builder.launch(configuration) }?;
        Ok(())
    }

    /// Captures a graph of `launches` launches, each on the result of the one before.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn graph(&self, launches: usize) -> Result<RawGraph<'_>> {
        let stream = &self.raw.stream;
        stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
        let captured = (0..launches).try_for_each(|launch| self.launch_from(launch % 2));
        // End the capture in any case, or the stream would record later work too.
        let graph = stream.end_capture(CUgraphInstantiate_flags(0));
        captured?;
        match graph? {
            Some(graph) => Ok(RawGraph {
                graph,
                _kernel: self,
            }),
            None => bail!("expected a graph, found no capture"),
        }
    }
}

impl RawGraph<'_> {
    /// Enqueues the graph.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn launch(&self) -> Result<()> {
        Ok(self.graph.launch()?)
    }
}

/// Returns the sizes of a kernel's parameters, in bytes.
fn parameter_sizes(function: &CudaFunction) -> Result<Vec<usize>> {
    let mut sizes = Vec::new();
    loop {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: the function is loaded, and both pointers are valid for writes.
        let found = unsafe {
            sys::cuFuncGetParamInfo(
                function.cu_function(),
                sizes.len(),
                &raw mut offset,
                &raw mut size,
            )
        };
        match found {
            sys::CUresult::CUDA_SUCCESS => sizes.push(size),
            // There are no more parameters.
            sys::CUresult::CUDA_ERROR_INVALID_VALUE => return Ok(sizes),
            other => bail!("cuFuncGetParamInfo failed with {}", other as u32),
        }
    }
}
