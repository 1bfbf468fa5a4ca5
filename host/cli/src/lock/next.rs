//! A change of a lock and of its files that a kill between any two steps leaves usable.
//!
//! A command that changes several files first stages each beside its place, then writes the lock's
//! next form, moves the files to their places, and writes the lock last. From the second step to
//! the last, [`Lock`](super::Lock) takes each file in its old and in its new form. The next command
//! that writes the lock finishes the change ([`finish`]), which takes nothing but the folder.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callbox::{Blame, Status, StatusCode};
use callbox_core::json::{Object, object};
use callbox_core::untrusted_text::shown_name;
use callbox_package::Limits;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::file::{
    Entries, LockFile, MOST_BYTES, check_folder, folder_of, is_below, text_of, write as write_lock,
    wrong_lock,
};
use crate::failure::{Failure, Outcome};
use crate::{regular_file, write_file};

/// The ends of the names of the lock's next form and of staged files.
const NEXT: &str = ".next";
const STAGED: &str = ".callbox-next";

const FORMAT: u64 = 1;

/// The JSON of the next form.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NextFile {
    format: u64,
    /// SHA-256 of the lock that it replaces. Beside another lock, it means nothing.
    replaces: String,
    #[serde(deserialize_with = "object")]
    lock: LockFile,
    /// The new files by their paths from the lock's folder, each with its SHA-256.
    files: BTreeMap<String, String>,
}

/// New contents for a file of a lock, or for one beside it.
#[derive(Debug)]
pub(crate) struct NewFile {
    /// The path from the lock's folder, with `/` between names.
    pub(crate) name: String,
    pub(crate) bytes: Arc<Vec<u8>>,
}

/// A step of a change, before and after which a command may be killed.
#[derive(Debug)]
enum Step<'a> {
    /// Writes the new contents beside the file.
    Stage(&'a NewFile),
    /// Writes the next form of the lock: from here on, the change is finished if it is interrupted.
    Announce,
    /// Moves a staged file to its place.
    Place(&'a NewFile),
    /// Writes the lock.
    Replace,
    /// Removes the next form.
    Clear,
}

/// Writes files and a lock that has them.
pub(crate) fn change(lock: &Path, entries: &Entries, files: &[NewFile]) -> Outcome<()> {
    let change = Change {
        lock,
        folder: folder_of(lock)?,
        entries,
        files,
    };
    text_of(lock, entries)?;
    let mut steps = change.steps().into_iter();
    steps.try_for_each(|step| change.run(&step))
}

struct Change<'a> {
    lock: &'a Path,
    folder: PathBuf,
    entries: &'a Entries,
    files: &'a [NewFile],
}

impl<'a> Change<'a> {
    fn steps(&self) -> Vec<Step<'a>> {
        let stage = self.files.iter().map(Step::Stage);
        let place = self.files.iter().map(Step::Place);
        stage
            .chain([Step::Announce])
            .chain(place)
            .chain([Step::Replace, Step::Clear])
            .collect()
    }

    fn run(&self, step: &Step<'_>) -> Outcome<()> {
        match step {
            Step::Stage(file) => {
                let path = self.folder.join(&file.name);
                write_file::write_beside(&staged(&path), &path, &[file.bytes.as_slice()])
            }
            Step::Announce => self.announce(),
            Step::Place(file) => {
                let path = self.folder.join(&file.name);
                rename(&staged(&path), &path)
            }
            Step::Replace => write_lock(self.lock, self.entries).map(|_| ()),
            Step::Clear => remove(&next(self.lock)),
        }
    }

    fn announce(&self) -> Outcome<()> {
        let files = self.files.iter();
        let file = NextFile {
            format: FORMAT,
            replaces: digest(&regular_file::read(self.lock, MOST_BYTES)?),
            lock: LockFile::new(self.entries),
            files: files
                .map(|file| (file.name.clone(), digest(&file.bytes)))
                .collect(),
        };
        let text = serde_json::to_string_pretty(&file);
        let text = text.map_err(|error| Status::internal(error.to_string()))?;
        write_file::write(&next(self.lock), &[text.as_bytes(), b"\n"])
    }
}

/// The next form of a lock whose text is `text`. `None` if no change of it was interrupted.
pub(super) fn of(lock: &Path, text: &[u8]) -> Outcome<Option<Entries>> {
    let path = next(lock);
    if is_missing(&path)? {
        return Ok(None);
    }
    let next = read(&path)?;
    Ok((next.replaces == digest(text)).then_some(next.entries))
}

/// Finishes a change of a lock that was interrupted. Returns whether there was one.
///
/// # Errors
/// FAILED_PRECONDITION if a file is neither staged nor the new one, or its folder became a link:
/// the user changed it since.
pub(crate) fn finish(lock: &Path) -> Outcome<bool> {
    let path = next(lock);
    if is_missing(lock)? || is_missing(&path)? {
        return Ok(false);
    }
    let text = regular_file::read(lock, MOST_BYTES)?;
    let next = read(&path)?;
    let is_announced = next.replaces == digest(&text);
    let folder = folder_of(lock)?;
    for name in next.files.keys() {
        check_folder(&folder, name).map_err(|failure| failure.context(path.display()))?;
    }
    for (name, sha256) in &next.files {
        let file = folder.join(name);
        if is_announced {
            place(&file, sha256).map_err(|failure| failure.context(path.display()))?;
        } else {
            remove(&staged(&file))?;
        }
    }
    if is_announced {
        write_lock(lock, &next.entries)?;
    }
    remove(&path)?;
    Ok(is_announced)
}

/// Moves a staged file to its place, unless the file there is the new one.
fn place(file: &Path, wanted: &str) -> Outcome<()> {
    let most = Limits::default().package_bytes;
    let has =
        |path: &Path| regular_file::read(path, most).is_ok_and(|bytes| digest(&bytes) == wanted);
    let staged = staged(file);
    if has(&staged) {
        return rename(&staged, file);
    }
    if has(file) {
        return Ok(());
    }
    let message = format!(
        "an update was interrupted, and {} is neither its new version nor staged: restore the \
         file, and remove the file with the end {NEXT}",
        file.display()
    );
    Err(Status::new(StatusCode::FailedPrecondition, Blame::Caller, message).into())
}

/// A next form that was read and checked.
struct Next {
    replaces: String,
    entries: Entries,
    files: BTreeMap<String, String>,
}

fn read(path: &Path) -> Outcome<Next> {
    let wrong =
        |message: String| Failure::from(Status::invalid_argument(message).context(path.display()));
    let text = regular_file::read(path, 2 * MOST_BYTES)?;
    let Object(next) = serde_json::from_slice::<Object<NextFile>>(&text)
        .map_err(|error| wrong(wrong_lock(&error.to_string())))?;
    if next.format != FORMAT {
        let found = next.format;
        return Err(wrong(format!("expected `format` {FORMAT}, found {found}")));
    }
    if let Some(name) = next.files.keys().find(|name| !is_below(name)) {
        return Err(wrong(format!(
            "expected the paths of files below the folder of the lock, found \"{}\"",
            shown_name(name)
        )));
    }
    Ok(Next {
        replaces: next.replaces,
        entries: next.lock.entries().map_err(wrong)?,
        files: next.files,
    })
}

fn next(lock: &Path) -> PathBuf {
    with_end(lock, NEXT)
}

/// The path of a staged file.
pub(crate) fn staged(file: &Path) -> PathBuf {
    with_end(file, STAGED)
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

fn is_missing(path: &Path) -> Outcome<bool> {
    match path.symlink_metadata() {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(regular_file::cannot(path, &error)),
    }
}

fn rename(from: &Path, to: &Path) -> Outcome<()> {
    let wrong =
        |error: io::Error| Failure::file(format!("expected to write {}", to.display()), &error);
    let renamed = write_file::check_replaceable(to).and_then(|()| fs::rename(from, to));
    renamed.map_err(wrong)
}

/// Removes a file, which need not exist.
fn remove(path: &Path) -> Outcome<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            let expected = format!("expected to remove {}", path.display());
            Err(Failure::file(expected, &error))
        }
        _ => Ok(()),
    }
}

fn digest(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::disallowed_methods,
        reason = "tests fail by panicking, and work on files of their own"
    )]

    use super::super::{Entry, Lock};
    use super::*;

    fn change_of<'a>(lock: &'a Path, entries: &'a Entries, files: &'a [NewFile]) -> Change<'a> {
        Change {
            lock,
            folder: folder_of(lock).unwrap(),
            entries,
            files,
        }
    }

    const NAMES: [&str; 3] = ["a.wasm", "b.wasm", "k/c.wasm"];

    fn contents(version: u32, name: &str) -> Vec<u8> {
        format!("{name} of version {version}").into_bytes()
    }

    fn entries(version: u32) -> Entries {
        let entries = NAMES.map(|name| {
            let bytes = contents(version, name);
            let entry = Entry {
                file: name.to_owned(),
                digest: digest(&bytes),
                size: bytes.len() as u64,
                name: None,
                version: None,
                commit: None,
                from: Some("https://example.com/k.wasm".to_owned()),
            };
            (name.to_owned(), entry)
        });
        entries.into()
    }

    /// A folder with the first version of each file, and what changes it to the second one.
    fn folder() -> (tempfile::TempDir, PathBuf, Vec<NewFile>) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("k")).unwrap();
        let files = NAMES.map(|name| {
            fs::write(folder.path().join(name), contents(1, name)).unwrap();
            NewFile {
                name: name.to_owned(),
                bytes: Arc::new(contents(2, name)),
            }
        });
        let lock = folder.path().join("callbox.lock");
        write_lock(&lock, &entries(1)).unwrap();
        (folder, lock, files.into())
    }

    /// The version of each file, all of which the lock takes.
    fn loaded(path: &Path) -> Vec<u32> {
        let lock = Lock::read(path).unwrap();
        let versions = NAMES.iter().map(|name| {
            let file = path.with_file_name(name);
            let bytes = fs::read(&file).unwrap();
            let size = bytes.len() as u64;
            lock.check(&file, &digest(&bytes), size).unwrap();
            // Nothing else is taken meanwhile.
            lock.check(&file, &digest(b"other"), size).unwrap_err();
            if bytes == contents(1, name) { 1 } else { 2 }
        });
        versions.collect()
    }

    fn names_in(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names = Vec::from_iter(names);
        names.sort();
        names
    }

    #[test]
    fn a_kill_between_two_steps_leaves_files_that_load() {
        let count = change_of(&folder().1, &entries(2), &folder().2)
            .steps()
            .len();
        for killed_after in 0..=count {
            let (folder, lock, files) = folder();
            let (old, new) = (entries(1), entries(2));
            let change = change_of(&lock, &new, &files);
            for step in change.steps().iter().take(killed_after) {
                change.run(step).unwrap();
            }
            let placed = killed_after
                .saturating_sub(NAMES.len() + 1)
                .min(NAMES.len());
            let expected = Vec::from_iter((0..NAMES.len()).map(|i| if i < placed { 2 } else { 1 }));
            assert_eq!(loaded(&lock), expected, "{killed_after}");
            let is_new = killed_after >= count - 1;
            let found = Lock::read(&lock).unwrap();
            assert_eq!(found.entries(), if is_new { &new } else { &old });

            // Before the next form is there, the old version stays; then the new one comes.
            let is_announced = (NAMES.len() + 1..count - 1).contains(&killed_after);
            assert_eq!(finish(&lock).unwrap(), is_announced, "{killed_after}");
            let is_new = is_new || is_announced;
            assert_eq!(loaded(&lock), [if is_new { 2 } else { 1 }; 3]);
            assert!(!finish(&lock).unwrap());
            if !is_new {
                super::change(&lock, &new, &files).unwrap();
                assert_eq!(loaded(&lock), [2; 3]);
            }
            assert_eq!(
                names_in(folder.path()),
                ["a.wasm", "b.wasm", "callbox.lock", "k"]
            );
            assert_eq!(names_in(&folder.path().join("k")), ["c.wasm"]);
        }
    }

    /// A folder or a file that the user replaced by a link after the kill stays a link, and the
    /// change is finished when it is back.
    #[cfg(unix)]
    #[test]
    fn links_are_not_followed_or_replaced_by_an_interrupted_change() {
        use std::os::unix::fs::symlink;

        for name in ["k", "b.wasm"] {
            let (folder, lock, files) = folder();
            let new = entries(2);
            let change = change_of(&lock, &new, &files);
            for step in change.steps().iter().take(NAMES.len() + 1) {
                change.run(step).unwrap();
            }
            let elsewhere = tempfile::tempdir().unwrap();
            let other = elsewhere.path().join("c.wasm");
            fs::write(&other, "mine").unwrap();
            fs::write(staged(&other), contents(2, "k/c.wasm")).unwrap();
            let (path, kept) = (folder.path().join(name), folder.path().join("kept"));
            fs::rename(&path, &kept).unwrap();
            symlink(elsewhere.path(), &path).unwrap();
            let status = finish(&lock).unwrap_err().status().clone();
            let message = if name == "k" {
                "k/c.wasm: expected a folder below that of the lock, found a link to "
            } else {
                "b.wasm: is a directory"
            };
            assert!(status.message().contains(message), "{status}");
            assert_eq!(fs::read_link(&path).unwrap(), elsewhere.path());
            assert_eq!(fs::read(&other).unwrap(), b"mine");
            assert_eq!(Lock::read(&lock).unwrap().entries(), &entries(1));
            fs::remove_file(&path).unwrap();
            fs::rename(&kept, &path).unwrap();
            assert!(finish(&lock).unwrap());
            assert_eq!(loaded(&lock), [2; 3]);
        }
    }

    /// The lock is named through a link to its folder.
    #[cfg(unix)]
    #[test]
    fn a_kill_leaves_files_that_load_behind_a_link() {
        let links = tempfile::tempdir().unwrap();
        for killed_after in 0..=2 * NAMES.len() + 3 {
            let (folder, lock, files) = folder();
            let link = links.path().join(killed_after.to_string());
            std::os::unix::fs::symlink(folder.path(), &link).unwrap();
            let (named, new) = (link.join("callbox.lock"), entries(2));
            let change = change_of(&named, &new, &files);
            for step in change.steps().iter().take(killed_after) {
                change.run(step).unwrap();
            }
            loaded(&lock);
            finish(&named).unwrap();
            super::change(&named, &new, &files).unwrap();
            assert_eq!(loaded(&lock), [2; 3], "{killed_after}");
            assert_eq!(fs::read_link(&link).unwrap(), folder.path());
            let names = ["a.wasm", "b.wasm", "callbox.lock", "k"];
            assert_eq!(names_in(folder.path()), names);
        }
    }

    /// An interrupted change, after which the user wrote another lock or another file.
    #[test]
    fn an_interrupted_change_does_not_outlive_its_lock() {
        let interrupted = || {
            let (folder, lock, files) = folder();
            let new = entries(2);
            let change = change_of(&lock, &new, &files);
            for step in change.steps().iter().take(NAMES.len() + 2) {
                change.run(step).unwrap();
            }
            (folder, lock, files)
        };
        let (folder, lock, files) = interrupted();
        let mut others = entries(1);
        others.remove("k/c.wasm").unwrap();
        write_lock(&lock, &others).unwrap();
        let found = Lock::read(&lock).unwrap();
        let new = &files[0];
        let path = folder.path().join(&new.name);
        let failure = found.check(&path, &digest(&new.bytes), new.bytes.len() as u64);
        assert_eq!(
            failure.unwrap_err().status().code(),
            StatusCode::PermissionDenied
        );
        assert!(!finish(&lock).unwrap());
        assert_eq!(Lock::read(&lock).unwrap().entries(), &others);
        assert_eq!(
            names_in(folder.path()),
            ["a.wasm", "b.wasm", "callbox.lock", "k"]
        );

        let (folder, lock, files) = interrupted();
        fs::write(staged(&folder.path().join(&files[1].name)), "other").unwrap();
        let status = finish(&lock).unwrap_err().status().clone();
        assert_eq!(status.code(), StatusCode::FailedPrecondition);
        assert!(status.message().contains("b.wasm is neither"), "{status}");
        assert_eq!(Lock::read(&lock).unwrap().entries(), &entries(1));
        for (text, message) in [
            ("[1]", "expected an object"),
            (
                r#"{"format":1,"replaces":"","lock":{"format":1,"files":[]},"files":{"../x":""}}"#,
                "found \"../x\"",
            ),
            (
                r#"{"format":2,"replaces":"","lock":{"format":1,"files":[]},"files":{}}"#,
                "found 2",
            ),
            (
                r#"{"format":1,"replaces":"","lock":{"format":2,"files":[]},"files":{}}"#,
                "found 2",
            ),
        ] {
            fs::write(next(&lock), text).unwrap();
            for status in [finish(&lock).unwrap_err(), Lock::read(&lock).unwrap_err()] {
                let status = status.status();
                assert_eq!(status.code(), StatusCode::InvalidArgument, "{status}");
                assert!(status.message().contains(message), "{status}");
            }
        }
        drop(folder);
    }
}
