//! A thread's view of memory. Every access is checked.

use super::launch::Launch;
use super::types::{Space, from_generic};
use super::{FaultKind, body::POISON};

/// The maximum number of bytes that one instruction moves.
pub(super) const MOST_BYTES: usize = 32;

/// An invalid access.
pub(super) struct Trouble {
    pub(super) kind: FaultKind,
    pub(super) text: String,
}

/// The memory that a thread's current frame can access.
pub(super) struct Reach<'r> {
    pub(super) launch: &'r Launch<'r>,
    pub(super) shared: &'r mut [u8],
    pub(super) local: &'r mut [u8],
    pub(super) params: &'r mut [u8],
    /// The start of the frame's own parameter memory in `params`.
    pub(super) param_base: usize,
    /// Smaller parameter addresses belong to the launch's parameters.
    pub(super) block_bytes: usize,
}

fn illegal(text: &str) -> Trouble {
    Trouble {
        kind: FaultKind::IllegalAddress,
        text: text.to_owned(),
    }
}

/// Returns the range of `count` bytes at an address, if it is inside this memory.
fn within(address: u64, count: usize, length: usize) -> Option<std::ops::Range<usize>> {
    let start = usize::try_from(address).ok()?;
    let end = start.checked_add(count)?;
    (end <= length).then_some(start..end)
}

impl Reach<'_> {
    fn place(space: Space, address: u64, count: usize) -> Result<(Space, u64), Trouble> {
        if !address.is_multiple_of(count as u64) {
            let text = format!("the address is no multiple of {count}");
            return Err(Trouble {
                kind: FaultKind::MisalignedAddress,
                text,
            });
        }
        Ok(if space == Space::Generic {
            from_generic(address)
        } else {
            (space, address)
        })
    }

    fn shared_range(&self, address: u64, count: usize) -> Result<std::ops::Range<usize>, Trouble> {
        let range = within(address, count, self.shared.len());
        match range {
            Some(range) if self.launch.shared_has(&range) => Ok(range),
            _ => Err(illegal("no variable in shared memory is there")),
        }
    }

    fn param_range(&self, address: u64, count: usize) -> Result<std::ops::Range<usize>, Trouble> {
        let own = address - self.block_bytes as u64 + self.param_base as u64;
        within(own, count, self.params.len())
            .ok_or_else(|| illegal("parameter memory ends before it"))
    }

    /// Reads `bytes.len()` bytes, a power of two, from an address that must be a multiple of it.
    pub(super) fn load(&self, space: Space, address: u64, bytes: &mut [u8]) -> Result<(), Trouble> {
        let count = bytes.len();
        let (space, address) = Self::place(space, address, count)?;
        let source = match space {
            Space::Shared => &self.shared[self.shared_range(address, count)?],
            Space::Local => match within(address, count, self.local.len()) {
                Some(range) => &self.local[range],
                None => return Err(illegal("the thread's local memory ends before it")),
            },
            Space::Param if address < self.block_bytes as u64 => {
                match within(address, count, self.launch.parameters.len()) {
                    Some(range) => &self.launch.parameters[range],
                    None => return Err(illegal("the parameters that were given end before it")),
                }
            }
            Space::Param => &self.params[self.param_range(address, count)?],
            Space::Generic | Space::Global => {
                let loaded = self.launch.memory.load(address, bytes);
                return loaded.map_err(|text| Trouble {
                    kind: FaultKind::IllegalAddress,
                    text,
                });
            }
        };
        bytes.copy_from_slice(source);
        Ok(())
    }

    /// Writes bytes, under the conditions of [`Self::load`].
    pub(super) fn store(
        &mut self,
        space: Space,
        address: u64,
        bytes: &[u8],
    ) -> Result<(), Trouble> {
        let count = bytes.len();
        let (space, address) = Self::place(space, address, count)?;
        let target = match space {
            Space::Shared => {
                let range = self.shared_range(address, count)?;
                &mut self.shared[range]
            }
            Space::Local => match within(address, count, self.local.len()) {
                Some(range) => &mut self.local[range],
                None => return Err(illegal("the thread's local memory ends before it")),
            },
            Space::Param if address < self.block_bytes as u64 => {
                return Err(illegal("a kernel's parameters cannot be written to"));
            }
            Space::Param => {
                let range = self.param_range(address, count)?;
                &mut self.params[range]
            }
            Space::Generic | Space::Global => {
                let stored = self.launch.memory.store(address, bytes);
                return stored.map_err(|text| Trouble {
                    kind: FaultKind::IllegalAddress,
                    text,
                });
            }
        };
        target.copy_from_slice(bytes);
        Ok(())
    }
}

/// Fills memory up to this length with poison, so that older contents are gone.
pub(super) fn grow(memory: &mut Vec<u8>, length: usize) {
    memory.resize(length, POISON);
}
