//! Reads the files that a caller names.

use std::io::{self, Error, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use callbox::untrusted_text;
use callbox::wasm::{room_for_file, room_for_file_soon};
use callbox_core::regular_file;
use pyo3::exceptions::{
    PyFileNotFoundError, PyIsADirectoryError, PyMemoryError, PyOSError, PyPermissionError,
    PyTypeError,
};
use pyo3::prelude::*;
use sha2::{Digest, Sha256};

use crate::exit::argument;
use crate::site::to_hex;

/// The bytes of a module that Python reads from a file, which `Host._load_contents` takes: modules
/// are large, and not to be in memory twice.
///
/// Python reads, and adds what it read: a read releases the GIL, and a thread with frames of Rust
/// must not wait for it while the interpreter ends (see [`exit`](crate::exit)).
#[pyclass(frozen, module = "callbox._callbox")]
#[derive(Default)]
pub(crate) struct Contents {
    /// Empty once they were taken.
    bytes: Mutex<Vec<u8>>,
}

#[pymethods]
impl Contents {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// # Errors
    /// MemoryError: a stranger's file can be larger than what this process may have.
    fn add(&self, piece: &[u8]) -> PyResult<()> {
        let mut bytes = self.locked();
        // The vector may double.
        let most = bytes.len().saturating_add(piece.len()).saturating_mul(2);
        // Others may wait for the GIL.
        let _room = room_for_file_soon(most)
            .map_err(|status| PyMemoryError::new_err(status.message().to_owned()))?;
        let reserved = bytes.try_reserve(piece.len());
        reserved.map_err(|error| PyMemoryError::new_err(error.to_string()))?;
        bytes.extend_from_slice(piece);
        Ok(())
    }

    /// The SHA-256 digest, in hexadecimal.
    fn sha256(&self, py: Python<'_>) -> String {
        py.detach(|| self.with(|bytes| to_hex(&Sha256::digest(bytes))))
    }
}

impl Contents {
    pub(crate) fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.locked())
    }

    /// Calls a function with the bytes.
    pub(crate) fn with<T>(&self, function: impl FnOnce(&[u8]) -> T) -> T {
        function(&self.locked())
    }

    fn locked(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a regular file of at most `most` bytes.
///
/// Of a longer file it reads one byte more, so that the library refuses it.
pub(crate) fn read(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = (most as u64).saturating_add(1);
    let file = regular_file::open(path)?;
    let size = usize::try_from(file.metadata()?.len().min(most)).unwrap_or(usize::MAX);
    let _room = room_for_file(size)
        .map_err(|status| Error::new(ErrorKind::OutOfMemory, status.message().to_owned()))?;
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a module, and returns its path if it has one.
///
/// `most` is the maximum length of a module.
pub(crate) fn read_module(
    source: &Bound<'_, PyAny>,
    most: usize,
) -> PyResult<(Option<PathBuf>, Vec<u8>)> {
    if let Ok(given) = source.extract::<&[u8]>() {
        // As of a file that is longer.
        let given = &given[..given.len().min(most.saturating_add(1))];
        let copied = source.py().detach(|| copy(given));
        return Ok((None, copied.map_err(PyMemoryError::new_err)?));
    }
    let path: PathBuf = argument(source).map_err(|error: PyErr| {
        if !error.is_instance_of::<PyTypeError>(source.py()) {
            return error;
        }
        let found = source.get_type().name();
        PyTypeError::new_err(format!(
            "expected the path of a .wasm file or its bytes, found {}",
            found.map_or_else(|_| "something else".to_owned(), |name| name.to_string())
        ))
    })?;
    let read = source.py().detach(|| read(&path, most));
    let bytes = read.map_err(|failed| error(&path, &failed))?;
    Ok((Some(path), bytes))
}

/// Copies the bytes of a module. The caller has no lock that others need.
fn copy(given: &[u8]) -> Result<Vec<u8>, String> {
    let _room = room_for_file(given.len()).map_err(|status| status.message().to_owned())?;
    let mut bytes = Vec::new();
    let reserved = bytes.try_reserve_exact(given.len());
    reserved.map_err(|error| error.to_string())?;
    bytes.extend_from_slice(given);
    Ok(bytes)
}

/// A path in a message. A stranger can have named a file.
#[pyfunction]
pub(crate) fn shown_path(#[pyo3(from_py_with = argument)] path: PathBuf) -> String {
    untrusted_text::shown_path(&path)
}

/// Converts the error of reading a file.
pub(crate) fn error(path: &Path, error: &Error) -> PyErr {
    let message = format!("cannot read {}: {error}", untrusted_text::shown_path(path));
    match error.kind() {
        ErrorKind::NotFound => PyFileNotFoundError::new_err(message),
        ErrorKind::IsADirectory => PyIsADirectoryError::new_err(message),
        ErrorKind::PermissionDenied => PyPermissionError::new_err(message),
        ErrorKind::OutOfMemory => PyMemoryError::new_err(message),
        _ => PyOSError::new_err(message),
    }
}
