//! Native code as bytes, on its way from a compiler or from the cache into wasmtime.
//!
//! Code arrives in pieces. Small code is collected in a vector, which wasmtime copies. Large code
//! is collected in a memory file, which wasmtime maps, so that it takes its size in memory once. No
//! other process has the file, and it is sealed when it is complete: nothing can change it.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Write};

/// Code of this many bytes is large. The descriptor of a memory file is open for as long as the
/// module is loaded, which small modules should not take.
pub(crate) const LARGE: usize = 4 << 20;

/// The bytes that are read at a time.
#[cfg(target_os = "linux")]
const PIECE: usize = 1 << 20;

/// A module's native code, complete and unchangeable.
#[derive(Debug)]
pub struct Code(Storage);

#[derive(Debug)]
enum Storage {
    Vector(Vec<u8>),
    /// A sealed memory file.
    #[cfg(target_os = "linux")]
    File {
        file: File,
        bytes: usize,
    },
}

/// Collects the pieces of native code.
#[derive(Debug)]
pub struct CodeBuffer(Storage);

impl CodeBuffer {
    /// A buffer for code of about `bytes` bytes. Memory is taken only as pieces arrive.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let file = (bytes >= LARGE).then(|| memory_file(bytes)).flatten();
        Self(file.unwrap_or_else(|| Storage::Vector(Vec::new())))
    }

    /// Adds a piece.
    ///
    /// # Errors
    /// The system's, if it lacks memory.
    pub fn push(&mut self, piece: &[u8]) -> io::Result<()> {
        match &mut self.0 {
            Storage::Vector(code) => {
                code.try_reserve(piece.len())?;
                code.extend_from_slice(piece);
            }
            #[cfg(target_os = "linux")]
            Storage::File { file, bytes } => {
                file.write_all(piece)?;
                *bytes += piece.len();
            }
        }
        Ok(())
    }

    /// The code, once all pieces have arrived.
    ///
    /// # Errors
    /// The system's, if it cannot seal a memory file.
    pub fn finish(self) -> io::Result<Code> {
        #[cfg(target_os = "linux")]
        if let Storage::File { file, .. } = &self.0 {
            use rustix::fs::{SealFlags, fcntl_add_seals};
            let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
            fcntl_add_seals(file, seals)?;
        }
        Ok(Code(self.0))
    }
}

impl From<Vec<u8>> for Code {
    fn from(code: Vec<u8>) -> Self {
        Self(Storage::Vector(code))
    }
}

impl Code {
    /// The size of the code, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        match &self.0 {
            Storage::Vector(code) => code.len(),
            #[cfg(target_os = "linux")]
            Storage::File { bytes, .. } => *bytes,
        }
    }

    /// Another descriptor of the sealed memory file that has the code, if there is one.
    pub(crate) fn file(&self) -> Option<File> {
        match &self.0 {
            Storage::Vector(_) => None,
            #[cfg(target_os = "linux")]
            Storage::File { file, .. } => file.try_clone().ok(),
        }
    }

    /// The code in memory. That of a memory file is copied.
    pub(crate) fn to_bytes(&self) -> io::Result<Cow<'_, [u8]>> {
        match &self.0 {
            Storage::Vector(code) => Ok(code.into()),
            #[cfg(target_os = "linux")]
            Storage::File { bytes, .. } => {
                let mut code = Vec::new();
                code.try_reserve_exact(*bytes)?;
                self.write_to(&mut code)?;
                Ok(code.into())
            }
        }
    }

    /// Writes the code in pieces.
    pub(crate) fn write_to(&self, to: &mut impl Write) -> io::Result<()> {
        match &self.0 {
            Storage::Vector(code) => to.write_all(code),
            #[cfg(target_os = "linux")]
            Storage::File { file, bytes } => {
                use std::os::unix::fs::FileExt;
                let mut piece = vec![0; PIECE.min(*bytes)];
                for at in (0..*bytes).step_by(PIECE) {
                    let length = PIECE.min(*bytes - at);
                    let piece = &mut piece[..length];
                    file.read_exact_at(piece, at as u64)?;
                    to.write_all(piece)?;
                }
                Ok(())
            }
        }
    }
}

/// An empty memory file. `None` if the system or this process's limits do not allow one.
#[cfg(target_os = "linux")]
fn memory_file(bytes: usize) -> Option<Storage> {
    use rustix::fs::{MemfdFlags, memfd_create};
    use rustix::process::{Resource, getrlimit};
    // A write past this limit would be a signal, which ends the process.
    let most = getrlimit(Resource::Fsize).current;
    if most.is_some_and(|most| most < bytes as u64) {
        return None;
    }
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("callbox-code", flags).ok()?.into();
    Some(Storage::File { file, bytes: 0 })
}

#[cfg(not(target_os = "linux"))]
fn memory_file(_: usize) -> Option<Storage> {
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn collected(pieces: &[Vec<u8>]) -> Code {
        let mut buffer = CodeBuffer::new(pieces.iter().map(Vec::len).sum());
        pieces.iter().for_each(|piece| buffer.push(piece).unwrap());
        buffer.finish().unwrap()
    }

    #[test]
    fn pieces_come_back_as_a_whole() {
        for size in [0, 1, 1000, 700_001] {
            let pieces: Vec<_> = (0..7).map(|piece| vec![piece; size]).collect();
            let code = collected(&pieces);
            assert_eq!(code.size(), 7 * size);
            assert!(code.to_bytes().unwrap() == pieces.concat(), "{size}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn complete_code_cannot_be_changed() {
        use std::os::unix::fs::FileExt;
        let code = collected(&[vec![1; LARGE]]);
        let file = code.file().unwrap();
        assert!(file.write_all_at(&[2], 0).is_err());
        assert!(file.write_all_at(&[2], LARGE as u64).is_err());
        assert!(file.set_len(1).is_err());
        assert!(collected(&[vec![1; LARGE - 1]]).file().is_none());
    }
}
