//! Writes one file that a command line names.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::failure::{Failure, Outcome};

/// Writes a file, replacing an earlier one, whose mode it keeps. If writing fails, the earlier one
/// stays. A device or a pipe is written to.
pub(super) fn write(path: &Path, parts: &[&[u8]]) -> Outcome<()> {
    write_with(path, |file| {
        parts.iter().try_for_each(|part| file.write_all(part))
    })
}

/// The same with the contents that a function writes.
pub(super) fn write_with(
    path: &Path,
    contents: impl FnOnce(&mut File) -> io::Result<()>,
) -> Outcome<()> {
    write_as(path, path, contents)
}

/// Writes a file that is to take the place of another one, whose mode it gets.
#[cfg_attr(not(feature = "fetch"), allow(dead_code, reason = "of downloads only"))]
pub(super) fn write_beside(staged: &Path, path: &Path, parts: &[&[u8]]) -> Outcome<()> {
    write_as(staged, path, |file| {
        parts.iter().try_for_each(|part| file.write_all(part))
    })
}

/// Writes a file with the mode of another one, or of an earlier one of the same name. A device or
/// a pipe is written to, and stays.
fn write_as(
    path: &Path,
    like: &Path,
    contents: impl FnOnce(&mut File) -> io::Result<()>,
) -> Outcome<()> {
    let cannot = |error| Failure::file(format!("expected to write {}", path.display()), &error);
    if is_device(path) {
        let opened = OpenOptions::new().write(true).open(path);
        let written = opened.and_then(|mut file| contents(&mut file));
        return written.map_err(cannot);
    }
    let earlier = like.metadata().ok().filter(fs::Metadata::is_file);
    let permissions = earlier.map(|data| data.permissions());
    let created = check_replaceable(path).and_then(|()| create(path));
    let written = created.and_then(|(staged, file)| {
        let written = fill(file, permissions, contents).and_then(|()| fs::rename(&staged, path));
        written.inspect_err(|_| {
            // The failure that led here counts.
            let _ = fs::remove_file(&staged);
        })
    });
    written.map_err(cannot)
}

/// Whether a path leads to a device, a pipe or a socket, which a renamed file would replace.
fn is_device(path: &Path) -> bool {
    let found = path.metadata();
    found.is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// Checks that no folder is lost to a file of its name. Renaming a file to a link that leads to a
/// folder would replace the link.
pub(super) fn check_replaceable(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    Ok(())
}

/// Creates a file beside another one. A killed process, or one in another container, can have left
/// files with the names of this process.
fn create(path: &Path) -> io::Result<(PathBuf, File)> {
    let process = std::process::id();
    let mut attempt = 0_u32;
    loop {
        let mut staged = path.as_os_str().to_owned();
        staged.push(format!(".{process}-{attempt}.part"));
        match File::create_new(&staged) {
            Ok(file) => return Ok((staged.into(), file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < 100 => {
                attempt += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

fn fill(
    mut file: File,
    permissions: Option<Permissions>,
    contents: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    // Before the contents, which may be private.
    if let Some(permissions) = permissions {
        file.set_permissions(permissions)?;
    }
    contents(&mut file)?;
    // Some file systems report a full disk only now.
    file.sync_all()
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::fs;
    use std::os::unix::fs::FileTypeExt as _;
    use std::process::Command;

    /// A pipe stands for devices, which only root could lose to a renamed file, with the machine.
    #[test]
    fn pipes_are_written_to_and_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        assert!(
            Command::new("mkfifo")
                .arg(&path)
                .status()
                .unwrap()
                .success()
        );
        let reader = std::thread::spawn({
            let path = path.clone();
            move || fs::read(path).unwrap()
        });
        super::write(&path, &[b"a", b"b"]).unwrap();
        assert_eq!(reader.join().unwrap(), b"ab");
        assert!(path.metadata().unwrap().file_type().is_fifo());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
