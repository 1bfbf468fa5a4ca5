//! Device memory and pinned host memory: every access is checked against what was allocated.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, LazyLock};

use cudarc::driver::sys::CUresult;

/// Where the first device's memory begins; each device has a range of its own.
const FIRST: u64 = 0x7_0000_0000;
const RANGE: u64 = 0x100_0000_0000;
/// What nobody may touch behind each allocation, in bytes.
const GUARD: u64 = 64 << 10;
/// What device allocations are aligned to, in bytes.
const ALIGN: u64 = 512;
/// What pinned host memory is aligned to, in bytes.
const PAGE: usize = 4096;
/// What fresh memory is full of.
const POISON: u8 = 0xCD;

/// How many devices there can be.
pub(crate) const DEVICES: usize = 8;

/// Whether an address is one that device memory could have: never one of the host.
pub(crate) fn is_device_address(address: u64) -> bool {
    (FIRST..FIRST + DEVICES as u64 * RANGE).contains(&address)
}

/// Where memory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Device,
    /// Pinned memory of the host. Its address is a real one, the same for host and devices.
    Host,
}

/// Whether the program holds memory, or a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Program,
    Module,
}

const PENDING: u8 = 0;
const READY: u8 = 1;
const FREED: u8 = 2;

/// One allocation. Its bytes are atomic: the host writes pinned ones behind our back, and two kernels may race for device ones.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) base: u64,
    pub(crate) size: usize,
    pub(crate) place: Place,
    pub(crate) owner: Owner,
    pub(crate) device: usize,
    pub(crate) context: usize,
    /// Never moved and never resized: pinned memory is used at its real address.
    bytes: Vec<AtomicU8>,
    /// Where in `bytes` it begins.
    skip: usize,
    phase: AtomicU8,
    /// The program gave it back, be it that the stream has not come to it yet.
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

    /// What the stream does when it comes to the allocation.
    pub(crate) fn begin(&self) {
        self.phase.store(READY, Ordering::Release);
    }

    /// Whether the program still holds it.
    pub(crate) fn is_held(&self) -> bool {
        self.released.load(Ordering::Acquire) == 0
    }
}

type Map = BTreeMap<u64, Arc<Allocation>>;

/// All memory there is.
#[derive(Debug)]
pub(crate) struct Memory {
    /// By first address. A running kernel keeps the map as it was when it began.
    map: LazyLock<Arc<Map>>,
    /// For each device the next address, and the bytes in use.
    devices: BTreeMap<usize, (u64, u64)>,
    /// Whether addresses that were given back are given out again, as a driver's pool does: what is used too late is not found then.
    pub(crate) reuse: bool,
    /// Such addresses: of which device, and for how many bytes.
    freed: Vec<(usize, usize, u64)>,
}

/// What an allocation is asked to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) size: usize,
    pub(crate) device: usize,
    pub(crate) context: usize,
    pub(crate) owner: Owner,
    /// It may be touched from now on, not only once its stream has come to it.
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

    /// Allocates device memory, `capacity` being what the device has in bytes.
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
        // The lowest, so that who does the same again finds the same.
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

    /// The program's allocation that begins at an address. The program gives it back: a second time is an error.
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

    /// Its bytes are gone: who touches them now touches nothing.
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

    /// Lets go of a context's memory.
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

    /// Bytes in use on a device.
    pub(crate) fn used(&self, device: usize) -> u64 {
        self.devices.get(&device).map_or(0, |(_, used)| *used)
    }

    /// The allocation that holds an address.
    pub(crate) fn find(&self, address: u64) -> Option<&Arc<Allocation>> {
        find(&self.map, address, 0)
    }

    /// The allocation that holds a range of bytes.
    pub(crate) fn find_range(&self, address: u64, size: usize) -> Option<&Arc<Allocation>> {
        find(&self.map, address, size)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Allocation> {
        self.map.values().map(|allocation| &**allocation)
    }

    /// What a device sees; `None` sees all devices.
    pub(crate) fn view(&self, device: Option<usize>) -> View {
        View {
            map: Arc::clone(&self.map),
            device,
        }
    }
}

fn find(map: &Map, address: u64, size: usize) -> Option<&Arc<Allocation>> {
    let (_, found) = map.range(..=address).next_back()?;
    // One past the end belongs to nobody, unless nothing is read there.
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

    /// Reads bytes, or says why not.
    pub(crate) fn load(&self, address: u64, bytes: &mut [u8]) -> Result<(), String> {
        let found = self.at(address, bytes.len())?;
        for (to, from) in bytes.iter_mut().zip(found) {
            *to = from.load(Ordering::Relaxed);
        }
        Ok(())
    }

    /// Writes bytes, or says why not.
    pub(crate) fn store(&self, address: u64, bytes: &[u8]) -> Result<(), String> {
        let found = self.at(address, bytes.len())?;
        for (from, to) in bytes.iter().zip(found) {
            to.store(*from, Ordering::Relaxed);
        }
        Ok(())
    }
}
