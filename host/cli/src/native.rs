//! Loads the native code that a command line names. It needs a grant, unless it is PTX that can be
//! fenced.
#![allow(
    unsafe_code,
    reason = "loads native code that the user grants on the command line"
)]

mod argument;

pub(super) use argument::{NativeArgument, parse};

use std::path::{Path, PathBuf};
use std::sync::Arc;

use callbox::cuda::{CudaDevice, CudaModule, GraphLaunch, LibraryTarget, NativeGrants};
use callbox::policy::Gpu;
use callbox::program::{Executable, Program};
use callbox::{Registry, Result, Status};

use super::call::Loaded;
use super::failure::{Failure, Outcome};
use super::inspect::{is_library, manifest_in};
use super::output::DeviceName;
use super::platform::PlatformArguments;
use super::policy::PolicyArguments;
use super::progress;
use super::registered::Registered;
use super::regular_file;

/// Binds a program to native targets. Code that is neither granted nor fenced is refused before a
/// device is opened.
pub(super) fn compile(
    program: &Program,
    natives: &[NativeArgument],
    folders: &[PathBuf],
    platform: &PlatformArguments,
    policy: &PolicyArguments,
) -> Outcome<(Executable, DeviceName)> {
    let gpu = policy.read()?.gpu;
    let registry = registry(natives, folders, &grants(platform)?, &gpu)?;
    let device = open_device(platform)?;
    let name = name(&device);
    Ok((Executable::compile_on(program, &registry, device)?, name))
}

/// Loads a manifest or a library for one target. The name of a library's function may have its
/// convention behind it.
pub(super) fn load(
    path: &Path,
    target: &str,
    platform: &PlatformArguments,
    policy: &PolicyArguments,
) -> Outcome<Loaded> {
    let grants = grants(platform)?;
    let (module, target) = if is_library(path) {
        let target = argument::target(target)
            .map_err(|message| Failure::usage(Status::invalid_argument(message)))?;
        let module = load_library(path, std::slice::from_ref(&target), &grants)?;
        (module, target.name)
    } else {
        (
            load_manifest(&manifest_in(path), &grants, &policy.read()?.gpu)?,
            target.to_owned(),
        )
    };
    let device = open_device(platform)?;
    Ok(Loaded {
        module: module.on_device(&device),
        target,
        device: Some(name(&device)),
    })
}

/// Checks the digest of a grant.
pub(super) fn digest(text: &str) -> Result<String, String> {
    match NativeGrants::parse_digest(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(status) => Err(status.message().to_owned()),
    }
}

/// The grants of `--allow-native`.
fn grants(platform: &PlatformArguments) -> Result<NativeGrants> {
    let mut digests = platform.allow_native.iter();
    digests.try_fold(NativeGrants::none(), |grants, digest| {
        let digest = NativeGrants::parse_digest(digest)?;
        // SAFETY: with `--allow-native SHA256` the user vouches for the code with this digest,
        // which runs without a sandbox. The flag's help says so.
        Ok(unsafe { grants.allow(digest) })
    })
}

fn open_device(platform: &PlatformArguments) -> Result<Arc<CudaDevice>> {
    let ordinal = platform.device.unwrap_or(0);
    let text = || format!("opening CUDA device {ordinal}");
    progress::show(text, || CudaDevice::open(ordinal))
}

fn name(device: &CudaDevice) -> DeviceName {
    DeviceName {
        ordinal: device.ordinal(),
        name: device.name().to_owned(),
    }
}

/// The registry of the targets of manifests and libraries, and of the manifests in folders.
fn registry(
    natives: &[NativeArgument],
    folders: &[PathBuf],
    grants: &NativeGrants,
    gpu: &Gpu,
) -> Outcome<Registry> {
    let mut registered = Registered::new(GraphLaunch::default().module()?)?;
    let folders = folders.iter().cloned().map(NativeArgument::Manifest);
    for native in natives.iter().cloned().chain(folders) {
        let (path, module) = match native {
            NativeArgument::Manifest(path) => {
                let path = manifest_in(&path);
                let module = load_manifest(&path, grants, gpu)?;
                (path, module)
            }
            NativeArgument::Library { file, targets } => {
                let module = load_library(&file, &targets, grants)?;
                (file, module)
            }
        };
        registered.module(&path, &(module as _))?;
    }
    Ok(registered.into_registry()?)
}

fn load_manifest(path: &Path, grants: &NativeGrants, gpu: &Gpu) -> Outcome<Arc<CudaModule>> {
    check_readable(path)?;
    Ok(CudaModule::load_manifest(path, grants, gpu)?)
}

fn load_library(
    path: &Path,
    targets: &[LibraryTarget],
    grants: &NativeGrants,
) -> Outcome<Arc<CudaModule>> {
    check_readable(path)?;
    // SAFETY: the user names each function's convention on the command line
    // (`FILE.so:NAME@CONVENTION`), and vouches for the library with `--allow-native SHA256`. Help
    // and SECURITY.md say that native code is not sandboxed.
    Ok(unsafe { CudaModule::load_library(path, targets, grants) }?)
}

/// Refuses a file that cannot be opened as wrong usage, as every command does.
fn check_readable(path: &Path) -> Outcome<()> {
    regular_file::open(path).map(drop)
}
