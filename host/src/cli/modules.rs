//! The .wasm modules that a command line names, loaded, and the registry of their targets.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callbox::policy::Grants;
use callbox::wasm::inspect;
use callbox::{Blame, Platform, Registry, Status, StatusCode};

use super::arguments::TargetArgument;
use super::backend::{Backend, Loaded};
use super::failure::{Failure, Outcome};
use super::policy::PolicyArguments;
use super::progress;
use super::registered::Registered;

/// The registry of the targets that `--target` and `--targets` name.
pub(super) fn registry(
    targets: &[TargetArgument],
    folders: &[PathBuf],
    policy: &PolicyArguments,
) -> Outcome<Registry> {
    let mut files: Vec<_> = targets
        .iter()
        .map(|target| (target.file.clone(), Some((&*target.name, &*target.export))))
        .collect();
    for folder in folders {
        files.extend(modules_in(folder)?.into_iter().map(|file| (file, None)));
    }
    let mut registered = Registered::new(Platform::Host)?;
    if files.is_empty() {
        return Ok(registered.into_registry());
    }
    let mut loader = Loader::new(policy)?;
    let count = files.len();
    for (i, (path, target)) in files.into_iter().enumerate() {
        loader.progress = format!(" ({} of {count})", i + 1);
        let file = loader.open(&path)?;
        let targets = match target {
            Some((name, export)) => vec![(name.to_owned(), export.to_owned())],
            None => file
                .targets
                .iter()
                .map(|t| (t.clone(), t.clone()))
                .collect(),
        };
        for (name, export) in targets {
            let module = loader.load(&file, &name)?.target_module();
            registered.target(&path, &module, &name, &export)?;
        }
    }
    Ok(registered.into_registry())
}

/// Loads one module, for its target of this name.
pub(super) fn load(path: &Path, target: &str, policy: &PolicyArguments) -> Outcome<Loaded> {
    let mut loader = Loader::new(policy)?;
    let file = loader.open(path)?;
    loader.load(&file, target)
}

/// Loads modules. A file that is named several times is loaded once for each set of grants.
struct Loader {
    backend: Backend,
    files: HashMap<PathBuf, Arc<ModuleFile>>,
    modules: HashMap<(PathBuf, Grants), Loaded>,
    /// How far it is, for a person to read.
    progress: String,
}

/// A module's file, read and looked at.
struct ModuleFile {
    path: PathBuf,
    real: PathBuf,
    bytes: Vec<u8>,
    sha256: String,
    targets: Vec<String>,
}

impl Loader {
    fn new(policy: &PolicyArguments) -> Outcome<Self> {
        Ok(Self {
            backend: policy.backend()?,
            files: HashMap::new(),
            modules: HashMap::new(),
            progress: String::new(),
        })
    }

    /// Reads a file, unless it is known.
    fn open(&mut self, path: &Path) -> Outcome<Arc<ModuleFile>> {
        let cannot = |error| Failure::file(format!("expected to read {}", path.display()), &error);
        let real = fs::canonicalize(path).map_err(cannot)?;
        if let Some(file) = self.files.get(&real) {
            return Ok(Arc::clone(file));
        }
        let limits = &self.backend.policy().limits;
        let bytes = read(path, limits.module_bytes)?;
        let info = inspect(&bytes, limits).map_err(|status| status.context(path.display()))?;
        let file = Arc::new(ModuleFile {
            path: path.to_owned(),
            real: real.clone(),
            bytes,
            sha256: info.sha256,
            targets: info.targets.into_iter().map(|target| target.name).collect(),
        });
        self.files.insert(real, Arc::clone(&file));
        Ok(file)
    }

    /// The module with what its target of this name may reach.
    fn load(&mut self, file: &ModuleFile, target: &str) -> Outcome<Loaded> {
        let path = file.path.display();
        let grants = self.backend.policy().grants_for(target, &file.sha256);
        let grants = grants.map_err(|status| status.context(&path))?.clone();
        let key = (file.real.clone(), grants);
        if let Some(module) = self.modules.get(&key) {
            return Ok(module.clone());
        }
        let text = || format!("compiling {path}{}", self.progress);
        let module = progress::show(text, || self.backend.load_with(&file.bytes, &key.1));
        let module = module.map_err(|status| status.context(&path))?;
        self.modules.insert(key, module.clone());
        Ok(module)
    }
}

/// The bytes of a file, which is not read further than `most` bytes.
pub(super) fn read(path: &Path, most: usize) -> Outcome<Vec<u8>> {
    let cannot = |error| Failure::file(format!("expected to read {}", path.display()), &error);
    let file = File::open(path).map_err(cannot)?;
    let mut bytes = Vec::new();
    let length = file
        .take(most as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(cannot)?;
    match length <= most {
        true => Ok(bytes),
        false => {
            let message = format!("expected a file of at most {most} bytes, found more");
            let status = Status::new(StatusCode::ResourceExhausted, Blame::Caller, message);
            Err(status.context(path.display()).into())
        }
    }
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
