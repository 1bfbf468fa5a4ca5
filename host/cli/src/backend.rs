//! Where modules run: in this process, or each in processes of its own.

use std::sync::Arc;

use callbox::Result;
#[cfg(feature = "process")]
use callbox::Status;
use callbox::policy::{CompileIn, Grants, Policy};
#[cfg(feature = "process")]
use callbox::process::{CompilerProcess, Sandbox, SandboxConfig, Worker};
use callbox::traced::AnyModule;
use callbox::wasm::{Compiler, Config, Engine, FunctionCode, ModuleFile};

/// The command that starts a worker.
#[cfg(feature = "process")]
pub(super) const WORKER: &str = "worker";

/// The compiler that runs in processes of its own, if the system lets one be made.
fn compiler() -> Option<Arc<dyn Compiler>> {
    #[cfg(feature = "process")]
    {
        let compiler = CompilerProcess::new(Worker::this_program([WORKER])).ok()?;
        Some(Arc::new(compiler))
    }
    #[cfg(not(feature = "process"))]
    None
}

/// Has a child process compile the smallest module.
///
/// # Errors
/// The reason why there is no child process.
pub(super) fn check_compiler() -> Result<()> {
    const MODULE: &[u8] = b"\0asm\x01\0\0\0\x05\x03\x01\0\x01\x07\x0a\x01\x06memory\x02\0";
    let config = Config {
        policy: Policy {
            compile: CompileIn::Process,
            ..Policy::default()
        },
        compiler: compiler(),
        ..Config::default()
    };
    Engine::with_config(config)?.load(MODULE).map(drop)
}

/// The isolation between guests and this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Wall {
    /// WebAssembly alone.
    #[default]
    Wasm,
    /// A process of their own as well.
    #[cfg(feature = "process")]
    Process,
}

/// Loads modules.
pub(super) enum Backend {
    Wasm(Engine),
    #[cfg(feature = "process")]
    Process(Sandbox),
}

impl Backend {
    pub(super) fn new(wall: Wall, config: Config) -> Result<Self> {
        match wall {
            Wall::Wasm => Engine::with_config(Config {
                compiler: compiler(),
                ..config
            })
            .map(Self::Wasm),
            // Workers compile modules and have no files, and so no cache.
            #[cfg(feature = "process")]
            Wall::Process => Sandbox::new(SandboxConfig {
                policy: config.policy,
                worker: Worker::this_program([WORKER]),
                log: config.log,
            })
            .map(Self::Process),
        }
    }

    pub(super) fn policy(&self) -> &Policy {
        match self {
            Self::Wasm(engine) => engine.policy(),
            #[cfg(feature = "process")]
            Self::Process(sandbox) => sandbox.policy(),
        }
    }

    /// Reads a module's file. Only the process that compiles a module validates it.
    pub(super) fn read(&self, bytes: Vec<u8>) -> Result<ModuleFile> {
        match self {
            Self::Wasm(engine) => ModuleFile::read(bytes, &engine.policy().limits),
            #[cfg(feature = "process")]
            Self::Process(sandbox) => ModuleFile::describe(bytes, &sandbox.policy().limits),
        }
    }

    /// Loads a module, and returns its machine code.
    pub(super) fn machine_code(
        &self,
        file: &ModuleFile,
        grants: &Grants,
    ) -> Result<Vec<FunctionCode>> {
        match self {
            Self::Wasm(engine) => Ok(engine.load_file(file, grants)?.machine_code()),
            #[cfg(feature = "process")]
            Self::Process(_) => Err(Status::unimplemented(
                "a worker keeps its machine code to itself: leave out --isolate process",
            )),
        }
    }

    pub(super) fn load(&self, file: &ModuleFile, grants: &Grants) -> Result<Arc<dyn AnyModule>> {
        Ok(match self {
            Self::Wasm(engine) => engine.load_file(file, grants)?,
            #[cfg(feature = "process")]
            Self::Process(sandbox) => sandbox.load_file(file, grants)?,
        })
    }
}
