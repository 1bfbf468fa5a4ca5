//! Devices: a GPU's primary context, and the streams, memory and modules that callbox keeps for it.
#![allow(
    unsafe_code,
    reason = "borrows the streams and memory of other frameworks"
)]

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use callbox_core::call::{Device, DeviceBuffer, DeviceMemory, DeviceQueue, Platform};
use callbox_core::locks::locked;
use callbox_core::values::{Blame, Result, Status, StatusCode};
use cudarc::driver::sys::{CUdevice_attribute, CUstream};

use super::driver::{Context, MemoryKind, Module, Relaxed, Stream, kind_of, ordinal_of};
use super::failure::DriverFailure;
use super::probe::probe;
use super::queue::CudaQueue;
use super::staging::Staging;

/// A GPU. callbox uses its primary context, as XLA and PyTorch do.
///
/// A kernel that faults makes the whole context unusable. The device is then lost: every later call
/// fails at once, with the first cause.
pub struct CudaDevice {
    id: u64,
    ordinal: usize,
    name: String,
    capability: (u32, u32),
    has_memory_pools: bool,
    context: Arc<Context>,
    staging: Staging,
    /// The stream in which the memory of graphs is allocated and freed.
    keeper: Arc<Stream>,
    /// Idle streams.
    streams: Mutex<Vec<Arc<Stream>>>,
    /// Loaded modules, by the digest of their image.
    modules: Mutex<HashMap<[u8; 32], Arc<LoadedModule>>>,
    lost: OnceLock<Status>,
}

/// A module, or why it cannot be loaded, once it has been tried.
type LoadedModule = OnceLock<Result<Arc<Module>>>;

impl CudaDevice {
    /// Opens the device with this number. While it is open, each call returns the same value.
    ///
    /// # Errors
    /// UNAVAILABLE, as [`probe`] reports it; NOT_FOUND if there is no such device.
    pub fn open(ordinal: usize) -> Result<Arc<Self>> {
        static OPEN: Mutex<BTreeMap<usize, Weak<CudaDevice>>> = Mutex::new(BTreeMap::new());
        let mut open = locked(&OPEN);
        if let Some(device) = open.get(&ordinal).and_then(Weak::upgrade) {
            return Ok(device);
        }
        let device = Self::new(ordinal)?;
        open.insert(ordinal, Arc::downgrade(&device));
        Ok(device)
    }

    /// Opens the device that a stream of another framework belongs to.
    ///
    /// The calling thread must have a current context, as XLA's threads do.
    ///
    /// # Errors
    /// UNAVAILABLE, as [`probe`] reports it; INVALID_ARGUMENT if the driver does not know the
    /// stream.
    ///
    /// # Safety
    /// The handle must be a stream's.
    pub unsafe fn of_stream(stream: CUstream) -> Result<Arc<Self>> {
        let driver = probe()?;
        // SAFETY: the caller promises that the handle is a stream's.
        let found = unsafe { ordinal_of(stream, driver.devices()) };
        let found = found.map_err(|failure| failure.status("asking for a stream's device"))?;
        let ordinal = found.ok_or_else(|| {
            Status::internal("expected a stream of one of the driver's devices, found another's")
        })?;
        Self::open(ordinal)
    }

    fn new(ordinal: usize) -> Result<Arc<Self>> {
        let devices = probe()?.devices();
        if ordinal >= devices {
            return Err(Status::not_found(format!(
                "expected a CUDA device below {devices}, found number {ordinal}"
            )));
        }
        let opened = Self::with_primary_context(ordinal);
        opened.map(Arc::new).map_err(|failure| {
            let doing = format!("opening CUDA device {ordinal}");
            if failure.is_sticky() {
                // An earlier fault, which the caller did not cause.
                let message = format!("{doing}: its context was lost before: {failure}");
                Status::new(StatusCode::Unavailable, Blame::Host, message)
            } else {
                failure.status(&doing)
            }
        })
    }

    fn with_primary_context(ordinal: usize) -> Result<Self, DriverFailure> {
        use CUdevice_attribute::{
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
            CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED as POOLS,
        };

        /// The number of the next value.
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let _relaxed = Relaxed::begin()?;
        let context = Arc::new(Context::retain(ordinal)?);
        let number = |attribute| Ok(u32::try_from(context.attribute(attribute)?).unwrap_or(0));
        Ok(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            ordinal,
            name: context.name()?,
            capability: (number(MAJOR)?, number(MINOR)?),
            has_memory_pools: number(POOLS)? != 0,
            staging: Staging::new(&context),
            keeper: Arc::new(Stream::new(&context)?),
            streams: Mutex::default(),
            modules: Mutex::default(),
            lost: OnceLock::new(),
            context,
        })
    }

    /// The device's number.
    #[must_use]
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// The device's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The compute capability, such as `(9, 0)` for an H200.
    #[must_use]
    pub fn compute_capability(&self) -> (u32, u32) {
        self.capability
    }

    /// Free and total bytes of the device's memory.
    ///
    /// # Errors
    /// UNAVAILABLE if the device is lost.
    pub fn memory(&self) -> Result<(usize, usize)> {
        self.check("asking for its memory", self.context.memory())
    }

    /// The failure that the device was lost to, if it is lost.
    #[must_use]
    pub fn lost(&self) -> Option<&Status> {
        self.lost.get()
    }

    /// A queue on a stream of another framework.
    ///
    /// Failures of the host's work in the queue are reported by [`DeviceQueue::download`], which
    /// may be asked for no arrays.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the stream belongs to another device; FAILED_PRECONDITION if it is being
    /// captured; UNAVAILABLE if this device is lost.
    ///
    /// # Safety
    /// The handle must be a stream's, and the stream must outlive the queue and all memory that is
    /// allocated in it.
    pub unsafe fn queue_on(self: &Arc<Self>, stream: CUstream) -> Result<CudaQueue> {
        // SAFETY: the caller's promise is the same.
        let queue = unsafe { self.queue_on_captured(stream) }?;
        if queue.is_captured_elsewhere() {
            return Err(Status::new(
                StatusCode::FailedPrecondition,
                Blame::Caller,
                "the stream is being captured by another framework",
            ));
        }
        Ok(queue)
    }

    /// A queue on a stream that another framework may be capturing, as XLA does when it makes a
    /// command buffer of a program.
    ///
    /// callbox knows neither how long the graph exists nor when it is launched, so that nothing is
    /// kept for it. While the stream is captured, the queue takes launches, and copies and fills of
    /// borrowed memory, of targets with the trait `command_buffer_compatible`. Everything else
    /// fails with FAILED_PRECONDITION: allocations (and so kernels with scratch memory), uploads,
    /// and work of the host. Kernels are loaded during the capture if they were not before.
    ///
    /// The driver does not tell the device of a stream that is being captured. The stream is taken
    /// to be of the calling thread's current context.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the stream belongs to another device; UNAVAILABLE if this device is
    /// lost.
    ///
    /// # Safety
    /// As for [`CudaDevice::queue_on`]. The graph may be launched only while this device, which
    /// holds the kernels, and the memory that was borrowed for it exist.
    pub unsafe fn queue_on_captured(self: &Arc<Self>, stream: CUstream) -> Result<CudaQueue> {
        self.check_not_lost()?;
        // SAFETY: the caller promises that the handle is a stream's.
        let is_own = unsafe { self.context.owns_stream(stream) };
        if !self.check("asking for a stream's device", is_own)? {
            return Err(Status::invalid_argument(format!(
                "expected a stream of CUDA device {}, found one of another device",
                self.ordinal
            )));
        }
        // SAFETY: the stream is of this context, and the caller promises that it lives long enough.
        let stream = unsafe { Stream::borrowed(&self.context, stream) };
        let is_captured = self.check("asking for a stream's capture", stream.is_capturing())?;
        Ok(CudaQueue::borrowed(self, stream, is_captured))
    }

    /// Lends memory of another framework to calls, as an operand or result. callbox does not free
    /// it.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the address is in the host's own memory or on another device.
    ///
    /// # Safety
    /// The memory must have `size` bytes. It must outlive the buffer, and the streams must have
    /// passed its uses before it is freed.
    pub unsafe fn borrow_memory(&self, address: u64, size: usize) -> Result<DeviceBuffer> {
        if size > 0 {
            self.check_address(address, "borrowed memory")?;
        }
        Ok(Arc::new(Borrowed {
            device: self.id,
            address,
            size,
            whole: None,
        }))
    }

    /// A part of borrowed memory, such as one element of a batch.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the range is out of bounds, or the memory was not borrowed from this
    /// device.
    pub fn part_of_borrowed(
        &self,
        whole: &DeviceBuffer,
        range: Range<usize>,
    ) -> Result<DeviceBuffer> {
        let borrowed = whole.as_any().downcast_ref::<Borrowed>();
        let Some(borrowed) = borrowed.filter(|borrowed| borrowed.device == self.id) else {
            return Err(Status::invalid_argument(format!(
                "expected memory that was borrowed from CUDA device {}, found other memory",
                self.ordinal
            )));
        };
        if range.start > range.end || range.end > borrowed.size {
            return Err(Status::invalid_argument(format!(
                "expected bytes of the {} that were borrowed, found {range:?}",
                borrowed.size
            )));
        }
        Ok(Arc::new(Borrowed {
            device: self.id,
            // The range is in bounds, and the end of the memory has an address.
            address: borrowed.address.wrapping_add(range.start as u64),
            size: range.len(),
            whole: Some(Arc::clone(whole)),
        }))
    }

    /// A queue on a stream of its own.
    pub(super) fn new_queue(self: &Arc<Self>) -> Result<CudaQueue> {
        self.check_not_lost()?;
        // A stream that memory is still freed in is not reused: the free would invalidate a
        // capture.
        let mut streams = locked(&self.streams);
        let free = streams.iter().position(|s| Arc::strong_count(s) == 1);
        let idle = free.map(|place| streams.swap_remove(place));
        drop(streams);
        let stream = match idle {
            Some(stream) => stream,
            None => Arc::new(self.check("making a stream", Stream::new(&self.context))?),
        };
        Ok(CudaQueue::new(self, stream))
    }

    /// Takes back a queue's stream. Work that is still in it goes on.
    pub(super) fn keep_stream(&self, stream: Arc<Stream>) {
        const MAX_IDLE: usize = 64;
        let mut streams = locked(&self.streams);
        if self.lost.get().is_none() && streams.len() < MAX_IDLE {
            streams.push(stream);
        }
    }

    /// The number of this value. A device that is opened again has another.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(super) fn keeper(&self) -> &Arc<Stream> {
        &self.keeper
    }

    pub(super) fn staging(&self) -> &Staging {
        &self.staging
    }

    pub(super) fn has_memory_pools(&self) -> bool {
        self.has_memory_pools
    }

    /// The module with this digest. The first call loads it; concurrent ones wait.
    pub(super) fn module(
        &self,
        digest: [u8; 32],
        load: impl FnOnce() -> Result<Arc<Module>>,
    ) -> Result<Arc<Module>> {
        self.check_not_lost()?;
        let place = Arc::clone(locked(&self.modules).entry(digest).or_default());
        let loaded = place.get_or_init(load).clone();
        if loaded.is_err() {
            // The failure may pass, such as a lack of memory.
            locked(&self.modules).remove(&digest);
        }
        loaded
    }

    /// Checks that an address is in this device's memory, or in pinned memory, which it can reach.
    pub(super) fn check_address(&self, address: u64, what: &str) -> Result<()> {
        match self.check(
            "asking for an address's device",
            kind_of(&self.context, address),
        )? {
            MemoryKind::Device(ordinal) if ordinal == self.ordinal => Ok(()),
            MemoryKind::Pinned => Ok(()),
            MemoryKind::Device(ordinal) => Err(Status::invalid_argument(format!(
                "{what}: expected memory of CUDA device {}, found an address of device {ordinal}",
                self.ordinal
            ))),
            MemoryKind::Unknown => Err(Status::invalid_argument(format!(
                "{what}: expected memory of CUDA device {}, found an address in the host's own memory",
                self.ordinal
            ))),
        }
    }

    /// The status of a driver call. A failure that the device is lost to is recorded.
    pub(super) fn check<T>(&self, doing: &str, outcome: Result<T, DriverFailure>) -> Result<T> {
        outcome.or_else(|failure| {
            self.check_not_lost()?;
            let status = failure.status(&format!("CUDA device {}: {doing}", self.ordinal));
            if failure.is_sticky() {
                // A concurrent failure that came first stays.
                let _ = self.lost.set(status.clone());
            }
            Err(status)
        })
    }

    /// Checks that the device is not lost.
    ///
    /// # Errors
    /// UNAVAILABLE, with the first failure, if it is.
    pub(super) fn check_not_lost(&self) -> Result<()> {
        match self.lost.get() {
            None => Ok(()),
            Some(first) => Err(Status::new(
                StatusCode::Unavailable,
                Blame::Host,
                format!(
                    "CUDA device {} was lost to an earlier failure: {first}",
                    self.ordinal
                ),
            )),
        }
    }
}

impl Device for CudaDevice {
    fn platform(&self) -> Platform {
        Platform::Cuda
    }

    fn queue(self: Arc<Self>) -> Result<Box<dyn DeviceQueue>> {
        Ok(Box::new(self.new_queue()?))
    }
}

/// Memory of another framework.
#[derive(Debug)]
pub(super) struct Borrowed {
    device: u64,
    address: u64,
    size: usize,
    /// The memory that this is a part of, which must outlive it.
    #[expect(dead_code, reason = "keeps the memory alive")]
    whole: Option<DeviceBuffer>,
}

impl Borrowed {
    /// The device's [`CudaDevice::id`].
    pub(super) fn device(&self) -> u64 {
        self.device
    }
}

impl DeviceMemory for Borrowed {
    fn address(&self) -> u64 {
        self.address
    }

    fn size(&self) -> usize {
        self.size
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaDevice")
            .field("ordinal", &self.ordinal)
            .field("name", &self.name)
            .field("compute_capability", &self.capability)
            .field("lost", &self.lost.get())
            .finish_non_exhaustive()
    }
}
