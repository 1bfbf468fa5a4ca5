//! callbox for Python: builds the wheel, tests it as users install it, and lints its sources.
//!
//! maturin builds the extension apart from the other members of the workspace, because it needs
//! other features of their common dependencies. Its tests are in Python.

mod environments;

use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::available_parallelism;

use anyhow::{Context, Result, bail, ensure};
use lexopt::Arg::Long;
use lexopt::Parser;

pub(crate) use self::environments::Kind;
use self::environments::Tested;
use crate::guests;
use crate::process::{cargo, root, run, run_tests, say, workspace_tests};
use crate::summary::{Counts, Outcome};
use crate::venv::{Environment, Interpreter};

/// The package that maturin builds. The rest of the workspace needs no Python.
pub(crate) const PACKAGE: &str = "callbox-python";

/// Arguments for the wheel that users have.
const RELEASE: &[&str] = &["--profile", "release"];

/// Arguments for the wheel that `cargo xtask test` tests. Its dependencies are those of the other
/// tests, which takes minutes less than a release.
const TESTED: &[&str] = &["--profile", "dev", "--features", "shared-build"];

/// Builds the wheel, and lints the sources.
const TOOLS: [&str; 2] = ["maturin==1.16.0", "ruff==0.17.6"];

/// Compares the type stubs with the extension.
const MYPY: &str = "mypy==2.4.1";

/// The folder of the wheel, which has no other files.
const WHEELS: &str = "target/python/wheels";

/// The configuration of pytest, ruff and mypy.
const CONFIGURATION: &str = "python/pyproject.toml";

/// Differences that the type stubs may have.
const ALLOWLIST: &str = "xtask/src/python/stubtest.txt";

/// The newest Python that the package is tested with.
const NEWEST_PYTHON: (u32, u32) = (3, 13);

/// Names interpreters besides those on the PATH, separated as on the PATH.
const VARIABLE: &str = "CALLBOX_PYTHONS";

/// Runs `cargo xtask python`.
///
/// # Errors
/// The wheel does not build, cannot be installed, or fails a test.
pub(crate) fn python(parser: &mut Parser) -> Result<()> {
    let mut wheel_only = false;
    let mut kinds = Vec::new();
    let mut named = Vec::new();
    let mut every = false;
    let mut pytest = Vec::new();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("wheel-only") => wheel_only = true,
            Long("core") => kinds.push(Kind::Core),
            Long("new") => kinds.push(Kind::New),
            Long("old") => kinds.push(Kind::Old),
            Long("torch") => kinds.push(Kind::Torch),
            Long("python") => named.push(Interpreter::of(Path::new(&parser.value()?))?),
            Long("every-python") => every = true,
            // lexopt yields no `--`: what follows it are values.
            lexopt::Arg::Value(argument) => pytest.push(argument.to_string_lossy().into_owned()),
            other => return Err(other.unexpected().into()),
        }
    }
    ensure!(
        !every || named.is_empty(),
        "--every-python finds the interpreters: it takes no --python"
    );
    // The wheel has some of them.
    guests::build()?;
    let wheel = wheel(&tools()?, RELEASE)?;
    if wheel_only {
        return Ok(());
    }
    let interpreters = match named {
        _ if every => every_interpreter()?,
        named if named.is_empty() => vec![Interpreter::default_python()?],
        named => named,
    };
    let are_named = !kinds.is_empty();
    if !are_named {
        kinds.extend(Kind::DEFAULTS);
    }
    for interpreter in &interpreters {
        for kind in &kinds {
            match kind.unavailable(interpreter) {
                Some(reason) if are_named => bail!("{reason}"),
                Some(reason) => println!("\n   not run: {reason}"),
                None => check(*kind, interpreter, &wheel, &pytest, &mut Counts::default())?,
            }
        }
    }
    Ok(())
}

/// Builds the wheel for `test`. Its dependencies have been compiled for the other tests. Not run
/// without Python or its tools.
///
/// # Errors
/// The wheel does not build.
pub(crate) fn build_wheel() -> Result<Outcome> {
    match tools() {
        Ok(tools) => wheel(&tools, TESTED).map(|_| Outcome::Ran),
        Err(error) => Ok(Outcome::NotRun(format!("{error:#}"))),
    }
}

/// Tests the wheel that `build_wheel` built in one kind of environment.
///
/// # Errors
/// The wheel cannot be installed, or fails a test.
pub(crate) fn test(kind: Kind, counts: &mut Counts) -> Result<Outcome> {
    let interpreter = match Interpreter::default_python() {
        Ok(interpreter) => interpreter,
        Err(error) => return Ok(Outcome::NotRun(format!("{error:#}"))),
    };
    test_on(kind, &interpreter, counts)
}

/// Tests the folders of kernels in Python with the command line and the Python of [`Kind::New`],
/// which has Numba. The workspace's tests run before that Python is there. Not run without it.
///
/// # Errors
/// A test fails.
pub(crate) fn test_command_line(counts: &mut Counts) -> Result<Outcome> {
    let interpreter = match Interpreter::default_python() {
        Ok(interpreter) => interpreter,
        Err(error) => return Ok(Outcome::NotRun(format!("{error:#}"))),
    };
    if !Environment::exists(&Kind::New.folder(&interpreter)) {
        return Ok(Outcome::NotRun("there is no Python with Numba".to_owned()));
    }
    let mut tests = workspace_tests();
    tests.args(["--test", "command_line", "kernels_in_python"]);
    // The tests fail where they would be skipped.
    run_tests(tests.env("CALLBOX_TEST_NUMBA", "1"), counts)?;
    Ok(Outcome::Ran)
}

/// Tests the wheel with the newest JAX on [`NEWEST_PYTHON`], which has a newer JAX than 3.11 has.
/// Not run without that Python.
///
/// # Errors
/// As for [`test`].
pub(crate) fn test_on_newest_python(counts: &mut Counts) -> Result<Outcome> {
    let (major, minor) = NEWEST_PYTHON;
    let found = match every_interpreter() {
        Ok(found) => found,
        Err(error) => return Ok(Outcome::NotRun(format!("{error:#}"))),
    };
    match found.iter().find(|one| one.version == NEWEST_PYTHON) {
        Some(newest) if newest.is_default => Ok(Outcome::NotRun(format!(
            "Python {major}.{minor} is the default one: the step before tested it"
        ))),
        Some(newest) => test_on(Kind::New, newest, counts),
        None => Ok(Outcome::NotRun(format!(
            "no Python {major}.{minor} with venv is on the PATH, below ~/.pyenv or in {VARIABLE}"
        ))),
    }
}

fn test_on(kind: Kind, interpreter: &Interpreter, counts: &mut Counts) -> Result<Outcome> {
    let Ok(wheel) = built_wheel() else {
        return Ok(Outcome::NotRun("the wheel was not built".to_owned()));
    };
    if let Some(reason) = kind.unavailable(interpreter) {
        return Ok(Outcome::NotRun(reason));
    }
    if kind == Kind::Torch && !Environment::exists(&kind.folder(interpreter)) {
        let reason = "PyTorch is 5 GiB; `cargo xtask python --torch` installs it";
        return Ok(Outcome::NotRun(reason.to_owned()));
    }
    check(kind, interpreter, &wheel, &[], counts)?;
    Ok(Outcome::Ran)
}

/// Measures calls from Python, beside a native handler, a callback and NumPy.
///
/// # Errors
/// As for [`python`].
pub(crate) fn speed() -> Result<()> {
    let interpreter = Interpreter::default_python()?;
    guests::build()?;
    let tested = Tested::of(Kind::New, &interpreter, &wheel(&tools()?, RELEASE)?)?;
    run(cargo().args(["build", "--release", "--package", "callbox-bench-native"]))?;
    let mut python = tested.environment.python();
    isolate(&mut python);
    python.env("OPENBLAS_NUM_THREADS", "1");
    python.args(["benches/python/speed.py", "--guests", "target/guests"]);
    run(python.args(["--native", "target/release/libcallbox_bench_native.so"]))?;
    let mut gallery = tested.environment.python();
    isolate(&mut gallery);
    run(gallery.args(["benches/python/gallery.py", "--guests", "target/guests"]))?;
    run(cargo().args(["build", "--release", "--package", "callbox-cli"]))?;
    let mut programs = tested.environment.python();
    isolate(&mut programs);
    programs.arg("benches/python/programs.py");
    run(programs.args(["--callbox", "target/release/callbox"]))
}

/// Checks formatting and lints of the Python sources.
///
/// # Errors
/// ruff reports something.
pub(crate) fn lint() -> Result<()> {
    say("Python");
    let tools = match tools() {
        Ok(tools) => tools,
        Err(error) => {
            println!("   not run: {error:#}");
            return Ok(());
        }
    };
    for task in [
        ["format", "--quiet", "--diff"],
        ["check", "--quiet", "--no-fix"],
    ] {
        let mut ruff = tools.program("ruff");
        // Paths in the configuration begin at its folder.
        ruff.current_dir(root().join("python"));
        ruff.env("RUFF_CACHE_DIR", root().join("target/python/ruff"));
        ruff.args(task);
        run(ruff.args(["--config", "pyproject.toml", ".", "../benches/python"]))?;
    }
    Ok(())
}

/// An environment with the tools.
fn tools() -> Result<Environment> {
    let tools = TOOLS.map(str::to_owned);
    Environment::of("python/build", &Interpreter::default_python()?, &tools, "")
}

/// Builds the wheel with these arguments.
fn wheel(tools: &Environment, arguments: &[&str]) -> Result<PathBuf> {
    say("Building the wheel: minutes the first time");
    let folder = root().join(WHEELS);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {WHEELS}"))?;
    }
    let mut maturin = tools.program("maturin");
    maturin
        .args(["build", "--locked", "--quiet"])
        .args(arguments);
    maturin.args(["--manifest-path", "python/Cargo.toml", "--out", WHEELS]);
    // The wheel is for this machine: pip installs it, PyPI would refuse it.
    maturin.args(["--compatibility", "linux", "--target-dir", "target"]);
    maturin.arg("--interpreter").arg(tools.path("python"));
    run(&mut maturin)?;
    built_wheel()
}

/// The only file in the folder of the wheel.
fn built_wheel() -> Result<PathBuf> {
    let mut wheels = Vec::new();
    let entries = fs::read_dir(root().join(WHEELS));
    for entry in entries.with_context(|| format!("cannot read {WHEELS}"))? {
        wheels.push(entry?.path());
    }
    ensure!(
        wheels.len() == 1,
        "expected one wheel in {WHEELS}, found {}",
        wheels.len()
    );
    Ok(wheels.remove(0))
}

/// Installs the wheel as a user would, and tests it.
fn check(
    kind: Kind,
    interpreter: &Interpreter,
    wheel: &Path,
    pytest: &[String],
    counts: &mut Counts,
) -> Result<()> {
    let tested = Tested::of(kind, interpreter, wheel)?;
    let (major, minor) = interpreter.version;
    say(&format!(
        "Testing callbox for Python {major}.{minor} with {}",
        kind.heading()
    ));
    run(isolate(&mut tested.environment.python()).args(["-c", kind.versions()]))?;
    let mut python = tested.environment.python();
    isolate(&mut python).args(["-m", "pytest", "--quiet", "-c", CONFIGURATION]);
    python.arg(format!("--override-ini=cache_dir={}", cache("pytest")));
    let workers = available_parallelism().map_or(1, NonZero::get).min(4);
    python.arg(format!("--numprocesses={workers}"));
    python.args(tested.selection()).args(pytest);
    run_tests(&mut python, counts)?;
    if kind == Kind::New && pytest.is_empty() {
        say("Comparing the type stubs with the extension");
        let mut stubtest = tested.environment.python();
        isolate(&mut stubtest).env("MYPY_CACHE_DIR", cache("mypy"));
        stubtest.args(["-m", "mypy.stubtest", "--concise", "callbox._callbox"]);
        stubtest.args(["--mypy-config-file", CONFIGURATION]);
        run(stubtest.args(["--allowlist", ALLOWLIST]))?;
    }
    Ok(())
}

/// Keeps Python from importing other packages and from writing caches beside sources.
fn isolate(python: &mut Command) -> &mut Command {
    // The workspace's tests build it. Without it, the tests of CUDA say that they do not run.
    let stand_in = root().join("target/debug/deps/libcallbox_cuda_stand_in.so");
    if stand_in.exists() {
        python.env("CALLBOX_CUDA_STAND_IN", stand_in);
    }
    python
        .env_remove("PYTHONPATH")
        .env("PYTHONSAFEPATH", "1")
        .env("PYTHONNOUSERSITE", "1")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("HYPOTHESIS_STORAGE_DIRECTORY", cache("hypothesis"))
        .env("JAX_PLATFORMS", "cpu")
        .env("CALLBOX_GUESTS", root().join("target/guests"))
}

fn cache(name: &str) -> String {
    let folder = root().join("target/python").join(name);
    folder.to_string_lossy().into_owned()
}

/// One interpreter of each version, the oldest first: the default one, those that the variable
/// names, those with a version in their names on the PATH, and those of pyenv. The last are on the
/// PATH only if they are active.
fn every_interpreter() -> Result<Vec<Interpreter>> {
    let mut found = vec![Interpreter::default_python()?];
    let named = std::env::var_os(VARIABLE).unwrap_or_default();
    for program in std::env::split_paths(&named).filter(|path| !path.as_os_str().is_empty()) {
        found.push(Interpreter::of(&program)?);
    }
    for minor in 11..=19 {
        // A version manager has scripts for versions that are not installed.
        found.extend(Interpreter::of(Path::new(&format!("python3.{minor}"))));
    }
    let pyenv = std::env::home_dir().map(|home| home.join(".pyenv/versions"));
    let versions = pyenv.and_then(|folder| fs::read_dir(folder).ok());
    for version in versions.into_iter().flatten().flatten() {
        found.extend(Interpreter::of(&version.path().join("bin/python3")));
    }
    found.sort_by_key(|interpreter| interpreter.version);
    found.dedup_by_key(|interpreter| interpreter.version);
    Ok(found)
}
