//! A whole call of `broadcast_add` on large buffers, beside its lower bound: the kernel on data
//! already in guest memory, plus one copy of the operands and one of the result.

use callbox::CallSite;
use callbox::frame::{ArenaLayout, Frame};
use callbox::wasm::Engine;
use criterion::{BenchmarkId, Criterion, Throughput};

use crate::{bytes, floats, guest, raw};

/// Measures calls on buffers of 1 MiB and of 64 MiB.
pub fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("data_plane");
    for size in [1 << 20, 64 << 20] {
        let elements = size / 4;
        let name = format!("{}MiB", size >> 20);
        group.throughput(Throughput::Bytes(size as u64));
        let site = CallSite::new(
            "broadcast_add",
            vec![
                "f32[128]".parse().unwrap(),
                format!("f32[{elements}]").parse().unwrap(),
            ],
            format!("f32[{elements}]").parse().unwrap(),
        );
        let (b, c) = (bytes(&floats(128)), bytes(&floats(elements)));
        let mut a = vec![0; size];

        let mut kernel = KernelAlone::new(&site, &b, &c);
        let mut copy = vec![0; size];
        group.bench_function(BenchmarkId::new("kernel_and_copies", &name), |bencher| {
            bencher.iter(|| {
                copy.copy_from_slice(&c);
                kernel.call();
                a.copy_from_slice(&copy);
            });
        });

        let module = Engine::new()
            .unwrap()
            .load(&guest("broadcast_add"))
            .unwrap();
        let call = module.prepare_call(site).unwrap();
        group.bench_function(BenchmarkId::new("callbox", &name), |bencher| {
            bencher.iter(|| call.call(&[&b, &c], &mut [&mut a]).unwrap());
        });
    }
    group.finish();
}

/// A kernel whose frame and operands are already in guest memory: a call without its copies.
pub struct KernelAlone {
    guest: raw::Guest,
    target: wasmtime::TypedFunc<u32, u32>,
    frame: u32,
    result: usize,
}

impl KernelAlone {
    /// Lays out a call site of two operands in a raw instance. The guest and its target have the
    /// same name.
    #[must_use]
    pub fn new(site: &CallSite, first: &[u8], second: &[u8]) -> Self {
        let pre = raw::stoppable_module(&raw::engine(), &guest(&site.target));
        let layout = ArenaLayout::new(site, 1 << 30).unwrap();
        Self::instantiate(&pre, &site.target, &layout, [first, second])
    }

    /// Does the same in a new instance of a compiled module.
    #[must_use]
    pub fn instantiate(
        pre: &wasmtime::InstancePre<()>,
        target: &str,
        layout: &ArenaLayout,
        operands: [&[u8]; 2],
    ) -> Self {
        let mut guest = raw::Guest::new(pre);
        let target = guest.target(target);
        let arena = guest.reserve(layout.size());
        let memory = guest.memory.data_mut(&mut guest.store);
        for (place, data) in std::iter::zip(layout.operands(), operands) {
            memory[arena + place.offset..][..data.len()].copy_from_slice(data);
        }
        let image = layout.image(Frame::Whole, arena as u32);
        let frame = arena + layout.frame();
        memory[frame..][..image.bytes().len()].copy_from_slice(image.bytes());
        Self {
            guest,
            target,
            frame: frame as u32,
            result: arena + layout.results()[0].offset,
        }
    }

    /// Runs the kernel.
    pub fn call(&mut self) {
        let status = self.target.call(&mut self.guest.store, self.frame).unwrap();
        assert_eq!(status, 0);
    }

    /// Copies the result out.
    pub fn copy_result(&self, result: &mut [u8]) {
        let memory = self.guest.memory.data(&self.guest.store);
        result.copy_from_slice(&memory[self.result..][..result.len()]);
    }
}
