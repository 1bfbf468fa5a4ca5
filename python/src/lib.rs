//! The extension `callbox._callbox`, which adapts the library `callbox` to Python.
//!
//! There are two paths to a target. A direct call ([`targets`]) takes objects with a buffer, such
//! as NumPy's arrays. A program that JAX compiled calls the handler in [`xla`]. Both end in a
//! [`site::Ready`] call, which copies operands from the caller's memory ([`buffers`]) to the guest
//! and results back, without the GIL.

mod arrays;
mod attributes;
mod buffers;
mod checks;
mod compiler;
mod dlpack;
mod element;
mod error;
mod exit;
mod failures;
mod files;
mod fork;
mod host;
mod idle;
mod interpreter;
mod interrupts;
mod listing;
mod logs;
mod module;
mod native;
mod once;
mod record;
mod reference;
mod registry;
mod shadow;
mod signature;
mod site;
mod stack;
mod stats;
mod targets;
mod trace;
mod trusted;
mod waiting;
mod xla;

use pyo3::prelude::*;

/// The extension.
// The interpreter lock serialises what the module keeps.
#[pymodule(gil_used = true)]
mod _callbox {
    #[pymodule_export]
    use super::failures::find_failure;
    #[pymodule_export]
    use super::files::{Contents, shown_path};
    #[pymodule_export]
    use super::host::Host;
    #[pymodule_export]
    use super::module::{Module, loaded_module};
    #[pymodule_export]
    use super::record::{Recording, record};
    #[pymodule_export]
    use super::reference::{check_locked, is_reference};
    #[pymodule_export]
    use super::signature::{Attribute, Buffer};
    #[pymodule_export]
    use super::site::StaticInfo;
    #[pymodule_export]
    use super::stats::target_stats;
    #[pymodule_export]
    use super::targets::{Budget, Target};
    #[pymodule_export]
    use super::trace::set_trace_annotation;
    #[pymodule_export]
    use super::trusted::names_of_path;
    #[pymodule_export]
    use super::xla::{error_name, ffi_capsules, last_failure};

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::interpreter::check(module.py())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("FFI_TARGET", super::xla::TARGET)?;
        module.add(
            "FFI_TARGET_COMMAND_BUFFER",
            super::xla::TARGET_COMMAND_BUFFER,
        )?;
        callbox::wasm::watch_forks();
        super::fork::hold_locks();
        let end = pyo3::wrap_pyfunction!(super::exit::end, module)?;
        module
            .py()
            .import("atexit")?
            .call_method1("register", (end,))?;
        for name in ["CallError", "InvalidArgumentError"] {
            let class = super::error::class(module.py(), name)?;
            module.add(name, class)?;
        }
        Ok(())
    }
}

/// The same file as the module of a process that compiles: see [`compiler`].
#[pymodule]
mod _worker {
    #[pymodule_export]
    use super::compiler::main;
}
