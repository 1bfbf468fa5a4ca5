//! Packages in `.safetensors` files, as tensors of bytes beside the weights.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use callbox::Status;
use callbox_package::Package;

use crate::failure::Outcome;
use crate::files::ReadError;
use crate::files::tensors::{self, Entries};
use crate::package::PREFIX;
use crate::{regular_file, write_file};

/// Adds a package to a `.safetensors` file as the tensor `callbox.NAME`, whose name is returned.
/// An earlier tensor of this name is replaced. Other tensors and the metadata stay as they are.
pub(super) fn write(path: &Path, package: &Package<'_>) -> Outcome<String> {
    let name = format!("{PREFIX}{}", package.header().name);
    let mut file = open_alone(path)?;
    let cannot = |error: ReadError| match error {
        ReadError::Io(error) => regular_file::cannot(path, &error),
        ReadError::Status(status) => status.context(path.display()).into(),
    };
    let entries = tensors::entries(&mut file).map_err(cannot)?;
    let earlier = entries.tensors.iter().find(|tensor| tensor.name == name);
    if earlier.is_some_and(|tensor| !tensor.is_bytes) {
        let message = format!("the tensor `{name}` has elements of another type than U8");
        return Err(Status::invalid_argument(message)
            .context(path.display())
            .into());
    }
    let header = header(&entries, &name, package.bytes().len())?;
    let before = file.metadata();
    let before = before.map_err(|error| regular_file::cannot(path, &error))?;
    write_file::write_with(path, |new| {
        new.write_all(&(header.len() as u64).to_le_bytes())?;
        new.write_all(header.as_bytes())?;
        copy(&mut file, &entries, &name, new)?;
        new.write_all(package.bytes())?;
        // A program that takes no lock.
        if is_same(&before, &path.metadata()?) {
            Ok(())
        } else {
            Err(io::Error::other("another program changed it meanwhile"))
        }
    })?;
    Ok(name)
}

/// Opens a file and waits until no other `callbox pack --into` is at it: each replaces the file by
/// one with another tensor.
fn open_alone(path: &Path) -> Outcome<File> {
    let cannot = |error: io::Error| regular_file::cannot(path, &error);
    loop {
        let file = regular_file::open(path)?;
        match file.lock() {
            Ok(()) => {}
            // Some file systems have no locks. Changes are still detected.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(file),
            Err(error) => return Err(cannot(error)),
        }
        let locked = file.metadata().map_err(cannot)?;
        // The file that was waited for may have been replaced by the one that held the lock.
        if is_same(&locked, &path.metadata().map_err(cannot)?) {
            return Ok(file);
        }
    }
}

/// Whether a path still leads to the file that was opened, with the same contents as far as its
/// size and times tell.
fn is_same(opened: &Metadata, found: &Metadata) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        if (opened.dev(), opened.ino()) != (found.dev(), found.ino()) {
            return false;
        }
    }
    opened.len() == found.len() && opened.modified().ok() == found.modified().ok()
}

/// The header of the new file. Spaces at its end put the elements at a multiple of eight bytes, as
/// the format has it.
fn header(entries: &Entries, name: &str, size: usize) -> Outcome<String> {
    let quoted = |text: &str| serde_json::to_string(text);
    let internal = |error: serde_json::Error| Status::internal(error.to_string());
    let mut items = Vec::with_capacity(entries.tensors.len() + 2);
    if let Some(metadata) = &entries.metadata {
        items.push(format!("\"__metadata__\":{metadata}"));
    }
    let mut end = 0;
    for tensor in entries.tensors.iter().filter(|tensor| tensor.name != name) {
        let start = end;
        end += tensor.range.len();
        let name = quoted(&tensor.name).map_err(internal)?;
        let (dtype, shape) = (&tensor.dtype, &tensor.shape);
        items.push(format!(
            r#"{name}:{{"dtype":{dtype},"shape":{shape},"data_offsets":[{start},{end}]}}"#
        ));
    }
    let name = quoted(name).map_err(internal)?;
    items.push(format!(
        r#"{name}:{{"dtype":"U8","shape":[{size}],"data_offsets":[{end},{}]}}"#,
        end + size
    ));
    let mut header = format!("{{{}}}", items.join(","));
    while header.len() % 8 != 0 {
        header.push(' ');
    }
    Ok(header)
}

/// Copies the elements of all tensors but one.
fn copy(file: &mut File, entries: &Entries, left_out: &str, new: &mut File) -> io::Result<()> {
    for tensor in entries
        .tensors
        .iter()
        .filter(|tensor| tensor.name != left_out)
    {
        file.seek(SeekFrom::Start(entries.data_at + tensor.range.start as u64))?;
        let size = tensor.range.len() as u64;
        if io::copy(&mut file.take(size), new)? != size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}
