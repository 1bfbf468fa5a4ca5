//! Kernels in C and C++, which clang compiles.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use callbox::Status;

use super::{Project, SDK, tool};
use crate::failure::Outcome;

/// Names a clang to use instead of those on the PATH.
const VARIABLE: &str = "CALLBOX_CLANG";

/// Names of clang, in the order in which they are tried.
const PROGRAMS: [&str; 5] = ["clang-19", "clang-20", "clang-21", "clang-22", "clang"];

const ENDINGS: [&str; 3] = ["c", "cc", "cpp"];

const FLAGS: [&str; 3] = ["-O3", "-Wall", "-Wextra"];

/// Has clang link without a `wasm-opt` of the PATH, by which modules would differ between machines.
/// The objects are optimised already. clang 19 does not link with its option `--no-wasm-opt`.
const NO_WASM_OPT: &str = "-O0";

const MISSING: &str = "clang 16 or newer with wasm-ld is missing, which compiles kernels in C: \
                       install clang and lld (Debian, Ubuntu: clang-19 lld-19), or name a clang in \
                       CALLBOX_CLANG";

/// The sources in a folder, in order.
pub(super) fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| {
        let ending = path.extension().and_then(|ending| ending.to_str());
        ending.is_some_and(|ending| ENDINGS.contains(&ending)) && path.is_file()
    });
    paths.sort();
    paths
}

/// Compiles and links the module, and returns its path.
pub(super) fn build(project: &Project) -> Outcome<PathBuf> {
    let config = project.folder.join(SDK).join("guest-sdk/wasm32.cfg");
    if !config.is_file() {
        let message = "expected clang's flags and callbox.h, found no such file: \
                       `callbox new --lang c` makes a folder with them";
        return Err(Status::invalid_argument(message)
            .context(config.display())
            .into());
    }
    let module = project.target_folder()?.join("module.wasm");
    let mut config_flag = OsString::from("--config=");
    config_flag.push(&config);
    let program = clang(&module)?;
    let clang = || {
        let mut command = Command::new(&program);
        command.current_dir(&project.folder).arg(&config_flag);
        command
    };
    let failed = format!("clang did not compile {}", project.folder.display());
    let mut objects = Vec::new();
    for (i, source) in sources(&project.folder.join("src")).iter().enumerate() {
        let object = module.with_file_name(format!("{i}.o"));
        let mut command = clang();
        command.args(&FLAGS[1..]);
        if source.extension() != Some("c".as_ref()) {
            command.args(["-fno-exceptions", "-fno-rtti"]);
        }
        command.arg("-c").arg(source).arg("-o").arg(&object);
        tool::run(&mut command, MISSING, &failed)?;
        objects.push(object);
    }
    let mut command = clang();
    command
        .args(objects)
        .arg(NO_WASM_OPT)
        .arg("-o")
        .arg(&module);
    tool::run(&mut command, MISSING, &failed)?;
    Ok(module)
}

/// Compiles and runs each source in `tests/`.
pub(super) fn test(project: &Project) -> Outcome<()> {
    for source in sources(&project.folder.join("tests")) {
        let program = compile_natively(project, &source)?;
        let failed = format!("the native test {} failed", source.display());
        let mut command = Command::new(program);
        tool::run(command.current_dir(&project.folder), &failed, &failed)?;
    }
    Ok(())
}

/// Compiles and runs `benches/native.c`.
pub(super) fn bench(project: &Project) -> Outcome<Option<String>> {
    let source = project.folder.join("benches/native.c");
    if !source.is_file() {
        return Ok(None);
    }
    let program = compile_natively(project, &source)?;
    let failed = format!("{} failed", source.display());
    tool::output(&mut Command::new(program), &failed, &failed).map(Some)
}

/// Compiles a source for this machine, and returns the program.
fn compile_natively(project: &Project, source: &Path) -> Outcome<PathBuf> {
    let folder = project.target_folder()?;
    let stem = source.file_stem().unwrap_or_default().to_string_lossy();
    let program = folder.join(format!("{stem}.native"));
    let mut command = Command::new(clang(&folder.join("module.wasm"))?);
    command
        .current_dir(&project.folder)
        .args(FLAGS)
        .args(["-I", "src", "-I"])
        .arg(Path::new(SDK).join("guest-sdk/include"));
    command.arg(source).arg("-o").arg(&program).arg("-lm");
    let failed = format!("clang did not compile {}", source.display());
    tool::run(&mut command, MISSING, &failed)?;
    Ok(program)
}

/// The first clang that compiles and links for wasm32. `module` can be overwritten.
fn clang(module: &Path) -> Outcome<OsString> {
    if let Some(program) = std::env::var_os(VARIABLE) {
        return if links(&program, module) {
            Ok(program)
        } else {
            let program = program.display();
            let message = format!(
                "{VARIABLE}={program} cannot compile and link for wasm32: it must be clang 16 or \
                 newer, with wasm-ld beside it or on the PATH"
            );
            Err(tool::not_found(&message))
        };
    }
    let mut programs = PROGRAMS.iter().map(OsString::from);
    let found = programs.find(|program| links(program, module));
    found.ok_or_else(|| tool::not_found(MISSING))
}

/// Whether an empty source becomes a module.
fn links(program: &OsString, module: &Path) -> bool {
    let mut command = Command::new(program);
    command.args([
        "--target=wasm32",
        "-nostdlib",
        "-Wl,--no-entry",
        "-x",
        "c",
        "-",
        "-o",
    ]);
    command
        .arg(module)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
