//! `callbox bench`: measures the calls of a module beside the same source, compiled natively.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use callbox::{CallOptions, Platform, Status};
use callbox_package::Limits;

use super::build::{self, Project};
use super::case::Case;
use super::failure::{Failure, Outcome};
use super::modules::{Loader, OpenedFile};
use super::policy::PolicyArguments;
use super::text::name;
use super::{asm, inspect, output, package, progress, regular_file};

const EXAMPLES: &str = "\
A benchmark is benches/NAME.json in the folder of a kernel, a case without values:
  {\"call\": {\"target\": \"scale\", \"results\": [\"f32[1000]\"]}, \"operands\": [\"f32[1000]\"]}
Of a package, and of a folder without benchmarks, the cases are measured.

A native benchmark is the program benches/native.rs (cargo bench), benches/native.c (clang) or
benches/native.py (Numba), which prints a line `NAME NANOSECONDS` for each benchmark.

A folder is built before, and its native benchmark runs: unlike a package, its build scripts and
native code run with your rights.

Examples:
  callbox bench kernels/scale
  callbox bench scale-0.1.0.wasm --threads 4
  callbox bench kernels/scale --asm

Times are the least of at most 100 calls. A call of the module includes copying the operands and
results, and uses one thread unless --threads says more.";

/// The calls that are measured for each benchmark, unless they take too long.
const CALLS: usize = 100;
const LEAST_CALLS: usize = 3;
const LONG_ENOUGH: Duration = Duration::from_secs(1);

/// The largest text of a benchmark.
const MOST_TEXT: usize = 1 << 20;

/// Measure the calls of a kernel, beside the same source compiled natively, and warn of slow
/// instructions
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{}", super::EXIT_CODES))]
pub(super) struct Arguments {
    /// The package, or the folder of a kernel, which is built before
    #[arg(value_name = "FILE.wasm|DIR", default_value = ".")]
    path: PathBuf,

    /// The most threads that share a large call
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,

    /// Also print the machine code of the hottest loops: of those without inner loops and calls,
    /// the ones with vectors if there are any. On x86-64 only
    #[arg(long)]
    asm: bool,

    #[command(flatten)]
    policy: PolicyArguments,
}

pub(super) fn bench(arguments: &Arguments) -> ExitCode {
    match measure(arguments) {
        Ok(text) => output::emit(&text, ExitCode::SUCCESS),
        Err(failure) => output::complain(&failure),
    }
}

fn measure(arguments: &Arguments) -> Outcome<String> {
    if arguments.asm && !asm::IS_SUPPORTED {
        return Err(Failure::usage(Status::unimplemented(format!(
            "--asm reads machine code of x86-64, and this is a machine of {}",
            std::env::consts::ARCH
        ))));
    }
    let path = &arguments.path;
    let is_folder = path.is_dir();
    let bytes = if is_folder {
        arguments.policy.check_folder()?;
        build::packed(path, false)?
    } else {
        package::read_file(path)?
    };
    let in_file = |status: Status| status.context(path.display());
    callbox_package::read(&bytes, &Limits::default()).map_err(in_file)?;
    let mut loader = Loader::new(&arguments.policy)?;
    let file = loader.describe(path, bytes)?;
    for warning in inspect::slow::warnings(file.contents.bytes()) {
        output::warn(&warning);
    }
    let cases = cases(path, is_folder, &file)?;
    let native = if is_folder {
        native(path)?
    } else {
        BTreeMap::new()
    };
    let options = CallOptions {
        threads: Some(arguments.threads as usize),
        ..arguments.policy.case_options()?
    };
    let mut text = String::new();
    for case in &cases {
        let module = loader.load(&file, case.target())?;
        let message = || format!("measuring {}", case.path);
        let time = progress::show(message, || case.time(&module, &options, wants_more));
        let Some(time) = time.map_err(|status| in_file(status.context(&case.path)))? else {
            continue;
        };
        let key = key(&case.path);
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}", line(key, time, native.get(key).copied()));
    }
    if text.is_empty() {
        let message = "expected a case that expects results, found none to measure";
        return Err(in_file(Status::invalid_argument(message)).into());
    }
    if arguments.asm {
        let targets: Vec<_> = cases.iter().map(Case::target).collect();
        let target = targets.first().copied().unwrap_or_default();
        text.push_str(&asm::describe(
            &loader.machine_code(&file, target)?,
            &targets,
        ));
    }
    Ok(text)
}

fn wants_more(times: &[Duration]) -> bool {
    let is_long = || times.iter().sum::<Duration>() > LONG_ENOUGH;
    times.len() < LEAST_CALLS || times.len() < CALLS && !is_long()
}

/// The benchmarks of a folder, or else the cases of a package that Host runs.
fn cases(path: &Path, is_folder: bool, file: &OpenedFile) -> Outcome<Vec<Case>> {
    let in_file = |status: Status| status.context(path.display());
    if is_folder {
        let benchmarks = benchmarks(&path.join("benches"))?;
        if !benchmarks.is_empty() {
            return Ok(benchmarks);
        }
    }
    let package = callbox_package::read(file.contents.bytes(), &Limits::default());
    let package = package.map_err(in_file)?;
    let checked = package::check(&package, &file.contents.info().targets).map_err(in_file)?;
    let mut cases = checked.cases;
    cases.retain(|case| case.is_for(Platform::Host));
    Ok(cases)
}

/// The benchmarks in a folder, in order. There are none if the folder does not exist.
fn benchmarks(folder: &Path) -> Outcome<Vec<Case>> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
    paths.sort();
    let read = paths.iter().map(|path| {
        let text = regular_file::read(path, MOST_TEXT)?;
        let shown = path.display().to_string();
        let read = Case::read_benchmark(&shown, &text).map_err(Status::invalid_argument);
        Ok(read.map_err(|status| status.context(shown))?)
    });
    read.collect()
}

/// The times of the native benchmarks, by their names.
fn native(folder: &Path) -> Outcome<BTreeMap<String, Duration>> {
    let Some(project) = Project::find(folder)? else {
        return Ok(BTreeMap::new());
    };
    let Some(text) = project.bench_natively()? else {
        return Ok(BTreeMap::new());
    };
    let times = text.lines().map(|line| {
        let found = line.split_once(' ').and_then(|(key, nanoseconds)| {
            let nanoseconds = nanoseconds.trim().parse::<u64>().ok()?;
            Some((key.to_owned(), Duration::from_nanos(nanoseconds)))
        });
        found.ok_or_else(|| {
            Failure::from(Status::invalid_argument(format!(
                "expected the native benchmark to print `NAME NANOSECONDS`, found {line:?}"
            )))
        })
    });
    times.collect()
}

/// The name of a benchmark: that of its file without its ending.
fn key(path: &str) -> &str {
    let file = path.rsplit(['/', '\\']).next().unwrap_or(path);
    file.strip_suffix(".json").unwrap_or(file)
}

fn line(key: &str, guest: Duration, native: Option<Duration>) -> String {
    let key = name(key);
    match native {
        None => format!("{key}: {guest:.1?}"),
        Some(native) => {
            let ratio = guest.as_secs_f64() / native.as_secs_f64().max(1e-9);
            format!("{key}: {guest:.1?}, native {native:.1?}, {ratio:.2} times as long")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    #[test]
    fn a_line_has_the_ratio_to_native_code() {
        let (guest, native) = (Duration::from_micros(30), Duration::from_micros(20));
        assert_eq!(super::line("a", guest, None), "a: 30.0µs");
        assert_eq!(
            super::line("a", guest, Some(native)),
            "a: 30.0µs, native 20.0µs, 1.50 times as long"
        );
    }

    #[test]
    fn calls_end_after_their_time_and_their_number() {
        let (long, short) = (Duration::from_secs(2), Duration::from_micros(1));
        assert!(super::wants_more(&[long, long]));
        assert!(!super::wants_more(&[long, long, long]));
        assert!(super::wants_more(&[short; 99]));
        assert!(!super::wants_more(&[short; 100]));
    }
}
