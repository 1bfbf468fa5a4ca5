//! Virtual environments of Python below `target`, each made the first time it is needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::process::{root, run, say};

/// Interpreters to use by default, in the order in which they are tried. A version manager has
/// scripts for names that do not work, so each is tried by running it.
const PROGRAMS: [&str; 5] = [
    "python3",
    "python3.13",
    "python3.12",
    "python3.11",
    "/usr/bin/python3",
];

/// Prints the version of an interpreter that can make environments.
const PROBE: &str = "import sys, venv, ensurepip; print(*sys.version_info[:2])";

/// A Python interpreter.
pub(crate) struct Interpreter {
    program: PathBuf,
    /// Its version, such as (3, 11).
    pub(crate) version: (u32, u32),
    /// Whether it was found, not named by the caller.
    pub(crate) is_default: bool,
}

impl Interpreter {
    /// The first of `PROGRAMS` that works.
    ///
    /// # Errors
    /// None works: the error says why `python3` does not.
    pub(crate) fn default_python() -> Result<Self> {
        let mut found = PROGRAMS
            .map(|program| Self::of(Path::new(program)))
            .into_iter();
        let first = found
            .next()
            .unwrap_or_else(|| bail!("there is no interpreter"));
        let interpreter = first.or_else(|error| found.find_map(Result::ok).ok_or(error));
        interpreter
            .map(|interpreter| Self {
                is_default: true,
                ..interpreter
            })
            .context("install python3 and python3-venv (Debian, Ubuntu), or Python 3.11 or newer")
    }

    /// The interpreter of a program.
    ///
    /// # Errors
    /// The program is not Python, is older than 3.11, or has no venv.
    pub(crate) fn of(program: &Path) -> Result<Self> {
        let needed = || format!("{} is not Python 3.11+ with venv", program.display());
        let output = Command::new(program)
            .args(["-I", "-c", PROBE])
            .output()
            .with_context(needed)?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let mut numbers = printed.split_whitespace().map(str::parse::<u32>);
        let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
            let errors = String::from_utf8_lossy(&output.stderr);
            let last = errors.lines().last().unwrap_or("it printed nothing");
            bail!("{}: {last}", needed());
        };
        let version = (major, minor);
        ensure!(version >= (3, 11), "{}: it is {major}.{minor}", needed());
        Ok(Self {
            program: program.to_owned(),
            version,
            is_default: false,
        })
    }
}

/// A virtual environment.
pub(crate) struct Environment {
    folder: PathBuf,
    version: (u32, u32),
    /// Whether it was made just now.
    pub(crate) is_new: bool,
}

impl Environment {
    /// The environment in a folder below `target`, with these requirements installed by pip. It is
    /// made if it is missing, or was made for another Python, other requirements or another `key`.
    ///
    /// # Errors
    /// pip cannot install a requirement, for instance without a network.
    pub(crate) fn of(
        folder: &str,
        interpreter: &Interpreter,
        requirements: &[String],
        key: &str,
    ) -> Result<Self> {
        let mut environment = Self {
            folder: root().join("target").join(folder),
            version: interpreter.version,
            is_new: false,
        };
        let (major, minor) = interpreter.version;
        let made_for = format!("Python {major}.{minor}\n{}\n{key}", requirements.join("\n"));
        // Written last, so that an interrupted installation starts again.
        let installed = environment.folder.join("installed.txt");
        if fs::read_to_string(&installed).is_ok_and(|text| text == made_for) {
            return Ok(environment);
        }
        say(&format!(
            "Making target/{folder}, for Python {major}.{minor}"
        ));
        run(Command::new(&interpreter.program)
            .args(["-I", "-m", "venv", "--clear"])
            .arg(&environment.folder))?;
        environment.install(requirements)?;
        fs::write(&installed, made_for)
            .with_context(|| format!("cannot write {}", installed.display()))?;
        environment.is_new = true;
        Ok(environment)
    }

    /// Whether a folder below `target` has an environment.
    pub(crate) fn exists(folder: &str) -> bool {
        let folder = root().join("target").join(folder);
        folder.join("installed.txt").exists()
    }

    /// Runs pip. It takes only wheels, and compiles nothing.
    ///
    /// # Errors
    /// pip cannot install a requirement.
    pub(crate) fn install(&self, requirements: &[String]) -> Result<()> {
        let mut pip = self.python();
        pip.args(["-I", "-m", "pip", "install", "--quiet", "--retries=2"]);
        pip.args(["--disable-pip-version-check", "--only-binary=:all:"]);
        run(pip.args(requirements)).with_context(|| {
            format!(
                "pip cannot install {}, from a network or its cache",
                requirements.join(" ")
            )
        })
    }

    /// Its interpreter, in the repository's root.
    pub(crate) fn python(&self) -> Command {
        self.program("python")
    }

    /// A program of an installed package, in the repository's root.
    pub(crate) fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.path(name));
        command.current_dir(root());
        command
    }

    /// The path of a program.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join("bin").join(name)
    }

    /// The folder of installed packages.
    pub(crate) fn packages(&self) -> PathBuf {
        let (major, minor) = self.version;
        let lib = self.folder.join("lib");
        lib.join(format!("python{major}.{minor}/site-packages"))
    }
}

/// The requirements in a file, whose path begins at the repository's root.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn requirements(path: &str) -> Result<Vec<String>> {
    let text =
        fs::read_to_string(root().join(path)).with_context(|| format!("cannot read {path}"))?;
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
}
