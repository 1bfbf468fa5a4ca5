//! Loads the native code that a command line names. It needs a grant, unless it is PTX that can be
//! fenced.
#![allow(
    unsafe_code,
    reason = "loads native code that the user grants on the command line"
)]

mod argument;

pub(super) use argument::{NativeArgument, parse};

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callbox::call::TargetModule;
use callbox::cuda::{CudaDevice, CudaModule, GraphLaunch, LibraryTarget, NativeGrants};
use callbox::policy::Gpu;
use callbox::program::{Executable, Program};
use callbox::{CallOptions, Registry, Result, Status};
use callbox_package::{Limits, Package, Trust};

use super::call::Loaded;
use super::failure::{Failure, Outcome};
use super::inspect::{Kind, is_library, manifest_in, native_digest};
use super::lock::Lock;
use super::observe::Observer;
use super::output::DeviceName;
use super::package::{self, twin};
use super::platform::PlatformArguments;
use super::policy::PolicyArguments;
use super::progress;
use super::registered::Registered;
use super::{regular_file, signing};

/// Binds a program to native targets. Returns the options of its execution, too, whose time has
/// begun. Code that is neither granted nor fenced is refused before a
/// device is opened.
pub(super) fn compile(
    program: &Program,
    natives: &[NativeArgument],
    folders: &[PathBuf],
    platform: &PlatformArguments,
    policy: &PolicyArguments,
    observer: &Arc<Observer>,
) -> Outcome<(Executable, DeviceName, CallOptions)> {
    let loader = Loader::new(platform, policy)?;
    let observed = |module, path: &Path| observer.native_module(module, path, policy);
    let registry = registry(natives, folders, &loader, observed)?;
    let device = open_device(platform)?;
    let name = name(&device);
    let mut options = policy.call_options().from_now_on();
    let executable = Executable::compile_within(program, &registry, Some(device), &mut options)?;
    Ok((executable, name, options))
}

/// Loads a manifest or a library for one target. The name of a library's function may have its
/// convention behind it.
pub(super) fn load(
    path: &Path,
    target: &str,
    platform: &PlatformArguments,
    policy: &PolicyArguments,
    observer: &Arc<Observer>,
) -> Outcome<Loaded> {
    let loader = Loader::new(platform, policy)?;
    let (module, target) = if is_library(path) && package::tensor_in(path).is_none() {
        let target = argument::target(target)
            .map_err(|message| Failure::usage(Status::invalid_argument(message)))?;
        let module = loader.library(path, std::slice::from_ref(&target))?;
        (module, target.name)
    } else {
        (loader.manifest(&manifest_in(path))?, target.to_owned())
    };
    let device = open_device(platform)?;
    Ok(Loaded {
        file: None,
        module: observer.native_module(module.on_device(&device), path, policy)?,
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

/// Loads the twin of a package onto a device.
pub(super) fn load_twin(
    path: &Path,
    package: &Package<'_>,
    platform: &PlatformArguments,
    policy: &PolicyArguments,
) -> Outcome<(Arc<dyn TargetModule>, DeviceName)> {
    let module = Loader::new(platform, policy)?.twin(path, package)?;
    let device = open_device(platform)?;
    Ok((module.on_device(&device), name(&device)))
}

/// The grants of digests of `--allow-native`.
fn grants<'a>(mut digests: impl Iterator<Item = &'a String>) -> Result<NativeGrants> {
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
    loader: &Loader,
    observed: impl Fn(Arc<dyn TargetModule>, &Path) -> Outcome<Arc<dyn TargetModule>>,
) -> Outcome<Registry> {
    let mut registered = Registered::new(GraphLaunch::default().module()?)?;
    let folders = folders.iter().cloned().map(NativeArgument::Manifest);
    for native in natives.iter().cloned().chain(folders) {
        let (path, module) = match native {
            NativeArgument::Manifest(path) => {
                let path = manifest_in(&path);
                let module = loader.manifest(&path)?;
                (path, module)
            }
            NativeArgument::Library { file, targets } => {
                let module = loader.library(&file, &targets)?;
                (file, module)
            }
        };
        registered.module(&path, &observed(module, &path)?)?;
    }
    Ok(registered.into_registry()?)
}

/// Loads native code with the grants, the lock and the rules about signatures of a command.
struct Loader {
    /// The digests of `--allow-native`.
    granted: Vec<String>,
    grants: NativeGrants,
    gpu: Gpu,
    lock: Option<Lock>,
    trust: Option<Trust>,
}

impl Loader {
    fn new(platform: &PlatformArguments, policy: &PolicyArguments) -> Outcome<Self> {
        Ok(Self {
            granted: platform.allow_native.clone(),
            grants: grants(platform.allow_native.iter())?,
            gpu: policy.read()?.gpu,
            lock: policy.lock()?,
            trust: policy.trust()?,
        })
    }

    /// Loads a manifest, or the one of a package.
    fn manifest(&self, path: &Path) -> Outcome<Arc<CudaModule>> {
        let is_beside_weights = package::tensor_in(path).is_some();
        if !is_beside_weights {
            check_readable(path)?;
        }
        let end = path.extension();
        if is_beside_weights || end.is_some_and(|extension| extension == "wasm") {
            return self.package(path);
        }
        signing::check_native(self.trust.as_ref(), path)?;
        let module = CudaModule::load_manifest(path, &self.grants, &self.gpu)?;
        for file in module.image_files().collect::<BTreeSet<_>>() {
            signing::check_native(self.trust.as_ref(), &path.with_file_name(file))?;
        }
        if let Some(lock) = &self.lock {
            // The identity ends with the digest of the bytes that were loaded. No kernel has run.
            let digest = module.identity().rsplit(':').next().unwrap_or_default();
            lock.check_digest(path, digest)?;
        }
        Ok(module)
    }

    fn package(&self, path: &Path) -> Outcome<Arc<CudaModule>> {
        let bytes = package::read_file(path)?;
        let in_file = |status: Status| Failure::from(status.context(path.display()));
        let package = callbox_package::read(&bytes, &Limits::default()).map_err(in_file)?;
        if let Some(lock) = &self.lock {
            lock.check(path, &package.sha256(), bytes.len() as u64)?;
        }
        signing::check_module(self.trust.as_ref(), path, &bytes)?;
        self.twin(path, &package)
            .map_err(|failure| failure.context(path.display()))
    }

    /// Loads the twin of a package, with the grant of the rule for its signature.
    fn twin(&self, path: &Path, package: &Package<'_>) -> Outcome<Arc<CudaModule>> {
        let mut grants = self.grants.clone();
        if signing::grants_native(self.trust.as_ref(), path, package.bytes())?
            && let Some(digest) = twin::digest(package)?
        {
            // SAFETY: with `"native": true` in a rule of `--trust`, the user vouches for the native
            // code of each package that the rule's keys signed. `grants_native` has checked the
            // signature of these bytes, which contain the code with this digest.
            grants = unsafe { grants.allow(digest) };
        }
        Ok(twin::load(package, &grants, &self.gpu)?)
    }

    fn library(&self, path: &Path, targets: &[LibraryTarget]) -> Outcome<Arc<CudaModule>> {
        check_readable(path)?;
        signing::check_native(self.trust.as_ref(), path)?;
        let mut grants = self.grants.clone();
        if let Some(lock) = &self.lock {
            let (digest, size) = native_digest(Kind::Library, path)?;
            lock.check(path, &digest, size)?;
            // Loading runs the library's code. If the file changes in between, its digest has no
            // grant.
            let locked = |granted: &&String| granted.eq_ignore_ascii_case(&digest);
            grants = self::grants(self.granted.iter().filter(locked))?;
        }
        // SAFETY: the user names each function's convention on the command line
        // (`FILE.so:NAME@CONVENTION`), and vouches for the library with `--allow-native SHA256`.
        // Help and SECURITY.md say that native code is not sandboxed.
        Ok(unsafe { CudaModule::load_library(path, targets, &grants) }?)
    }
}

/// Refuses a file that cannot be opened as wrong usage, as every command does.
fn check_readable(path: &Path) -> Outcome<()> {
    regular_file::open(path).map(drop)
}
