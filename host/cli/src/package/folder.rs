//! The folder that `callbox pack` packs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use callbox::{Blame, Status, StatusCode};
use callbox_package::{Header, Limits, MANIFEST};

use crate::failure::{Failure, Outcome};
use crate::regular_file;

/// The file with the header, as its author writes it.
pub(crate) const HEADER: &str = "callbox-package.json";

/// Folders whose files are all packed.
const FOLDERS: [&str; 2] = ["cases", "docs"];

/// The beginnings of the names of files beside the module that are packed.
const DOCUMENTS: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE", "NOTICE"];

/// The contents of a folder.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) header: Header,
    pub(crate) module: Vec<u8>,
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    /// The names in the folder that are not packed.
    pub(crate) left_out: Vec<String>,
}

/// Reads a folder.
///
/// # Errors
/// Wrong usage if the folder or a file cannot be read; INVALID_ARGUMENT if the folder lacks a
/// header or a module, has several modules, or a symbolic link; RESOURCE_EXHAUSTED past the limits.
pub(crate) fn read(folder: &Path) -> Outcome<Contents> {
    let limits = Limits::default();
    let mut reader = Reader {
        folder,
        left: limits.package_bytes,
        files_left: limits.files,
        files: BTreeMap::new(),
        left_out: Vec::new(),
    };
    if folder.is_file() {
        let message = "expected the folder of a package, found a file";
        let status = Status::invalid_argument(message).context(folder.display());
        return Err(Failure::usage(status));
    }
    let header = reader.header(limits.header_bytes)?;
    let module = reader.module()?;
    for name in names_in(folder)? {
        reader.entry(&name)?;
    }
    reader.twin()?;
    let Reader {
        files, left_out, ..
    } = reader;
    let is_packed = |name: &String| {
        let below = format!("{name}/");
        files
            .keys()
            .any(|path| path == name || path.starts_with(&below))
    };
    Ok(Contents {
        header,
        module,
        left_out: left_out
            .into_iter()
            .filter(|name| !is_packed(name))
            .collect(),
        files,
    })
}

struct Reader<'a> {
    folder: &'a Path,
    /// The bytes and the files that may still be read.
    left: usize,
    files_left: usize,
    files: BTreeMap<String, Vec<u8>>,
    left_out: Vec<String>,
}

impl Reader<'_> {
    fn header(&mut self, most: usize) -> Outcome<Header> {
        let path = self.folder.join(HEADER);
        let text = regular_file::read(&path, most)?;
        Header::from_json(&text).map_err(|message| {
            Status::invalid_argument(message)
                .context(path.display())
                .into()
        })
    }

    /// The only module in the folder.
    fn module(&mut self) -> Outcome<Vec<u8>> {
        let mut modules: Vec<_> = names_in(self.folder)?;
        modules.retain(|name| is_module(name));
        match modules.as_slice() {
            [name] => {
                let name = name.clone();
                self.bytes(&name)
            }
            [] => Err(self.wrong("expected one file that ends with .wasm, found none")),
            several => Err(self.wrong(&format!(
                "expected one file that ends with .wasm, found {}",
                several.join(", ")
            ))),
        }
    }

    /// Reads an entry of the folder, if it is packed.
    fn entry(&mut self, name: &str) -> Outcome<()> {
        if FOLDERS.contains(&name) {
            return self.folder(name);
        }
        let is_document = DOCUMENTS.iter().any(|start| name.starts_with(start));
        if is_document || name == MANIFEST {
            return self.file(name);
        }
        if name != HEADER && !is_module(name) {
            self.left_out.push(name.to_owned());
        }
        Ok(())
    }

    /// Reads all files below a folder.
    fn folder(&mut self, path: &str) -> Outcome<()> {
        let most = Limits::default().path_bytes;
        if path.len() > most {
            // The package would refuse it, but only after the walk through all folders below.
            let found = path.len();
            let message = format!("expected paths of at most {most} bytes, found {found}");
            let status = Status::invalid_argument(message);
            return Err(status.context(self.folder.join(path).display()).into());
        }
        self.check_links(path)?;
        for name in names_in(&self.folder.join(path))? {
            let path = format!("{path}/{name}");
            self.check_links(&path)?;
            if self.folder.join(&path).is_dir() {
                self.folder(&path)?;
            } else {
                self.file(&path)?;
            }
        }
        Ok(())
    }

    /// Reads the images and sources that the manifest names.
    fn twin(&mut self) -> Outcome<()> {
        let Some(manifest) = self.files.get(MANIFEST) else {
            return Ok(());
        };
        let manifest_path = self.folder.join(MANIFEST);
        for (path, is_needed) in named_files(manifest)
            .map_err(|status| Failure::from(status.context(manifest_path.display())))?
        {
            let exists = self.folder.join(&path).symlink_metadata().is_ok();
            if (is_needed || exists) && !self.files.contains_key(&path) {
                self.file(&path)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &str) -> Outcome<()> {
        self.files_left = self.files_left.checked_sub(1).ok_or_else(|| {
            exhausted(format!(
                "expected at most {} files (`files`), found more",
                Limits::default().files
            ))
        })?;
        let bytes = self.bytes(path)?;
        self.files.insert(path.to_owned(), bytes);
        Ok(())
    }

    fn bytes(&mut self, path: &str) -> Outcome<Vec<u8>> {
        self.check_links(path)?;
        let bytes = regular_file::read(&self.folder.join(path), self.left)?;
        self.left -= bytes.len();
        Ok(bytes)
    }

    /// Refuses a symbolic link at a path or above it, up to the folder: it could lead to any file.
    fn check_links(&self, path: &str) -> Outcome<()> {
        let mut real = self.folder.to_owned();
        for name in path.split('/') {
            real.push(name);
            let data = real.symlink_metadata();
            let data = data.map_err(|error| regular_file::cannot(&real, &error))?;
            if data.is_symlink() {
                return Err(Status::invalid_argument(format!(
                    "{} is a symbolic link, which is not packed",
                    real.display()
                ))
                .into());
            }
        }
        Ok(())
    }

    fn wrong(&self, message: &str) -> Failure {
        Status::invalid_argument(message)
            .context(self.folder.display())
            .into()
    }
}

/// The paths of the images of a manifest, which a package needs, and of their sources.
#[cfg(feature = "cuda")]
pub(crate) fn named_files(manifest: &[u8]) -> callbox::Result<Vec<(String, bool)>> {
    let text = str::from_utf8(manifest)
        .map_err(|_| Status::invalid_argument("expected UTF-8, found other bytes"))?;
    let manifest = callbox::cuda::manifest::Manifest::parse(text)?;
    let files = manifest.images.into_iter().flat_map(|image| {
        let source = image.source.map(|source| (source, false));
        std::iter::once((image.file, true)).chain(source)
    });
    Ok(files.collect())
}

#[cfg(not(feature = "cuda"))]
pub(crate) fn named_files(_: &[u8]) -> callbox::Result<Vec<(String, bool)>> {
    Err(Status::unimplemented(crate::left_out("cuda")))
}

fn is_module(name: &str) -> bool {
    name.ends_with(".wasm")
}

/// The names in a folder, in order. Names that begin with a dot are left out.
fn names_in(folder: &Path) -> Outcome<Vec<String>> {
    let cannot = |error| {
        Failure::file(
            format!("expected to read the folder {}", folder.display()),
            &error,
        )
    };
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(cannot)? {
        let name = entry.map_err(cannot)?.file_name();
        let name = name.into_string().map_err(|name| {
            let path: PathBuf = folder.join(name);
            Status::invalid_argument(format!("the name {path:?} is not UTF-8"))
        })?;
        if !name.starts_with('.') {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn exhausted(message: String) -> Status {
    Status::new(StatusCode::ResourceExhausted, Blame::Caller, message)
}
