//! Buffers that several threads share, with hooks on their reads.

use std::collections::HashSet;
use std::sync::Mutex;
use std::thread::{self, ThreadId};

use callbox::call::{CallBuffers, SharedBuffers};

/// Two operands, or one if the other is empty, and a result of the size of the first. `on_read`
/// sees the offset of each read of the first operand.
pub(crate) struct Hooked<'a> {
    pub(crate) x: Vec<u8>,
    pub(crate) w: Vec<u8>,
    pub(crate) y: Mutex<Vec<u8>>,
    pub(crate) writers: Mutex<HashSet<ThreadId>>,
    pub(crate) on_read: &'a (dyn Fn(usize) + Sync),
}

impl<'a> Hooked<'a> {
    pub(crate) fn new(x: Vec<u8>, w: Vec<u8>, on_read: &'a (dyn Fn(usize) + Sync)) -> Self {
        Self {
            y: Mutex::new(vec![0; x.len()]),
            x,
            w,
            writers: Mutex::default(),
            on_read,
        }
    }

    fn copy_in(&self, operand: usize, at: usize, into: &mut [u8]) {
        let from = if operand == 0 { &self.x } else { &self.w };
        if operand == 0 {
            (self.on_read)(at);
        }
        into.copy_from_slice(&from[at..at + into.len()]);
    }

    fn copy_out(&self, at: usize, bytes: &[u8]) {
        self.writers.lock().unwrap().insert(thread::current().id());
        self.y.lock().unwrap()[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

impl CallBuffers for Hooked<'_> {
    fn operands(&self) -> usize {
        1 + usize::from(!self.w.is_empty())
    }

    fn operand_size(&self, operand: usize) -> usize {
        [self.x.len(), self.w.len()][operand]
    }

    fn read(&self, operand: usize, at: usize, into: &mut [u8]) {
        self.copy_in(operand, at, into);
    }

    fn results(&self) -> usize {
        1
    }

    fn result_size(&self, _: usize) -> usize {
        self.x.len()
    }

    fn write(&mut self, _: usize, at: usize, bytes: &[u8]) {
        self.copy_out(at, bytes);
    }

    fn shared(&mut self) -> Option<Box<dyn SharedBuffers + '_>> {
        Some(Box::new(Shared(self)))
    }
}

struct Shared<'a>(&'a Hooked<'a>);

impl SharedBuffers for Shared<'_> {
    fn read(&self, operand: usize, at: usize, into: &mut [u8]) {
        self.0.copy_in(operand, at, into);
    }

    fn write(&self, _: usize, at: usize, bytes: &[u8]) {
        self.0.copy_out(at, bytes);
    }
}
