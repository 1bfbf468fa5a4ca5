//! Loaded modules: the parsed module, and the addresses of its global variables.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use crate::ptx;

/// The object that `cuModuleLoadData` creates.
#[derive(Debug)]
pub(crate) struct ModuleBody {
    pub(crate) module: ptx::Module,
    pub(crate) context: usize,
    /// The address and size of each global variable.
    pub(crate) globals: BTreeMap<String, (u64, usize)>,
    /// Whether the module was unloaded. Captured kernels of it can no longer be launched.
    pub(crate) unloaded: AtomicBool,
}

/// A kernel to which the program holds a handle.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) module: usize,
    pub(crate) name: String,
    /// The allowed dynamic shared memory, in bytes.
    pub(crate) max_dynamic_shared: u32,
}
