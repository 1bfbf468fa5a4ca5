//! The compiler of all hosts: child processes that run this interpreter with this extension and
//! nothing else.
//!
//! A child loads no `site`, no NumPy and no module of callbox but the extension, and confines
//! itself before it gets a module to compile. The interpreter is started anew, so that the threads
//! of this process do not matter.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use callbox::process::{CompilerProcess, Worker};
use callbox::wasm::{Compiler, PerProcess};
use pyo3::prelude::*;

/// The program of a child. Its argument is the path of the extension.
const PROGRAM: &str = "\
import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec
loader = ExtensionFileLoader('_worker', sys.argv[1])
module = loader.create_module(ModuleSpec('_worker', loader, origin=sys.argv[1]))
loader.exec_module(module)
module.main()
";

/// The interpreter and the extension, as a program for children. `None` if `sys.executable` is no
/// Python: another program embeds the interpreter, or a frozen one has it inside.
pub(crate) fn worker(py: Python<'_>) -> PyResult<Option<Worker>> {
    let sys = py.import("sys")?;
    let executable: Option<PathBuf> = sys.getattr("executable")?.extract()?;
    let is_python = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        path.is_absolute() && name.is_some_and(|name| name.starts_with("python"))
    };
    let executable = executable.filter(is_python);
    if sys.hasattr("frozen")? {
        return Ok(None);
    }
    let extension = py.import("callbox._callbox")?.getattr("__file__")?;
    let extension: Option<PathBuf> = extension.extract()?;
    Ok(executable.zip(extension).map(|(executable, extension)| {
        let program = ["-I", "-S", "-B", "-c", PROGRAM].map(OsString::from);
        Worker::new(executable, program.into_iter().chain([extension.into()]))
    }))
}

/// The compiler that all hosts of this process share, if children can run `worker`. A forked child
/// makes its own.
pub(crate) fn compiler(worker: Option<&Worker>) -> Option<Arc<dyn Compiler>> {
    static SHARED: PerProcess<Mutex<Option<Arc<CompilerProcess>>>> =
        PerProcess::of_first(Mutex::new(None));
    let worker = worker?;
    let mut shared = SHARED.get().lock().unwrap_or_else(PoisonError::into_inner);
    if shared.is_none() {
        // Without a compiler, modules are compiled in this process.
        *shared = CompilerProcess::new(worker.clone()).ok().map(Arc::new);
    }
    Some(Arc::clone(shared.as_ref()?) as Arc<dyn Compiler>)
}

/// Serves as a compiler until the parent closes the socket, and ends the process.
#[pyfunction]
pub(crate) fn main() {
    let code = callbox::process::worker_main();
    std::process::exit(i32::from(code != ExitCode::SUCCESS));
}
