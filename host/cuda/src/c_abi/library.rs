//! Shared libraries with C targets.
//!
//! A library is loaded from a sealed copy in memory of the bytes whose digest was granted, because
//! the file may have changed by the time that the loader opens it.
#![allow(unsafe_code, reason = "loads native code that was granted")]

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use callbox_core::call::{ApiVersion, Signature};
use callbox_core::locks::locked;
use callbox_core::values::{Blame, Result, Status, StatusCode};
use libloading::Library;
use sha2::{Digest, Sha256};

use super::status::{STATUS_API, StatusApi};
use super::{Buffers, CEntry, CFunction, NamedFunction};
use crate::files::{MAX_BYTES, read};
use crate::grants::NativeGrants;
use crate::module::{Code, CudaModule, undeclared};

/// A function of a library that becomes a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryTarget {
    /// The function's name, which is also the target's.
    pub name: String,
    /// The function's convention: [`ApiVersion::Original`], or one that returns a status. The
    /// library does not record it.
    pub api_version: ApiVersion,
    /// The pointers that the function is passed.
    pub buffers: Buffers,
}

/// A library that was granted and loaded.
///
/// It is never unloaded: a stream may still call it, and the loader may keep a library that it was
/// told to close.
#[derive(Debug)]
pub(super) struct NativeLibrary {
    library: Library,
    digest: [u8; 32],
    copy: SealedCopy,
}

impl CudaModule {
    /// Loads functions of a shared library as targets.
    ///
    /// # Errors
    /// PERMISSION_DENIED, with the file's digest, if `grants` does not have it; NOT_FOUND if the
    /// file or a function does not exist; INVALID_ARGUMENT for a file that is not a shared library,
    /// and for a convention that C functions do not have on CUDA; UNIMPLEMENTED on other systems
    /// than Linux.
    ///
    /// # Safety
    /// Each function must have the convention that its [`LibraryTarget`] names, and be sound to
    /// call by it, for every call site that names it: the function accesses only the arrays of the
    /// call, the opaque bytes and its own memory, and does not unwind. A function that returns a
    /// status passes it to XLA's status API only, and only until it returns. Nothing checks this.
    /// That the library itself may run was promised by [`NativeGrants::allow`].
    pub unsafe fn load_library(
        path: &Path,
        targets: &[LibraryTarget],
        grants: &NativeGrants,
    ) -> Result<Arc<Self>> {
        let load = || {
            let library = NativeLibrary::load(path, grants)?;
            // SAFETY: the caller promises that each function has the convention that its target
            // names.
            let functions = targets
                .iter()
                .map(|target| unsafe { library.function(target) });
            let functions = functions.collect::<Result<Vec<_>>>()?;
            let identity = library.identity(&functions);
            let targets = functions.into_iter().map(|function| {
                let signature = Signature {
                    api_versions: function.entry.api_versions(),
                    ..undeclared(function.name)
                };
                let function = CFunction {
                    entry: function.entry,
                    buffers: function.buffers,
                    _library: Arc::clone(&library),
                };
                (signature, Code::C(function))
            });
            Self::new(identity, targets.collect())
        };
        load().map_err(|status| status.context(path.display()))
    }
}

impl NativeLibrary {
    fn load(path: &Path, grants: &NativeGrants) -> Result<Arc<Self>> {
        static LOADED: Mutex<BTreeMap<[u8; 32], Arc<NativeLibrary>>> = Mutex::new(BTreeMap::new());
        let bytes = read(path, MAX_BYTES)?;
        let digest: [u8; 32] = Sha256::digest(&bytes).into();
        grants.check("the library", digest)?;
        let mut loaded = locked(&LOADED);
        if let Some(library) = loaded.get(&digest) {
            return Ok(Arc::clone(library));
        }
        let library = Arc::new(Self::open(&bytes, digest)?);
        loaded.insert(digest, Arc::clone(&library));
        Ok(library)
    }

    /// Opens a library whose digest was granted.
    fn open(bytes: &[u8], digest: [u8; 32]) -> Result<Self> {
        let copy = SealedCopy::new(bytes)?;
        // SAFETY: `NativeGrants::allow` promises that the initialisers of the library with this
        // digest are sound. `load` has checked the digest, and the copy has the same bytes.
        let library = unsafe { Library::new(&copy.path) };
        let library = library.map_err(|error| {
            Status::invalid_argument(format!(
                "expected a shared library of this machine: {error}"
            ))
        })?;
        // SAFETY: `NativeGrants::allow` promises that the variable has this type
        // (`callbox_cuda.h`).
        if let Ok(place) = unsafe { library.get::<*mut *const StatusApi>(b"callbox_status_api") } {
            // SAFETY: the variable is the library's, and none of its targets has been called yet.
            unsafe { **place = &raw const STATUS_API };
        }
        Ok(Self {
            library,
            digest,
            copy,
        })
    }

    /// Finds a function.
    ///
    /// # Safety
    /// The function must have the convention that the target names.
    unsafe fn function(&self, target: &LibraryTarget) -> Result<NamedFunction> {
        let name = target.name.as_bytes();
        let missing =
            || Status::not_found(format!("the library exports no function {:?}", target.name));
        if !self.defines(name) {
            return Err(missing());
        }
        // SAFETY: the caller promises that the function has the type that is asked for.
        let entry = unsafe {
            match target.api_version {
                ApiVersion::Original => self.library.get(name).map(|f| CEntry::Original(*f)),
                ApiVersion::StatusReturning | ApiVersion::StatusReturningUnified => {
                    self.library.get(name).map(|f| CEntry::Status(*f))
                }
                other => {
                    return Err(Status::invalid_argument(format!(
                        "expected a convention that functions of C have on CUDA \
                         (API_VERSION_ORIGINAL, API_VERSION_STATUS_RETURNING), found {other}"
                    )));
                }
            }
        };
        Ok(NamedFunction {
            name: target.name.clone(),
            entry: entry.map_err(|_| missing())?,
            buffers: target.buffers,
        })
    }

    /// Whether the library itself defines a symbol. The loader also finds those of its
    /// dependencies.
    #[cfg(unix)]
    fn defines(&self, name: &[u8]) -> bool {
        // SAFETY: the symbol is neither called nor read.
        let Ok(symbol) = (unsafe { self.library.get::<*const ()>(name) }) else {
            return false;
        };
        // SAFETY: the structure is plain data, for which zeros are valid.
        let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: `dladdr` accepts any address, and writes to `found`.
        let is_known = unsafe { libc::dladdr((*symbol).cast(), &raw mut found) } != 0;
        if !is_known || found.dli_fname.is_null() {
            return false;
        }
        // SAFETY: the loader's name of a library is a C string that lives as long as the library.
        let file = unsafe { CStr::from_ptr(found.dli_fname) };
        file.to_bytes() == self.copy.path.as_os_str().as_encoded_bytes()
    }

    /// Libraries are loaded on Linux only.
    #[cfg(not(unix))]
    fn defines(&self, _: &[u8]) -> bool {
        self.copy.path.exists()
    }

    /// The identity of a module with these functions of the library.
    fn identity(&self, functions: &[NamedFunction]) -> String {
        let functions = functions.iter().map(|function| {
            let versions = function.entry.api_versions();
            format!("{} {versions:?} {:?}", function.name, function.buffers)
        });
        let functions: Vec<String> = functions.collect();
        format!(
            "sha256:{} {}",
            hex::encode(self.digest),
            functions.join(", ")
        )
    }
}

/// A copy of a file that no other process can change, for as long as this value lives.
#[derive(Debug)]
struct SealedCopy {
    path: PathBuf,
    #[cfg(target_os = "linux")]
    _file: std::fs::File,
}

impl SealedCopy {
    #[cfg(target_os = "linux")]
    fn new(bytes: &[u8]) -> Result<Self> {
        use rustix::fs::{MemfdFlags, SealFlags};
        use std::io::Write as _;
        use std::os::fd::AsRawFd as _;

        let copy = || -> std::io::Result<std::fs::File> {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let mut file = std::fs::File::from(rustix::fs::memfd_create("callbox-library", flags)?);
            file.write_all(bytes)?;
            let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
            rustix::fs::fcntl_add_seals(&file, seals)?;
            Ok(file)
        };
        let file = copy().map_err(|error| {
            let message = format!("cannot copy the library into memory: {error}");
            Status::new(StatusCode::ResourceExhausted, Blame::Host, message)
        })?;
        // The loader identifies a library by this path: the file stays open for the life of the
        // process, so that no other file gets its number.
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        Ok(Self { path, _file: file })
    }

    #[cfg(not(target_os = "linux"))]
    fn new(_: &[u8]) -> Result<Self> {
        Err(Status::unimplemented(
            "libraries of native targets are loaded on Linux only",
        ))
    }
}
