//! Shared libraries with C targets.
#![allow(unsafe_code, reason = "loads native code that was granted")]

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use libloading::Library;
use sha2::{Digest, Sha256};

use super::status::{STATUS_API, StatusApi};
use super::{Buffers, Entry, OriginalTarget, StatusTarget};
use crate::call::ApiVersion;
use crate::cuda::files::read;
use crate::cuda::grants::{NativeGrants, hex};
use crate::cuda::guard::locked;
use crate::cuda::module::CudaModule;
use crate::values::{Blame, Result, Status, StatusCode};

/// A function of a library that is to be a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryTarget {
    /// Its name, which is also the target's.
    pub name: String,
    /// Its convention: [`ApiVersion::Original`] or one that returns a status. A library does not say.
    pub api_version: ApiVersion,
    /// How it takes its buffers.
    pub buffers: Buffers,
}

/// A library that was granted and loaded. It is never unloaded: a stream may still come to what it put there, and the loader may keep a library that it was told
/// to let go.
#[derive(Debug)]
pub(super) struct NativeLibrary {
    library: Library,
    digest: [u8; 32],
    /// The very bytes that were granted, in a file that nobody else can name.
    copy: PrivateCopy,
}

impl CudaModule {
    /// Loads a shared library, and these functions of it as targets.
    ///
    /// # Errors
    /// PERMISSION_DENIED, with the file's digest, if `grants` does not have it; NOT_FOUND for a file or a function that is not there; INVALID_ARGUMENT for a file
    /// that is no library, and for a convention that functions of C do not have.
    pub fn load_library(
        path: &Path,
        targets: &[LibraryTarget],
        grants: &NativeGrants,
    ) -> Result<Arc<Self>> {
        let library = NativeLibrary::load(path, grants);
        let library = library.map_err(|status| status.context(path.display()))?;
        let targets = targets.iter().map(|target| {
            let entry = library.entry(target);
            let entry = entry.map_err(|status| status.context(path.display()))?;
            Ok((target.name.clone(), entry, target.buffers))
        });
        let targets = targets.collect::<Result<Vec<_>>>()?;
        Self::from_c(targets, Some(library))
    }
}

impl NativeLibrary {
    fn load(path: &Path, grants: &NativeGrants) -> Result<Arc<Self>> {
        static LOADED: Mutex<BTreeMap<[u8; 32], Arc<NativeLibrary>>> = Mutex::new(BTreeMap::new());
        let bytes = read(path)?;
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

    fn open(bytes: &[u8], digest: [u8; 32]) -> Result<Self> {
        // The file may be another by the time that the loader opens it: what is loaded is a copy of what was looked at.
        let copy = PrivateCopy::new(bytes)?;
        // SAFETY: its initialisers run, and whatever they do was granted, by the digest of these very bytes.
        let library = unsafe { Library::new(&copy.path) };
        let library = library.map_err(|error| {
            Status::invalid_argument(format!(
                "expected a shared library of this machine's: {error}"
            ))
        })?;
        // SAFETY: a library that exports this name declares it so (guests/cuda/callbox_cuda.h).
        if let Ok(place) = unsafe { library.get::<*mut *const StatusApi>(b"callbox_status_api") } {
            // SAFETY: it is a variable of the library's, and nobody calls its targets yet.
            unsafe { **place = &raw const STATUS_API };
        }
        Ok(Self {
            library,
            digest,
            copy,
        })
    }

    fn entry(&self, target: &LibraryTarget) -> Result<Entry> {
        let missing =
            |_| Status::not_found(format!("the library exports no function {:?}", target.name));
        let name = target.name.as_bytes();
        if !self.has_of_its_own(name) {
            return Err(missing(()));
        }
        // SAFETY: whoever granted the library and names the function's convention says that it is of this type.
        unsafe {
            match target.api_version {
                ApiVersion::Original => {
                    let function = self.library.get::<OriginalTarget>(name);
                    function
                        .map(|f| Entry::Original(*f))
                        .map_err(|_| missing(()))
                }
                ApiVersion::StatusReturning | ApiVersion::StatusReturningUnified => {
                    let function = self.library.get::<StatusTarget>(name);
                    function.map(|f| Entry::Status(*f)).map_err(|_| missing(()))
                }
                other => Err(Status::invalid_argument(format!(
                    "expected a convention that functions of C have on CUDA (API_VERSION_ORIGINAL, API_VERSION_STATUS_RETURNING), found {other}"
                ))),
            }
        }
    }

    /// Whether the library itself has this symbol: the loader also finds those of the libraries that it needs.
    #[cfg(unix)]
    fn has_of_its_own(&self, name: &[u8]) -> bool {
        // SAFETY: the symbol is not called, only looked for.
        let Ok(symbol) = (unsafe { self.library.get::<*const ()>(name) }) else {
            return false;
        };
        // SAFETY: the structure is plain data, for which zeros are good.
        let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: any address may be asked for, and `found` is what is written.
        let is_known = unsafe { libc::dladdr((*symbol).cast(), &raw mut found) } != 0;
        if !is_known || found.dli_fname.is_null() {
            return false;
        }
        // SAFETY: the loader's name of a library that stays loaded.
        let file = unsafe { CStr::from_ptr(found.dli_fname) };
        file.to_bytes() == self.copy.path.as_os_str().as_encoded_bytes()
    }

    /// On Linux alone can a library be loaded.
    #[cfg(not(unix))]
    fn has_of_its_own(&self, _: &[u8]) -> bool {
        self.copy.path.exists()
    }

    /// What tells these targets of the library from others.
    pub(super) fn identity(&self, targets: &[(String, Entry, Buffers)]) -> String {
        let names: Vec<String> = targets
            .iter()
            .map(|(name, entry, buffers)| format!("{name} {:?} {buffers:?}", entry.api_versions()))
            .collect();
        format!("sha256:{} {}", hex(self.digest), names.join(", "))
    }
}

/// A copy of a file's bytes that nobody else can change, for as long as this is there.
#[derive(Debug)]
struct PrivateCopy {
    path: PathBuf,
    #[cfg(target_os = "linux")]
    _file: std::fs::File,
}

impl PrivateCopy {
    #[cfg(target_os = "linux")]
    fn new(bytes: &[u8]) -> Result<Self> {
        use std::io::Write as _;
        use std::os::fd::AsRawFd as _;

        let failed = |error: std::io::Error| {
            Status::new(
                StatusCode::ResourceExhausted,
                Blame::Host,
                format!("expected memory for a copy of the library: {error}"),
            )
        };
        let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("callbox-library", flags);
        let mut file = std::fs::File::from(file.map_err(|error| failed(error.into()))?);
        file.write_all(bytes).map_err(failed)?;
        let seals = rustix::fs::SealFlags::WRITE
            | rustix::fs::SealFlags::GROW
            | rustix::fs::SealFlags::SHRINK
            | rustix::fs::SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals).map_err(|error| failed(error.into()))?;
        // The loader knows a library by this very text: the file stays open for ever, so that no other gets its number.
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
