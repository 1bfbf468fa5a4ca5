//! The constants of a launch.

use super::code::{Patch, Slot, Special};
use super::module::{Entry, Module};
use super::{Fault, FaultKind, Memory, Shape};

/// Unowned bytes between shared variables, by which an access past a variable's end is detected.
const GAP: usize = 64;

pub(super) struct Launch<'l> {
    pub(super) module: &'l Module,
    pub(super) entry: &'l Entry,
    pub(super) shape: Shape,
    pub(super) parameters: &'l [u8],
    pub(super) memory: &'l dyn Memory,
    /// The initial slots of each function's frames that are the same for all threads.
    pub(super) templates: Vec<Vec<u64>>,
    /// The slots left to fill in for each thread and frame.
    pub(super) rest: Vec<Vec<(Slot, Patch)>>,
    pub(super) shared_bytes: usize,
    shared_ranges: Vec<(usize, usize)>,
}

impl<'l> Launch<'l> {
    pub(super) fn new(
        module: &'l Module,
        entry: &'l Entry,
        shape: Shape,
        parameters: &'l [u8],
        memory: &'l dyn Memory,
    ) -> Result<Self, Fault> {
        let mut launch = Self {
            module,
            entry,
            shape,
            parameters,
            memory,
            templates: Vec::with_capacity(module.functions.len()),
            rest: Vec::with_capacity(module.functions.len()),
            shared_bytes: 0,
            shared_ranges: Vec::new(),
        };
        let offsets = launch.place_shared();
        for function in &module.functions {
            let mut template = function.template.clone();
            let mut rest = Vec::new();
            for (slot, patch) in &function.patches {
                match launch.known(patch, &offsets)? {
                    Some(value) => template[*slot as usize] = value,
                    None => rest.push((*slot, patch.clone())),
                }
            }
            launch.templates.push(template);
            launch.rest.push(rest);
        }
        Ok(launch)
    }

    /// Assigns shared memory to the entry's variables. Returns the offset of each of the module's
    /// variables.
    fn place_shared(&mut self) -> Vec<u64> {
        let mut offsets = vec![0; self.module.shared.len()];
        let mut end = 0_usize;
        let is_reached =
            |owner: Option<usize>| owner.is_none_or(|owner| owner == self.entry.function);
        for (variable, offset) in self.module.shared.iter().zip(&mut offsets) {
            if variable.is_dynamic || !is_reached(variable.owner) {
                continue;
            }
            let start = end.next_multiple_of(variable.align);
            self.shared_ranges.push((start, start + variable.size));
            *offset = start as u64;
            end = start + variable.size + GAP;
        }
        // All dynamic variables share one address after the others.
        let dynamic = self
            .module
            .shared
            .iter()
            .filter(|variable| variable.is_dynamic);
        let align = dynamic
            .map(|variable| variable.align)
            .max()
            .unwrap_or(1)
            .max(16);
        let start = end.next_multiple_of(align);
        for (variable, offset) in self.module.shared.iter().zip(&mut offsets) {
            if variable.is_dynamic {
                *offset = start as u64;
            }
        }
        self.shared_ranges
            .push((start, start + self.shape.shared_bytes as usize));
        self.shared_bytes = start + self.shape.shared_bytes as usize;
        offsets
    }

    pub(super) fn shared_has(&self, range: &std::ops::Range<usize>) -> bool {
        self.shared_ranges
            .iter()
            .any(|&(start, end)| range.start >= start && range.end <= end)
    }

    fn known(&self, patch: &Patch, shared: &[u64]) -> Result<Option<u64>, Fault> {
        let Shape {
            grid,
            block,
            shared_bytes,
        } = self.shape;
        let value = match patch {
            Patch::Shared(place) => shared[*place],
            Patch::Global(name) => self.memory.global(name).ok_or_else(|| Fault {
                kind: FaultKind::IllegalAddress,
                detail: format!(
                    "variable {name:?}, which {} is linked with, has no address",
                    self.entry.name
                ),
            })?,
            Patch::Local(_) => return Ok(None),
            Patch::Special(special) => match special {
                Special::BlockSize(dimension) => u64::from(block[*dimension]),
                Special::GridSize(dimension) => u64::from(grid[*dimension]),
                Special::Warps => u64::from(self.threads().div_ceil(32)),
                Special::DynamicShared => u64::from(shared_bytes),
                Special::TotalShared => self.shared_bytes as u64,
                Special::Zero => 0,
                Special::One => 1,
                _ => return Ok(None),
            },
        };
        Ok(Some(value))
    }

    /// Returns the number of threads per block.
    pub(super) fn threads(&self) -> u32 {
        self.shape.block.iter().product()
    }
}
