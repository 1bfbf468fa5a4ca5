//! Runs one kernel with its fence in memory of its own, without a driver. Everything but the
//! kernel's own buffers faults.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use callbox_ptx::fence::{Fault, Fenced, Record};
use callbox_ptx::verify::{Launch, Param};

use crate::ptx::{self, Memory, Shape};

/// Enough instructions of all threads for any kernel that ends.
pub const BUDGET: u64 = 1 << 29;

struct Buffer {
    bytes: Vec<u8>,
    writable: bool,
}

/// A device on which everything but the kernel's own buffers faults.
struct Device {
    buffers: Mutex<BTreeMap<u64, Buffer>>,
    globals: BTreeMap<String, u64>,
    record: u64,
    /// How often the stop word may be read as zero.
    looks: Mutex<u64>,
}

impl Device {
    fn new(
        launch: &Launch,
        module: &ptx::Module,
        looks: u64,
        content: fn(u64) -> Vec<u8>,
    ) -> (Self, Vec<u8>) {
        let mut buffers = BTreeMap::new();
        let mut globals = BTreeMap::new();
        let mut block: Vec<u8> = Vec::new();
        let mut next = 0x7_0000_0000_u64;
        let mut place =
            |buffers: &mut BTreeMap<u64, Buffer>, bytes: Vec<u8>, writable, align: u64| {
                let address = next + align;
                next = (address + bytes.len() as u64 + 4096).next_multiple_of(1 << 16);
                buffers.insert(address, Buffer { bytes, writable });
                address
            };
        for param in &launch.params {
            match param {
                Param::Buffer {
                    bytes,
                    writable,
                    align,
                } => {
                    let address =
                        place(&mut buffers, content(*bytes), *writable, u64::from(*align));
                    block.resize(block.len().next_multiple_of(8), 0);
                    block.extend(address.to_le_bytes());
                }
                Param::Value(bytes) => {
                    block.resize(block.len().next_multiple_of(bytes.len().max(1)), 0);
                    block.extend(bytes);
                }
            }
        }
        let record = place(&mut buffers, vec![0; Record::BYTES], true, 8);
        block.resize(block.len().next_multiple_of(8), 0);
        block.extend(record.to_le_bytes());
        for global in module.globals() {
            let address = place(
                &mut buffers,
                global.initial.clone(),
                false,
                global.align as u64,
            );
            globals.insert(global.name.clone(), address);
        }
        let looks = Mutex::new(looks);
        let device = Self {
            buffers: Mutex::new(buffers),
            globals,
            record,
            looks,
        };
        (device, block)
    }

    fn buffers(&self) -> MutexGuard<'_, BTreeMap<u64, Buffer>> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self) -> Vec<u8> {
        let buffers = self.buffers();
        let record = buffers.get(&self.record);
        record.map_or_else(Vec::new, |record| record.bytes.clone())
    }

    /// The contents of all buffers that can be written, in order, without the record.
    fn results(&self) -> Vec<Vec<u8>> {
        let buffers = self.buffers();
        let written = buffers
            .iter()
            .filter(|(at, one)| one.writable && **at != self.record);
        written.map(|(_, one)| one.bytes.clone()).collect()
    }
}

impl Memory for Device {
    fn load(&self, address: u64, bytes: &mut [u8]) -> Result<(), String> {
        if address == self.record && bytes.len() == 4 {
            let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
            let is_stop = *looks == 0;
            *looks = looks.saturating_sub(1);
            bytes.copy_from_slice(&u32::from(is_stop).to_le_bytes());
            return Ok(());
        }
        let buffers = self.buffers();
        let (start, buffer) = buffers
            .range(..=address)
            .next_back()
            .ok_or("no buffer is there")?;
        let offset = (address - start) as usize;
        let found = buffer
            .bytes
            .get(offset..offset + bytes.len())
            .ok_or("no buffer is there")?;
        bytes.copy_from_slice(found);
        Ok(())
    }

    fn store(&self, address: u64, bytes: &[u8]) -> Result<(), String> {
        let mut buffers = self.buffers();
        let (start, buffer) = buffers
            .range_mut(..=address)
            .next_back()
            .ok_or("no buffer is there")?;
        let offset = (address - start) as usize;
        if !buffer.writable {
            return Err("a canary is there".to_owned());
        }
        let found = buffer
            .bytes
            .get_mut(offset..offset + bytes.len())
            .ok_or("no buffer is there")?;
        found.copy_from_slice(bytes);
        Ok(())
    }

    fn global(&self, name: &str) -> Option<u64> {
        self.globals.get(name).copied()
    }
}

/// What a fenced kernel did.
#[derive(Debug)]
pub struct Outcome {
    /// The line and the fault that it noted, if it did.
    pub fault: Option<(u32, Fault)>,
    /// The number of the noted site, from 1, or 0.
    pub site: u32,
    /// The thread that noted it.
    pub thread: [u32; 3],
    /// The thread's block.
    pub block: [u32; 3],
    /// The noted offset.
    pub offset: i64,
    /// The contents of the buffers that it may write.
    pub results: Vec<Vec<u8>>,
}

fn word(record: &[u8], at: usize) -> u32 {
    let bytes = record.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Why a fenced kernel did not run to its end.
#[derive(Debug)]
pub enum Failure {
    /// The stand-in does not take the text, as an assembler would not.
    Text,
    /// The kernel took more instructions than it was given.
    Budget,
    /// What the fence must prevent.
    Fault(String),
}

/// Runs a fenced kernel on buffers of this content. The stop word is set after so many looks.
///
/// # Errors
/// Why it did not run to its end.
pub fn run(
    fenced: &Fenced,
    entry: &str,
    launch: &Launch,
    looks: u64,
    budget: u64,
    content: fn(u64) -> Vec<u8>,
) -> Result<Outcome, Failure> {
    let text = callbox_ptx::print(&fenced.module);
    let module = ptx::Module::parse(&text).map_err(|_| Failure::Text)?;
    let (device, mut block) = Device::new(launch, &module, looks, content);
    if fenced.sites.is_empty() {
        // A use of the record is a fault.
        let record = block.len() - 8;
        block[record..].fill(0);
    }
    let missing = |what: &str| Failure::Fault(what.to_owned());
    let kernel = module
        .entry(entry)
        .ok_or_else(|| missing("there is no such kernel"))?;
    let shape = Shape {
        grid: launch.grid,
        block: launch.block,
        shared_bytes: launch.shared_bytes,
    };
    ptx::launch_within(&module, kernel, shape, &block, &device, budget).map_err(|fault| {
        if fault.detail.contains("the launch takes too long") {
            Failure::Budget
        } else {
            Failure::Fault(format!("{fault}\n{text}"))
        }
    })?;
    let record = device.record();
    let site = word(&record, Record::SITE);
    let fault = match site.checked_sub(1) {
        None => None,
        Some(index) => {
            let site = fenced.sites.get(index as usize);
            let site = site.ok_or_else(|| missing("the record names no site"))?;
            Some((site.line, site.fault))
        }
    };
    let three = |at: usize| {
        [
            word(&record, at),
            word(&record, at + 4),
            word(&record, at + 8),
        ]
    };
    let offset = record.get(Record::OFFSET..).and_then(<[u8]>::first_chunk);
    let offset = offset.map_or(0, |bytes| i64::from_le_bytes(*bytes));
    Ok(Outcome {
        fault,
        site,
        thread: three(Record::THREAD),
        block: three(Record::BLOCK),
        offset,
        results: device.results(),
    })
}

/// Runs a kernel as its author wrote it. Returns the contents of the buffers that it may write.
///
/// # Errors
/// Text that cannot be read, and faults.
pub fn run_unfenced(
    text: &str,
    entry: &str,
    launch: &Launch,
    content: fn(u64) -> Vec<u8>,
) -> Result<Vec<Vec<u8>>, String> {
    let module = ptx::Module::parse(text).map_err(|error| error.to_string())?;
    let (device, mut block) = Device::new(launch, &module, 0, content);
    let kernel = module.entry(entry).ok_or("there is no such kernel")?;
    let bytes = kernel
        .parameters()
        .last()
        .map_or(0, |(offset, size)| offset + size);
    block.truncate(bytes);
    let shape = Shape {
        grid: launch.grid,
        block: launch.block,
        shared_bytes: launch.shared_bytes,
    };
    ptx::launch_within(&module, kernel, shape, &block, &device, BUDGET)
        .map_err(|fault| fault.to_string())?;
    Ok(device.results())
}
