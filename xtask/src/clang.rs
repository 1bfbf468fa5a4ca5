//! Compiles the guests in C and C++, and checks the C guest SDK.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::process::{root, run, say, shown, succeeds};
use crate::toolchain::install;

/// Names a clang to take instead of those on the path.
const VARIABLE: &str = "CALLBOX_CLANG";

/// Debian's clang, and the linker for WebAssembly that it calls.
const DEBIAN_PACKAGES: [&str; 2] = ["clang-19", "lld-19"];

/// Clangs, in the order in which they are tried.
const PROGRAMS: [&str; 5] = ["clang-19", "clang-20", "clang-21", "clang-22", "clang"];

/// Where the guests are.
const GUESTS: &str = "guests/c";

/// Where the headers are.
const HEADERS: &str = "guest-sdk/include";

/// Names the folder of a wasi-libc to take instead of Debian's.
const WASI_VARIABLE: &str = "WASI_SYSROOT";

/// Debian's wasi-libc.
const WASI_PACKAGE: &str = "wasi-libc";

/// What WASI's functions are imported from.
const WASI_MODULE: &[u8] = b"wasi_snapshot_preview1";

/// A clang that compiles and links for wasm32.
pub(crate) struct Clang {
    program: PathBuf,
}

impl Clang {
    /// Finds a clang, and installs one if there is none.
    ///
    /// # Errors
    /// What to do about it: no clang that works, and none that can be installed.
    pub(crate) fn find() -> Result<Self> {
        if let Some(program) = std::env::var_os(VARIABLE) {
            let clang = Self {
                program: program.into(),
            };
            ensure!(
                clang.links(),
                "expected {VARIABLE}={} to compile and link for wasm32: it needs that target, and wasm-ld beside it or on the path",
                clang.program.display()
            );
            return Ok(clang);
        }
        if let Some(clang) = Self::installed() {
            return Ok(clang);
        }
        let packages = DEBIAN_PACKAGES.join(" ");
        say(&format!(
            "There is no clang for wasm32: installing {packages}"
        ));
        install(&DEBIAN_PACKAGES).with_context(|| {
            format!(
                "expected a clang for wasm32, with wasm-ld: install {packages} (Debian, Ubuntu), clang and lld (others), \
                 or say where one is in {VARIABLE}"
            )
        })?;
        Self::installed()
            .with_context(|| format!("expected clang of {packages} to compile and link for wasm32"))
    }

    fn installed() -> Option<Self> {
        let mut clangs = PROGRAMS.iter().map(|program| Self {
            program: program.into(),
        });
        clangs.find(Self::links)
    }

    /// Whether it makes a module of an empty source.
    fn links(&self) -> bool {
        let module = root().join("target/clang.wasm");
        let made = fs::create_dir_all(root().join("target")).is_ok();
        let mut command = Command::new(&self.program);
        command
            .args(["--target=wasm32", "-nostdlib", "-Wl,--no-entry", "-xc", "-"])
            .arg("-o")
            .arg(&module);
        made && succeeds(&mut command) && fs::remove_file(&module).is_ok()
    }

    /// A command with the flags that all compilations have, to be run in the repository's root.
    fn command(&self, language: Language, wasi: Option<&Wasi>) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(root()).stdin(Stdio::null());
        match wasi {
            Some(wasi) => {
                command.arg("--target=wasm32-wasi");
                command.arg("--sysroot").arg(&wasi.sysroot)
            }
            None => command.arg("--target=wasm32"),
        };
        // Where a guest has no C library, there is no memcpy to call.
        command.args(["-O3", "-msimd128", "-mbulk-memory"]);
        command.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
        command.args(language.flags()).args(["-I", HEADERS]);
        command
    }

    /// A command that compiles a source without a C library and links it.
    fn compile(&self, source: &Path, module: &Path) -> Command {
        let mut command = self.command(Language::of(source), None);
        // A stack that overflows traps, if it lies before all else.
        command.args(["-nostdlib", "-Wl,--no-entry,--stack-first"]);
        command.arg(source).arg("-o").arg(module);
        command
    }

    /// A command that compiles a source with wasi-libc and links it.
    fn compile_with_libc(&self, wasi: &Wasi, source: &Path, module: &Path) -> Command {
        let mut command = self.command(Language::of(source), Some(wasi));
        // A reactor has no `main`, and an `_initialize` by which the host runs constructors.
        command.args(["-mexec-model=reactor", "-nodefaultlibs"]);
        command.arg(source).args(["-lc", "-o"]).arg(module);
        command
    }
}

#[derive(Clone, Copy)]
enum Language {
    C,
    CPlusPlus,
}

impl Language {
    fn of(source: &Path) -> Self {
        match source.extension().is_some_and(|e| e == "cc") {
            true => Self::CPlusPlus,
            false => Self::C,
        }
    }

    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::C => &["-std=c11"],
            Self::CPlusPlus => &["-std=c++17", "-fno-exceptions", "-fno-rtti"],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::CPlusPlus => "c++",
        }
    }
}

/// Compiles every guest of `guests/c` to `NAME.wasm` in `target/guests`, and checks the headers. `taken` are the modules made from Rust.
pub(crate) fn build(taken: &[String]) -> Result<()> {
    let clang = Clang::find()?;
    say("Building the guests in C and C++");
    for source in sources(GUESTS, &["c", "cc"])? {
        let name = source.with_extension("wasm");
        let name = name.file_name().unwrap_or_default();
        ensure!(
            !taken.iter().any(|taken| name == taken.as_str()),
            "expected {} to have a name that no guest in Rust has",
            source.display()
        );
        run(&mut clang.compile(&source, &Path::new("target/guests").join(name)))?;
    }
    say("Checking the C guest SDK");
    check_headers(&clang, None)?;
    check_refusals(&clang)?;
    build_with_wasi_libc(&clang)
}

/// Compiles each header alone, as C and as C++.
fn check_headers(clang: &Clang, wasi: Option<&Wasi>) -> Result<()> {
    for header in sources(HEADERS, &["h"])? {
        for language in [Language::C, Language::CPlusPlus] {
            let mut command = clang.command(language, wasi);
            command.arg("-fsyntax-only").arg("-include").arg(&header);
            run(command.args(["-x", language.name(), "-"]))?;
        }
    }
    Ok(())
}

/// Checks that sources that are wrong do not compile, for the reason that their first line gives.
fn check_refusals(clang: &Clang) -> Result<()> {
    for source in sources(&format!("{GUESTS}/refused"), &["c", "cc"])? {
        let text = fs::read_to_string(root().join(&source))?;
        let first = text.lines().next().unwrap_or_default();
        let expected = first
            .strip_prefix("// expected error: ")
            .with_context(|| format!("expected {} to say its error", source.display()))?;
        let mut command = clang.compile(&source, Path::new("target/refused.wasm"));
        println!("   {}", shown(&command));
        let output = command.output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(
            !output.status.success() && errors.contains(expected),
            "expected {} not to compile: {expected}; found {errors:?}",
            source.display()
        );
    }
    Ok(())
}

/// Compiles with wasi-libc: guests that need nothing of WASI, which is checked, and guests that take grants, which go to `target/guests`.
fn build_with_wasi_libc(clang: &Clang) -> Result<()> {
    let wasi = Wasi::find()?;
    check_headers(clang, Some(&wasi))?;
    for source in ["wasi/allocates.c", "do_custom_call_status.c"] {
        let source = Path::new(GUESTS).join(source);
        let module = Path::new("target/wasi.wasm");
        run(&mut clang.compile_with_libc(&wasi, &source, module))?;
        let bytes = fs::read(root().join(module))?;
        ensure!(
            !bytes.windows(WASI_MODULE.len()).any(|at| at == WASI_MODULE),
            "expected {} to import nothing of WASI, found {} to do so",
            source.display(),
            module.display()
        );
    }
    let source = Path::new(GUESTS).join("wasi/table.c");
    let module = Path::new("target/guests/table.wasm");
    run(&mut clang.compile_with_libc(&wasi, &source, module))
}

/// Where wasi-libc is installed.
struct Wasi {
    sysroot: PathBuf,
}

impl Wasi {
    /// Finds wasi-libc, and installs it if there is none.
    fn find() -> Result<Self> {
        if let Some(sysroot) = std::env::var_os(WASI_VARIABLE) {
            let wasi = Self {
                sysroot: sysroot.into(),
            };
            ensure!(
                wasi.is_there(),
                "expected {WASI_VARIABLE}={} to have lib/wasm32-wasi/libc.a",
                wasi.sysroot.display()
            );
            return Ok(wasi);
        }
        let wasi = Self {
            sysroot: "/usr".into(),
        };
        if !wasi.is_there() {
            say(&format!("There is no wasi-libc: installing {WASI_PACKAGE}"));
            install(&[WASI_PACKAGE]).with_context(|| {
                format!(
                    "expected wasi-libc: install {WASI_PACKAGE} (Debian, Ubuntu), or say where one is in {WASI_VARIABLE}"
                )
            })?;
        }
        Ok(wasi)
    }

    fn is_there(&self) -> bool {
        self.sysroot.join("lib/wasm32-wasi/libc.a").is_file()
    }
}

/// The files of a folder with one of these extensions, by name. Paths begin at the repository's root.
fn sources(folder: &str, extensions: &[&str]) -> Result<Vec<PathBuf>> {
    let mut sources = Vec::new();
    let entries =
        fs::read_dir(root().join(folder)).with_context(|| format!("expected to read {folder}"))?;
    for entry in entries {
        let path = Path::new(folder).join(entry?.file_name());
        if extensions
            .iter()
            .any(|e| path.extension() == Some(e.as_ref()))
        {
            sources.push(path);
        }
    }
    sources.sort();
    Ok(sources)
}
