//! Compiles the guests in C and C++, and checks the C guest SDK.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::process::{command_line, root, run, say, succeeds};
use crate::toolchain::install;
use crate::wasi::Wasi;

/// Names a clang to use instead of those on the PATH.
const VARIABLE: &str = "CALLBOX_CLANG";

/// Debian's clang, and the linker for WebAssembly that clang calls.
const DEBIAN_PACKAGES: [&str; 2] = ["clang-19", "lld-19"];

/// Names of clang, in the order in which they are tried. Older ones lack `#embed`.
const PROGRAMS: [&str; 5] = ["clang-19", "clang-20", "clang-21", "clang-22", "clang"];

/// The folder where clang looks for programs first. Its `wasm-opt` does nothing; clang would run
/// one from the PATH, and modules would differ between machines. clang 19 also has an option
/// `--no-wasm-opt`, but does not link with it.
const PROGRAMS_FIRST: &str = "-Bxtask/src/clang";

/// How guests are compiled and linked, without a C library and with wasi-libc. Users have the same
/// files.
const CONFIG: &str = "--config=guest-sdk/wasm32.cfg";
const WASI_CONFIG: &str = "--config=guest-sdk/wasm32-wasi.cfg";

const GUESTS: &str = "guests/c";

/// The folder of the headers of Debian's libstb-dev.
const STB: &str = "/usr/include/stb";

const HEADERS: &str = "guest-sdk/include";

/// A clang that compiles and links for wasm32.
pub(crate) struct Clang {
    program: PathBuf,
}

impl Clang {
    /// Finds a clang. Installs one if there is none.
    ///
    /// # Errors
    /// No clang works, and none can be installed: the error says how to get one.
    pub(crate) fn find() -> Result<Self> {
        if let Some(program) = std::env::var_os(VARIABLE) {
            let clang = Self {
                program: program.into(),
            };
            ensure!(
                clang.links(),
                "{VARIABLE}={} cannot compile and link for wasm32: it must be clang 19 or newer \
                 with that target, and wasm-ld beside it or on the PATH",
                clang.program.display()
            );
            return Ok(clang);
        }
        if let Some(clang) = Self::installed() {
            return Ok(clang);
        }
        let packages = DEBIAN_PACKAGES.join(" ");
        say(&format!("Installing {packages}, for guests in C"));
        install(&DEBIAN_PACKAGES)
            .and_then(|()| Self::installed().context("the installed clang cannot link for wasm32"))
            .with_context(|| {
                format!(
                    "clang 19 or newer with wasm-ld is missing, which compiles guests in C: \
                     install {packages} (Debian, Ubuntu), or clang and lld (others), or name a \
                     clang in {VARIABLE}"
                )
            })
    }

    fn installed() -> Option<Self> {
        let mut clangs = PROGRAMS.iter().map(|program| Self {
            program: program.into(),
        });
        clangs.find(Self::links)
    }

    /// The program, for other targets than wasm32.
    pub(crate) fn program(&self) -> &OsStr {
        self.program.as_os_str()
    }

    /// Whether an empty source becomes a module.
    fn links(&self) -> bool {
        let module = root().join("target/clang.wasm");
        let has_folder = fs::create_dir_all(root().join("target")).is_ok();
        let mut command = self.command(Language::C, None);
        command.args(["-Wno-empty-translation-unit", "-x", "c", "-", "-o"]);
        command.arg(&module);
        has_folder && succeeds(&mut command) && fs::remove_file(&module).is_ok()
    }

    /// A command with the flags that all compilations have, to be run in the repository's root.
    fn command(&self, language: Language, wasi: Option<&Wasi>) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(root()).stdin(Stdio::null());
        if let Some(wasi) = wasi {
            command.args([WASI_CONFIG, "--sysroot"]).arg(wasi.sysroot());
        } else {
            command.arg(CONFIG);
        }
        command.args([PROGRAMS_FIRST, "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
        command.args(language.flags());
        command
    }

    /// A command that compiles a source and links it, with wasi-libc if `wasi` is given.
    fn compile(&self, source: &Path, wasi: Option<&Wasi>, module: &Path) -> Command {
        let mut command = self.command(Language::of(source), wasi);
        command.arg(source);
        if wasi.is_some() {
            // The samples do without compiler-rt, which is a package of its own.
            command.args(["-nodefaultlibs", "-lc"]);
        }
        command.arg("-o").arg(module);
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
        if source
            .extension()
            .is_some_and(|extension| extension == "cc")
        {
            Self::CPlusPlus
        } else {
            Self::C
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

/// Compiles every guest of `guests/c` to `target/guests/NAME.wasm`, and checks the headers. `taken`
/// are the file names of the modules in Rust.
pub(crate) fn build(clang: &Clang, taken: &[String]) -> Result<()> {
    say("Building the guests in C and C++");
    for source in sources(GUESTS, &["c", "cc"])? {
        let name = source.with_extension("wasm");
        let name = name.file_name().unwrap_or_default();
        ensure!(
            !taken.iter().any(|taken| name == taken.as_str()),
            "{} has the name of a guest in Rust",
            source.display()
        );
        run(&mut clang.compile(&source, None, &Path::new("target/guests").join(name)))?;
    }
    say("Checking the C guest SDK");
    check_headers(clang, None)?;
    check_refusals(clang)?;
    build_with_wasi_libc(clang)
}

/// Compiles each header alone, as C and as C++.
fn check_headers(clang: &Clang, wasi: Option<&Wasi>) -> Result<()> {
    for header in sources(HEADERS, &["h"])? {
        // Native tests include it, where there is a C library.
        if wasi.is_none() && header.ends_with("callbox_test.h") {
            continue;
        }
        for language in [Language::C, Language::CPlusPlus] {
            let mut command = clang.command(language, wasi);
            command.arg("-fsyntax-only").arg("-include").arg(&header);
            run(command.args(["-x", language.name(), "-"]))?;
        }
    }
    Ok(())
}

/// Checks that wrong sources do not compile, for the reason that their first line gives.
fn check_refusals(clang: &Clang) -> Result<()> {
    for source in sources(&format!("{GUESTS}/refused"), &["c", "cc"])? {
        let text = fs::read_to_string(root().join(&source))?;
        let expected = text
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("// expected error: "))
            .with_context(|| {
                format!(
                    "{} does not begin with `// expected error: `",
                    source.display()
                )
            })?;
        let mut command = clang.compile(&source, None, Path::new("target/refused.wasm"));
        println!("   {}", command_line(&command));
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

/// Compiles with wasi-libc: guests that must import nothing of WASI, and one that needs grants.
fn build_with_wasi_libc(clang: &Clang) -> Result<()> {
    let wasi = Wasi::find()?;
    check_headers(clang, Some(&wasi))?;
    let module = Path::new("target/wasi.wasm");
    for source in ["wasi/allocates.c", "do_custom_call_status.c"] {
        let source = Path::new(GUESTS).join(source);
        run(&mut clang.compile(&source, Some(&wasi), module))?;
        ensure!(
            !Wasi::is_imported_by(&root().join(module))?,
            "{} imports functions of WASI, which it must not need",
            source.display()
        );
    }
    // The cases load `inert` without a grant.
    for name in ["inert", "table"] {
        let source = Path::new(GUESTS).join(format!("wasi/{name}.c"));
        let module = Path::new("target/guests").join(format!("{name}.wasm"));
        run(&mut clang.compile(&source, Some(&wasi), &module))?;
    }
    if !Path::new(STB).join("stb_image.h").is_file() {
        say("Installing libstb-dev, whose JPEG decoder is compiled for a guest");
        install(&["libstb-dev"]).context("cannot install libstb-dev (Debian, Ubuntu)")?;
    }
    let source = Path::new(GUESTS).join("wasi/stb_jpeg.c");
    let module = Path::new("target/guests/stb_jpeg.wasm");
    run(clang
        .compile(&source, Some(&wasi), module)
        .args(["-isystem", STB]))
}

/// The files of a folder with one of these extensions, sorted. Paths begin at the root.
pub(crate) fn sources(folder: &str, extensions: &[&str]) -> Result<Vec<PathBuf>> {
    let mut sources = Vec::new();
    let entries =
        fs::read_dir(root().join(folder)).with_context(|| format!("cannot read {folder}"))?;
    for entry in entries {
        let path = Path::new(folder).join(entry?.file_name());
        if extensions
            .iter()
            .any(|extension| path.extension() == Some(extension.as_ref()))
        {
            sources.push(path);
        }
    }
    sources.sort();
    Ok(sources)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENTS: [&str; 3] = [
        "README.md",
        "guests/c/README.md",
        "guest-sdk/include/callbox.h",
    ];

    #[test]
    fn modules_depend_on_config_files_and_not_on_the_path() {
        let clang = Clang {
            program: "clang".into(),
        };
        let wasi = Wasi::at("/usr");
        for source in ["a.c", "a.cc"].map(Path::new) {
            for (wasi, config) in [(None, CONFIG), (Some(&wasi), WASI_CONFIG)] {
                let command = clang.compile(source, wasi, Path::new("a.wasm"));
                for flag in [PROGRAMS_FIRST, config] {
                    assert!(
                        command.get_args().any(|argument| argument == flag),
                        "{flag} in {command:?}"
                    );
                }
            }
        }
        let folder = PROGRAMS_FIRST.trim_start_matches("-B");
        let wasm_opt = root().join(folder).join("wasm-opt");
        assert!(
            succeeds(&mut Command::new(wasm_opt)),
            "wasm-opt in {folder}"
        );
    }

    /// A command line with flags of its own would leave some out.
    #[test]
    fn documents_compile_by_the_config_files() -> Result<()> {
        for document in DOCUMENTS {
            let text = fs::read_to_string(root().join(document))?;
            let is_command = |line: &str| line.contains("clang --target") && line.contains(" -O");
            assert!(
                !text.lines().any(is_command),
                "{document} must compile guests by `clang {CONFIG}`"
            );
        }
        Ok(())
    }
}
