//! Device memory and pinned host memory. Every access is checked against the allocations.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, LazyLock};

use cudarc::driver::sys::CUresult;

/// The start of the first device's memory. Each device has a range of its own.
const FIRST: u64 = 0x7_0000_0000;
const RANGE: u64 = 0x100_0000_0000;
/// Inaccessible bytes after each allocation.
const GUARD: u64 = 64 << 10;
/// The alignment of device allocations, in bytes.
const ALIGN: u64 = 512;
/// The alignment of pinned host memory, in bytes.
const PAGE: usize = 4096;
/// The fill byte of fresh memory.
const POISON: u8 = 0xCD;

/// The maximum number of devices.
pub(crate) const DEVICES: usize = 8;

/// Returns whether an address is in the range of device memory, which never overlaps host memory.
pub(crate) fn is_device_address(address: u64) -> bool {
    (FIRST..FIRST + DEVICES as u64 * RANGE).contains(&address)
}

/// The place of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Device,
    /// Pinned host memory. Its real address is the same for host and devices.
    Host,
}

/// The owner of memory: the program, or a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Program,
    Module,
}

const PENDING: u8 = 0;
const READY: u8 = 1;
const FREED: u8 = 2;

/// An allocation. Its bytes are atomic, because the host writes pinned ones directly and kernels
/// may race on device ones.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) base: u64,
    pub(crate) size: usize,
    pub(crate) place: Place,
    pub(crate) owner: Owner,
    pub(crate) device: usize,
    pub(crate) context: usize,
    /// Never moved or resized: pinned memory is used at its real address.
    bytes: Vec<AtomicU8>,
    /// The start of the aligned memory in `bytes`.
    skip: usize,
    phase: AtomicU8,
    /// Whether the program has freed it, even if its stream has not reached that yet.
    released: AtomicU8,
}

impl Allocation {
    fn at(&self, address: u64, size: usize) -> Option<&[AtomicU8]> {
        let offset = usize::try_from(address.checked_sub(self.base)?).ok()?;
        (offset.checked_add(size)? <= self.size).then(|| {
            self.bytes
                .get(self.skip + offset..self.skip + offset + size)
        })?
    }

    /// Makes the allocation accessible, when its stream reaches it.
    pub(crate) fn begin(&self) {
        self.phase.store(READY, Ordering::Release);
    }

    /// Returns whether the program still holds it.
    pub(crate) fn is_held(&self) -> bool {
        self.released.load(Ordering::Acquire) == 0
    }
}

type Map = BTreeMap<u64, Arc<Allocation>>;

/// All memory.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Allocations by first address. A running kernel keeps the map as it was at its start.
    map: LazyLock<Arc<Map>>,
    /// For each device the next address, and the bytes in use.
    devices: BTreeMap<usize, (u64, u64)>,
    /// Whether freed addresses are reused, as a driver's pool does. Use after free is then not
    /// detected.
    pub(crate) reuse: bool,
    /// Reusable addresses, with their device and size.
    freed: Vec<(usize, usize, u64)>,
}

/// The properties of a new allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) size: usize,
    pub(crate) device: usize,
    pub(crate) context: usize,
    pub(crate) owner: Owner,
    /// Accessible at once, not only when its stream reaches it.
    pub(crate) ready: bool,
}

impl Memory {
    pub(crate) const fn new() -> Memory {
        Memory {
            map: LazyLock::new(Arc::default),
            devices: BTreeMap::new(),
            reuse: false,
            freed: Vec::new(),
        }
    }

    /// Allocates device memory. `capacity` is the device's size in bytes.
    pub(crate) fn allocate(
        &mut self,
        request: Request,
        capacity: u64,
    ) -> Result<Arc<Allocation>, CUresult> {
        let first = FIRST + request.device as u64 * RANGE;
        let (next, used) = self.devices.entry(request.device).or_insert((first, 0));
        let size = request.size as u64;
        let room = capacity.saturating_sub(*used);
        let end = next
            .checked_add(size)
            .and_then(|end| end.checked_add(GUARD))
            .filter(|end| *end < first + RANGE);
        let Some(end) = end.filter(|_| size <= room) else {
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        };
        let bytes = poisoned(request.size)?;
        // Take the lowest address, so that repeated programs get the same addresses.
        let freed = self.freed.iter().enumerate();
        let same = freed.filter(|(_, known)| (known.0, known.1) == (request.device, request.size));
        let known = same
            .min_by_key(|(_, known)| known.2)
            .map(|(place, _)| place);
        let base = match known.filter(|_| self.reuse) {
            Some(place) => self.freed.swap_remove(place).2,
            None => std::mem::replace(next, end.next_multiple_of(ALIGN)),
        };
        *used += size;
        Ok(self.insert(request, Place::Device, base, bytes, 0))
    }

    /// Allocates pinned host memory.
    pub(crate) fn pin(&mut self, request: Request) -> Result<Arc<Allocation>, CUresult> {
        let bytes = poisoned(
            request
                .size
                .checked_add(PAGE)
                .ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?,
        )?;
        let start = bytes.as_ptr().expose_provenance();
        let skip = start.next_multiple_of(PAGE) - start;
        Ok(self.insert(request, Place::Host, (start + skip) as u64, bytes, skip))
    }

    fn insert(
        &mut self,
        request: Request,
        place: Place,
        base: u64,
        bytes: Vec<AtomicU8>,
        skip: usize,
    ) -> Arc<Allocation> {
        let allocation = Arc::new(Allocation {
            base,
            size: request.size,
            place,
            owner: request.owner,
            device: request.device,
            context: request.context,
            bytes,
            skip,
            phase: AtomicU8::new(if request.ready { READY } else { PENDING }),
            released: AtomicU8::new(0),
        });
        Arc::make_mut(&mut self.map).insert(base, Arc::clone(&allocation));
        allocation
    }

    /// Releases the program's allocation at an address. A second release is an error.
    pub(crate) fn release(&mut self, base: u64, place: Place) -> Result<Arc<Allocation>, CUresult> {
        let found = self
            .map
            .get(&base)
            .filter(|found| found.place == place && found.owner == Owner::Program);
        let found = found
            .filter(|found| found.released.swap(1, Ordering::AcqRel) == 0)
            .cloned();
        let found = found.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        self.return_room(&found);
        Ok(found)
    }

    /// Removes an allocation; later accesses to it are faults.
    pub(crate) fn remove(&mut self, base: u64) {
        let Some(gone) = Arc::make_mut(&mut self.map).remove(&base) else {
            return;
        };
        gone.phase.store(FREED, Ordering::Release);
        if self.reuse && gone.place == Place::Device {
            self.freed.push((gone.device, gone.size, gone.base));
        }
        if gone.released.swap(1, Ordering::AcqRel) == 0 {
            self.return_room(&gone);
        }
    }

    /// Removes a context's memory.
    pub(crate) fn remove_context(&mut self, context: usize) {
        let gone: Vec<u64> = self
            .map
            .values()
            .filter(|found| found.context == context)
            .map(|found| found.base)
            .collect();
        for base in gone {
            self.remove(base);
        }
    }

    fn return_room(&mut self, of: &Allocation) {
        if of.place == Place::Device
            && let Some((_, used)) = self.devices.get_mut(&of.device)
        {
            *used -= of.size as u64;
        }
    }

    /// Returns the bytes in use on a device.
    pub(crate) fn used(&self, device: usize) -> u64 {
        self.devices.get(&device).map_or(0, |(_, used)| *used)
    }

    /// Returns the allocation that contains an address.
    pub(crate) fn find(&self, address: u64) -> Option<&Arc<Allocation>> {
        find(&self.map, address, 0)
    }

    /// Returns the allocation that contains a range of bytes.
    pub(crate) fn find_range(&self, address: u64, size: usize) -> Option<&Arc<Allocation>> {
        find(&self.map, address, size)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Allocation> {
        self.map.values().map(|allocation| &**allocation)
    }

    /// Returns memory as a device sees it; `None` sees all devices.
    pub(crate) fn view(&self, device: Option<usize>) -> View {
        View {
            map: Arc::clone(&self.map),
            device,
        }
    }
}

fn find(map: &Map, address: u64, size: usize) -> Option<&Arc<Allocation>> {
    let (_, found) = map.range(..=address).next_back()?;
    // The address past the end is valid only for empty ranges.
    (found.at(address, size.max(1)).is_some()).then_some(found)
}

fn poisoned(size: usize) -> Result<Vec<AtomicU8>, CUresult> {
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(size)
        .map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    bytes.resize_with(size, || AtomicU8::new(POISON));
    Ok(bytes)
}

/// Memory as one device sees it.
#[derive(Debug)]
pub(crate) struct View {
    map: Arc<Map>,
    device: Option<usize>,
}

impl View {
    fn at(&self, address: u64, size: usize) -> Result<&[AtomicU8], String> {
        let nearest = self
            .map
            .range(..=address)
            .next_back()
            .map(|(_, found)| found);
        let Some(nearest) = nearest else {
            return Err(format!(
                "{size} bytes at {address:#x}: nothing is allocated there"
            ));
        };
        let what = || {
            format!(
                "the allocation of {} bytes at {:#x}",
                nearest.size, nearest.base
            )
        };
        let Some(bytes) = nearest.at(address, size) else {
            let past = address - nearest.base;
            return Err(format!(
                "{size} bytes at {address:#x}: outside every allocation; byte {past} of {}, the nearest below",
                what()
            ));
        };
        if nearest.place == Place::Device
            && self.device.is_some_and(|device| device != nearest.device)
        {
            return Err(format!(
                "{size} bytes at {address:#x}: {} is another device's, {}",
                what(),
                nearest.device
            ));
        }
        match nearest.phase.load(Ordering::Acquire) {
            READY => Ok(bytes),
            PENDING => Err(format!(
                "{size} bytes at {address:#x}: the stream has not come to {}",
                what()
            )),
            _ => Err(format!(
                "{size} bytes at {address:#x}: {} was freed",
                what()
            )),
        }
    }

    /// Reads bytes, or says why the access is invalid.
    pub(crate) fn load(&self, address: u64, bytes: &mut [u8]) -> Result<(), String> {
        let found = self.at(address, bytes.len())?;
        for (to, from) in bytes.iter_mut().zip(found) {
            *to = from.load(Ordering::Relaxed);
        }
        Ok(())
    }

    /// Writes bytes, or says why the access is invalid.
    pub(crate) fn store(&self, address: u64, bytes: &[u8]) -> Result<(), String> {
        let found = self.at(address, bytes.len())?;
        for (from, to) in bytes.iter().zip(found) {
            to.store(*from, Ordering::Relaxed);
        }
        Ok(())
    }
}
