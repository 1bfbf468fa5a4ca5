//! What the wheel is tested with: environments below `target/python`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::{CONFIGURATION, MYPY};
use crate::process::root;
use crate::venv::{Environment, Interpreter};

/// What there is besides callbox.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// NumPy alone, and for the tests ml_dtypes.
    Core,
    /// The newest JAX that PyPI has for the Python.
    New,
    /// The oldest JAX that will do, and a NumPy of its time.
    Old,
    /// PyTorch.
    Torch,
}

/// The oldest JAX that will do.
const OLD_JAX: [&str; 2] = ["jax==0.5.0", "jaxlib==0.5.0"];

/// What jax.export needs, and JAX does not ask for.
const EXPORT: [&str; 2] = ["absl-py", "flatbuffers"];

/// For which Pythons it has wheels.
const OLD_PYTHONS: [(u32, u32); 3] = [(3, 11), (3, 12), (3, 13)];

impl Kind {
    /// What is tested if nothing is asked for.
    pub(super) const USUAL: [Self; 3] = [Self::Core, Self::New, Self::Old];

    /// Why there can be no such environment with an interpreter.
    pub(super) fn unavailable(self, interpreter: &Interpreter) -> Option<String> {
        let (major, minor) = interpreter.version;
        let is_missing = self == Self::Old && !OLD_PYTHONS.contains(&interpreter.version);
        is_missing.then(|| {
            format!("expected Python 3.11, 3.12 or 3.13 for jaxlib 0.5.0, which has wheels for these, found Python {major}.{minor}")
        })
    }

    /// Where the environment is, below `target`. `python3` has the plain names.
    pub(super) fn folder(self, interpreter: &Interpreter) -> String {
        let name = match self {
            Self::Core => "core",
            Self::New => "new",
            Self::Old => "old",
            Self::Torch => "torch",
        };
        match interpreter.is_at_hand() {
            true => format!("python/{name}"),
            false => {
                let (major, minor) = interpreter.version;
                format!("python/{name}-{major}.{minor}")
            }
        }
    }

    /// What is said of it.
    pub(super) fn with(self) -> &'static str {
        match self {
            Self::Core => ", with NumPy alone",
            Self::New => ", with the newest JAX",
            Self::Old => ", with JAX 0.5.0",
            Self::Torch => ", with PyTorch",
        }
    }

    /// What Python is to import and print.
    pub(super) fn shown(self) -> &'static str {
        match self {
            Self::Core => {
                "numpy, sys; print('NumPy', numpy.__version__); assert not {'jax', 'ml_dtypes', 'torch'} & {*sys.modules}"
            }
            Self::New | Self::Old => "callbox.jax, jax; print('JAX', jax.__version__)",
            Self::Torch => "callbox.torch, torch; print('PyTorch', torch.__version__)",
        }
    }

    /// What pip installs of the wheel, by its extras.
    fn extras(self) -> &'static str {
        match self {
            Self::Core => "test",
            Self::New | Self::Old => "test,jax",
            Self::Torch => "test,torch",
        }
    }

    /// What pip is told besides.
    fn requirements(self, interpreter: &Interpreter) -> Vec<String> {
        let given: &[&str] = match self {
            Self::Core | Self::Torch => &[],
            Self::New => &[EXPORT[0], EXPORT[1], MYPY],
            // The oldest NumPy that will do is of their time. It has no wheels for Python 3.13.
            Self::Old if interpreter.version < (3, 13) => &[EXPORT[0], EXPORT[1], "numpy==1.26.4"],
            Self::Old => &[EXPORT[0], EXPORT[1], "numpy<2.2"],
        };
        let jax = OLD_JAX.iter().filter(|_| self == Self::Old);
        jax.chain(given).map(|one| (*one).to_owned()).collect()
    }
}

/// An environment with the wheel.
pub(super) struct Tested {
    kind: Kind,
    pub(super) environment: Environment,
}

impl Tested {
    /// Makes the environment, empty, and installs the wheel with what it asks for. Where it is there already only the wheel is new.
    pub(super) fn of(kind: Kind, interpreter: &Interpreter, wheel: &Path) -> Result<Self> {
        let mut requirements = kind.requirements(interpreter);
        requirements.push(format!("{}[{}]", wheel.display(), kind.extras()));
        let folder = kind.folder(interpreter);
        let environment = Environment::of(&folder, interpreter, &requirements, &project()?)?;
        if !environment.is_new {
            environment.install(&[
                "--force-reinstall".to_owned(),
                "--no-deps".to_owned(),
                wheel.display().to_string(),
            ])?;
        }
        Ok(Self { kind, environment })
    }

    /// The tests, for pytest: those of the folder `python/tests`, and the package's own examples.
    pub(super) fn selection(&self) -> Vec<String> {
        let package = self.environment.packages().join("callbox");
        let ignore = |path: &str| format!("--ignore={}", package.join(path).display());
        let mut selection: Vec<String> = match self.kind {
            Kind::Core => vec!["python/tests/core".to_owned(), ignore("jax")],
            Kind::Torch => vec!["python/tests/torch".to_owned()],
            Kind::New | Kind::Old => vec![
                "python/tests".to_owned(),
                "--ignore=python/tests/torch".to_owned(),
            ],
        };
        let examples = match self.kind {
            Kind::Core | Kind::New => {
                selection.push(ignore("torch.py"));
                "callbox"
            }
            Kind::Torch => "callbox.torch",
            // They print as a new NumPy does.
            Kind::Old => {
                selection.extend(["-m", "not newest"].map(str::to_owned));
                return selection;
            }
        };
        selection.extend(["--doctest-modules", "--pyargs", examples].map(str::to_owned));
        selection
    }
}

/// What the wheel asks for, as text.
fn project() -> Result<String> {
    let text = fs::read_to_string(root().join(CONFIGURATION))
        .with_context(|| format!("expected to read {CONFIGURATION}"))?;
    let lines = text.lines().skip_while(|line| *line != "[project]");
    let lines = lines.take_while(|line| !line.starts_with("[tool."));
    Ok(lines.collect::<Vec<_>>().join("\n"))
}
