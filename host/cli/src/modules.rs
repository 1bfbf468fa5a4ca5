//! Loads the .wasm modules that a command line names, and registers their targets.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callbox::Registry;
use callbox::call::TargetModule;
use callbox::graph_launch::GraphLaunch;
use callbox::policy::Grants;
use callbox::wasm::ModuleFile;
use callbox_package::Trust;

use super::arguments::TargetArgument;
use super::backend::Backend;
use super::failure::{Failure, Outcome};
use super::lock::Lock;
use super::observe::Observer;
use super::policy::PolicyArguments;
use super::progress;
use super::registered::Registered;
use super::{regular_file, signing};

/// The first bytes of every WebAssembly file.
pub(super) const MAGIC: &[u8] = b"\0asm";

/// The registry of the targets that `--target` and `--targets` name.
pub(super) fn registry(
    targets: &[TargetArgument],
    folders: &[PathBuf],
    policy: &PolicyArguments,
    observer: &Arc<Observer>,
) -> Outcome<Registry> {
    let mut files: Vec<_> = targets
        .iter()
        .map(|target| (target.file.clone(), Some((&*target.name, &*target.export))))
        .collect();
    for folder in folders {
        files.extend(modules_in(folder)?.into_iter().map(|file| (file, None)));
    }
    let mut registered = Registered::new(GraphLaunch::on_host())?;
    if files.is_empty() {
        return Ok(registered.into_registry()?);
    }
    let mut loader = Loader::new(policy)?;
    loader.observer = Arc::clone(observer);
    let count = files.len();
    for (i, (path, target)) in files.into_iter().enumerate() {
        loader.progress = format!(" ({} of {count})", i + 1);
        let file = loader.open(&path)?;
        if let Some((name, export)) = target {
            let module = loader.load(&file, name)?;
            registered.target(&path, &module, name, export)?;
            continue;
        }
        for target in &file.contents.info().targets {
            let module = loader.load(&file, &target.name)?;
            registered.target_in_folder(&path, &module, &target.name)?;
        }
    }
    Ok(registered.into_registry()?)
}

/// Loads one module, for its target of this name.
pub(super) fn load(
    path: &Path,
    target: &str,
    policy: &PolicyArguments,
    observer: &Arc<Observer>,
) -> Outcome<(Arc<dyn TargetModule>, Arc<OpenedFile>)> {
    let mut loader = Loader::new(policy)?;
    loader.observer = Arc::clone(observer);
    let file = loader.open(path)?;
    Ok((loader.load(&file, target)?, file))
}

/// Loads modules. A file that is named several times is loaded once for each set of grants.
pub(super) struct Loader {
    backend: Backend,
    lock: Option<Lock>,
    trust: Option<Trust>,
    files: HashMap<PathBuf, Arc<OpenedFile>>,
    modules: HashMap<(PathBuf, Grants), Arc<dyn TargetModule>>,
    /// Observes the calls of the modules.
    observer: Arc<Observer>,
    /// The number of files that are done, for messages.
    progress: String,
}

/// A module's file.
#[derive(Debug)]
pub(super) struct OpenedFile {
    path: PathBuf,
    real: PathBuf,
    pub(super) contents: ModuleFile,
}

impl OpenedFile {
    /// The name of the file in messages about the module's calls.
    pub(super) fn name(&self) -> String {
        file_name(&self.path)
    }
}

impl Loader {
    pub(super) fn new(policy: &PolicyArguments) -> Outcome<Self> {
        Ok(Self {
            backend: policy.backend()?,
            lock: policy.lock()?,
            trust: policy.trust()?,
            files: HashMap::new(),
            modules: HashMap::new(),
            observer: Arc::default(),
            progress: String::new(),
        })
    }

    /// Reads a file, unless it has been read already.
    fn open(&mut self, path: &Path) -> Outcome<Arc<OpenedFile>> {
        let cannot = |error| Failure::file(format!("expected to read {}", path.display()), &error);
        let real = fs::canonicalize(path).map_err(cannot)?;
        if let Some(file) = self.files.get(&real) {
            return Ok(Arc::clone(file));
        }
        let bytes = regular_file::read(path, self.backend.policy().limits.module_bytes)?;
        let file = self.describe(path, bytes)?;
        self.files.insert(real, Arc::clone(&file));
        Ok(file)
    }

    /// Describes a file that was read. The lock, if there is one, must have it, and the rules about
    /// signatures must hold.
    pub(super) fn describe(&self, path: &Path, bytes: Vec<u8>) -> Outcome<Arc<OpenedFile>> {
        let size = bytes.len();
        let contents = self.backend.read(bytes);
        let contents = contents.map_err(|status| status.context(path.display()))?;
        if let Some(lock) = &self.lock {
            lock.check(path, &contents.info().sha256, size as u64)?;
        }
        signing::check_module(self.trust.as_ref(), path, contents.bytes())?;
        Ok(Arc::new(OpenedFile {
            path: path.to_owned(),
            real: fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()),
            contents: contents.named(&file_name(path)),
        }))
    }

    /// Loads the module with the grants of a target.
    pub(super) fn load(
        &mut self,
        file: &Arc<OpenedFile>,
        target: &str,
    ) -> Outcome<Arc<dyn TargetModule>> {
        let path = file.path.display();
        let sha256 = &file.contents.info().sha256;
        let grants = self.backend.policy().grants_for(target, sha256);
        let grants = grants.map_err(|status| status.context(&path))?.clone();
        let key = (file.real.clone(), grants);
        if let Some(module) = self.modules.get(&key) {
            return Ok(Arc::clone(module));
        }
        let text = || format!("compiling {path}{}", self.progress);
        let module = progress::show(text, || self.backend.load(&file.contents, &key.1));
        let module = module.map_err(|status| status.context(&path))?;
        let module = self.observer.module(module, file);
        self.modules.insert(key, Arc::clone(&module));
        Ok(module)
    }
}

/// The name of a file in messages about the module's calls.
fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// The `.wasm` files in a folder, in order.
fn modules_in(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let cannot = |error| {
        Failure::file(
            format!("expected to read the folder {}", folder.display()),
            &error,
        )
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "wasm")
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
