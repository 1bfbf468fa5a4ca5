//! `callbox build`: builds the module of a kernel's folder.

mod c;
mod python;
mod rust;
mod tool;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use callbox::policy::Limits;
use callbox::{Blame, Status, StatusCode};
use callbox_core::untrusted_text::shown_name;
use callbox_package::Header;
use sha2::{Digest, Sha256};

use super::failure::{Failure, Outcome};
use super::modules::Loader;
use super::package::folder::{self, HEADER};
use super::policy::PolicyArguments;
use super::{inspect, output, regular_file, write_file};

const EXAMPLES: &str = "\
The folder has the sources, as `callbox new` makes them:
  Cargo.toml                a crate, which cargo builds for wasm32-unknown-unknown
  src/*.c, *.cc, *.cpp      sources, which clang compiles with callbox-sdk/guest-sdk/wasm32.cfg
  NAME.py                   a function NAME with @callbox.jit
The module is NAME.wasm, with the name of callbox-package.json, or else of the folder.

Building runs native code with your rights: the compiler, and for Rust the build scripts and macros
of the crate and its dependencies; a kernel in Python is run. Build only what you trust.

Environment:
  CALLBOX_CLANG   clang 16 or newer, if it is not on the PATH
  CALLBOX_PYTHON  the Python that has callbox[jit]. If left out, python3

Examples:
  callbox build
  callbox build kernels/scale";

/// The folder with the copy of the SDK.
pub(super) const SDK: &str = "callbox-sdk";

/// The folder of everything that a build leaves besides the module.
const TARGET: &str = "target";

/// Build the module of a kernel in Rust, C, C++ or Python
///
/// The compiler's messages go to standard error.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{}", super::EXIT_CODES))]
pub(super) struct Arguments {
    /// The folder of the kernel
    #[arg(value_name = "DIR", default_value = ".")]
    folder: PathBuf,
}

/// A language of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    Rust,
    /// C and C++.
    C,
    Python,
}

impl Language {
    /// The name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::C => "c",
            Self::Python => "python",
        }
    }
}

/// A kernel's folder with sources.
#[derive(Debug)]
pub(super) struct Project {
    pub(super) folder: PathBuf,
    pub(super) name: String,
    pub(super) language: Language,
}

pub(super) fn build(arguments: &Arguments) -> ExitCode {
    match build_and_describe(&arguments.folder) {
        Ok(text) => output::emit(&text, ExitCode::SUCCESS),
        Err(failure) => output::complain(&failure),
    }
}

fn build_and_describe(folder: &Path) -> Outcome<String> {
    let project = Project::open(folder)?;
    let module = project.build()?;
    let loader = Loader::new(&PolicyArguments::default())?;
    let bytes = regular_file::read(&module, Limits::default().module_bytes)?;
    for warning in inspect::slow::warnings(&bytes) {
        output::warn(&warning);
    }
    let file = loader.describe(&module, bytes)?;
    let info = file.contents.info();
    let mut text = format!("{}, {} bytes\n", module.display(), info.size);
    for target in &info.targets {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {}", shown_name(&target.name));
    }
    Ok(text)
}

/// Builds a folder, if it has sources, runs its native tests, if `with_tests`, and returns the
/// folder as a package.
pub(super) fn packed(folder: &Path, with_tests: bool) -> Outcome<Vec<u8>> {
    // `test *.wasm` must not run the native code of a folder that is named like a module.
    if folder.extension().is_some_and(|name| name == "wasm") {
        return Err(Status::invalid_argument(
            "expected a file, found a folder with the name of one",
        )
        .context(folder.display())
        .into());
    }
    if let Some(project) = Project::find(folder)? {
        project.build()?;
        if with_tests {
            project.test()?;
        }
    }
    let contents = folder::read(folder)?;
    let (module, header) = (&contents.module, &contents.header);
    let packed = callbox_package::pack(
        module,
        header,
        &contents.files,
        &callbox_package::Limits::default(),
    );
    Ok(packed.map_err(|status| status.context(folder.display()))?)
}

impl Project {
    /// The project in a folder, which must have sources.
    pub(super) fn open(folder: &Path) -> Outcome<Self> {
        Self::find(folder)?.ok_or_else(|| {
            Status::invalid_argument(
                "expected the sources of a kernel: Cargo.toml, src/*.c or NAME.py; \
                 `callbox new` makes a folder with them",
            )
            .context(folder.display())
            .into()
        })
    }

    /// The project in a folder, if it has sources.
    pub(super) fn find(folder: &Path) -> Outcome<Option<Self>> {
        let cannot = |error| {
            let expected = format!("expected to read the folder {}", folder.display());
            Failure::file(expected, &error)
        };
        let real = std::fs::canonicalize(folder).map_err(cannot)?;
        std::fs::read_dir(&real).map_err(cannot)?;
        let name = name(folder, &real)?;
        let language = if folder.join("Cargo.toml").is_file() {
            Language::Rust
        } else if !c::sources(&folder.join("src")).is_empty() {
            Language::C
        } else if folder.join(format!("{name}.py")).is_file() {
            Language::Python
        } else {
            return Ok(None);
        };
        Ok(Some(Self {
            folder: real,
            name,
            language,
        }))
    }

    /// Builds the module, and returns its path.
    fn build(&self) -> Outcome<PathBuf> {
        self.check_module()?;
        let built = match self.language {
            Language::Rust => rust::build(self)?,
            Language::C => c::build(self)?,
            Language::Python => python::build(self)?,
        };
        let bytes = regular_file::read(&built, Limits::default().module_bytes)?;
        let module = self.module();
        // The compiler may have run for long: the file may be another one now.
        self.check_module()?;
        write_file::write(&module, &[&bytes])?;
        let digest = hex::encode(Sha256::digest(&bytes));
        write_file::write(&self.written()?, &[digest.as_bytes()])?;
        Ok(module)
    }

    /// The path of the module.
    fn module(&self) -> PathBuf {
        self.folder.join(format!("{}.wasm", self.name))
    }

    /// The path of the digest of the module that the last build wrote.
    fn written(&self) -> Outcome<PathBuf> {
        Ok(self.target_folder()?.join("module.sha256"))
    }

    /// Checks that the module in the folder, if there is one, is what an earlier build wrote. A
    /// signed package or a module from elsewhere is not replaced.
    fn check_module(&self) -> Outcome<()> {
        let module = self.module();
        if module.symlink_metadata().is_err() {
            return Ok(());
        }
        let is_link = module.is_symlink();
        let found = regular_file::read(&module, Limits::default().module_bytes);
        let found = found.ok().map(|bytes| hex::encode(Sha256::digest(bytes)));
        let written = std::fs::read_to_string(self.written()?).ok();
        if !is_link && found.is_some() && found == written {
            return Ok(());
        }
        let message = "expected the module that an earlier build wrote here, found another file: \
                       move it away to build the folder";
        let status = Status::new(StatusCode::FailedPrecondition, Blame::Caller, message);
        Err(status.context(module.display()).into())
    }

    /// Runs the native tests.
    fn test(&self) -> Outcome<()> {
        match self.language {
            Language::Rust => rust::test(self),
            Language::C => c::test(self),
            Language::Python => python::test(self),
        }
    }

    /// Runs the benchmark of the same source, compiled natively. Returns its output, or `None` if
    /// there is no such benchmark.
    pub(super) fn bench_natively(&self) -> Outcome<Option<String>> {
        match self.language {
            Language::Rust => rust::bench(self),
            Language::C => c::bench(self),
            Language::Python => python::bench(self),
        }
    }

    /// The folder for what the compilers write, which is made if it does not exist.
    fn target_folder(&self) -> Outcome<PathBuf> {
        let folder = self.folder.join(TARGET);
        std::fs::create_dir_all(&folder).map_err(|error| {
            Failure::file(format!("expected to make {}", folder.display()), &error)
        })?;
        Ok(folder)
    }
}

/// The name of the header, or else of the folder.
fn name(folder: &Path, real: &Path) -> Outcome<String> {
    let header = folder.join(HEADER);
    if header.exists() {
        let text = regular_file::read(&header, callbox_package::Limits::default().header_bytes)?;
        let read = Header::from_json(&text).map_err(Status::invalid_argument);
        return Ok(read
            .map_err(|status| status.context(header.display()))?
            .name);
    }
    let name = real.file_name().and_then(|name| name.to_str());
    Ok(name.unwrap_or("kernel").to_owned())
}
