//! The files of capsules: see [`callbox_package::Capsule`].

use std::path::{Path, PathBuf};

use callbox::{Blame, Status, StatusCode};
pub(super) use callbox_package::{Capsule, StatusRecord, check_grants};

use super::failure::{Failure, Outcome};
use super::files::ReadError;
use super::files::tensors::Tensors;
use super::{regular_file, write_file};

/// Writes a capsule to a folder. `show` gets the path and what the file will have before it is
/// written.
///
/// # Errors
/// Those of [`Capsule::to_file`]; wrong usage if the file cannot be written.
pub(super) fn write(capsule: &Capsule, folder: &Path, show: impl FnOnce(&str)) -> Outcome<PathBuf> {
    let file = capsule.to_file()?;
    let path = folder.join(&file.name);
    show(&file.describe(&path));
    write_file::write(&path, &[&file.bytes])?;
    Ok(path)
}

/// Makes the folder for capsules.
pub(super) fn make_folder(folder: &Path) -> Outcome<()> {
    std::fs::create_dir_all(folder).map_err(|error| {
        let expected = format!("expected to make the folder {}", folder.display());
        Failure::file(expected, &error)
    })
}

/// Reads a capsule. The file is opened once: another one may take its path meanwhile.
///
/// # Errors
/// INVALID_ARGUMENT if the file is no capsule, or its module has another digest; wrong usage if it
/// cannot be read.
pub(super) fn read(path: &Path) -> Outcome<Capsule> {
    let not_read = |error| match error {
        ReadError::Io(error) => regular_file::cannot(path, &error),
        ReadError::Status(status) => status.into(),
    };
    let in_file = |failure: Failure| failure.context(path.display());
    let file = regular_file::open(path)?;
    let metadata = file.metadata();
    let size = metadata
        .map_err(|error| regular_file::cannot(path, &error))?
        .len();
    let most = Capsule::MOST_FILE as u64;
    if size > most {
        let message = format!("expected a capsule of at most {most} bytes, found {size}");
        let status = Status::new(StatusCode::ResourceExhausted, Blame::Caller, message);
        return Err(in_file(status.into()));
    }
    let tensors = Tensors::open(file).map_err(|error| not_read(error).context("no capsule"));
    let mut tensors = tensors.map_err(in_file)?;
    let capsule = Capsule::from_arrays(|name, element_type| {
        let array = tensors.read(name, Some(element_type)).map_err(not_read)?;
        Ok(array.bytes().unwrap_or_default().to_vec())
    });
    capsule.map_err(in_file)
}
