//! Loads the .wasm modules that a command line names, and registers their targets.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callbox::call::TargetModule;
use callbox::graph_launch::GraphLaunch;
use callbox::policy::Grants;
use callbox::traced::{AnyModule, TracedCalls};
use callbox::wasm::{FunctionCode, ModuleFile};
use callbox::{Blame, Registry, Status, StatusCode};
use callbox_package::Trust;

use super::arguments::TargetArgument;
use super::backend::Backend;
use super::failure::{Failure, Outcome};
use super::lock::Lock;
use super::observe::Observer;
use super::policy::PolicyArguments;
use super::progress;
use super::registered::Registered;
use super::traced::{self, ModuleFolder};
use super::{output, package, signing};

/// The first bytes of every WebAssembly file.
pub(super) const MAGIC: &[u8] = b"\0asm";

/// The registry of the targets that `--target` and `--targets` name. Of the modules in folders,
/// those are loaded that have a target in `called`, the names that the program calls. A program
/// that `callbox.jax` traced finds its modules in the folders of `traced_in`, or in the lock.
pub(super) fn registry(
    targets: &[TargetArgument],
    folders: &[PathBuf],
    called: &BTreeSet<&str>,
    traced_in: Option<&[PathBuf]>,
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
    if let Some(folders) = traced_in {
        match ModuleFolder::read(folders, policy)? {
            Some(modules) => {
                let policy = policy.read()?;
                let longest = policy.limits.deadline.filter(|_| !policy.deterministic);
                registered.traced(TracedCalls::new(Arc::new(modules), longest))?;
            }
            None => registered.without_traced(&traced::without_modules()),
        }
    }
    if files.is_empty() {
        return Ok(registered.into_registry()?);
    }
    let mut loader = Loader::new(policy)?;
    loader.observer = Arc::clone(observer);
    let count = files.len();
    for (i, (path, target)) in files.into_iter().enumerate() {
        loader.progress = format!(" ({} of {count})", i + 1);
        if let Some((name, export)) = target {
            let file = loader.open(&path)?;
            let module = loader.load(&file, name)?;
            registered.target(&path, &module, name, export)?;
        } else if let Some((file, is_known)) = loader.open_in_folder(&path)? {
            let mut is_used = is_known;
            for target in &file.contents.info().targets {
                let name = &*target.name;
                let load = || loader.load(&file, name);
                let calls = called.contains(name);
                is_used |= registered.target_in_folder(&path, name, calls.then_some(load));
            }
            if !is_used {
                loader.forget(&file);
            }
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

/// The most bytes of all modules in folders that a command reads.
const MOST_BYTES_IN_FOLDERS: u64 = 1 << 30;

/// Loads modules. A file that is named several times is loaded once for each set of grants.
pub(super) struct Loader {
    backend: Backend,
    lock: Option<Lock>,
    trust: Option<Trust>,
    files: HashMap<PathBuf, Arc<OpenedFile>>,
    /// The bytes of those that were read in folders.
    bytes_in_folders: u64,
    /// The modules, or why they cannot be loaded: a file can have thousands of targets.
    modules: HashMap<(PathBuf, Grants), Result<Loaded, Status>>,
    observer: Arc<Observer>,
    /// The number of files that are done, for messages.
    progress: String,
}

/// A module, and the same with its calls observed.
#[derive(Clone)]
struct Loaded {
    module: Arc<dyn AnyModule>,
    observed: Arc<dyn TargetModule>,
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
            bytes_in_folders: 0,
            modules: HashMap::new(),
            observer: Arc::default(),
            progress: String::new(),
        })
    }

    /// Reads a file, unless it has been read already.
    pub(super) fn open(&mut self, path: &Path) -> Outcome<Arc<OpenedFile>> {
        match self.opened(path)? {
            Some(file) => Ok(file),
            None => {
                let contents = self.contents(path)?;
                self.keep(path, contents)
            }
        }
    }

    /// Reads a file of a folder, unless it has been read already, which is said. A file that is no
    /// module is left out with a warning: the program may do without it.
    pub(super) fn open_in_folder(
        &mut self,
        path: &Path,
    ) -> Outcome<Option<(Arc<OpenedFile>, bool)>> {
        if let Some(file) = self.opened(path)? {
            return Ok(Some((file, true)));
        }
        match self.contents(path) {
            Ok(contents) => {
                self.count_in_folders(path, contents.bytes().len() as u64)?;
                Ok(Some((self.keep(path, contents)?, false)))
            }
            Err(failure) => {
                let most = self.backend.policy().limits.module_bytes as u64;
                let size = path.metadata().map_or(0, |metadata| metadata.len());
                self.count_in_folders(path, size.min(most))?;
                output::warn(&format!("a file is left out: {}", failure.status()));
                Ok(None)
            }
        }
    }

    /// Counts a file in a folder. Files with holes, and links to one, take little of a disk.
    fn count_in_folders(&mut self, path: &Path, bytes: u64) -> Outcome<()> {
        self.bytes_in_folders += bytes;
        if self.bytes_in_folders > MOST_BYTES_IN_FOLDERS {
            return Err(too_many_bytes(path));
        }
        Ok(())
    }

    /// Forgets a file that is not needed for now, and its modules: its description may be many
    /// times as large.
    pub(super) fn forget(&mut self, file: &OpenedFile) {
        self.files.remove(&file.real);
        self.modules.retain(|(real, _), _| *real != file.real);
    }

    /// The file if it has been read already. Another name of it, which a link makes, must be
    /// allowed, too.
    fn opened(&self, path: &Path) -> Outcome<Option<Arc<OpenedFile>>> {
        // A link that leads nowhere is no file that was read: reading it says so.
        let real = real(path).ok();
        let Some(file) = real.and_then(|real| self.files.get(&real)) else {
            return Ok(None);
        };
        if file.path != path {
            self.check(path, &file.contents)?;
        }
        Ok(Some(Arc::clone(file)))
    }

    fn contents(&self, path: &Path) -> Outcome<ModuleFile> {
        let bytes = package::read_module(path, self.backend.policy().limits.module_bytes)?;
        let contents = self.backend.read(bytes);
        Ok(contents.map_err(|status| status.context(path.display()))?)
    }

    fn keep(&mut self, path: &Path, contents: ModuleFile) -> Outcome<Arc<OpenedFile>> {
        let file = self.accept(path, contents)?;
        self.files.insert(file.real.clone(), Arc::clone(&file));
        Ok(file)
    }

    /// Describes a file that was read, as [`accept`](Self::accept) does.
    pub(super) fn describe(&self, path: &Path, bytes: Vec<u8>) -> Outcome<Arc<OpenedFile>> {
        let contents = self.backend.read(bytes);
        let contents = contents.map_err(|status| status.context(path.display()))?;
        self.accept(path, contents)
    }

    /// The lock, if there is one, must have the file, and the rules about signatures must hold.
    fn check(&self, path: &Path, contents: &ModuleFile) -> Outcome<()> {
        if let Some(lock) = &self.lock {
            let size = contents.bytes().len() as u64;
            lock.check(path, &contents.info().sha256, size)?;
        }
        signing::check_module(self.trust.as_ref(), path, contents.bytes())
    }

    fn accept(&self, path: &Path, contents: ModuleFile) -> Outcome<Arc<OpenedFile>> {
        self.check(path, &contents)?;
        Ok(Arc::new(OpenedFile {
            path: path.to_owned(),
            real: real(path).unwrap_or_else(|_| path.to_owned()),
            contents: contents.named(&file_name(path)),
        }))
    }

    /// Loads the module with the grants of a target.
    pub(super) fn load(
        &mut self,
        file: &Arc<OpenedFile>,
        target: &str,
    ) -> Outcome<Arc<dyn TargetModule>> {
        Ok(self.loaded(file, target)?.observed)
    }

    /// The same, for calls outside of a program, which are not observed.
    pub(super) fn load_any(
        &mut self,
        file: &Arc<OpenedFile>,
        target: &str,
    ) -> Outcome<Arc<dyn AnyModule>> {
        Ok(self.loaded(file, target)?.module)
    }

    /// The machine code of a module that is loaded with the grants of a target.
    pub(super) fn machine_code(
        &self,
        file: &OpenedFile,
        target: &str,
    ) -> Outcome<Vec<FunctionCode>> {
        let grants = self.grants(file, target)?;
        let code = self.backend.machine_code(&file.contents, &grants);
        Ok(code.map_err(|status| status.context(file.path.display()))?)
    }

    fn grants(&self, file: &OpenedFile, target: &str) -> Outcome<Grants> {
        let sha256 = &file.contents.info().sha256;
        let grants = self.backend.policy().grants_for(target, sha256);
        let grants = grants.map_err(|status| status.context(file.path.display()))?;
        Ok(grants.clone())
    }

    fn loaded(&mut self, file: &Arc<OpenedFile>, target: &str) -> Outcome<Loaded> {
        let path = file.path.display();
        let grants = self.grants(file, target)?;
        let key = (file.real.clone(), grants);
        if let Some(loaded) = self.modules.get(&key) {
            return Ok(loaded.clone()?);
        }
        let text = || format!("compiling {path}{}", self.progress);
        let module = progress::show(text, || self.backend.load(&file.contents, &key.1));
        let module = module.map_err(|status| status.context(&path));
        let loaded = module.map(|module| Loaded {
            observed: self.observer.module(module.clone(), file),
            module,
        });
        self.modules.insert(key, loaded.clone());
        Ok(loaded?)
    }
}

fn too_many_bytes(path: &Path) -> Failure {
    let message = format!(
        "{}: expected folders with modules of at most {MOST_BYTES_IN_FOLDERS} bytes in all, found more",
        path.display()
    );
    Status::new(StatusCode::ResourceExhausted, Blame::Caller, message).into()
}

/// The path of a file without links, with the name of the tensor if the module is in one.
fn real(path: &Path) -> Outcome<PathBuf> {
    if let Some((file, tensor)) = package::tensor_in(path) {
        return Ok(package::in_tensor(&real(&file)?, tensor));
    }
    let cannot = |error| Failure::file(format!("expected to read {}", path.display()), &error);
    fs::canonicalize(path).map_err(cannot)
}

/// The name of a file in messages about the module's calls.
pub(super) fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// The `.wasm` files in a folder, in order.
pub(super) fn modules_in(folder: &Path) -> Outcome<Vec<PathBuf>> {
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
