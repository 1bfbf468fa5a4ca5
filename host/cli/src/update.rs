//! `callbox update`: shows what changed at the references of a lock, and takes it over.

mod moved;

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use callbox::{Blame, Status, StatusCode};
use serde::Serialize;

pub(super) use self::moved::is_older;
use self::moved::{Moved, Report};
use super::failure::Outcome;
use super::fetch::cache::digest;
use super::lock::{Entries, Lock, NewFile, change, finish};
use super::text::{name, printable};
use super::{json, output, signing};

/// The most bytes of all new versions of a lock.
const MOST_BYTES: usize = 512 << 20;

const EXAMPLES: &str = "\
Examples:
  callbox update
  callbox update --lock gpu.lock --yes

Asks the host of each reference that `callbox fetch --write-lock` or `callbox.hub.lock` wrote down.
Of those that moved, the changes are shown as `callbox diff` shows them. Then a question on the
terminal, or --yes, decides whether the new versions are written: all of them, or none. An update
that was interrupted is finished by the next one. Without a terminal and without --yes, nothing is
written. Nothing of a package runs.

With --json, standard output is one object, of failures too (then update is null):
  {\"status\":{...},\"update\":{\"lock\":...,\"written\":false,\"references\":[
    {\"reference\":...,\"moved\":true,\"older\":false,\"files\":[...],
     \"old\":{\"digest\":...,\"version\":...,\"commit\":...},\"new\":{...},\"diff\":{...}}]}}
  older says that the version goes back; diff is as of `callbox diff`, and null if nothing moved.";

/// Show what changed at the references of a lock, and take it over if the user agrees
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{}", super::EXIT_CODES))]
pub(super) struct Arguments {
    /// The lock
    #[arg(long, value_name = "FILE.lock", default_value = "callbox.lock")]
    lock: PathBuf,

    /// Write the new versions without a question
    #[arg(long)]
    yes: bool,

    /// The rules about signatures that must hold for the new versions, as of `callbox fetch`
    #[arg(long, value_name = "FILE.json")]
    trust: Option<PathBuf>,

    /// Print one JSON object instead of text. Asks no question
    #[arg(long)]
    json: bool,
}

/// What was found and done.
#[derive(Debug, Serialize)]
struct Updated {
    lock: String,
    written: bool,
    references: Vec<Report>,
}

pub(super) fn update(arguments: &Arguments) -> ExitCode {
    let outcome = run(arguments);
    let code = output::exit_code(&outcome);
    match (arguments.json, &outcome) {
        (true, outcome) => output::emit(&json::command("update", outcome.as_ref()), code),
        (false, Ok(text)) => output::emit(&text.ending(), code),
        (false, Err(_)) => code,
    }
}

fn run(arguments: &Arguments) -> Outcome<Updated> {
    let path = &arguments.lock;
    let trust = arguments.trust.as_deref().map(signing::rules).transpose()?;
    if finish(path)? {
        let lock = path.display();
        output::note(&format!(
            "{lock}: an earlier update, which was interrupted, is finished"
        ));
    }
    let lock = Lock::read(path)?;
    let references = moved::references(&lock)?;
    if references.is_empty() {
        let message = "the lock has no references: `callbox fetch --write-lock` adds them";
        let status = Status::new(StatusCode::FailedPrecondition, Blame::Caller, message);
        return Err(status.context(path.display()).into());
    }
    let (mut reports, mut changes) = (Vec::new(), Vec::new());
    let mut kept = Kept::default();
    for reference in &references {
        let (report, mut moved) = moved::look(&lock, reference, trust.as_ref())?;
        if let Some(moved) = &mut moved {
            kept.share(&mut moved.bytes)?;
            moved
                .bundle
                .as_mut()
                .map_or(Ok(()), |bundle| kept.share(bundle))?;
        }
        if !arguments.json {
            // A closed pipe is not an error.
            let _ = output::emit(&printable(&report.describe()), ExitCode::SUCCESS);
        }
        reports.push(report);
        changes.extend(moved);
    }
    let written = !changes.is_empty() && is_wanted(arguments)?;
    if written {
        write(path, lock.entries(), changes)?;
    }
    Ok(Updated {
        lock: path.to_string_lossy().into_owned(),
        written,
        references: reports,
    })
}

/// The contents to write, which are kept until the user wants them: each once.
#[derive(Default)]
struct Kept {
    contents: HashMap<String, Arc<Vec<u8>>>,
    bytes: usize,
}

impl Kept {
    /// Keeps contents, or replaces them by the same ones that are kept already.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if there is too much.
    fn share(&mut self, contents: &mut Arc<Vec<u8>>) -> Outcome<()> {
        match self.contents.entry(digest(contents)) {
            Slot::Occupied(known) => *contents = Arc::clone(known.get()),
            Slot::Vacant(new) => {
                self.bytes += contents.len();
                new.insert(Arc::clone(contents));
            }
        }
        if self.bytes <= MOST_BYTES {
            return Ok(());
        }
        let message = format!(
            "expected new versions of at most {MOST_BYTES} bytes together, found more: divide the \
             lock"
        );
        Err(Status::new(StatusCode::ResourceExhausted, Blame::Caller, message).into())
    }
}

/// Whether the user wants the new versions.
fn is_wanted(arguments: &Arguments) -> Outcome<bool> {
    if arguments.yes || arguments.json {
        return Ok(arguments.yes);
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(false);
    }
    let question = format!("update {}? [y/N] ", arguments.lock.display());
    let mut terminal = io::stderr();
    let mut answer = String::new();
    let asked = write!(terminal, "{}", name(&question)).and_then(|()| terminal.flush());
    let answered = asked.and_then(|()| io::stdin().read_line(&mut answer));
    answered.map_err(|error| {
        Status::new(
            StatusCode::Unavailable,
            Blame::Host,
            format!("the terminal: {error}"),
        )
    })?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Writes the files and the lock, if it is still the one of which the changes were shown.
fn write(path: &Path, shown: &Entries, changes: Vec<Moved>) -> Outcome<()> {
    let mut entries = Lock::read(path)?.entries().clone();
    if &entries != shown {
        let message = "another command changed the lock meanwhile: run this command again";
        let status = Status::new(StatusCode::Aborted, Blame::Caller, message);
        return Err(status.context(path.display()).into());
    }
    let mut files = Vec::new();
    for moved in changes {
        let new = moved.entries.into_iter();
        entries.extend(new.map(|entry| (entry.file.clone(), entry)));
        for name in moved.files {
            files.push(NewFile {
                name: name.clone(),
                bytes: Arc::clone(&moved.bytes),
            });
            // After the file: until then, an interrupted update has both bundles.
            files.extend(moved.bundle.clone().map(|bytes| NewFile {
                name: name + signing::BESIDE,
                bytes,
            }));
        }
    }
    change(path, &entries, &files)
}

impl Updated {
    /// The last line for a person.
    fn ending(&self) -> String {
        let moved = self.references.iter().filter(|report| report.moved).count();
        let lock = name(&self.lock);
        if self.written {
            format!("{lock}: {moved} updated\n")
        } else if moved == 0 {
            format!("{lock}: nothing moved\n")
        } else {
            format!("{lock}: nothing written; --yes takes the new versions\n")
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::sync::Arc;

    use callbox::StatusCode;

    use super::{Kept, MOST_BYTES};

    /// Many references of a lock can have one package.
    #[test]
    fn the_same_contents_are_kept_once_and_others_within_a_limit() {
        let mut kept = Kept::default();
        let mut contents = [0, 0, 1].map(|byte| Arc::new(vec![byte; 1000]));
        for one in &mut contents {
            kept.share(one).unwrap();
        }
        assert!(Arc::ptr_eq(&contents[0], &contents[1]));
        assert_eq!(kept.bytes, 2000);
        // As if there were so many.
        kept.bytes = MOST_BYTES;
        kept.share(&mut contents[0]).unwrap();
        let failure = kept.share(&mut Arc::new(vec![2])).unwrap_err();
        assert_eq!(failure.status().code(), StatusCode::ResourceExhausted);
    }
}
