//! The compile cache: compiled modules in a directory that only its user can access.
//!
//! wasmtime trusts compiled code, so that altered code could do anything in this process. A
//! [`Cache`] therefore verifies every entry:
//!
//! - The directory and its files must belong to the user, with no access for others. Links are not
//!   followed.
//! - Each entry carries a tag (HMAC-SHA256) by a secret in the directory. The entry is read once
//!   into memory of this process, verified on the way, and passed to wasmtime from that memory.
//! - The key of an entry is a digest of the module's file, callbox's and wasmtime's versions, the
//!   engine's settings and the processor's features. The tag covers the key.
//!
//! A problem with an entry never fails a load: the module is compiled, and the embedder gets a
//! report ([`CacheOptions::report`], [`Module::cache_outcome`](super::Module::cache_outcome)). A
//! problem with the secret fails to open the cache: an entry can be compiled again, but a secret of
//! the wrong length or mode has an unknown author.
//!
//! An entry is written to a temporary file, which is then renamed. It is not synced to the disk: an
//! entry that a crash of the machine damaged fails verification, and is compiled again.
//!
//! The cache does not defend against another process of the same user, which can read the secret,
//! but needs no cache to do harm.

mod directory;
mod entry;
mod evict;
mod failure;
mod identity;
mod owner;
mod secret;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use callbox_core::values::{Result, Status, StatusCode};
use cap_std::fs::{Dir, File};

use self::directory::{Directory, Links, Opened, check_size};
pub(crate) use self::entry::VerifiedEntry;
pub(crate) use self::identity::Identity;
use self::secret::Secret;
use crate::address_space::Room;
use crate::code::Code;
use crate::compiler::CompiledCode;
use crate::load::{LoadedModule, TrustedCode, load, no_room_for_code};
use crate::trap::lacks_memory;

/// The options of a cache.
#[derive(Clone)]
pub struct CacheOptions {
    /// The most bytes of all files together. The least recently used entries are evicted first.
    /// Each concurrent writer may exceed it by one entry until it is done. Default: 512 MiB.
    pub max_bytes: u64,
    /// Receives reports of entries that were rejected or could not be stored. Default: `None`,
    /// which leaves [`Module::cache_outcome`](super::Module::cache_outcome).
    pub report: Option<CacheReportSink>,
}

/// A function that receives a cache's reports.
pub type CacheReportSink = Arc<dyn Fn(&CacheReport<'_>) + Send + Sync>;

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            max_bytes: 512 << 20,
            report: None,
        }
    }
}

impl fmt::Debug for CacheOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheOptions")
            .field("max_bytes", &self.max_bytes)
            .field("report", &self.report.is_some())
            .finish()
    }
}

/// A problem with the cache. The module was loaded all the same.
#[derive(Clone, Copy, Debug)]
pub struct CacheReport<'a> {
    /// The entry's file name in the directory.
    pub file: &'a str,
    /// The problem.
    pub problem: CacheProblem,
    /// The reason: DATA_LOSS for an entry that is corrupt, tagged by another secret, or of another
    /// module; PERMISSION_DENIED for one that others could have written; other codes for errors of
    /// the operating system.
    pub status: &'a Status,
}

/// An operation of the cache that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheProblem {
    /// The entry was rejected, and the module compiled.
    Rejected,
    /// The compiled module was not stored.
    NotStored,
}

impl fmt::Display for CacheReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problem = match self.problem {
            CacheProblem::Rejected => "was rejected, and the module was compiled",
            CacheProblem::NotStored => "was not stored",
        };
        let (file, status) = (self.file, self.status);
        write!(f, "compile cache: the entry {file} {problem}: {status}")
    }
}

/// The outcome of looking a module up in the cache.
#[derive(Clone, Debug)]
pub enum CacheOutcome {
    /// The engine has no cache.
    NotUsed,
    /// The cache had the module.
    Hit,
    /// The module was compiled.
    Compiled {
        /// The reason why an entry was rejected. `None` if there was none.
        rejected: Option<Status>,
        /// Whether the compiled module was stored.
        stored: Result<()>,
    },
}

/// Why an entry gives no module.
pub(crate) enum NotFound {
    /// It was rejected. The module can be compiled.
    Rejected(Status),
    /// The process lacks room for its code.
    NoRoom(Status),
}

impl From<Status> for NotFound {
    fn from(status: Status) -> Self {
        Self::Rejected(status)
    }
}

/// A directory of compiled modules, shared by any number of engines and processes.
///
/// Unix only: other systems lack the owners and modes of files that the cache relies on, and
/// opening one is UNIMPLEMENTED there.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
///
/// use callbox_wasm::{Cache, CacheOptions, CacheOutcome, Config, Engine};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("cache");
/// # let wasm = wat::parse_str(include_str!("../../callbox/examples/negate.wat"))?;
/// let cache = Arc::new(Cache::open_ambient(&path, CacheOptions::default())?);
/// let config = || Config { cache: Some(Arc::clone(&cache)), ..Config::default() };
/// Engine::with_config(config())?.load(&wasm)?;
/// let module = Engine::with_config(config())?.load(&wasm)?;
/// assert!(matches!(module.cache_outcome(), CacheOutcome::Hit));
/// # Ok(())
/// # }
/// ```
pub struct Cache {
    directory: Directory,
    secret: Secret,
    options: CacheOptions,
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Cache {
    /// Opens a cache in a directory, which must have mode 0700 and belong to the effective user.
    /// The first cache creates the secret.
    ///
    /// # Errors
    /// PERMISSION_DENIED if others can access the directory or the secret. DATA_LOSS if the secret
    /// has the wrong length: it is not replaced, because its author is unknown; to start over,
    /// remove the directory. UNIMPLEMENTED where files have no owners. Other codes for errors of
    /// the operating system.
    pub fn open(dir: Dir, options: CacheOptions) -> Result<Self> {
        let directory = Directory::new(dir)?;
        let secret = Secret::obtain(&directory)?;
        evict::make_room(&directory, options.max_bytes, 0)?;
        Ok(Self {
            directory,
            secret,
            options,
        })
    }

    /// Opens a cache at a path, by the process's ambient authority over files. The directory is
    /// created if it does not exist, but not its parents. A link in its place is not followed.
    ///
    /// # Errors
    /// As for [`Cache::open`], and INVALID_ARGUMENT if the path does not end in a name.
    pub fn open_ambient(path: &Path, options: CacheOptions) -> Result<Self> {
        let opened = directory::open_ambient(path).and_then(|dir| Self::open(dir, options));
        opened.map_err(|status| status.context(path.display()))
    }

    /// The module of a file, if it is in the cache. `claim` claims room for as many bytes of
    /// address space as loading it may take.
    ///
    /// # Errors
    /// The reason why an entry was rejected, which has been reported, or why there is no room.
    pub(crate) fn find(
        &self,
        engine: &wasmtime::Engine,
        identity: &Identity,
        claim: impl FnOnce(u64) -> Result<Room>,
    ) -> Result<Option<LoadedModule>, NotFound> {
        let found = self.load(engine, identity, claim);
        found.inspect_err(|not_found| {
            if let NotFound::Rejected(status) = not_found {
                self.report(identity, CacheProblem::Rejected, status);
            }
        })
    }

    /// Stores compiled code. A failure is also reported.
    pub(crate) fn keep(&self, identity: &Identity, code: &CompiledCode) -> Result<()> {
        let stored = self.store(identity, code.code());
        stored.inspect_err(|status| self.report(identity, CacheProblem::NotStored, status))
    }

    /// Whether there is a valid entry.
    ///
    /// # Errors
    /// The reason why the entry would be rejected.
    pub(crate) fn has(&self, identity: &Identity) -> Result<bool> {
        let opened = self.open_entry(identity)?;
        let verify = |mut opened| entry::verify(&self.secret, identity, &mut opened);
        Ok(opened.map(verify).transpose()?.is_some())
    }

    fn load(
        &self,
        engine: &wasmtime::Engine,
        identity: &Identity,
        claim: impl FnOnce(u64) -> Result<Room>,
    ) -> Result<Option<LoadedModule>, NotFound> {
        let Some(mut opened) = self.open_entry(identity)? else {
            return Ok(None);
        };
        // The code may be copied before it is mapped.
        let _room = claim(opened.size.saturating_mul(2)).map_err(NotFound::NoRoom)?;
        let entry = entry::verify(&self.secret, identity, &mut opened);
        let entry = entry.map_err(|status| match status.code() {
            StatusCode::ResourceExhausted => NotFound::NoRoom(status),
            _ => NotFound::Rejected(status),
        })?;
        let module = load(engine, TrustedCode::Entry(&entry)).map_err(|error| {
            if lacks_memory(&error) {
                return NotFound::NoRoom(no_room_for_code());
            }
            NotFound::Rejected(failure::corrupt(format!(
                "the compiled module does not fit this engine: {error:#}"
            )))
        })?;
        directory::touch(opened.file);
        Ok(Some(module))
    }

    /// The entry, if there is one.
    fn open_entry(&self, identity: &Identity) -> Result<Option<Opened>> {
        // The directory's owner or mode may have changed since it was opened.
        self.directory.check()?;
        let most = self.options.max_bytes;
        self.directory.open(&identity.file_name(), most, Links::One)
    }

    fn store(&self, identity: &Identity, code: &Code) -> Result<()> {
        self.directory.check()?;
        let size = entry::size(code);
        check_size(size)?;
        evict::make_room(&self.directory, self.options.max_bytes, size)?;
        let write = |file: &mut File| entry::write(&self.secret, identity, code, file);
        self.directory.write(&identity.file_name(), write)?;
        // Concurrent writers may all have used the same room.
        evict::make_room(&self.directory, self.options.max_bytes, 0)
    }

    fn report(&self, identity: &Identity, problem: CacheProblem, status: &Status) {
        if let Some(report) = &self.options.report {
            report(&CacheReport {
                file: &identity.file_name(),
                problem,
                status,
            });
        }
    }
}
