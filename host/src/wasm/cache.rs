//! The compile cache: compiled modules in a directory that only its user can reach.
//!
//! wasmtime takes compiled code on trust: whoever can alter it runs what they like in this process. So a [`Cache`] believes nothing that it
//! finds. Its directory and the files in it must be the user's own and nobody else's to read or write, links are not followed, and each
//! entry carries a tag (HMAC-SHA256) by a secret that lies in the directory. An entry is read once into private memory, checked
//! there, and handed to wasmtime from that very memory. It is found by a digest of the module, the version of wasmtime, the
//! engine's settings and the processor's features, which the tag covers too: an entry of anything else is not taken for it.
//!
//! What is wrong with the cache never fails a load: the module is compiled, and the embedder hears of it ([`CacheOptions::report`],
//! [`Module::cache_outcome`](super::Module::cache_outcome)).
//!
//! An entry is written to a file of its own and then renamed: that is the commit. It is not forced to the disk, for an entry
//! that a crash of the machine tore does not verify, and is made anew.
//!
//! What the cache does not defend against is another process of the same user: it can read the secret, and needs no cache to do harm.

mod directory;
mod entry;
mod evict;
mod identity;
mod load;
mod owner;
mod secret;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use cap_std::fs::Dir;

use self::directory::{Directory, Links};
use self::identity::Identity;
use self::secret::Secret;
use crate::values::{Blame, Result, Status, StatusCode};

/// How a cache is kept.
#[derive(Clone)]
pub struct CacheOptions {
    /// Bytes that its files may have together. Entries that were not used for longest go first. While several processes write at one time
    /// there may be an entry more for each, until they are done. Default: 512 MiB.
    pub max_bytes: u64,
    /// Where reports go of entries that were not taken, and of those that could not be kept. Without it only
    /// [`Module::cache_outcome`](super::Module::cache_outcome) says so.
    pub report: Option<CacheReportSink>,
}

/// Where a cache's reports go.
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

/// Something that was wrong with the cache. The module was loaded all the same.
#[derive(Clone, Copy, Debug)]
pub struct CacheReport<'a> {
    /// The entry's file name in the directory.
    pub file: &'a str,
    /// What did not happen.
    pub problem: CacheProblem,
    /// Why: DATA_LOSS for an entry that is corrupt, of another secret, or of another module; PERMISSION_DENIED for one that others
    /// could have written; another code for what the operating system said.
    pub status: &'a Status,
}

/// What did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheProblem {
    /// There is an entry, and it was not taken. The module was compiled.
    Rejected,
    /// The compiled module was not kept.
    NotStored,
}

impl fmt::Display for CacheReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problem = match self.problem {
            CacheProblem::Rejected => "was not taken, and the module compiled anew",
            CacheProblem::NotStored => "was not stored",
        };
        let (file, status) = (self.file, self.status);
        write!(f, "compile cache: the entry {file} {problem}: {status}")
    }
}

/// What the cache did for a module.
#[derive(Clone, Debug)]
pub enum CacheOutcome {
    /// The engine has no cache.
    NotUsed,
    /// The module was taken from it.
    Hit,
    /// The module was compiled.
    Compiled {
        /// Why the entry that there was was not taken. `None`: there was none.
        rejected: Option<Status>,
        /// Whether it is there for the next time, or what went wrong.
        stored: Result<()>,
    },
}

/// A directory of compiled modules, for any number of engines and processes at one time. Unix only: elsewhere files do not have the owners
/// and modes that it stands on, and opening one is UNIMPLEMENTED.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
///
/// use callbox::wasm::{Cache, CacheOptions, CacheOutcome, Config, Engine};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("cache");
/// # let wasm = wat::parse_str(include_str!("../../examples/negate.wat"))?;
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
    /// A cache in this directory, which must be of mode 0700 and the effective user's. The first one makes the secret there.
    ///
    /// # Errors
    /// PERMISSION_DENIED if the directory or the secret is not the user's alone. DATA_LOSS if the secret does not have its length:
    /// it is not replaced, for nobody knows who wrote it; to start over, remove the directory. UNIMPLEMENTED where files
    /// have no owners. Otherwise what the operating system says.
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

    /// A cache in the directory of this path, by the process's ambient authority over files. It is made if it is not there, but not those
    /// above it. The path's last part is not followed if it is a link.
    ///
    /// # Errors
    /// As for [`Cache::open`]; INVALID_ARGUMENT if the path does not end in a name.
    pub fn open_ambient(path: &Path, options: CacheOptions) -> Result<Self> {
        let opened = directory::open_ambient(path).and_then(|dir| Self::open(dir, options));
        opened.map_err(|status| status.context(path.display()))
    }

    /// The module from the cache, or else what `compile` gives, which is then kept.
    ///
    /// # Errors
    /// Those of `compile` only.
    pub(super) fn module(
        &self,
        engine: &wasmtime::Engine,
        wasm: &[u8],
        compile: impl FnOnce() -> Result<wasmtime::Module>,
    ) -> Result<(wasmtime::Module, CacheOutcome)> {
        let identity = Identity::of(engine, wasm);
        let rejected = match self.load(engine, &identity) {
            Ok(Some(module)) => return Ok((module, CacheOutcome::Hit)),
            Ok(None) => None,
            Err(status) => {
                self.report(&identity, CacheProblem::Rejected, &status);
                Some(status)
            }
        };
        let module = compile()?;
        let stored = self.store(&identity, &module);
        if let Err(status) = &stored {
            self.report(&identity, CacheProblem::NotStored, status);
        }
        Ok((module, CacheOutcome::Compiled { rejected, stored }))
    }

    /// Whether there is an entry that would be taken.
    ///
    /// # Errors
    /// Why the entry that is there would not be.
    pub(super) fn has(&self, engine: &wasmtime::Engine, wasm: &[u8]) -> Result<bool> {
        let verified = self.read(&Identity::of(engine, wasm))?;
        Ok(verified.is_some())
    }

    fn load(
        &self,
        engine: &wasmtime::Engine,
        identity: &Identity,
    ) -> Result<Option<wasmtime::Module>> {
        let Some((file, entry)) = self.read(identity)? else {
            return Ok(None);
        };
        let module = load::module(engine, &entry)?;
        directory::touch(file);
        Ok(Some(module))
    }

    /// The entry, if there is one and it is what was stored.
    fn read(&self, identity: &Identity) -> Result<Option<(cap_std::fs::File, entry::Verified)>> {
        // Who can write to the directory may have changed since it was opened.
        self.directory.check()?;
        let most = self.options.max_bytes;
        let read = self
            .directory
            .read(&identity.file_name(), most, Links::One)?;
        read.map(|(file, bytes)| Ok((file, entry::verify(&self.secret, identity, bytes)?)))
            .transpose()
    }

    fn store(&self, identity: &Identity, module: &wasmtime::Module) -> Result<()> {
        self.directory.check()?;
        let artifact = module.serialize().map_err(|error| {
            Status::internal(format!("a compiled module cannot be written: {error:#}"))
        })?;
        let sealed = entry::seal(&self.secret, identity, &artifact);
        let parts = [&sealed.header[..], &artifact, &sealed.tag];
        let size = parts.iter().map(|part| part.len() as u64).sum();
        evict::make_room(&self.directory, self.options.max_bytes, size)?;
        self.directory.write(&identity.file_name(), &parts)?;
        // Others may have written at the same time, each into the room that was there before.
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

/// What the host's file system did to the cache.
fn denied(message: impl Into<String>) -> Status {
    Status::new(StatusCode::PermissionDenied, Blame::Host, message)
}

fn corrupt(message: impl Into<String>) -> Status {
    Status::new(StatusCode::DataLoss, Blame::Host, message)
}
