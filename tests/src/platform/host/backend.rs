//! Where modules run: in this process, or behind the second wall.

use std::sync::Arc;

use callbox::call::{CallOptions, CallSite, TargetModule};
use callbox::process::{ProcessCall, ProcessModule, Sandbox, SandboxConfig, Worker};
use callbox::wasm::{Config, Engine, Module, ModuleInfo, PreparedCall};
use callbox::{Result, Status};

use crate::worker;

/// What keeps guests apart from the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Wall {
    /// WebAssembly alone.
    #[default]
    Wasm,
    /// A process of their own, too: this very program, started as [`worker`] says.
    Process,
}

/// What loads modules. Cloning it is cheap.
#[derive(Clone)]
pub(super) enum Backend {
    Wasm(Engine),
    Process(Sandbox),
}

/// A loaded module.
#[derive(Clone, Debug)]
pub enum Loaded {
    /// It runs in this process.
    Wasm(Arc<Module>),
    /// It runs in processes of its own.
    Process(Arc<ProcessModule>),
}

/// A call that is ready to be made.
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
        match self {
            Self::Wasm(engine) => engine.load(wasm).map(Loaded::Wasm),
            Self::Process(sandbox) => sandbox.load(wasm).map(Loaded::Process),
        }
    }
}

impl Loaded {
    /// The module, for a registry.
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
