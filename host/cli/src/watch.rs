//! `callbox watch`: tests a kernel again when one of its files changes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};
use std::{fs, io, thread};

use callbox::{Blame, Status, StatusCode};

use super::build::{Project, SDK};
use super::failure::{Failure, Outcome};
use super::{interrupt, output, test};

const EXAMPLES: &str = "\
After each change the folder is built and its native tests run: its build scripts and native tests
run with your rights, as of `callbox test`.

Examples:
  callbox watch
  callbox watch kernels/scale

Hidden files, target/, callbox-sdk/, Cargo.lock and what the build writes are not watched. Ctrl-C
ends callbox.";

/// How long changes may stay unnoticed.
const PERIOD: Duration = Duration::from_millis(200);

/// The most files of a folder that is watched.
const MOST_FILES: usize = 10_000;

/// The names that are not watched.
const SKIPPED: [&str; 4] = ["target", SDK, "Cargo.lock", "__pycache__"];

/// Build and test the folder of a kernel, and again whenever one of its files changes
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{}", super::EXIT_CODES))]
pub(super) struct Arguments {
    /// The folder of the kernel
    #[arg(value_name = "DIR", default_value = ".")]
    folder: PathBuf,
}

/// The time of the last change and the size of each file.
type Snapshot = BTreeMap<PathBuf, (Option<SystemTime>, u64)>;

pub(super) fn watch(arguments: &Arguments) -> ExitCode {
    let folder = &arguments.folder;
    let mut last = None;
    let interrupted = interrupt::token();
    while !interrupted.is_cancelled() {
        let found = match snapshot(folder) {
            Ok(found) => found,
            Err(failure) => return output::complain(&failure),
        };
        if last.as_ref() == Some(&found) {
            thread::sleep(PERIOD);
            continue;
        }
        // A change while the tests run differs from this snapshot, and begins another run.
        last = Some(found);
        test::test(&test::Arguments::of(folder));
        output::note(&format!("watching {}", folder.display()));
    }
    ExitCode::from(interrupt::INTERRUPTED)
}

/// Lists the files that are watched.
fn snapshot(folder: &Path) -> Outcome<Snapshot> {
    let cannot = |error: io::Error| {
        Failure::file(
            format!("expected to read the folder {}", folder.display()),
            &error,
        )
    };
    // The header may be wrong for a moment, while its author edits it.
    let module = match Project::find(folder) {
        Ok(Some(project)) => Some(format!("{}.wasm", project.name)),
        Ok(None) | Err(_) => None,
    };
    let is_skipped = |name: &str| {
        name.starts_with('.') || SKIPPED.contains(&name) || module.as_deref() == Some(name)
    };
    let mut found = Snapshot::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        let entries = match fs::read_dir(&next) {
            Ok(entries) => entries,
            Err(error) if next == folder => return Err(cannot(error)),
            // A folder that was removed meanwhile.
            Err(_) => continue,
        };
        for entry in entries.flatten() {
            let file_name = entry.file_name();
            let Ok(data) = entry.metadata() else { continue };
            if is_skipped(&file_name.to_string_lossy()) {
                continue;
            }
            if data.is_dir() {
                folders.push(entry.path());
            } else {
                found.insert(entry.path(), (data.modified().ok(), data.len()));
            }
        }
        if found.len() > MOST_FILES {
            let message = format!("expected at most {MOST_FILES} files to watch, found more");
            let status = Status::new(StatusCode::ResourceExhausted, Blame::Caller, message);
            return Err(status.context(folder.display()).into());
        }
    }
    Ok(found)
}
