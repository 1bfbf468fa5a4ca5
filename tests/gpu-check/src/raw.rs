//! The driver without callbox: the baselines, and memory and time that both sides of a comparison use. All unsafe code of this program is here.
#![allow(unsafe_code, reason = "calls the driver, and launches a kernel")]

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

/// A device's primary context, which is callbox's as well, and a stream in it.
///
/// It may be made only where callbox has found a driver: cudarc panics without one.
#[derive(Debug)]
pub(crate) struct Raw {
    device: Arc<CudaDevice>,
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
}

/// Memory of a device. It is given back when whatever was put into its stream before has passed: who uses it in another waits before dropping it.
pub(crate) struct Memory {
    slice: CudaSlice<u8>,
    address: u64,
    buffer: DeviceBuffer,
}

/// A callbox queue on a raw stream, which it does not outlive.
pub(crate) struct RawQueue {
    /// Goes first.
    pub(crate) queue: CudaQueue,
    _stream: Arc<CudaStream>,
}

/// Pinned memory of the host.
pub(crate) struct Pinned(PinnedHostSlice<u8>);

/// The kernel `add_n` of `guests/add_n`, from one array of floats to another and back.
pub(crate) struct AddN {
    raw: Arc<Raw>,
    function: CudaFunction,
    arrays: [Arc<Memory>; 2],
    elements: u64,
    n: f32,
}

/// A graph of its launches, whose arrays are there for as long as it is.
pub(crate) struct RawGraph<'k> {
    graph: CudaGraph,
    _kernel: &'k AddN,
}

/// Threads of a block, as the manifest of `add_n` says.
const BLOCK: u32 = 256;

impl Raw {
    /// The device of this number.
    ///
    /// # Errors
    /// What the driver says.
    pub(crate) fn open(device: &Arc<CudaDevice>) -> Result<Arc<Self>> {
        let context = CudaContext::new(device.ordinal())?;
        // SAFETY: nothing here leaves the order of streams to cudarc: whoever uses memory in two streams waits in between.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream()?;
        let device = Arc::clone(device);
        Ok(Arc::new(Self {
            device,
            context,
            stream,
        }))
    }

    /// Waits for all that is on the device.
    ///
    /// # Errors
    /// What its work failed with.
    pub(crate) fn wait(&self) -> Result<()> {
        Ok(self.context.synchronize()?)
    }

    /// callbox's queue of this stream.
    ///
    /// # Errors
    /// What callbox says.
    pub(crate) fn queue(&self, device: &Arc<CudaDevice>) -> Result<RawQueue> {
        // SAFETY: it is a stream, which is returned beside the queue and goes after it; sections take no memory in such a queue.
        let queue = unsafe { device.queue_on(self.stream.cu_stream()) }?;
        Ok(RawQueue {
            queue,
            _stream: Arc::clone(&self.stream),
        })
    }

    /// So many bytes of the device's memory, all zero.
    ///
    /// # Errors
    /// What the driver says.
    pub(crate) fn memory(&self, size: usize) -> Result<Arc<Memory>> {
        let slice = self.stream.alloc_zeros::<u8>(size)?;
        let (address, guard) = slice.device_ptr(&self.stream);
        drop(guard);
        // Other streams find it zeroed as well.
        self.stream.synchronize()?;
        // SAFETY: the bytes are there for as long as the `Memory`, which sections hold until they have waited for the device.
        let buffer = unsafe { self.device.borrow_memory(address, size) }?;
        Ok(Arc::new(Memory {
            slice,
            address,
            buffer,
        }))
    }

    /// The same with these bytes.
    ///
    /// # Errors
    /// What the driver says.
    pub(crate) fn memory_with(&self, bytes: &[u8]) -> Result<Arc<Memory>> {
        let memory = self.memory(bytes.len())?;
        self.copy_in(bytes, &memory)?;
        self.stream.synchronize()?;
        Ok(memory)
    }

    /// The bytes from a place in some memory on, when all that is in the stream has been done.
    ///
    /// # Errors
    /// What the driver says, and bytes behind the memory's end.
    pub(crate) fn read(&self, memory: &Memory, start: usize, size: usize) -> Result<Vec<u8>> {
        let end = start.checked_add(size).filter(|end| *end <= memory.size());
        let end = end.context("expected bytes of the memory, found some behind its end")?;
        let bytes = self.stream.clone_dtoh(&memory.slice.slice(start..end))?;
        self.stream.synchronize()?;
        Ok(bytes)
    }

    /// Puts a copy from the host into the stream: as many bytes as both have. It waits before it returns, if the bytes are not pinned, as the driver may.
    ///
    /// # Errors
    /// What the driver says, and two sizes.
    pub(crate) fn copy_in(&self, from: &[u8], to: &Memory) -> Result<()> {
        ensure!(from.len() == to.size(), "expected memory of one size");
        self.context.bind_to_thread()?;
        // SAFETY: both have as many bytes; both outlive the copy, for it is waited for.
        unsafe { result::memcpy_htod_async(to.address, from, self.stream.cu_stream()) }?;
        Ok(self.stream.synchronize()?)
    }

    /// The same to the host.
    ///
    /// # Errors
    /// As for [`Raw::copy_in`].
    pub(crate) fn copy_out(&self, from: &Memory, to: &mut [u8]) -> Result<()> {
        ensure!(from.size() == to.len(), "expected memory of one size");
        self.context.bind_to_thread()?;
        // SAFETY: as in `copy_in`.
        unsafe { result::memcpy_dtoh_async(to, from.address, self.stream.cu_stream()) }?;
        Ok(self.stream.synchronize()?)
    }

    /// Puts a copy on the device into the stream.
    ///
    /// # Errors
    /// What the driver says, and two sizes.
    pub(crate) fn copy(&self, from: &Memory, to: &Memory) -> Result<()> {
        ensure!(from.size() == to.size(), "expected memory of one size");
        ensure!(from.address != to.address, "expected two pieces of memory");
        self.context.bind_to_thread()?;
        let stream = self.stream.cu_stream();
        // SAFETY: both have as many bytes and are given back in the stream's order.
        unsafe { result::memcpy_dtod_async(to.address, from.address, from.size(), stream) }?;
        Ok(())
    }

    /// Pinned memory of the host, not write-combined, all zero.
    ///
    /// # Errors
    /// What the driver says.
    pub(crate) fn pinned(&self, size: usize) -> Result<Pinned> {
        // SAFETY: bytes need no initial value; they are given one before anybody sees them.
        let mut slice = unsafe { self.context.alloc_pinned_with_flags::<u8>(size, 0) }?;
        let start = slice.as_mut_ptr()?;
        // SAFETY: as many bytes are there, and nobody else has them.
        unsafe { start.write_bytes(0, size) };
        Ok(Pinned(slice))
    }

    /// How long the device takes for what is put into the stream meanwhile, in milliseconds, between two events of the stream.
    ///
    /// # Errors
    /// What the work fails with.
    pub(crate) fn device_ms(&self, enqueue: impl FnOnce() -> Result<()>) -> Result<f64> {
        let timed = Some(CUevent_flags::CU_EVENT_DEFAULT);
        let begun = self.stream.record_event(timed)?;
        enqueue()?;
        let ended = self.stream.record_event(timed)?;
        ended.synchronize()?;
        Ok(f64::from(begun.elapsed_ms(&ended)?))
    }

    /// Loads PTX and forgets it.
    ///
    /// # Errors
    /// What the driver says.
    pub(crate) fn load(&self, ptx: &str) -> Result<()> {
        drop(self.context.load_module(Ptx::from_src(ptx))?);
        Ok(())
    }
}

impl Memory {
    /// Its size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.slice.len()
    }

    /// It as callbox takes it. It is not given back with that: hold the memory until the device was waited for.
    pub(crate) fn buffer(&self) -> DeviceBuffer {
        Arc::clone(&self.buffer)
    }

    /// How many floats fit into it.
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
    /// Its bytes. What the device was told to do with them is waited for.
    ///
    /// # Errors
    /// What the driver says.
    pub(crate) fn bytes(&mut self) -> Result<&mut [u8]> {
        Ok(self.0.as_mut_slice()?)
    }
}

impl AddN {
    /// The kernel from `add_n.ptx`, on arrays of as many floats, of which the second is written by the first launch.
    ///
    /// # Errors
    /// PTX that cannot be read, or whose kernel takes something else; arrays of two sizes.
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

    /// One launch by `cuLaunchKernel`, with nothing around it.
    ///
    /// # Errors
    /// What the driver says.
    pub(crate) fn launch(&self) -> Result<()> {
        self.launch_from(0)
    }

    /// The same, from the array of this number, 0 or 1, to the other.
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
        // SAFETY: the parameters have the kernel's sizes, which were looked at, and its meaning: guests/add_n/add_n.cu reads and writes `elements`
        // floats, which both arrays have, and they are given back in the stream's order.
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

    /// One launch by cudarc's builder.
    ///
    /// # Errors
    /// What the driver says.
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

    /// A graph of so many launches, each from the array that the one before it wrote.
    ///
    /// # Errors
    /// What the driver says.
    pub(crate) fn graph(&self, launches: usize) -> Result<RawGraph<'_>> {
        let stream = &self.raw.stream;
        stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
        let captured = (0..launches).try_for_each(|launch| self.launch_from(launch % 2));
        // A stream that is still capturing would take in what comes after.
        let graph = stream.end_capture(CUgraphInstantiate_flags(0));
        captured?;
        match graph? {
            Some(graph) => Ok(RawGraph {
                graph,
                _kernel: self,
            }),
            None => bail!("expected a graph, found that nothing was captured"),
        }
    }
}

impl RawGraph<'_> {
    /// Puts all of its launches into the stream.
    ///
    /// # Errors
    /// What the driver says.
    pub(crate) fn launch(&self) -> Result<()> {
        Ok(self.graph.launch()?)
    }
}

/// The sizes of a kernel's parameters, in bytes.
fn parameter_sizes(function: &CudaFunction) -> Result<Vec<usize>> {
    let mut sizes = Vec::new();
    loop {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: the function is loaded, and both numbers are there to be written.
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
            // There is no parameter of this number.
            sys::CUresult::CUDA_ERROR_INVALID_VALUE => return Ok(sizes),
            other => bail!("cuFuncGetParamInfo failed with {}", other as u32),
        }
    }
}
