//! Modules as the driver holds them: what the interpreter read, and where its global variables were placed.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use crate::ptx;

/// What `cuModuleLoadData` made.
#[derive(Debug)]
pub(crate) struct ModuleBody {
    pub(crate) module: ptx::Module,
    pub(crate) context: usize,
    /// Global variables: address and size in bytes.
    pub(crate) globals: BTreeMap<String, (u64, usize)>,
    /// Its handle is gone. What was captured from it can no longer be launched.
    pub(crate) unloaded: AtomicBool,
}

/// A kernel that the program holds a handle of.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) module: usize,
    pub(crate) name: String,
    /// Dynamic shared memory that it may be launched with, in bytes.
    pub(crate) max_dynamic_shared: u32,
}
