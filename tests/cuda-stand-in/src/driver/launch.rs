//! Kernel launches.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cudarc::driver::sys::{CUDA_KERNEL_NODE_PARAMS, CUlaunchConfig, CUresult};

use super::device::{BLOCK, GRID, THREADS};
use super::foreign::{Array, Host};
use super::run::submit;
use super::{Guard, Needs, call};
use crate::ptx::Shape;
use crate::state::stream::{Launch, NodeWork};

/// CUDA_KERNEL_NODE_PARAMS, with the caller's arrays.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct KernelNodeParams {
    pub(super) function: usize,
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) shared_bytes: u32,
    pub(super) parameters: Array<Host>,
    pub(super) extra: Array<Host>,
    pub(super) kernel: usize,
    pub(super) context: usize,
}

/// CUlaunchConfig.
#[derive(Clone, Copy)]
#[repr(C)]
struct LaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    stream: usize,
    attributes: Array<u8>,
    attribute_count: u32,
}

const _: () = assert!(size_of::<KernelNodeParams>() == size_of::<CUDA_KERNEL_NODE_PARAMS>());
const _: () = assert!(size_of::<LaunchConfig>() == size_of::<CUlaunchConfig>());

/// Checks a launch on a device of its stream's context and copies its arguments.
pub(super) fn prepare(
    guard: &Guard,
    function: usize,
    shape: Shape,
    parameters: Array<Host>,
    extra: Array<Host>,
) -> Result<Launch, CUresult> {
    let bad = CUresult::CUDA_ERROR_INVALID_VALUE;
    let known = guard.functions.get(function)?;
    let module = guard.modules.get(known.module)?;
    let entry = module
        .module
        .entry(&known.name)
        .ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
    let fits = |sizes: [u32; 3], most: [u32; 3]| {
        sizes
            .iter()
            .zip(most)
            .all(|(size, most)| (1..=most).contains(size))
    };
    let threads: u64 = shape
        .block
        .iter()
        .map(|threads| u64::from(*threads))
        .product();
    let most_threads = entry
        .most_threads()
        .map_or(THREADS, |most| most.min(THREADS));
    let shape_fits =
        fits(shape.grid, GRID) && fits(shape.block, BLOCK) && threads <= u64::from(most_threads);
    if !shape_fits || shape.shared_bytes > known.max_dynamic_shared || !extra.is_null() {
        return Err(bad);
    }
    let wanted = entry.parameters();
    let places = parameters.read(wanted.len()).ok_or(bad)?;
    let mut bytes = vec![
        0;
        wanted
            .iter()
            .map(|(offset, size)| offset + size)
            .max()
            .unwrap_or(0)
    ];
    for ((offset, size), place) in wanted.iter().zip(places) {
        // SAFETY: the call names this place as a parameter's argument, which has this size.
        let argument = unsafe { place.read(*size) }?;
        bytes[*offset..offset + size].copy_from_slice(&argument);
    }
    Ok(Launch {
        function,
        module: Arc::clone(module),
        name: known.name.clone(),
        shape,
        parameters: bytes.into(),
    })
}

/// Checks that the kernel's module belongs to this context and is loaded.
pub(super) fn check_place(launch: &Launch, context: usize) -> Result<(), CUresult> {
    let fits = launch.module.context == context && !launch.module.unloaded.load(Ordering::Acquire);
    if fits {
        Ok(())
    } else {
        Err(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }
}

fn launch(
    guard: Guard,
    function: usize,
    shape: Shape,
    stream: usize,
    parameters: Array<Host>,
    extra: Array<Host>,
) -> Result<(), CUresult> {
    let stream = guard.stream(stream)?;
    let launch = prepare(&guard, function, shape, parameters, extra)?;
    check_place(&launch, guard.streams.get(stream)?.context)?;
    submit(guard, stream, NodeWork::Kernel(launch)).map(drop)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernel(
    function: usize,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared_bytes: u32,
    stream: usize,
    parameters: Array<Host>,
    extra: Array<Host>,
) -> CUresult {
    let shape = Shape {
        grid: [grid_x, grid_y, grid_z],
        block: [block_x, block_y, block_z],
        shared_bytes,
    };
    call("cuLaunchKernel", Needs::Context, |guard| {
        launch(guard, function, shape, stream, parameters, extra)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernelEx(
    config: Array<LaunchConfig>,
    function: usize,
    parameters: Array<Host>,
    extra: Array<Host>,
) -> CUresult {
    call("cuLaunchKernelEx", Needs::Context, |guard| {
        let config = config
            .read(1)
            .and_then(|read| read.first().copied())
            .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if config.attribute_count != 0 {
            // Clusters, cooperative launches and programmatic dependencies are not supported.
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let shape = Shape {
            grid: config.grid,
            block: config.block,
            shared_bytes: config.shared_bytes,
        };
        launch(guard, function, shape, config.stream, parameters, extra)
    })
}
