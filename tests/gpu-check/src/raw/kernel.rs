//! Kernels with any parameters, and the record of fenced ones.
#![allow(
    unsafe_code,
    reason = "launches kernels, and shares memory with running ones"
)]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use callbox_ptx::fence;
use callbox_ptx::verify::Launch;
use cudarc::driver::{CudaFunction, DriverError, PinnedHostSlice, result};
use cudarc::nvrtc::Ptx;

use super::{Memory, Raw};

/// A loaded kernel.
pub(crate) struct Kernel {
    raw: Arc<Raw>,
    function: CudaFunction,
}

/// How a launch ended.
pub(crate) enum End {
    /// The stream passed it. The stop word was set if it took longer than allowed, and then it went
    /// on for this long.
    Passed { stopped_for: Option<Duration> },
    /// It still ran long after its stop word was set.
    Hung,
}

/// The errors with which a driver refuses a PTX text: INVALID_IMAGE, NO_BINARY_FOR_GPU,
/// INVALID_PTX, INVALID_SOURCE.
const REFUSALS: [u32; 4] = [200, 209, 218, 300];

/// The errors with which a driver refuses a launch: INVALID_VALUE, LAUNCH_OUT_OF_RESOURCES. The
/// context stays intact.
const UNLAUNCHED: [u32; 2] = [1, 701];

/// The time after its stop word was set in which a kernel must end.
const HANG: Duration = Duration::from_secs(4);

impl Raw {
    /// Loads a kernel of a PTX text, which the driver compiles. `None` if it refuses the text.
    ///
    /// # Errors
    /// Another driver error.
    pub(crate) fn kernel(self: &Arc<Self>, text: &str, entry: &str) -> Result<Option<Kernel>> {
        self.kernel_of(Ptx::from_src(text), entry)
    }

    /// Loads a kernel of machine code. `None` if the driver refuses it.
    ///
    /// # Errors
    /// Another driver error.
    pub(crate) fn kernel_of_code(
        self: &Arc<Self>,
        code: Vec<u8>,
        entry: &str,
    ) -> Result<Option<Kernel>> {
        self.kernel_of(Ptx::from_binary(code), entry)
    }

    fn kernel_of(self: &Arc<Self>, image: Ptx, entry: &str) -> Result<Option<Kernel>> {
        let module = match self.context.load_module(image) {
            Err(error) if REFUSALS.contains(&code(error)) => return Ok(None),
            module => module?,
        };
        let function = module.load_function(entry)?;
        Ok(Some(Kernel {
            raw: Arc::clone(self),
            function,
        }))
    }

    /// Writes bytes at an offset, in stream order, and waits.
    ///
    /// # Errors
    /// A driver error, or bytes past the memory's end.
    pub(crate) fn write(&self, memory: &Memory, start: usize, bytes: &[u8]) -> Result<()> {
        if start
            .checked_add(bytes.len())
            .is_none_or(|end| end > memory.size())
        {
            bail!("expected bytes inside the memory, found bytes past its end");
        }
        self.context.bind_to_thread()?;
        let to = memory.address + start as u64;
        // SAFETY: the range was compared with the memory's size, and the wait below keeps both
        // sides alive until the copy is over.
        unsafe { result::memcpy_htod_async(to, bytes, self.stream.cu_stream()) }?;
        Ok(self.stream.synchronize()?)
    }

    /// Waits for the stream, and sets the stop word after `patience`.
    ///
    /// # Errors
    /// The error of the work.
    pub(crate) fn wait_or_stop(&self, record: &Record, patience: Duration) -> Result<End> {
        let event = self.stream.record_event(None)?;
        let begun = Instant::now();
        let mut stopped: Option<Instant> = None;
        while !event.try_is_complete()? {
            match stopped {
                None if begun.elapsed() >= patience => {
                    record.stop();
                    stopped = Some(Instant::now());
                }
                Some(since) if since.elapsed() >= HANG => return Ok(End::Hung),
                _ => std::hint::spin_loop(),
            }
        }
        Ok(End::Passed {
            stopped_for: stopped.map(|since| since.elapsed()),
        })
    }
}

impl Memory {
    /// The address on the device.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }
}

fn code(error: DriverError) -> u32 {
    error.0 as u32
}

impl Kernel {
    /// Registers of a thread.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn registers(&self) -> Result<i32> {
        Ok(self.function.num_regs()?)
    }

    /// Enqueues a launch with parameters of these bytes. Returns whether the driver accepted it.
    ///
    /// # Errors
    /// A driver error.
    ///
    /// # Safety
    /// The kernel has parameters of these sizes, and accesses only memory that lives until the
    /// stream has passed it.
    pub(crate) unsafe fn launch(&self, launch: &Launch, parameters: &[Vec<u8>]) -> Result<bool> {
        let mut pointers: Vec<_> = parameters
            .iter()
            .map(|bytes| bytes.as_ptr().cast_mut().cast())
            .collect();
        let [gx, gy, gz] = launch.grid;
        let [bx, by, bz] = launch.block;
        self.raw.context.bind_to_thread()?;
        // SAFETY: the caller vouches for the kernel. The driver copies the parameters before it
        // returns, and does not write through their pointers.
        let launched = unsafe {
            result::launch_kernel(
                self.function.cu_function(),
                (gx, gy, gz),
                (bx, by, bz),
                launch.shared_bytes,
                self.raw.stream.cu_stream(),
                &mut pointers,
            )
        };
        match launched {
            Err(error) if UNLAUNCHED.contains(&code(error)) => Ok(false),
            launched => {
                launched?;
                Ok(true)
            }
        }
    }
}

/// A record of a fenced launch, in pinned memory as callbox has it, with other bytes around it.
pub(crate) struct Record {
    start: NonNull<u8>,
    _memory: PinnedHostSlice<u8>,
}

/// The bytes before and behind the record, which no kernel may change.
const MARGIN: usize = 64;

/// The value of these bytes.
const CANARY: u8 = 0xc5;

/// The bytes of the memory.
const WHOLE: usize = MARGIN + fence::Record::BYTES + MARGIN;

impl Record {
    /// Allocates a record.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn new(raw: &Raw) -> Result<Self> {
        raw.context.bind_to_thread()?;
        // SAFETY: the memory is written below, before it is read.
        let mut memory = unsafe { raw.context.alloc_pinned_with_flags::<u8>(WHOLE, 0) }?;
        let start = memory.as_mut_ptr()?;
        // SAFETY: the memory has `WHOLE` bytes, and nothing else uses it yet.
        unsafe { start.write_bytes(CANARY, WHOLE) };
        let Some(start) = NonNull::new(start) else {
            bail!("expected an address of pinned memory");
        };
        let record = Self {
            start,
            _memory: memory,
        };
        record.clear();
        Ok(record)
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset < WHOLE, "a word of it");
        // SAFETY: the offset is inside the memory and aligned, as the driver aligns its start. The
        // memory is initialised, lives as long as `self`, and the host accesses it through this
        // method alone while a kernel may.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    /// The address, at which kernels reach it, too.
    pub(crate) fn address(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64 + MARGIN as u64
    }

    /// Sets all words to zero. No kernel may use the record.
    pub(crate) fn clear(&self) {
        for offset in (0..fence::Record::BYTES).step_by(4) {
            self.word(MARGIN + offset).store(0, Ordering::Release);
        }
    }

    /// Sets the stop word.
    pub(crate) fn stop(&self) {
        let word = self.word(MARGIN + fence::Record::STOP);
        word.store(1, Ordering::Release);
    }

    /// The number of the site that the kernel noted, from 1, or 0.
    pub(crate) fn site(&self) -> u32 {
        self.word(MARGIN + fence::Record::SITE)
            .load(Ordering::Acquire)
    }

    /// Whether the bytes around it are as they were.
    pub(crate) fn is_intact(&self) -> bool {
        let canary = u32::from_le_bytes([CANARY; 4]);
        let before = (0..MARGIN).step_by(4);
        let behind = (MARGIN + fence::Record::BYTES..WHOLE).step_by(4);
        before
            .chain(behind)
            .all(|offset| self.word(offset).load(Ordering::Acquire) == canary)
    }
}
