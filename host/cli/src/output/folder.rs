//! The folder of results. Either all are written, or none, and files that were in it stay.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use callbox::{ArrayShape, ElementType, Literal};
use cap_std::ambient_authority;
use cap_std::fs::Dir;

use crate::failure::{Failure, Outcome};
use crate::files::{npy, tensors};

/// The file of results whose element types .npy lacks.
pub(super) const TENSORS: &str = "results.safetensors";

/// A writable folder. Dropping it before results are written restores the previous state.
#[derive(Debug)]
pub(crate) struct OutputFolder {
    path: PathBuf,
    /// The folders that were created, innermost first.
    made: Vec<PathBuf>,
    /// The open folder. All files are written through this handle, and so inside the folder.
    open: Option<Open>,
    is_written: bool,
}

/// An open folder, and a staging folder in it for files that are not complete. Creating the latter
/// proves that the folder is writable.
#[derive(Debug)]
struct Open {
    folder: Dir,
    staging: Dir,
    staging_name: String,
    /// Whether replaced files that could not be restored are in the staging folder, which is then
    /// kept.
    keeps_old_files: bool,
}

impl OutputFolder {
    /// Opens the folder, creating it if needed.
    pub(crate) fn open(path: &Path) -> Outcome<Self> {
        let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let made = path.ancestors().take_while(is_missing);
        let mut folder = Self {
            path: path.to_owned(),
            made: made.map(Path::to_owned).collect(),
            open: None,
            is_written: false,
        };
        fs::create_dir_all(path).map_err(|error| folder.cannot(&error))?;
        folder.open = Some(stage(path).map_err(|error| folder.cannot(&error))?);
        Ok(folder)
    }

    /// Writes the arrays of a value, and returns the file of each. Tokens have none.
    pub(crate) fn write(mut self, value: &Literal) -> Outcome<Vec<Option<PathBuf>>> {
        let files = match &mut self.open {
            Some(open) => open.write_staged(value).and_then(|files| {
                open.place(&files)?;
                Ok(files)
            }),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        let files = files.map_err(|error| self.cannot(&error))?;
        self.is_written = true;
        let path = |name: Option<String>| name.map(|name| self.path.join(name));
        Ok(files.into_iter().map(path).collect())
    }

    fn cannot(&self, error: &io::Error) -> Failure {
        let mut expected = format!("expected to write to the folder {}", self.path.display());
        if let Some(open) = self.open.as_ref().filter(|open| open.keeps_old_files) {
            let staging = self.path.join(&open.staging_name);
            expected += &format!(" (files that were in it are in {})", staging.display());
        }
        Failure::file(expected, error)
    }
}

impl Open {
    /// Writes files into the staging folder, and returns the name of each array's.
    fn write_staged(&self, value: &Literal) -> io::Result<Vec<Option<String>>> {
        let mut names = Vec::new();
        let mut others: Vec<(String, &ArrayShape, &[u8])> = Vec::new();
        for (i, (shape, bytes)) in value.leaves().enumerate() {
            let name = match (shape.element_type(), npy_file(shape, bytes)) {
                (ElementType::Token, _) => None,
                (_, Some((header, bytes))) => {
                    let name = format!("{i}.npy");
                    self.create(&name, &[&header, &bytes])?;
                    Some(name)
                }
                (_, None) => {
                    others.push((i.to_string(), shape, bytes));
                    Some(TENSORS.to_owned())
                }
            };
            names.push(name);
        }
        if !others.is_empty() {
            let bytes = tensors::file(&others).map_err(io::Error::other)?;
            self.create(TENSORS, &[&bytes])?;
        }
        Ok(names)
    }

    fn create(&self, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        let mut file = self.staging.create(name)?;
        parts.iter().try_for_each(|part| file.write_all(part))?;
        // Some file systems report a full disk only now.
        file.sync_all()
    }

    /// Moves the staged files into the folder, replacing files of the same names. If one cannot be
    /// moved, the folder is as before.
    fn place(&mut self, files: &[Option<String>]) -> io::Result<()> {
        let names: BTreeSet<_> = files.iter().flatten().collect();
        let mut placed = Vec::new();
        for name in names {
            match self.place_one(name) {
                Ok(has_old) => placed.push((name, has_old)),
                Err(error) => {
                    let mut placed = placed.into_iter();
                    let restored = placed.try_for_each(|(name, has_old)| self.undo(name, has_old));
                    self.keeps_old_files = restored.is_err();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Moves a staged file into the folder. Returns whether it replaced a file, which is kept in
    /// the staging folder.
    fn place_one(&self, name: &str) -> io::Result<bool> {
        let has_old = match self.folder.symlink_metadata(name) {
            Ok(old) if old.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(_) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        if has_old {
            // A link leaves the file in its place until the new one replaces it. Where the file
            // system has no links, the file is moved.
            let kept = kept_name(name);
            self.folder
                .hard_link(name, &self.staging, &kept)
                .or_else(|_| self.folder.rename(name, &self.staging, &kept))?;
        }
        let moved = self.staging.rename(name, &self.folder, name);
        if moved.is_err() && has_old {
            self.undo(name, true)?;
        }
        moved.map(|()| has_old)
    }

    /// Restores the file that was replaced, or removes the new one.
    fn undo(&self, name: &str, has_old: bool) -> io::Result<()> {
        if has_old {
            self.staging.rename(kept_name(name), &self.folder, name)
        } else {
            self.folder.remove_file(name)
        }
    }
}

/// The name in the staging folder of a file that is replaced.
fn kept_name(name: &str) -> String {
    format!("old-{name}")
}

impl Drop for OutputFolder {
    /// Removes the staging folder and, if nothing was written, the folders that were created.
    /// Errors are discarded.
    fn drop(&mut self) {
        if let Some(open) = self.open.as_ref().filter(|open| !open.keeps_old_files) {
            let _ = open.folder.remove_dir_all(&open.staging_name);
        }
        if !self.is_written {
            // A folder that is no longer empty is kept.
            let _ = self.made.iter().try_for_each(fs::remove_dir);
        }
    }
}

/// Opens a folder and creates a staging folder in it.
fn stage(path: &Path) -> io::Result<Open> {
    let folder = Dir::open_ambient_dir(path, ambient_authority())?;
    let process = std::process::id();
    let mut attempt = 0_u32;
    loop {
        let staging_name = format!(".callbox-{process}-{attempt}");
        match folder.create_dir(&staging_name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < 100 => {
                attempt += 1;
            }
            Err(error) => return Err(error),
            Ok(()) => {
                let staging = folder.open_dir(&staging_name)?;
                return Ok(Open {
                    folder,
                    staging,
                    staging_name,
                    keeps_old_files: false,
                });
            }
        }
    }
}

/// The header and the elements of an array's .npy file, unless the format lacks its element type.
pub(super) fn npy_file<'a>(
    shape: &ArrayShape,
    bytes: &'a [u8],
) -> Option<(Vec<u8>, Cow<'a, [u8]>)> {
    let type_name = npy::type_name(shape.element_type())?;
    let header = npy::header(type_name, shape.dimensions());
    Some((header, readable(shape, bytes)))
}

/// Normalises truth values for numpy: a target may write any byte for `true`.
fn readable<'a>(shape: &ArrayShape, bytes: &'a [u8]) -> Cow<'a, [u8]> {
    match shape.element_type() {
        ElementType::Pred if bytes.iter().any(|byte| *byte > 1) => {
            bytes.iter().map(|byte| u8::from(*byte != 0)).collect()
        }
        _ => bytes.into(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::disallowed_methods,
        reason = "tests fail by panicking, and work on files of their own"
    )]

    use super::*;

    /// Stages `0.npy`, and places it and `1.npy`, which is not there.
    fn place_two(folder: &Path) {
        let mut open = stage(folder).unwrap();
        open.create("0.npy", &[b"new"]).unwrap();
        let names = ["0.npy", "1.npy"].map(|name| Some(name.to_owned()));
        let error = open.place(&names).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(!open.keeps_old_files);
    }

    #[test]
    fn a_failure_restores_the_files_that_were_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name| folder.path().join(name);
        place_two(folder.path());
        assert!(!path("0.npy").exists());
        fs::write(path("0.npy"), "old").unwrap();
        fs::write(path("1.npy"), "old too").unwrap();
        place_two(folder.path());
        assert_eq!(fs::read(path("0.npy")).unwrap(), b"old");
        assert_eq!(fs::read(path("1.npy")).unwrap(), b"old too");
    }
}
