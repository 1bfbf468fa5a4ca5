//! Kernels in Python, which `callbox.jit` compiles.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::{Project, tool};
use crate::failure::Outcome;

/// Names a Python to use instead of `python3`.
const VARIABLE: &str = "CALLBOX_PYTHON";

const COMPILE: &str = include_str!("compile.py");

const MISSING: &str = "python3 is missing, which compiles kernels in Python: install Python 3.11 \
                       or newer with callbox[jit], or name one in CALLBOX_PYTHON";

/// Compiles the module, and returns its path.
pub(super) fn build(project: &Project) -> Outcome<PathBuf> {
    let module = project.target_folder()?.join("module.wasm");
    let mut command = python(project);
    command.args(["-c", COMPILE]);
    command
        .arg(format!("{}.py", project.name))
        .arg(&project.name)
        .arg(&module);
    let failed = format!("callbox.jit did not compile {}", project.folder.display());
    tool::run(&mut command, MISSING, &failed)?;
    Ok(module)
}

/// Runs each `tests/*.py`, with the folder of the kernel on Python's path.
pub(super) fn test(project: &Project) -> Outcome<()> {
    let entries = fs::read_dir(project.folder.join("tests"))
        .into_iter()
        .flatten()
        .flatten();
    let mut tests: Vec<_> = entries.map(|entry| entry.path()).collect();
    tests.retain(|path| path.extension().is_some_and(|ending| ending == "py"));
    tests.sort();
    for test in tests {
        let failed = format!("the native test {} failed", test.display());
        let mut command = python_with_folder(project);
        tool::run(command.arg(&test), MISSING, &failed)?;
    }
    Ok(())
}

/// Runs `benches/native.py`.
pub(super) fn bench(project: &Project) -> Outcome<Option<String>> {
    let program = project.folder.join("benches/native.py");
    if !program.is_file() {
        return Ok(None);
    }
    let failed = format!("{} failed", program.display());
    let mut command = python_with_folder(project);
    tool::output(command.arg(&program), MISSING, &failed).map(Some)
}

/// Python with the folder of the kernel on its path.
fn python_with_folder(project: &Project) -> Command {
    let earlier = std::env::var_os("PYTHONPATH").unwrap_or_default();
    let folders = [project.folder.clone()]
        .into_iter()
        .chain(std::env::split_paths(&earlier));
    let path = std::env::join_paths(folders).unwrap_or_else(|_| project.folder.clone().into());
    let mut command = python(project);
    command.env("PYTHONPATH", path);
    command
}

fn python(project: &Project) -> Command {
    let program = std::env::var_os(VARIABLE).unwrap_or_else(|| "python3".into());
    let mut command = Command::new(program);
    command
        .current_dir(&project.folder)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}
