//! Where modules run: in this process, or each in processes of its own; or, native ones, on a device.

use std::sync::Arc;

use callbox::call::{CallSite, Signature, TargetModule};
use callbox::cuda::{CudaDevice, CudaModule, CudaPreparedCall};
use callbox::policy::{Grants, Policy};
use callbox::process::{ProcessCall, ProcessModule, Sandbox, SandboxConfig, Worker};
use callbox::wasm::{Config, Engine, Module, PreparedCall};
use callbox::{CallOptions, Result};

/// The command that a worker is started with.
pub(super) const WORKER: &str = "worker";

/// What keeps guests apart from this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Wall {
    /// WebAssembly alone.
    #[default]
    Wasm,
    /// A process of their own, too.
    Process,
}

/// What loads modules.
pub(super) enum Backend {
    Wasm(Engine),
    Process(Sandbox),
}

/// A loaded module.
#[derive(Clone)]
pub(super) enum Loaded {
    Wasm(Arc<Module>),
    Process(Arc<ProcessModule>),
    Cuda(Arc<CudaModule>, Arc<CudaDevice>),
}

/// A call that is ready to be made.
pub(super) enum Call {
    Wasm(PreparedCall),
    Process(ProcessCall),
    Cuda(CudaPreparedCall),
}

impl Backend {
    pub(super) fn new(wall: Wall, config: Config) -> Result<Self> {
        match wall {
            Wall::Wasm => Engine::with_config(config).map(Self::Wasm),
            // What is compiled is compiled in workers, which have no files: the cache is not theirs.
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
            Self::Process(sandbox) => sandbox.policy(),
        }
    }

    pub(super) fn load_with(&self, wasm: &[u8], grants: &Grants) -> Result<Loaded> {
        match self {
            Self::Wasm(engine) => engine.load_with(wasm, grants).map(Loaded::Wasm),
            Self::Process(sandbox) => sandbox.load_with(wasm, grants).map(Loaded::Process),
        }
    }
}

impl Loaded {
    /// The module, for a registry.
    pub(super) fn target_module(&self) -> Arc<dyn TargetModule> {
        match self {
            Self::Wasm(module) => Arc::clone(module) as _,
            Self::Process(module) => Arc::clone(module) as _,
            Self::Cuda(module, _) => Arc::clone(module) as _,
        }
    }

    pub(super) fn targets(&self) -> &[Signature] {
        match self {
            Self::Wasm(module) => module.targets(),
            Self::Process(module) => module.targets(),
            Self::Cuda(module, _) => module.targets(),
        }
    }

    /// The device that it is called on, if not on the host.
    pub(super) fn device(&self) -> Option<Arc<CudaDevice>> {
        match self {
            Self::Wasm(_) | Self::Process(_) => None,
            Self::Cuda(_, device) => Some(Arc::clone(device)),
        }
    }

    pub(super) fn prepare_call(&self, site: CallSite) -> Result<Call> {
        match self {
            Self::Wasm(module) => module.prepare_call(site).map(Call::Wasm),
            Self::Process(module) => module.prepare_call(site).map(Call::Process),
            Self::Cuda(module, device) => module.prepare_call(device, site).map(Call::Cuda),
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
            Self::Cuda(call) => call.call_with(options, operands, results),
        }
    }
}
