//! The folder that results are written to: all of them, or none.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use callbox::{ArrayShape, ElementType, Literal};
use cap_std::ambient_authority;
use cap_std::fs::Dir;

use crate::cli::failure::{Failure, Outcome};
use callbox::arrays::{npy, tensors};

/// The file of results that .npy has no element type for.
pub(super) const TENSORS: &str = "results.safetensors";

/// A folder that can be written to. Until results have been, dropping it leaves things as they were.
#[derive(Debug)]
pub(crate) struct OutputFolder {
    path: PathBuf,
    /// The folders that were made for it, innermost first.
    made: Vec<PathBuf>,
    /// The folder, once it is open: whatever is written is written through it, and so nowhere else.
    open: Option<Open>,
    is_written: bool,
}

/// An open folder, and one in it where files are written before they get their names. That it can be made shows that files can be.
#[derive(Debug)]
struct Open {
    folder: Dir,
    staging: Dir,
    staging_name: String,
}

impl OutputFolder {
    /// Makes the folder if there is none.
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

    /// Writes the arrays of a value, and says where each is: tokens are nowhere.
    pub(crate) fn write(mut self, value: &Literal) -> Outcome<Vec<Option<PathBuf>>> {
        let files = match &self.open {
            Some(open) => open.write_staged(value).and_then(|files| {
                open.name(&files)?;
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
        let path = self.path.display();
        Failure::file(format!("expected to write to the folder {path}"), error)
    }
}

impl Open {
    /// Writes files into the staging folder, and gives the name of each array's.
    fn write_staged(&self, value: &Literal) -> io::Result<Vec<Option<String>>> {
        let mut names = Vec::new();
        let mut others: Vec<(String, &ArrayShape, &[u8])> = Vec::new();
        for (i, (shape, bytes)) in value.leaves().enumerate() {
            let name = match (shape.element_type(), npy::type_name(shape.element_type())) {
                (ElementType::Token, _) => None,
                (_, Some(type_name)) => {
                    let name = format!("{i}.npy");
                    let header = npy::header(type_name, shape.dimensions());
                    self.create(&name, &[&header, &readable(shape, bytes)])?;
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
        parts.iter().try_for_each(|part| file.write_all(part))
    }

    /// Gives the staged files their names, in place of files that have them. If one cannot be named, none is.
    fn name(&self, files: &[Option<String>]) -> io::Result<()> {
        let mut names: Vec<_> = files.iter().flatten().collect();
        names.sort();
        names.dedup();
        for (i, name) in names.iter().enumerate() {
            let renamed = self.staging.rename(name, &self.folder, name);
            if renamed.is_err() {
                for name in &names[..i] {
                    // What failed first is what is reported.
                    let _ = self.folder.remove_file(name);
                }
                return renamed;
            }
        }
        Ok(())
    }
}

impl Drop for OutputFolder {
    /// Removes the staging folder and, if nothing was written, the folders that were made. What cannot be removed stays.
    fn drop(&mut self) {
        if let Some(open) = &self.open {
            let _ = open.folder.remove_dir_all(&open.staging_name);
        }
        if !self.is_written {
            // A folder that somebody else has put something into is not removed.
            let _ = self.made.iter().try_for_each(fs::remove_dir);
        }
    }
}

/// Opens a folder and makes a new one in it.
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
                });
            }
        }
    }
}

/// The elements as numpy has them: a target may have written any byte for a truth value.
fn readable<'a>(shape: &ArrayShape, bytes: &'a [u8]) -> std::borrow::Cow<'a, [u8]> {
    match shape.element_type() {
        ElementType::Pred => bytes.iter().map(|byte| u8::from(*byte != 0)).collect(),
        _ => bytes.into(),
    }
}
