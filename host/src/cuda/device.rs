//! Devices: a GPU's primary context, and what callbox keeps for it.
#![allow(
    unsafe_code,
    reason = "takes streams and memory of somebody else's on trust"
)]

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use cudarc::driver::sys::{CUdevice_attribute, CUstream};

use super::driver::{Context, MemoryKind, Module, Relaxed, Stream, kind_of, ordinal_of};
use super::failure::DriverFailure;
use super::guard::locked;
use super::probe::probe;
use super::queue::CudaQueue;
use super::staging::Staging;
use crate::call::{Device, DeviceBuffer, DeviceMemory, DeviceQueue, Platform};
use crate::values::{Blame, Result, Status, StatusCode};

/// A GPU. Its primary context is used, which is XLA's and PyTorch's as well.
///
/// A kernel that faults takes the whole context with it: the device is lost from then on, and every later call says so at once, with the first cause.
pub struct CudaDevice {
    id: u64,
    ordinal: usize,
    name: String,
    capability: (u32, u32),
    has_memory_pools: bool,
    context: Arc<Context>,
    staging: Staging,
    /// The stream in which graphs' memory is taken and given back.
    keeper: Arc<Stream>,
    /// Streams that no queue uses.
    streams: Mutex<Vec<Arc<Stream>>>,
    /// Loaded modules, by what they were loaded from.
    modules: Mutex<HashMap<[u8; 32], Arc<Loaded>>>,
    lost: OnceLock<Status>,
}

/// A module, once somebody has loaded it.
type Loaded = OnceLock<Result<Arc<Module>>>;

/// The next value's number.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

impl CudaDevice {
    /// The device with this number: the same value for all who have it open.
    ///
    /// # Errors
    /// UNAVAILABLE if there is no CUDA here, with why; NOT_FOUND if there is no such device.
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

    /// The device that a stream of somebody else's is of: XLA's, say. The calling thread has a context, as XLA's threads do.
    ///
    /// # Errors
    /// UNAVAILABLE if there is no CUDA here, with why; INVALID_ARGUMENT if the driver does not know the stream.
    ///
    /// # Safety
    /// It must be a stream.
    pub unsafe fn of_stream(stream: CUstream) -> Result<Arc<Self>> {
        let driver = probe()?;
        // SAFETY: as the caller promises.
        let found = unsafe { ordinal_of(stream, driver.devices()) };
        let found = found.map_err(|failure| failure.status("asking whose a stream is"))?;
        let ordinal = found.ok_or_else(|| {
            Status::internal("expected a stream of one of the driver's devices, found another's")
        })?;
        Self::open(ordinal)
    }

    fn new(ordinal: usize) -> Result<Arc<Self>> {
        let driver = probe()?;
        if ordinal >= driver.devices() {
            return Err(Status::not_found(format!(
                "expected a CUDA device below {}, found number {ordinal}",
                driver.devices()
            )));
        }
        let doing = || format!("opening CUDA device {ordinal}");
        let failed = |failure: DriverFailure| match failure.is_sticky() {
            // Somebody's fault of before, and no matter of who opens it now.
            true => Status::new(
                StatusCode::Unavailable,
                Blame::Host,
                format!("{}: its context was lost before: {failure}", doing()),
            ),
            false => failure.status(&doing()),
        };
        let _relaxed = Relaxed::begin().map_err(failed)?;
        let context = Arc::new(Context::retain(ordinal).map_err(failed)?);
        let attribute = |attribute| context.attribute(attribute).map_err(failed);
        let number = |value: i32| u32::try_from(value).unwrap_or(0);
        let major = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let pools = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)?;
        Ok(Arc::new(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            ordinal,
            name: context.name().map_err(failed)?,
            capability: (number(major), number(minor)),
            has_memory_pools: pools != 0,
            staging: Staging::new(&context),
            keeper: Arc::new(Stream::new(&context).map_err(failed)?),
            streams: Mutex::default(),
            modules: Mutex::default(),
            lost: OnceLock::new(),
            context,
        }))
    }

    /// Its number.
    #[must_use]
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// The driver's name for it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its compute capability: (9, 0) for an H200.
    #[must_use]
    pub fn compute_capability(&self) -> (u32, u32) {
        self.capability
    }

    /// Free and total bytes of its memory.
    ///
    /// # Errors
    /// UNAVAILABLE if it is lost.
    pub fn memory(&self) -> Result<(usize, usize)> {
        self.check("asking for its memory", self.context.memory())
    }

    /// Why it can't be used any longer, if that is so: the first failure that took it.
    #[must_use]
    pub fn lost(&self) -> Option<&Status> {
        self.lost.get()
    }

    /// A queue of somebody else's stream: XLA's, say. What the host computes in the queue tells its failures to [`DeviceQueue::download`], of nothing if
    /// need be.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the stream is of another device; FAILED_PRECONDITION if it is being captured; UNAVAILABLE if this device is lost.
    ///
    /// # Safety
    /// It must be a stream, and stay one for as long as the queue and all memory that was taken in it are there.
    pub unsafe fn queue_on(self: &Arc<Self>, stream: CUstream) -> Result<CudaQueue> {
        let stream = self.borrowed_stream(stream)?;
        if self.is_captured(&stream)? {
            return Err(Status::new(
                StatusCode::FailedPrecondition,
                Blame::Caller,
                "expected a stream whose work is done, found one whose work is being captured",
            ));
        }
        Ok(CudaQueue::borrowed(self, Arc::new(stream)))
    }

    /// The same of a stream that may be being captured: as XLA's are, where it makes a command buffer of a program.
    ///
    /// While it is captured, nobody here knows how long the graph is there, nor when it is launched. So nothing is kept for it: the queue takes
    /// launches, and copies and fills of borrowed memory, of targets with the trait `command_buffer_compatible`. All else fails with
    /// FAILED_PRECONDITION: memory that is taken, that is, kernels with scratch memory, bytes of the host's, and what the host computes. Kernels are loaded as the
    /// capture goes on, if they were not before.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the stream is of another device; UNAVAILABLE if this device is lost.
    ///
    /// # Safety
    /// As for [`CudaDevice::queue_on`]. What is captured may be launched for as long as this device is kept, which has the kernels, and the memory is there that
    /// was borrowed for it.
    pub unsafe fn queue_on_captured(self: &Arc<Self>, stream: CUstream) -> Result<CudaQueue> {
        let stream = self.borrowed_stream(stream)?;
        let is_captured = self.is_captured(&stream)?;
        let queue = CudaQueue::borrowed(self, Arc::new(stream));
        Ok(match is_captured {
            true => queue.captured_elsewhere(),
            false => queue,
        })
    }

    /// A stream that is checked to be of this device.
    fn borrowed_stream(&self, stream: CUstream) -> Result<Stream> {
        self.check_not_lost()?;
        let is_own = self.context.owns_stream(stream);
        if !self.check("asking whose a stream is", is_own)? {
            return Err(Status::invalid_argument(format!(
                "expected a stream of CUDA device {}, found one of another device",
                self.ordinal
            )));
        }
        // SAFETY: it is of this context, and the callers are promised the rest.
        Ok(unsafe { Stream::borrowed(&self.context, stream) })
    }

    fn is_captured(&self, stream: &Stream) -> Result<bool> {
        self.check("asking whether a stream is captured", stream.is_capturing())
    }

    /// Somebody else's memory, to be operand or result of a call. It is not given back here.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the address is of the host's own memory, or of another device's.
    ///
    /// # Safety
    /// As many bytes must be there for as long as the buffer is, and until the streams have passed in which it was used.
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

    /// Some of the bytes of borrowed memory, as memory: one element of a batch, say.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the bytes are not all in it, or the memory was not borrowed from this device.
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
            // The range is within the memory, whose end has an address.
            address: borrowed.address.wrapping_add(range.start as u64),
            size: range.len(),
            whole: Some(Arc::clone(whole)),
        }))
    }

    /// A queue of a new stream.
    pub(super) fn new_queue(self: &Arc<Self>) -> Result<CudaQueue> {
        self.check_not_lost()?;
        // A stream in whose order somebody still has to give memory back could be spoilt by that, or spoil it.
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

    /// Takes back a stream that a queue used. What is still in it goes on.
    pub(super) fn keep_stream(&self, stream: Arc<Stream>) {
        const MOST: usize = 64;
        let mut streams = locked(&self.streams);
        if self.lost.get().is_none() && streams.len() < MOST {
            streams.push(stream);
        }
    }

    /// Tells this value from all others, those of the same device too.
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

    /// A module of this digest, loaded by the first who asks.
    pub(super) fn module(
        &self,
        digest: [u8; 32],
        load: impl FnOnce() -> Result<Arc<Module>>,
    ) -> Result<Arc<Module>> {
        self.check_not_lost()?;
        let place = Arc::clone(locked(&self.modules).entry(digest).or_default());
        let loaded = place.get_or_init(load).clone();
        if loaded.is_err() {
            // Another attempt may find more memory.
            locked(&self.modules).remove(&digest);
        }
        loaded
    }

    /// Checks that an address is of this device's memory, or of memory that it can reach.
    pub(super) fn check_address(&self, address: u64, what: &str) -> Result<()> {
        match self.check(
            "asking whose an address is",
            kind_of(&self.context, address),
        )? {
            MemoryKind::Device(ordinal) if ordinal == self.ordinal => Ok(()),
            MemoryKind::Pinned => Ok(()),
            MemoryKind::Device(ordinal) => Err(Status::invalid_argument(format!(
                "{what}: expected memory of CUDA device {}, found an address of device {ordinal}",
                self.ordinal
            ))),
            MemoryKind::Unknown => Err(Status::invalid_argument(format!(
                "{what}: expected memory of CUDA device {}, found an address that the driver does not know: the host's own memory",
                self.ordinal
            ))),
        }
    }

    /// The status of a call of the driver's. One that takes the device with it is remembered.
    pub(super) fn check<T>(&self, doing: &str, outcome: Result<T, DriverFailure>) -> Result<T> {
        let failure = match outcome {
            Ok(value) => return Ok(value),
            Err(failure) => failure,
        };
        self.check_not_lost()?;
        let status = failure.status(&format!("CUDA device {}: {doing}", self.ordinal));
        if failure.is_sticky() {
            // Whoever was first says why.
            let _ = self.lost.set(status.clone());
        }
        Err(status)
    }

    /// # Errors
    /// UNAVAILABLE if the device is lost.
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

impl Device for Arc<CudaDevice> {
    fn platform(&self) -> Platform {
        Platform::Cuda
    }

    fn queue(&self) -> Result<Box<dyn DeviceQueue>> {
        Ok(Box::new(self.new_queue()?))
    }
}

/// Somebody else's memory.
#[derive(Debug)]
pub(super) struct Borrowed {
    device: u64,
    address: u64,
    size: usize,
    /// What it is a part of: its owner's promise is for as long as that is there.
    #[expect(dead_code, reason = "it is kept, and not looked at")]
    whole: Option<DeviceBuffer>,
}

impl Borrowed {
    /// Which device's: [`CudaDevice::id`].
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
