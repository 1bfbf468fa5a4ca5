//! Virtual environments of Python below `target`, each made the first time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process::{root, run, say};

/// The interpreter that is taken if none is named.
const AT_HAND: &str = "python3";

/// Prints the version of an interpreter that can make environments.
const PROBE: &str = "import sys, venv, ensurepip; print(*sys.version_info[:2])";

/// An interpreter.
pub(crate) struct Interpreter {
    program: PathBuf,
    /// Its version, such as 3.11.
    pub(crate) version: (u32, u32),
}

impl Interpreter {
    /// `python3`.
    ///
    /// # Errors
    /// As for [`Interpreter::of`].
    pub(crate) fn at_hand() -> Result<Self> {
        Self::of(Path::new(AT_HAND))
    }

    /// Whether it is `python3`.
    pub(crate) fn is_at_hand(&self) -> bool {
        self.program == Path::new(AT_HAND)
    }

    /// The interpreter that a program is.
    ///
    /// # Errors
    /// It is none, is older than 3.11, or has no venv.
    pub(crate) fn of(program: &Path) -> Result<Self> {
        let expected = || format!("expected {} of at least 3.11 with venv", program.display());
        let mut probe = Command::new(program);
        let output = probe.args(["-I", "-c", PROBE]).output();
        let output = output.with_context(expected)?;
        let said = String::from_utf8_lossy(&output.stdout);
        let mut numbers = said.split_whitespace().map(str::parse::<u32>);
        let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
            let said = String::from_utf8_lossy(&output.stderr);
            let last = said.lines().last().unwrap_or("it said nothing");
            anyhow::bail!("{}, found that `{PROBE}` failed: {last}", expected());
        };
        ensure!(
            (major, minor) >= (3, 11),
            "{}, found {major}.{minor}",
            expected()
        );
        Ok(Self {
            program: program.to_owned(),
            version: (major, minor),
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
    /// The environment of that folder below `target`, with what pip installs by these requirements. It is made if it is not there, and
    /// made anew if it was made for another version of Python, by other requirements or with another `key`.
    ///
    /// # Errors
    /// What pip cannot install, as without a network.
    pub(crate) fn of(
        folder: &str,
        interpreter: &Interpreter,
        requirements: &[String],
        key: &str,
    ) -> Result<Self> {
        let environment = Self::at(folder, interpreter);
        let (major, minor) = interpreter.version;
        let made_for = format!("Python {major}.{minor}\n{}\n{key}", requirements.join("\n"));
        // Written when all is installed, so that what was broken off is begun again.
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
            .with_context(|| format!("expected to write {}", installed.display()))?;
        Ok(Self {
            is_new: true,
            ..environment
        })
    }

    fn at(folder: &str, interpreter: &Interpreter) -> Self {
        Self {
            folder: root().join("target").join(folder),
            version: interpreter.version,
            is_new: false,
        }
    }

    /// Whether there is such an environment, of whatever requirements.
    pub(crate) fn is_there(folder: &str) -> bool {
        let folder = root().join("target").join(folder);
        folder.join("installed.txt").exists()
    }

    /// Runs pip. Only wheels are taken: what has none for this machine would be compiled, if at all.
    ///
    /// # Errors
    /// What pip cannot install.
    pub(crate) fn install(&self, arguments: &[String]) -> Result<()> {
        if arguments.is_empty() {
            return Ok(());
        }
        let mut pip = self.python();
        pip.args(["-I", "-m", "pip", "install", "--quiet", "--retries=2"]);
        pip.args(["--disable-pip-version-check", "--only-binary=:all:"]);
        run(pip.args(arguments))
            .with_context(|| format!("expected pip to install {}", arguments.join(" ")))
    }

    /// Its interpreter.
    pub(crate) fn python(&self) -> Command {
        self.program("python")
    }

    /// A program that was installed into it.
    pub(crate) fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.path(name));
        command.current_dir(root());
        command
    }

    /// Where that program is.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join("bin").join(name)
    }

    /// Where packages are installed.
    pub(crate) fn packages(&self) -> PathBuf {
        let (major, minor) = self.version;
        let lib = self.folder.join("lib");
        lib.join(format!("python{major}.{minor}/site-packages"))
    }
}

/// The requirements in a file, whose path begins at the repository's root.
///
/// # Errors
/// It cannot be read.
pub(crate) fn requirements(path: &str) -> Result<Vec<String>> {
    let text = fs::read_to_string(root().join(path))
        .with_context(|| format!("expected to read {path}"))?;
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
}
