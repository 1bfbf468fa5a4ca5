//! Memory for kernels under test, and helpers to launch them.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

pub(crate) mod single;

use std::collections::BTreeMap;
use std::sync::Mutex;

use callbox_cuda_stand_in::ptx::{self, Fault, Memory, Module, Shape};

/// Buffers with gaps between them.
#[derive(Default)]
pub(crate) struct Device {
    buffers: Mutex<BTreeMap<u64, Vec<u8>>>,
    globals: Mutex<BTreeMap<String, u64>>,
}

impl Device {
    /// Makes a device with a module's variables.
    pub(crate) fn with(module: &Module) -> Self {
        let device = Self::default();
        for global in module.globals() {
            let address = device.bytes(&global.initial);
            device
                .globals
                .lock()
                .unwrap()
                .insert(global.name.clone(), address);
        }
        for global in module.globals() {
            for relocation in &global.addresses {
                let address = device
                    .global(&relocation.name)
                    .unwrap()
                    .wrapping_add_signed(relocation.addend);
                let at = device.global(&global.name).unwrap() + relocation.offset as u64;
                device.store(at, &address.to_le_bytes()).unwrap();
            }
        }
        device
    }

    pub(crate) fn bytes(&self, content: &[u8]) -> u64 {
        let mut buffers = self.buffers.lock().unwrap();
        let address = 0x7_0000_0000 + 0x1_0000_0000 * buffers.len() as u64;
        buffers.insert(address, content.to_vec());
        address
    }

    /// Allocates a buffer with these elements and returns its address.
    pub(crate) fn buffer<T: Element>(&self, values: &[T]) -> u64 {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_bytes()).collect();
        self.bytes(&bytes)
    }

    pub(crate) fn read<T: Element>(&self, address: u64) -> Vec<T> {
        let buffers = self.buffers.lock().unwrap();
        buffers[&address]
            .chunks(size_of::<T>())
            .map(T::from_bytes)
            .collect()
    }

    fn with_range<R>(
        &self,
        address: u64,
        count: usize,
        act: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, String> {
        let mut buffers = self.buffers.lock().unwrap();
        if let Some((start, buffer)) = buffers.range_mut(..=address).next_back() {
            let offset = (address - start) as usize;
            if offset + count <= buffer.len() {
                return Ok(act(&mut buffer[offset..offset + count]));
            }
        }
        Err("no buffer is there".to_owned())
    }
}

impl Memory for Device {
    fn load(&self, address: u64, bytes: &mut [u8]) -> Result<(), String> {
        self.with_range(address, bytes.len(), |source| bytes.copy_from_slice(source))
    }

    fn store(&self, address: u64, bytes: &[u8]) -> Result<(), String> {
        self.with_range(address, bytes.len(), |target| target.copy_from_slice(bytes))
    }

    fn global(&self, name: &str) -> Option<u64> {
        self.globals.lock().unwrap().get(name).copied()
    }
}

pub(crate) trait Element: Copy {
    fn to_bytes(self) -> Vec<u8>;
    fn from_bytes(bytes: &[u8]) -> Self;
}

macro_rules! elements {
    ($($t:ty),*) => {
        $(impl Element for $t {
            fn to_bytes(self) -> Vec<u8> {
                self.to_le_bytes().to_vec()
            }
            fn from_bytes(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().unwrap())
            }
        })*
    };
}

elements!(u8, i16, i32, u32, i64, u64, f32, f64);

pub(crate) fn module(file: &str) -> Module {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/kernels")
        .join(file);
    Module::parse(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Launches one-dimensional blocks. Parameters are bytes.
pub(crate) fn launch(
    module: &Module,
    device: &Device,
    kernel: &str,
    (grid, block): (u32, u32),
    parameters: &[Vec<u8>],
) -> Result<(), Fault> {
    let shape = Shape {
        grid: [grid, 1, 1],
        block: [block, 1, 1],
        shared_bytes: 0,
    };
    launch_shape(module, device, kernel, shape, parameters)
}

pub(crate) fn launch_shape(
    module: &Module,
    device: &Device,
    kernel: &str,
    shape: Shape,
    parameters: &[Vec<u8>],
) -> Result<(), Fault> {
    let entry = module.entry(kernel).unwrap();
    let block = parameter_block(entry, parameters);
    ptx::launch_within(module, entry, shape, &block, device, 1 << 28)
}

pub(crate) fn parameter_block(entry: &ptx::Entry, parameters: &[Vec<u8>]) -> Vec<u8> {
    let mut block = Vec::new();
    assert_eq!(entry.parameters().len(), parameters.len());
    for (&(offset, size), parameter) in entry.parameters().iter().zip(parameters) {
        assert_eq!(size, parameter.len());
        block.resize(offset, 0);
        block.extend(parameter);
    }
    block
}

/// Generates irregular numbers, the same each time.
pub(crate) fn numbers(count: usize, mut state: u64) -> Vec<u64> {
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..count).map(|_| next()).collect()
}
