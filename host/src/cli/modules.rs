//! The modules that a command line names, loaded, and the registry of their targets.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callbox::wasm::{Config, Engine, Limits, Module};
use callbox::{Blame, Registry, Status, StatusCode};

use super::arguments::TargetArgument;
use super::failure::{Failure, Outcome};
use super::{output, progress};

/// The registry of the targets that `--target` and `--targets` name. A file that is named several times is loaded once.
pub(super) fn registry(
    targets: &[TargetArgument],
    folders: &[PathBuf],
    limits: Limits,
) -> Outcome<Registry> {
    let mut registrations: Vec<_> = targets
        .iter()
        .map(|target| Registration {
            file: target.file.clone(),
            target: Some((&target.name, &target.export)),
        })
        .collect();
    for folder in folders {
        let files = modules_in(folder)?.into_iter();
        registrations.extend(files.map(|file| Registration { file, target: None }));
    }
    let modules = load_all(&registrations, limits)?;
    let mut registered = Registered::default();
    for (registration, module) in std::iter::zip(&registrations, modules) {
        registered.add(registration, &module)?;
    }
    Ok(registered.registry)
}

/// Loads one module.
pub(super) fn load(path: &Path, limits: Limits) -> Outcome<Arc<Module>> {
    let bytes = read(path, limits.module_bytes)?;
    let engine = engine(limits)?;
    let text = || format!("compiling {}", path.display());
    let module = progress::show(text, || engine.load(&bytes));
    Ok(module.map_err(|status| status.context(path.display()))?)
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

/// A file whose targets are to be registered.
struct Registration<'a> {
    file: PathBuf,
    /// Name and export. `None`: all targets by their own names.
    target: Option<(&'a str, &'a str)>,
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

/// Loads the module of each registration.
fn load_all(registrations: &[Registration<'_>], limits: Limits) -> Outcome<Vec<Arc<Module>>> {
    if registrations.is_empty() {
        return Ok(Vec::new());
    }
    let mut places = HashMap::new();
    let mut files: Vec<&Path> = Vec::new();
    let mut numbers = Vec::with_capacity(registrations.len());
    for Registration { file, .. } in registrations {
        let cannot = |error| Failure::file(format!("expected to read {}", file.display()), &error);
        let real = fs::canonicalize(file).map_err(cannot)?;
        numbers.push(*places.entry(real).or_insert_with(|| {
            files.push(file);
            files.len() - 1
        }));
    }
    let module_bytes = limits.module_bytes;
    let engine = engine(limits)?;
    let mut modules = Vec::with_capacity(files.len());
    for (i, file) in files.iter().enumerate() {
        let bytes = read(file, module_bytes)?;
        let text = || {
            format!(
                "compiling {} ({} of {})",
                file.display(),
                i + 1,
                files.len()
            )
        };
        let module = progress::show(text, || engine.load(&bytes));
        modules.push(module.map_err(|status| status.context(file.display()))?);
    }
    Ok(numbers
        .into_iter()
        .map(|number| Arc::clone(&modules[number]))
        .collect())
}

fn engine(limits: Limits) -> callbox::Result<Engine> {
    Engine::with_config(Config {
        limits,
        log: Some(Arc::new(output::guest_log)),
        ..Config::default()
    })
}

/// A registry, and which file each name in it comes from.
#[derive(Default)]
struct Registered {
    registry: Registry,
    files: BTreeMap<String, PathBuf>,
}

impl Registered {
    fn add(&mut self, registration: &Registration<'_>, module: &Arc<Module>) -> Outcome<()> {
        match registration.target {
            Some((name, export)) => self.target(&registration.file, module, name, export),
            None => module
                .info()
                .targets
                .iter()
                .try_for_each(|t| self.target(&registration.file, module, &t.name, &t.name)),
        }
    }

    fn target(
        &mut self,
        file: &Path,
        module: &Arc<Module>,
        name: &str,
        export: &str,
    ) -> Outcome<()> {
        let registered = self
            .registry
            .register(name, Arc::clone(module) as _, export);
        match registered {
            Ok(()) => {
                let known = self.files.entry(name.to_owned());
                known.or_insert_with(|| file.to_owned());
                Ok(())
            }
            Err(status) if status.code() == StatusCode::AlreadyExists => {
                let known = self.files.get(name).map_or(file, PathBuf::as_path);
                let message = format!(
                    "expected the target {name:?} to be of one module, found it in {} and as \
                     {export:?} in {}",
                    known.display(),
                    file.display()
                );
                Err(Status::new(StatusCode::AlreadyExists, status.blame(), message).into())
            }
            Err(status) => Err(status.context(file.display()).into()),
        }
    }
}
