//! What the tests share: the stand-in, one test at a time, and programs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use callbox::cuda::{CudaDevice, CudaModule, GraphLaunch, NativeGrants, manifest::Manifest};
use callbox::program::{Executable, ExecuteOptions, Program};
use callbox::{Literal, Registry, Result};
use callbox_cuda_stand_in::{Mode, StandIn};

/// The stand-in as new, with two devices, for as long as the guard is held.
pub(crate) fn alone() -> (MutexGuard<'static, ()>, &'static StandIn) {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let stand_in = StandIn::preload();
    renew(stand_in);
    (guard, stand_in)
}

/// Makes the stand-in as new. callbox asks once whether there is a driver, which initialises it: that is done here for those who come later.
pub(crate) fn renew(stand_in: &StandIn) {
    stand_in.reset();
    stand_in.set_devices(2);
    cudarc::driver::result::init().unwrap();
}

/// Both ways in which streams are worked off.
pub(crate) const MODES: [Mode; 2] = [Mode::Eager, Mode::Lazy];

pub(crate) fn guests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../guests")
}

/// The targets of a guest's manifest, whatever its digest.
pub(crate) fn kernels(guest: &str) -> Arc<CudaModule> {
    let folder = guests().join(guest);
    let text = std::fs::read_to_string(folder.join("callbox.json")).unwrap();
    let manifest = Manifest::parse(&text).unwrap();
    let images: Vec<Vec<u8>> = manifest
        .images
        .iter()
        .map(|image| std::fs::read(folder.join(&image.file)).unwrap())
        .collect();
    let slices: Vec<&[u8]> = images.iter().map(Vec::as_slice).collect();
    let digest = callbox::cuda::manifest::digest(text.as_bytes(), &slices);
    let grants = NativeGrants::none().allow(digest);
    CudaModule::from_manifest(&text, images, &grants).unwrap()
}

/// The sample kernels and `callbox.graph.launch`.
pub(crate) fn registry(graphs: &GraphLaunch) -> Registry {
    let mut registry = Registry::new();
    registry.register_module(kernels("add_n")).unwrap();
    registry.register_module(kernels("broadcast_add")).unwrap();
    registry.register_module(graphs.module().unwrap()).unwrap();
    registry
}

/// A program on a device.
pub(crate) fn compile(
    text: &str,
    registry: &Registry,
    device: &Arc<CudaDevice>,
) -> Result<Executable> {
    let program = Program::from_hlo_text(text).unwrap();
    Executable::compile_on(&program, registry, Arc::new(Arc::clone(device)))
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
