//! Runs a target on its seeds, its regressions, and inputs derived from them.

use std::collections::HashSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::Target;
use crate::mutate::Mutator;
use crate::outcome::Outcome;

/// The number of inputs kept as a base for further mutations.
const MOST_KEPT: usize = 4096;

/// Variables that make malloc give memory back at once, so that the target `cost` sees all memory
/// that an input takes.
pub const MALLOC: [(&str, &str); 3] = [
    ("MALLOC_ARENA_MAX", "1"),
    ("MALLOC_MMAP_THRESHOLD_", "131072"),
    ("MALLOC_TRIM_THRESHOLD_", "131072"),
];

/// A run of one target.
#[derive(Debug)]
pub struct Run {
    target: &'static Target,
    mutator: Mutator,
    corpus: Vec<Vec<u8>>,
    seen: HashSet<Outcome>,
    executions: u64,
    trace: Option<PathBuf>,
}

/// An input that violates a requirement.
#[derive(Debug)]
pub struct Find {
    /// The input.
    pub input: Vec<u8>,
    /// The message of the target's panic.
    pub message: String,
}

impl Run {
    /// Starts a run of a target. The seed determines its inputs.
    #[must_use]
    pub fn new(target: &'static Target, seed: u64) -> Self {
        Self {
            target,
            mutator: Mutator::new(seed, target.max_len, target.words),
            corpus: Vec::new(),
            seen: HashSet::new(),
            executions: 0,
            trace: None,
        }
    }

    /// Writes each input to this file before running it, so that the file holds the input that
    /// killed the process.
    #[must_use]
    pub fn with_trace(mut self, file: PathBuf) -> Self {
        self.trace = Some(file);
        self
    }

    /// Returns the number of inputs that were run.
    #[must_use]
    pub fn executions(&self) -> u64 {
        self.executions
    }

    /// Returns the number of distinct outcomes.
    #[must_use]
    pub fn outcomes(&self) -> usize {
        self.seen.len()
    }

    /// Runs the committed inputs (seeds and regressions), which become the base of mutations.
    ///
    /// # Errors
    /// Files that cannot be read, or the first input that is a find.
    pub fn replay(&mut self) -> Result<()> {
        for (file, input) in committed(self.target)? {
            let outcome = self
                .run(&input)
                .map_err(|find| anyhow::anyhow!("{}: {}", file.display(), find.message))?;
            self.seen.insert(outcome);
            self.corpus.push(input);
        }
        Ok(())
    }

    /// Generates an input and runs it.
    ///
    /// # Errors
    /// The input, if it is a find.
    pub fn step(&mut self) -> Result<(), Find> {
        let input = self.mutator.input(&self.corpus);
        let outcome = self.run(&input)?;
        if self.seen.insert(outcome) && self.corpus.len() < MOST_KEPT {
            self.corpus.push(input);
        }
        Ok(())
    }

    fn run(&mut self, input: &[u8]) -> Result<Outcome, Find> {
        if let Some(trace) = &self.trace {
            fs::write(trace, input).expect("expected to write the input");
        }
        self.executions += 1;
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.target.run)(input)));
        outcome.map_err(|panic| Find {
            input: input.to_vec(),
            message: message(&*panic),
        })
    }
}

/// Returns the message of a panic.
fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a text").to_owned()
}

/// Returns this crate's folder.
#[must_use]
pub fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the committed inputs of a target, with their files.
///
/// # Errors
/// A missing folder of seeds, or files that cannot be read.
pub fn committed(target: &Target) -> Result<Vec<(PathBuf, Vec<u8>)>> {
    let seeds = home().join("seeds").join(target.name);
    let regressions = home().join("regressions").join(target.name);
    let mut files = files(&seeds)?;
    if regressions.is_dir() {
        files.extend(self::files(&regressions)?);
    }
    let read = |file: PathBuf| {
        let input = fs::read(&file).with_context(|| file.display().to_string())?;
        Ok((file, input))
    };
    files.into_iter().map(read).collect()
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut files = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()?;
    files.sort();
    Ok(files)
}
