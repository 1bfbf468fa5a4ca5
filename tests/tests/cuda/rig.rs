//! Shared parts of the tests: exclusive use of the stand-in, and programs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use callbox::cuda::{CudaDevice, CudaModule, GraphLaunch, NativeGrants};
use callbox::policy::Gpu;
use callbox::program::{Executable, ExecuteOptions, Program};
use callbox::{Literal, Registry, Result};
use callbox_cuda_stand_in::{Mode, StandIn};
use callbox_tests::platform::cuda::trusted;

/// Exclusive use of the stand-in, reset and with two devices, while the guard is held.
pub(crate) fn alone() -> (MutexGuard<'static, ()>, &'static StandIn) {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let stand_in = StandIn::preload();
    renew(stand_in);
    (guard, stand_in)
}

/// Resets the stand-in. callbox initialises the driver only once, so that later tests need it
/// initialised here.
pub(crate) fn renew(stand_in: &StandIn) {
    stand_in.reset();
    stand_in.set_devices(2);
    cudarc::driver::result::init().unwrap();
}

/// Both ways in which the stand-in executes streams.
pub(crate) const MODES: [Mode; 2] = [Mode::Eager, Mode::Lazy];

pub(crate) fn guests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../guests")
}

/// The targets of a guest's manifest.
pub(crate) fn kernels(guest: &str) -> Arc<CudaModule> {
    trusted::manifest(&guests().join(guest).join("callbox.json")).unwrap()
}

/// The targets of a guest's manifest, without a grant.
pub(crate) fn fenced(guest: &str) -> Arc<CudaModule> {
    let path = guests().join(guest).join("callbox.json");
    CudaModule::load_manifest(&path, &NativeGrants::none(), &Gpu::default()).unwrap()
}

/// The sample kernels and `callbox.graph.launch`.
pub(crate) fn registry(graphs: &GraphLaunch) -> Registry {
    registry_of(graphs, kernels)
}

/// The sample kernels, loaded in this way, and `callbox.graph.launch`.
pub(crate) fn registry_of(graphs: &GraphLaunch, load: fn(&str) -> Arc<CudaModule>) -> Registry {
    let mut registry = Registry::new();
    registry.register_module(load("add_n")).unwrap();
    registry.register_module(load("broadcast_add")).unwrap();
    registry.register_module(graphs.module().unwrap()).unwrap();
    registry
}

/// A device of the renewed stand-in in this mode, and a registry with `callbox.graph.launch` alone.
pub(crate) fn graphs_alone(
    stand_in: &StandIn,
    mode: Mode,
) -> (Arc<CudaDevice>, GraphLaunch, Registry) {
    renew(stand_in);
    stand_in.set_mode(mode);
    stand_in.set_reuse(true);
    let graphs = GraphLaunch::default();
    let mut registry = Registry::new();
    registry.register_module(graphs.module().unwrap()).unwrap();
    (CudaDevice::open(0).unwrap(), graphs, registry)
}

/// A program on a device.
pub(crate) fn compile(
    text: &str,
    registry: &Registry,
    device: &Arc<CudaDevice>,
) -> Result<Executable> {
    let program = Program::from_hlo_text(text).unwrap();
    Executable::compile_on(&program, registry, device.clone())
}

pub(crate) fn execute(executable: &Executable, arguments: &[Literal]) -> Result<Literal> {
    executable.execute(0, arguments, &ExecuteOptions::default())
}

pub(crate) fn floats(values: &[f32]) -> Literal {
    Literal::array(&[values.len()], values).unwrap()
}

/// A target `copy`, from its operand to its result.
pub(crate) fn copying() -> Arc<CudaModule> {
    let copy = callbox::cuda::CudaTarget::new("copy", |call| {
        let (from, to) = (call.operands()[0], call.results()[0]);
        let (from, to) = (Arc::clone(from.memory()), Arc::clone(to.memory()));
        callbox::call::DeviceQueue::copy(call.queue(), &from, &to)
    });
    CudaModule::from_targets([copy]).unwrap()
}
