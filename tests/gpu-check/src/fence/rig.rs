//! Launches kernels in memory of which every other byte is watched.
#![allow(unsafe_code, reason = "launches kernels, to test their fence")]

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use callbox::StatusCode;
use callbox::cuda::CudaDevice;
use callbox::cuda::assembler::assemble;
use callbox::policy::Gpu;
use callbox_ptx::fence::{Fenced, fence};
use callbox_ptx::verify::{Launch, Limits, Param, Refusal, Rule, verify};
use callbox_ptx_cases::content;

use crate::raw::{End, Kernel, Memory, Raw, Record};

/// The bytes of the memory in which a launch gets its buffers.
const ARENA: usize = 8 << 20;

/// The distance of buffers. Their addresses have no greater alignment than they promise.
const STEP: u64 = 1 << 16;

/// The contents of the memory between buffers.
const CANARY: u8 = 0xc5;

/// A stream with memory and a record, for one launch at a time.
pub(crate) struct Rig {
    raw: Arc<Raw>,
    capability: (u32, u32),
    arena: Arc<Memory>,
    record: Record,
}

/// What a launch did.
pub(crate) enum Ran {
    /// The assembler or the driver refused the text or the launch, or the buffers do not fit in the
    /// memory.
    NotRun,
    /// The assembler crashed, in its own process.
    Crashed,
    /// It ended.
    Ended(Ended),
    /// It still runs, long after its stop word was set.
    Hung,
}

/// A launch that ended.
pub(crate) struct Ended {
    /// The number of the site that the kernel noted, from 1, or 0.
    pub(crate) site: u32,
    /// How long it went on after its stop word was set. `None` if it ended by itself.
    pub(crate) stopped_for: Option<Duration>,
    /// The contents of the buffers that it may write.
    pub(crate) results: Vec<Vec<u8>>,
}

/// Buffers of a launch in the memory.
struct Layout {
    /// The contents of the memory, up to the last buffer and the canaries behind it.
    image: Vec<u8>,
    /// The parameters' bytes.
    parameters: Vec<Vec<u8>>,
    writable: Vec<Range<usize>>,
}

/// Reads, verifies and fences a kernel.
///
/// # Errors
/// The refusals.
pub(crate) fn fenced(
    text: &str,
    entry: &str,
    launch: &Launch,
    limits: &Limits,
) -> Result<Fenced, Vec<Refusal>> {
    let module = callbox_ptx::read(text, "kernel.ptx", &callbox_ptx::Limits::default());
    let module = module.map_err(|error| {
        vec![Refusal {
            line: error.line,
            instruction: "text".to_owned(),
            rule: Rule::Module,
            reason: error.message,
            cure: String::new(),
        }]
    })?;
    let proof = verify(&module, entry, launch, limits)?;
    Ok(fence(&module, &proof))
}

impl Rig {
    /// Makes a stream with its memory.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn new(device: &Arc<CudaDevice>) -> Result<Self> {
        let raw = Raw::open(device)?;
        let arena = raw.memory(ARENA)?;
        let record = Record::new(&raw)?;
        Ok(Self {
            raw,
            capability: device.compute_capability(),
            arena,
            record,
        })
    }

    /// The stream.
    pub(crate) fn raw(&self) -> &Arc<Raw> {
        &self.raw
    }

    /// Runs a fenced kernel. After `patience` its stop word is set; without patience it is set
    /// before the launch.
    ///
    /// # Errors
    /// A driver error, or memory that the kernel must not write and has written.
    pub(crate) fn run(
        &self,
        fenced: &Fenced,
        entry: &str,
        launch: &Launch,
        patience: Duration,
    ) -> Result<Ran> {
        let text = callbox_ptx::print(&fenced.module);
        let kernel = match assemble("kernel.ptx", &text, self.capability, &Gpu::default()) {
            Err(status) if status.code() == StatusCode::Aborted => return Ok(Ran::Crashed),
            Err(status) if status.code() == StatusCode::InvalidArgument => return Ok(Ran::NotRun),
            Ok(Some(code)) => match self.raw.kernel_of_code(code, entry)? {
                Some(kernel) => Some(kernel),
                // As callbox does with code of another version.
                None => self.raw.kernel(&text, entry)?,
            },
            found => {
                found?;
                self.raw.kernel(&text, entry)?
            }
        };
        let Some(kernel) = kernel else {
            return Ok(Ran::NotRun);
        };
        // As callbox launches kernels that do not use their record.
        let record = match fenced.sites.len() {
            0 => 0,
            _ => self.record.address(),
        };
        self.launch(&kernel, launch, patience, Some(record))
    }

    /// Launches a kernel, with the address of a record as its last parameter if there is one.
    fn launch(
        &self,
        kernel: &Kernel,
        launch: &Launch,
        patience: Duration,
        record: Option<u64>,
    ) -> Result<Ran> {
        let Some(mut layout) = self.layout(launch) else {
            return Ok(Ran::NotRun);
        };
        if let Some(record) = record {
            layout.parameters.push(record.to_le_bytes().to_vec());
        }
        self.raw.write(&self.arena, 0, &layout.image)?;
        self.record.clear();
        if patience.is_zero() {
            self.record.stop();
        }
        // SAFETY: a fenced kernel checks its accesses, which is what this program tests; kernels
        // without a fence are this repository's, whose launches are in its data. The memory and the
        // record live until `wait_or_stop` has seen the stream pass, and are leaked if it hangs.
        let is_launched = unsafe { kernel.launch(launch, &layout.parameters) }?;
        if !is_launched {
            return Ok(Ran::NotRun);
        }
        let stopped_for = match self.raw.wait_or_stop(&self.record, patience)? {
            End::Passed { stopped_for } => stopped_for,
            End::Hung => return Ok(Ran::Hung),
        };
        let found = self.raw.read(&self.arena, 0, layout.image.len())?;
        let results = layout.check(&found)?;
        ensure!(
            self.record.is_intact(),
            "bytes around the record were written"
        );
        Ok(Ran::Ended(Ended {
            site: self.record.site(),
            stopped_for,
            results,
        }))
    }

    /// The results of a kernel of this repository, as its author wrote it and with its fence.
    ///
    /// # Errors
    /// A kernel that is refused, does not end, or notes a fault.
    pub(crate) fn both(
        &self,
        text: &str,
        entry: &str,
        launch: &Launch,
    ) -> Result<[Vec<Vec<u8>>; 2]> {
        let patience = Duration::from_secs(2);
        let fenced = match fenced(text, entry, launch, &Limits::default()) {
            Ok(fenced) => fenced,
            Err(refusals) => bail!("it was refused: {:?}", refusals.first()),
        };
        let results = |ran| match ran {
            Ran::Ended(ended) if ended.site == 0 => Ok(ended.results),
            Ran::Ended(ended) => bail!("it noted site {}", ended.site),
            Ran::NotRun => bail!("it was refused"),
            Ran::Crashed => bail!("the assembler crashed"),
            Ran::Hung => bail!("it did not end"),
        };
        let Some(plain) = self.raw.kernel(text, entry)? else {
            bail!("the driver refused the author's text");
        };
        let plain = results(self.launch(&plain, launch, patience, None)?)?;
        let fenced = results(self.run(&fenced, entry, launch, patience)?)?;
        Ok([plain, fenced])
    }

    /// Lays out the buffers of a launch. `None` if they do not fit.
    fn layout(&self, launch: &Launch) -> Option<Layout> {
        let base = self.arena.address();
        // The first offset at which an address has no alignment beyond a buffer's.
        let mut next = base.next_multiple_of(STEP) - base;
        let mut image = Vec::new();
        let (mut parameters, mut writable) = (Vec::new(), Vec::new());
        for param in &launch.params {
            match param {
                Param::Value(bytes) => parameters.push(bytes.clone()),
                Param::Buffer {
                    bytes,
                    writable: is_writable,
                    align,
                } => {
                    let start = next.checked_add(u64::from(*align))?;
                    let end = start.checked_add(*bytes)?;
                    next = end.checked_add(4096)?.next_multiple_of(STEP);
                    if next > ARENA as u64 {
                        return None;
                    }
                    let range = start as usize..end as usize;
                    image.resize(next as usize, CANARY);
                    image[range.clone()].copy_from_slice(&content(*bytes));
                    parameters.push((base + start).to_le_bytes().to_vec());
                    if *is_writable {
                        writable.push(range);
                    }
                }
            }
        }
        Some(Layout {
            image,
            parameters,
            writable,
        })
    }
}

impl Layout {
    /// Returns the results, if nothing else was written.
    fn check(&self, found: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut from = 0;
        let ends = self.writable.iter().map(|range| range.start);
        let ends = ends.chain([self.image.len()]);
        let starts = self.writable.iter().map(|range| range.end);
        for (end, next) in ends.zip(starts.chain([self.image.len()])) {
            if found[from..end] != self.image[from..end] {
                let at = (from..end).find(|&at| found[at] != self.image[at]);
                bail!("byte {at:?} of the memory was written, which no result has");
            }
            from = next;
        }
        let results = self
            .writable
            .iter()
            .map(|range| found[range.clone()].to_vec());
        Ok(results.collect())
    }
}
