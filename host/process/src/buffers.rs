//! The memory of a call's buffers, shared with one worker.
//!
//! Both processes read and write it as a file. Neither maps it, so that no reference here ever
//! points to memory that another process can change.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::process::{Resource, getrlimit};

use callbox_core::call::CallSite;
use callbox_core::values::Shape;

/// The layout of a call site's buffers: the operands' leaves, then the results' leaves, without
/// gaps.
#[derive(Clone, Debug)]
pub(super) struct BufferLayout {
    /// Bytes of each operand's leaf.
    pub(super) operands: Vec<usize>,
    /// Bytes of each result's leaf. Scratch memory is not copied, and has none.
    pub(super) results: Vec<usize>,
    operand_bytes: usize,
    result_bytes: usize,
}

impl BufferLayout {
    pub(super) fn of(site: &CallSite) -> Self {
        let operands = site.operands.iter().flat_map(Shape::leaves);
        let operands: Vec<usize> = operands.map(|leaf| leaf.byte_size()).collect();
        let results = site.result.leaves().into_iter().enumerate();
        let results: Vec<usize> = results
            .map(|(i, leaf)| {
                if site.is_scratch(i) {
                    0
                } else {
                    leaf.byte_size()
                }
            })
            .collect();
        // The worker refuses buffers too large for an arena before the memory gets its size.
        let sum = |sizes: &[usize]| sizes.iter().fold(0_usize, |sum, &n| sum.saturating_add(n));
        Self {
            operand_bytes: sum(&operands),
            result_bytes: sum(&results),
            operands,
            results,
        }
    }

    /// Bytes of all operands.
    pub(super) fn operand_bytes(&self) -> usize {
        self.operand_bytes
    }

    /// Bytes of all results.
    pub(super) fn result_bytes(&self) -> usize {
        self.result_bytes
    }

    /// Bytes of all operands and results.
    pub(super) fn bytes(&self) -> usize {
        self.operand_bytes.saturating_add(self.result_bytes)
    }
}

/// Memory that is shared with a worker.
#[derive(Debug)]
pub(super) struct Buffers(File);

impl Buffers {
    /// Memory that has no size yet.
    pub(super) fn new() -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        Ok(Self(memfd_create("callbox-buffers", flags)?.into()))
    }

    /// The same memory, for a worker.
    pub(super) fn share(&self) -> io::Result<OwnedFd> {
        Ok(self.0.try_clone()?.into())
    }

    /// The memory behind a descriptor.
    pub(super) fn from_shared(descriptor: OwnedFd) -> Self {
        Self(descriptor.into())
    }

    /// Gives the memory its size and seals it: no process can change the size again.
    pub(super) fn set_size(&self, bytes: usize) -> io::Result<()> {
        // Past this limit, the kernel would send a signal that ends the process.
        let most = getrlimit(Resource::Fsize).current;
        if let Some(most) = most.filter(|most| *most < bytes as u64) {
            return Err(io::Error::other(format!(
                "the buffers of a call take {bytes} bytes of a memory file, and this process's limit on files (`ulimit -f`) is {most} bytes"
            )));
        }
        ftruncate(&self.0, bytes as u64)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        Ok(fcntl_add_seals(&self.0, seals)?)
    }

    /// Writes `parts`, one after the other, from byte `at` on.
    pub(super) fn write_all<'b>(
        &self,
        mut at: usize,
        parts: impl IntoIterator<Item = &'b [u8]>,
    ) -> io::Result<()> {
        for part in parts {
            self.0.write_all_at(part, at as u64)?;
            at += part.len();
        }
        Ok(())
    }

    /// Fills `parts`, one after the other, from byte `at` on.
    pub(super) fn read_exact<'b>(
        &self,
        mut at: usize,
        parts: impl IntoIterator<Item = &'b mut [u8]>,
    ) -> io::Result<()> {
        for part in parts {
            self.0.read_exact_at(part, at as u64)?;
            at += part.len();
        }
        Ok(())
    }
}
