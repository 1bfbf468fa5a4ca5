//! The native code of modules: from the cache, or compiled once for all loads of a file.

use std::sync::Arc;

use callbox_core::values::{Result, Status};

#[cfg(feature = "cache")]
use crate::cache::{Cache, CacheOutcome, NotFound};
use crate::compile::compile;
use crate::compiler::{CompiledCode, CompiledIn};
use crate::file::ModuleFile;
use crate::load::{LoadedModule, TrustedCode, load, no_room_for_code};
use crate::loads::After;
use crate::shared::{Compiled, EngineShared};
use crate::trap::lacks_memory;

impl Compiled {
    /// The code of a file, whose bytes it drops as soon as they are compiled. Concurrent loads of
    /// it wait for one of them. Without a cache, a load also takes the code of a module that this
    /// engine still has.
    ///
    /// # Errors
    /// As for [`compile`]. RESOURCE_EXHAUSTED, blamed on the host, if the process lacks address
    /// space.
    pub(crate) fn of(shared: &EngineShared, file: &mut ModuleFile) -> Result<Arc<Self>> {
        let space = &shared.address_space;
        space.claim_for_module(0)?;
        let loaded = Self::from_loads(shared, file)?;
        // A module that took what the process needs is dropped again.
        space.claim_for_module(0)?;
        Ok(loaded)
    }

    fn from_loads(shared: &EngineShared, file: &mut ModuleFile) -> Result<Arc<Self>> {
        let loads = &shared.loads;
        #[cfg(feature = "cache")]
        if let Some(cache) = &shared.cache {
            return loads.load(file.digest(), After::Forget, || {
                Self::with_cache(shared, cache, file)
            });
        }
        loads.load(file.digest(), After::Share, || {
            let (module, _, place) = compile_and_load(shared, file)?;
            Ok(Self {
                module,
                place,
                #[cfg(feature = "cache")]
                cache_outcome: CacheOutcome::NotUsed,
            })
        })
    }

    /// The code from the cache, or else compiled and stored there.
    #[cfg(feature = "cache")]
    fn with_cache(shared: &EngineShared, cache: &Cache, file: &mut ModuleFile) -> Result<Self> {
        let identity = shared.cache_identity(file);
        let space = &shared.address_space;
        let claim = |bytes| space.claim_for_module(bytes);
        let rejected = match cache.find(&shared.engine, &identity, claim) {
            Ok(Some(module)) => {
                return Ok(Self {
                    module,
                    place: CompiledIn::Cache,
                    cache_outcome: CacheOutcome::Hit,
                });
            }
            Ok(None) => None,
            Err(NotFound::Rejected(status)) => Some(status),
            // Compiling it would take more.
            Err(NotFound::NoRoom(status)) => return Err(status),
        };
        let (module, code, place) = compile_and_load(shared, file)?;
        let stored = cache.keep(&identity, &code);
        Ok(Self {
            module,
            place,
            cache_outcome: CacheOutcome::Compiled { rejected, stored },
        })
    }
}

fn compile_and_load(
    shared: &EngineShared,
    file: &mut ModuleFile,
) -> Result<(LoadedModule, CompiledCode, CompiledIn)> {
    let (code, place) = compile(shared, file)?;
    file.drop_bytes();
    // The code may be copied before it is mapped.
    let size = code.code().size() as u64;
    let _room = shared.address_space.claim_for_module(2 * size)?;
    let module = load(&shared.engine, TrustedCode::Compiled(&code));
    let module = module.map_err(|error| {
        if lacks_memory(&error) {
            return no_room_for_code();
        }
        Status::internal(format!("compiled code does not fit its engine: {error:#}"))
    })?;
    Ok((module, code, place))
}
