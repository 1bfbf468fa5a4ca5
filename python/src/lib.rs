//! The extension `callbox._callbox`: callbox for Python. Adapters only: what a call is and what guests may do is in the library `callbox`.
//!
//! Three ways lead to a target. A direct call ([`targets`]) takes what has a buffer, NumPy's arrays above all. XLA calls the handler in [`xla`], for
//! programs that JAX compiled. Both come to a [`site::Ready`] call, which takes bytes from where they lie ([`buffers`]) and puts
//! results where they belong: one copy in, one copy out. No Python runs meanwhile, and the GIL is not held.

mod arrays;
mod attributes;
mod buffers;
mod checks;
mod element;
mod error;
mod exit;
mod host;
mod interpreter;
mod logs;
mod module;
mod native;
mod registry;
mod signature;
mod site;
mod stats;
mod targets;
mod xla;

use pyo3::prelude::*;

/// The extension.
#[pymodule]
mod _callbox {
    #[pymodule_export]
    use super::host::Host;
    #[pymodule_export]
    use super::module::Module;
    #[pymodule_export]
    use super::signature::{Attribute, Buffer};
    #[pymodule_export]
    use super::site::StaticInfo;
    #[pymodule_export]
    use super::targets::Target;
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
