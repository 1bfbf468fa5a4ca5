//! callbox for Python: the wheel, its tests as it is installed, and what its sources must be like.

mod environments;

use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::available_parallelism;

use anyhow::{Context, Result, bail, ensure};

use self::environments::{Kind, Tested};
use crate::guests;
use crate::process::{cargo, root, run, say};
use crate::venv::{Environment, Interpreter};

/// The package that maturin builds: no other part of the workspace needs Python.
pub(crate) const PACKAGE: &str = "callbox-python";

/// What builds the wheel and what looks at the sources.
const TOOLS: [&str; 2] = ["maturin==1.16.0", "ruff==0.17.6"];

/// What the type stubs are held against the extension with.
const MYPY: &str = "mypy==2.4.1";

/// Where the wheel is, and nothing else.
const WHEELS: &str = "target/python/wheels";

/// What the tests are run with, and the tools.
const CONFIGURATION: &str = "python/pyproject.toml";

/// What the type stubs may have besides.
const ALLOWLIST: &str = "xtask/src/python/stubtest.txt";

/// Names interpreters besides those on the path, separated as on the path.
const VARIABLE: &str = "CALLBOX_PYTHONS";

/// What `cargo xtask python` takes. Without `--core`, `--new`, `--old` and `--torch`, the first three are run.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Builds the wheel to target/python/wheels, and does nothing else.
    #[arg(long)]
    wheel_only: bool,
    /// Tests with NumPy alone: python/tests/core.
    #[arg(long)]
    core: bool,
    /// Tests with the newest JAX that PyPI has for the Python: all tests but PyTorch's.
    #[arg(long)]
    new: bool,
    /// Tests with JAX 0.5.0, the oldest that will do: all tests but PyTorch's and those marked `newest`.
    #[arg(long)]
    old: bool,
    /// Tests with PyTorch: python/tests/torch. The first time this installs PyTorch with all of its CUDA, without which it does not start: 5 GiB.
    #[arg(long)]
    torch: bool,
    /// Another Python than `python3` to test the wheel on. May be given more than once.
    #[arg(long, value_name = "PATH")]
    python: Vec<PathBuf>,
    /// Tests the wheel on every python3.11 and newer that is on the path or named in CALLBOX_PYTHONS.
    #[arg(long, conflicts_with = "python")]
    every_python: bool,
    /// What pytest gets besides, after `--`.
    #[arg(last = true)]
    pytest: Vec<String>,
}

/// Builds the wheel and tests it.
///
/// # Errors
/// What does not build, cannot be installed, or fails.
pub(crate) fn python(arguments: &Arguments) -> Result<()> {
    let wheel = wheel()?;
    if arguments.wheel_only {
        return Ok(());
    }
    guests::build()?;
    let interpreters = match (arguments.every_python, &arguments.python[..]) {
        (true, _) => found()?,
        (false, []) => vec![Interpreter::at_hand()?],
        (false, programs) => {
            let of = |program: &PathBuf| Interpreter::of(program);
            programs.iter().map(of).collect::<Result<_>>()?
        }
    };
    let mut kinds: Vec<Kind> = [
        (Kind::Core, arguments.core),
        (Kind::New, arguments.new),
        (Kind::Old, arguments.old),
        (Kind::Torch, arguments.torch),
    ]
    .into_iter()
    .filter_map(|(kind, is_wanted)| is_wanted.then_some(kind))
    .collect();
    let are_asked_for = !kinds.is_empty();
    if !are_asked_for {
        kinds = Kind::USUAL.to_vec();
    }
    for interpreter in &interpreters {
        for kind in &kinds {
            match kind.unavailable(interpreter) {
                Some(why) if are_asked_for => bail!("{why}"),
                Some(why) => println!("\n   not run: {why}"),
                None => check(*kind, interpreter, &wheel, &arguments.pytest)?,
            }
        }
    }
    Ok(())
}

/// What `cargo xtask test` does: the tests without JAX and with the oldest and the newest, and those with PyTorch where `--torch` was run before.
///
/// # Errors
/// As for [`python`].
pub(crate) fn test() -> Result<()> {
    let interpreter = Interpreter::at_hand()?;
    let wheel = wheel()?;
    for kind in Kind::USUAL {
        match kind.unavailable(&interpreter) {
            Some(why) => println!("\n   not run: {why}"),
            None => check(kind, &interpreter, &wheel, &[])?,
        }
    }
    match Environment::is_there(&Kind::Torch.folder(&interpreter)) {
        true => check(Kind::Torch, &interpreter, &wheel, &[]),
        false => {
            say(
                "The tests with PyTorch are not run: it is 5 GiB. `cargo xtask python --torch` installs it",
            );
            Ok(())
        }
    }
}

/// Measures what callbox costs in Python, beside a native handler, a callback and NumPy.
///
/// # Errors
/// As for [`python`].
pub(crate) fn speed() -> Result<()> {
    let interpreter = Interpreter::at_hand()?;
    let tested = Tested::of(Kind::New, &interpreter, &wheel()?)?;
    guests::build()?;
    run(cargo().args(["build", "--release", "--package", "callbox-bench-native"]))?;
    let mut python = tested.environment.python();
    command(&mut python).current_dir(root());
    python.args(["benches/python/speed.py", "--guests", "target/guests"]);
    run(python.args(["--native", "target/release/libcallbox_bench_native.so"]))
}

/// Checks formatting and lints of what is written in Python.
///
/// # Errors
/// What ruff finds.
pub(crate) fn lint() -> Result<()> {
    say("Python");
    let tools = tools()?;
    let ruff = |arguments: &[&str]| {
        let mut ruff = tools.program("ruff");
        // Paths in the configuration begin where it is.
        ruff.current_dir(root().join("python"));
        ruff.env("RUFF_CACHE_DIR", root().join("target/python/ruff"));
        ruff.args(arguments);
        ruff.args(["--config", "pyproject.toml", ".", "../benches/python"]);
        run(&mut ruff)
    };
    ruff(&["format", "--quiet", "--diff"])?;
    ruff(&["check", "--quiet"])
}

/// The tools, in an environment of their own: what a person would have on the path.
fn tools() -> Result<Environment> {
    let tools = TOOLS.map(str::to_owned);
    Environment::of("python/build", &Interpreter::at_hand()?, &tools, "")
}

/// Builds the wheel.
fn wheel() -> Result<PathBuf> {
    let tools = tools()?;
    say("Building the wheel: minutes the first time");
    let folder = root().join(WHEELS);
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("expected to remove {}", folder.display()))?;
    }
    let mut maturin = tools.program("maturin");
    maturin.args(["build", "--release", "--locked", "--quiet"]);
    maturin.args(["--manifest-path", "python/Cargo.toml", "--out", WHEELS]);
    // For this machine: pip takes it, and PyPI would not.
    maturin.args(["--compatibility", "linux", "--target-dir", "target"]);
    maturin.arg("--interpreter").arg(tools.path("python"));
    run(&mut maturin)?;
    let mut wheels = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("expected to read {WHEELS}"))? {
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
fn check(kind: Kind, interpreter: &Interpreter, wheel: &Path, pytest: &[String]) -> Result<()> {
    let tested = Tested::of(kind, interpreter, wheel)?;
    let (major, minor) = interpreter.version;
    say(&format!(
        "Testing callbox for Python {major}.{minor}{}",
        kind.with()
    ));
    // The first of all: the package asks for nothing that it does not name.
    let versions = format!("import callbox, {}", kind.shown());
    run(command(&mut tested.environment.python()).args(["-c", &versions]))?;
    let mut python = tested.environment.python();
    command(&mut python).args(["-m", "pytest", "--quiet", "-c", CONFIGURATION]);
    python.arg(format!("--override-ini=cache_dir={}", cache("pytest")));
    let workers = available_parallelism().map_or(1, NonZero::get).min(4);
    python.arg(format!("--numprocesses={workers}"));
    python.args(tested.selection()).args(pytest);
    run(&mut python)?;
    if kind == Kind::New && pytest.is_empty() {
        say("Comparing the type stubs with the extension");
        let mut stubtest = tested.environment.python();
        command(&mut stubtest).env("MYPY_CACHE_DIR", cache("mypy"));
        stubtest.args(["-m", "mypy.stubtest", "--concise", "callbox._callbox"]);
        run(stubtest.args([
            "--mypy-config-file",
            CONFIGURATION,
            "--allowlist",
            ALLOWLIST,
        ]))?;
    }
    Ok(())
}

/// Has Python take nothing from elsewhere, and leave nothing among the sources.
fn command(python: &mut Command) -> &mut Command {
    // The workspace's tests build it. Without it the tests of the CUDA handler say that they are not run.
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

/// Every interpreter that there is, by version: `python3`, those on the path with their versions in their names, and those that the
/// variable names. Of each version one is taken.
fn found() -> Result<Vec<Interpreter>> {
    let mut found = vec![Interpreter::at_hand()?];
    let named = std::env::var_os(VARIABLE).unwrap_or_default();
    for program in std::env::split_paths(&named).filter(|path| !path.as_os_str().is_empty()) {
        found.push(Interpreter::of(&program)?);
    }
    for minor in 11..=19 {
        // What a name leads to need not be there: a version manager has scripts for all names.
        found.extend(Interpreter::of(Path::new(&format!("python3.{minor}"))));
    }
    found.sort_by_key(|interpreter| interpreter.version);
    found.dedup_by_key(|interpreter| interpreter.version);
    Ok(found)
}
