//! The environments that the wheel is tested in, below `target/python`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::{CONFIGURATION, MYPY};
use crate::process::root;
use crate::venv::{Environment, Interpreter};

/// What an environment has besides callbox.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// NumPy, and ml_dtypes for the tests.
    Core,
    /// The newest JAX on PyPI for the interpreter, Numba, notebooks, and the clients of the Hub.
    New,
    /// The oldest supported JAX, and a NumPy of its time.
    Old,
    /// PyTorch and Numba.
    Torch,
}

/// The oldest supported JAX.
const OLD_JAX: [&str; 2] = ["jax==0.5.0", "jaxlib==0.5.0"];

/// The versions of Python for which PyPI has wheels of the oldest JAX.
const OLD_PYTHONS: [(u32, u32); 3] = [(3, 11), (3, 12), (3, 13)];

/// Reads and writes files that have kernels beside weights.
const SAFETENSORS: &str = "safetensors==0.8.0";

/// Run notebooks.
const NOTEBOOKS: [&str; 2] = ["nbclient==0.11.0", "ipykernel==7.4.0"];

/// The tests that the newest JAX adds to those with NumPy alone, which has the same NumPy.
const BESIDE_NUMPY: [&str; 4] = [
    "python/tests/core/test_address_space.py",
    "python/tests/hub",
    "python/tests/jax",
    "python/tests/jit",
];

/// Packages that jax.export needs and JAX does not require.
const EXPORT: [&str; 2] = ["absl-py", "flatbuffers"];

impl Kind {
    /// The kinds that are tested by default.
    pub(super) const DEFAULTS: [Self; 3] = [Self::Core, Self::New, Self::Old];

    /// Why there can be no such environment with an interpreter.
    pub(super) fn unavailable(self, interpreter: &Interpreter) -> Option<String> {
        let (major, minor) = interpreter.version;
        let is_missing = self == Self::Old && !OLD_PYTHONS.contains(&interpreter.version);
        is_missing.then(|| {
            format!("jaxlib 0.5.0 has wheels for Python 3.11 to 3.13, found {major}.{minor}")
        })
    }

    /// The environment's folder below `target`. Versions are in the names of other interpreters
    /// than the default one.
    pub(super) fn folder(self, interpreter: &Interpreter) -> String {
        let name = match self {
            Self::Core => "core",
            Self::New => "new",
            Self::Old => "old",
            Self::Torch => "torch",
        };
        if interpreter.is_default {
            format!("python/{name}")
        } else {
            let (major, minor) = interpreter.version;
            format!("python/{name}-{major}.{minor}")
        }
    }

    /// The end of the heading of its tests.
    pub(super) fn heading(self) -> &'static str {
        match self {
            Self::Core => "NumPy alone",
            Self::New => "the newest JAX",
            Self::Old => "JAX 0.5.0",
            Self::Torch => "PyTorch",
        }
    }

    /// A Python program that prints versions. callbox alone must not import optional packages.
    pub(super) fn versions(self) -> &'static str {
        match self {
            Self::Core => {
                "import callbox, numpy, sys; print('NumPy', numpy.__version__); \
                 assert not {'jax', 'ml_dtypes', 'torch'} & {*sys.modules}"
            }
            Self::New | Self::Old => "import callbox.jax, jax; print('JAX', jax.__version__)",
            Self::Torch => "import callbox.torch, torch; print('PyTorch', torch.__version__)",
        }
    }

    /// The wheel's extras to install.
    fn extras(self) -> &'static str {
        match self {
            Self::Core => "test",
            Self::New => "test,jax,jit,hub",
            Self::Old => "test,jax",
            Self::Torch => "test,torch,jit",
        }
    }

    /// Other packages to install.
    fn requirements(self, interpreter: &Interpreter) -> Vec<String> {
        let mut requirements = match self {
            Self::Core => vec![],
            // A test puts callbox's kernels into one of its models.
            Self::Torch => vec!["transformers>=5,<6"],
            Self::New => vec![MYPY, SAFETENSORS],
            // The oldest supported NumPy has no wheels for Python 3.13.
            Self::Old if interpreter.version < (3, 13) => vec!["numpy==1.26.4"],
            Self::Old => vec!["numpy<2.2"],
        };
        if self == Self::Old {
            requirements.extend(OLD_JAX);
        }
        if self == Self::New {
            requirements.extend(NOTEBOOKS);
        }
        if matches!(self, Self::New | Self::Old) {
            requirements.extend(EXPORT);
        }
        requirements.into_iter().map(str::to_owned).collect()
    }
}

/// An environment with the wheel.
pub(super) struct Tested {
    kind: Kind,
    pub(super) environment: Environment,
}

impl Tested {
    /// Installs the wheel and its requirements. An existing environment gets the wheel alone.
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

    /// Arguments for pytest: the tests of `python/tests` and the package's doctests.
    pub(super) fn selection(&self) -> Vec<String> {
        let package = self.environment.packages().join("callbox");
        let ignore = |path: &str| format!("--ignore={}", package.join(path).display());
        let mut selection: Vec<String> = match self.kind {
            // The doctest of `errors.py` runs a program of JAX.
            Kind::Core => {
                let tests = "python/tests/core".to_owned();
                vec![tests, ignore("jax"), ignore("errors.py")]
            }
            Kind::Torch => vec!["python/tests/torch".to_owned()],
            Kind::New => BESIDE_NUMPY.map(str::to_owned).to_vec(),
            Kind::Old => vec![
                "python/tests".to_owned(),
                "--ignore=python/tests/torch".to_owned(),
            ],
        };
        let doctests = match self.kind {
            Kind::Core | Kind::New => {
                selection.push(ignore("torch"));
                // It has no doctests, and imports Numba.
                selection.push(ignore("_jit"));
                "callbox"
            }
            Kind::Torch => "callbox.torch",
            // Doctests expect the output of a new NumPy.
            Kind::Old => {
                selection.extend(["-m", "not newest"].map(str::to_owned));
                return selection;
            }
        };
        selection.extend(["--doctest-modules", "--pyargs", doctests].map(str::to_owned));
        selection
    }
}

/// The requirements of the wheel, as text.
fn project() -> Result<String> {
    let text = fs::read_to_string(root().join(CONFIGURATION))
        .with_context(|| format!("cannot read {CONFIGURATION}"))?;
    let lines = text.lines().skip_while(|line| *line != "[project]");
    let lines = lines.take_while(|line| !line.starts_with("[tool."));
    Ok(lines.collect::<Vec<_>>().join("\n"))
}
