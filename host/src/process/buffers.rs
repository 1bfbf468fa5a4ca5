//! The memory that a call's buffers lie in, shared with one worker. It is written to and read as a file: no address of this process is
//! ever that of memory which another process can change.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use crate::call::CallSite;
use crate::values::Shape;

/// Where a call site's buffers lie: the operands' leaves one after the other, and the results' leaves after them.
#[derive(Clone, Debug)]
pub(super) struct Places {
    pub(super) operands: Vec<usize>,
    pub(super) results: Vec<usize>,
    operand_bytes: usize,
    result_bytes: usize,
}

impl Places {
    pub(super) fn of(site: &CallSite) -> Self {
        let operands = site.operands.iter().flat_map(Shape::leaves);
        let operands: Vec<usize> = operands.map(|leaf| leaf.byte_size()).collect();
        let results = site.result.leaves().into_iter().enumerate();
        let results: Vec<usize> = results
            .map(|(i, leaf)| match site.scratch.contains(&i) {
                true => 0,
                false => leaf.byte_size(),
            })
            .collect();
        // Whether an arena has room for them is the worker's to say, before the memory gets its size.
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

    /// Bytes of both.
    pub(super) fn bytes(&self) -> usize {
        self.operand_bytes.saturating_add(self.result_bytes)
    }
}

/// Shared memory.
#[derive(Debug)]
pub(super) struct Buffers(File);

impl Buffers {
    /// Memory of no size yet.
    pub(super) fn new() -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        Ok(Self(memfd_create("callbox-buffers", flags)?.into()))
    }

    /// The same memory, for a worker.
    pub(super) fn share(&self) -> io::Result<OwnedFd> {
        Ok(self.0.try_clone()?.into())
    }

    /// The memory that a descriptor stands for.
    pub(super) fn from_shared(descriptor: OwnedFd) -> Self {
        Self(descriptor.into())
    }

    /// Gives it a size that nobody can change any more.
    pub(super) fn set_size(&self, bytes: usize) -> io::Result<()> {
        ftruncate(&self.0, bytes as u64)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        Ok(fcntl_add_seals(&self.0, seals)?)
    }

    /// Writes these, one after the other.
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

    /// Fills these, one after the other.
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
