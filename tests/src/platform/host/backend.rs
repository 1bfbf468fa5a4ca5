//! Where modules run: in this process, or in worker processes.

use std::sync::Arc;

use callbox::call::{CallOptions, CallSite, TargetModule};
use callbox::process::{ProcessCall, ProcessModule, Sandbox, SandboxConfig, Worker};
use callbox::wasm::{Config, Engine, Module, ModuleFile, ModuleInfo, PreparedCall};
use callbox::{Result, Status};

use super::marks::MODULE;
use crate::worker;

/// What isolates guests from the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Wall {
    /// WebAssembly alone.
    #[default]
    Wasm,
    /// Worker processes as well. A worker is this program, started as [`worker`] describes.
    Process,
}

/// Loads modules. Cloning it is cheap.
#[derive(Clone)]
pub(super) enum Backend {
    Wasm(Engine),
    Process(Sandbox),
}

/// A loaded module.
#[derive(Clone, Debug)]
pub enum Loaded {
    /// Runs in this process.
    Wasm(Arc<Module>),
    /// Runs in worker processes.
    Process(Arc<ProcessModule>),
}

/// A prepared call.
pub(super) enum Call {
    Wasm(PreparedCall),
    Process(ProcessCall),
}

impl Backend {
    pub(super) fn new(wall: Wall, config: Config) -> Result<Self> {
        match wall {
            Wall::Wasm => Engine::with_config(config).map(Self::Wasm),
            Wall::Process => Sandbox::new(SandboxConfig {
                policy: config.policy,
                worker: Worker::this_program([worker::WORKER]),
                log: config.log,
            })
            .map(Self::Process),
        }
    }

    pub(super) fn load(&self, wasm: &[u8]) -> Result<Loaded, Status> {
        let wasm = wasm.to_vec();
        match self {
            Self::Wasm(engine) => {
                let policy = engine.policy();
                let file = ModuleFile::read(wasm, &policy.limits)?.named(MODULE);
                engine.load_file(&file, &policy.grants).map(Loaded::Wasm)
            }
            Self::Process(sandbox) => {
                let policy = sandbox.policy();
                let file = ModuleFile::describe(wasm, &policy.limits)?.named(MODULE);
                sandbox
                    .load_file(&file, &policy.grants)
                    .map(Loaded::Process)
            }
        }
    }
}

impl Loaded {
    /// Returns the module for a registry.
    pub(super) fn target_module(&self) -> Arc<dyn TargetModule> {
        match self {
            Self::Wasm(module) => Arc::clone(module) as _,
            Self::Process(module) => Arc::clone(module) as _,
        }
    }

    pub(super) fn info(&self) -> &ModuleInfo {
        match self {
            Self::Wasm(module) => module.info(),
            Self::Process(module) => module.info(),
        }
    }

    pub(super) fn prepare_call(&self, site: CallSite) -> Result<Call> {
        match self {
            Self::Wasm(module) => module.prepare_call(site).map(Call::Wasm),
            Self::Process(module) => module.prepare_call(site).map(Call::Process),
        }
    }
}

impl Call {
    pub(super) fn call_with(
        &self,
        options: &CallOptions,
        operands: &[&[u8]],
        results: &mut [&mut [u8]],
    ) -> Result<()> {
        match self {
            Self::Wasm(call) => call.call_with(options, operands, results),
            Self::Process(call) => call.call_with(options, operands, results),
        }
    }
}
