//! Random kernels with their fence. None may fault, write other memory than its results, or go on
//! after its stop word was set.
//!
//! The generators and seeds are those of `tests/cuda-stand-in/tests/fenced`. A find is a seed, with
//! which that test runs the kernel on the stand-in. Several processes share the seeds, each with a
//! context of its own: a driver call of one waits for no kernel of another.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use callbox::cuda::CudaDevice;
use callbox_cuda_stand_in::fenced::{self as stand_in, Failure};
use callbox_ptx::fence::Fenced;
use callbox_ptx::verify::{Launch, Limits};
use callbox_ptx_cases::content;
use callbox_ptx_cases::hostile::ENTRY;
use callbox_ptx_cases::launch::{KernelData, kernels};
use callbox_ptx_cases::random::{self, Random};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::rig::{Ended, Ran, Rig, fenced};
use crate::options::{Amount, Options};
use crate::report::{Outcome, Section};
use crate::{children, guests};

/// The prefix of the names of the processes' sections. A number and the count follow.
pub(crate) const PREFIX: &str = "random kernels: ";

/// The first seed.
const FIRST: u64 = 1;

/// The time that a kernel has before its stop word is set.
const PATIENCE: Duration = Duration::from_millis(2);

/// The instructions that the stand-in runs of a kernel. The device does more in its time.
const INSTRUCTIONS: u64 = 1 << 16;

/// The most processes.
const MAX_PROCESSES: usize = 12;

/// How many kernels of each kind to run.
#[derive(Clone, Copy)]
struct Extent {
    time: Duration,
    kernels: u64,
    patience: Duration,
}

/// A kind of random kernels.
enum Kind {
    Generated,
    /// Changes of this repository's kernels: the texts, with their launches.
    Changed(Vec<(String, KernelData)>),
    /// Loops in one thread. They must compute what the stand-in computes.
    Counting,
}

/// A random kernel, verified and fenced.
struct Case<'k> {
    fenced: Fenced,
    entry: &'k str,
    launch: Launch,
}

/// What happened to the kernels of one kind.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Counts {
    kernels: String,
    first_seed: u64,
    last_seed: u64,
    tried: u64,
    refused: u64,
    /// Kernels whose text or launch the assembler or the driver refused.
    not_run_by_the_driver: u64,
    /// Kernels that crashed the assembler, in its own process.
    crashed_the_assembler: u64,
    ran: u64,
    /// Those of `ran` that noted something.
    noted: u64,
    /// Those of `ran` whose stop word was set.
    stopped: u64,
    /// Those of `ran` whose results were compared with the stand-in's.
    compared: u64,
    /// The longest time from a stop to the end.
    longest_stop_ms: f64,
    /// Seeds with what was wrong.
    finds: Vec<String>,
}

/// The seeds of one process.
#[derive(Clone, Copy)]
struct Share {
    number: u64,
    count: u64,
}

/// Runs all processes, and adds their counts.
pub(crate) fn run(name: &str, options: &Options, root: &Path) -> Section {
    let count = match thread::available_parallelism() {
        Ok(processors) if !options.stand_in => processors.get().min(MAX_PROCESSES),
        _ => 1,
    };
    let parts: Vec<Section> = thread::scope(|scope| {
        let run = |number| {
            let name = format!("{PREFIX}{number}/{count}");
            scope.spawn(move || children::run(&name, options, root))
        };
        let running: Vec<_> = (0..count).map(run).collect();
        let parts = running.into_iter().map(|part| {
            let failed = |_| Section::failed(name, "its thread panicked", Value::Null);
            part.join().unwrap_or_else(failed)
        });
        parts.collect()
    });
    together(name, parts)
}

fn together(name: &str, parts: Vec<Section>) -> Section {
    let failed = parts.iter().filter(|part| part.outcome != Outcome::Ok);
    let failed: Vec<String> = failed
        .map(|part| format!("{}: {}", part.name, part.why))
        .collect();
    let mut sums: Vec<Counts> = Vec::new();
    for part in parts {
        let rows: Vec<Counts> = serde_json::from_value(part.numbers).unwrap_or_default();
        for row in rows {
            match sums.iter_mut().find(|sum| sum.kernels == row.kernels) {
                Some(sum) => sum.add(row),
                None => sums.push(row),
            }
        }
    }
    let numbers = serde_json::to_value(sums).unwrap_or_default();
    if failed.is_empty() {
        Section::ok(name, numbers)
    } else {
        Section::failed(name, failed.join("; "), numbers)
    }
}

/// Runs the generated and the changed kernels of one process, named `NUMBER/COUNT`.
///
/// # Errors
/// Files that cannot be read.
pub(crate) fn part(
    name: &str,
    share: &str,
    device: &Arc<CudaDevice>,
    root: &Path,
    amount: Amount,
) -> Result<Section> {
    let share = share.split_once('/').and_then(|(number, count)| {
        Some(Share {
            number: number.parse().ok()?,
            count: count.parse().ok()?,
        })
    });
    let share = share.context("expected the number of a process and their count")?;
    let extent = |seconds, kernels, patience| Extent {
        time: Duration::from_secs(seconds),
        kernels,
        patience,
    };
    let extent = match amount {
        // The stand-in runs a launch while it is enqueued.
        Amount::Tiny => extent(10, 40, Duration::ZERO),
        Amount::Quick => extent(8, u64::MAX, PATIENCE),
        Amount::Full => extent(40, u64::MAX, PATIENCE),
    };
    let mut rows = Vec::new();
    for (what, kind) in [
        ("generated", Kind::Generated),
        ("changed", Kind::Changed(sources(root)?)),
        ("counting", Kind::Counting),
    ] {
        let mut counts = Counts {
            kernels: what.to_owned(),
            first_seed: FIRST,
            ..Counts::default()
        };
        let rig = Rig::new(device)?;
        let outcome = all(&rig, &kind, share, extent, &mut counts);
        counts
            .finds
            .extend(outcome.err().map(|error| format!("{error:#}")));
        let is_over = !counts.finds.is_empty();
        rows.push(counts);
        if is_over {
            // A kernel may still use the memory, or the context is lost: to give up either would
            // wait for it.
            std::mem::forget((rig, Arc::clone(device)));
            break;
        }
    }
    let finds = rows.iter().flat_map(|row| &row.finds);
    let finds: Vec<String> = finds.cloned().collect();
    let numbers = serde_json::to_value(rows)?;
    Ok(if finds.is_empty() {
        Section::ok(name, numbers)
    } else {
        Section::failed(name, finds.join("; "), numbers)
    })
}

fn sources(root: &Path) -> Result<Vec<(String, KernelData)>> {
    let sources = kernels(root)?.into_iter().map(|data| {
        let text = guests::read(&root.join(&data.file))?;
        Ok((random::alone(&text, &data.entry), data))
    });
    let sources = sources.collect::<Result<Vec<_>>>()?;
    ensure!(!sources.is_empty(), "expected kernels to change");
    Ok(sources)
}

/// Runs kernels until one does what no kernel may, or the time is over.
fn all(rig: &Rig, kind: &Kind, share: Share, extent: Extent, counts: &mut Counts) -> Result<()> {
    let end = Instant::now() + extent.time;
    while counts.tried < extent.kernels && Instant::now() < end {
        let seed = FIRST + share.number + counts.tried * share.count;
        counts.tried += 1;
        counts.last_seed = seed;
        let name = format!("{} kernel of seed {seed}", counts.kernels);
        let Some(case) = case(kind, seed) else {
            counts.refused += 1;
            continue;
        };
        let ran = rig.run(&case.fenced, case.entry, &case.launch, extent.patience);
        match ran.with_context(|| name.clone())? {
            Ran::NotRun => counts.not_run_by_the_driver += 1,
            Ran::Crashed => counts.crashed_the_assembler += 1,
            Ran::Ended(ended) => {
                counts.ran += 1;
                counts.noted += u64::from(ended.site != 0);
                counts.stopped += u64::from(ended.stopped_for.is_some());
                let stopped_for = ended.stopped_for.unwrap_or_default().as_secs_f64() * 1e3;
                counts.longest_stop_ms = counts.longest_stop_ms.max(stopped_for);
                if matches!(kind, Kind::Counting) && !extent.patience.is_zero() {
                    counts.compared += 1;
                    compare(&case, &ended).with_context(|| name)?;
                }
            }
            Ran::Hung => {
                counts.finds.push(format!("{name}: it hangs"));
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Compares a launch with the stand-in's.
fn compare(case: &Case<'_>, found: &Ended) -> Result<()> {
    let expected = stand_in::run(
        &case.fenced,
        case.entry,
        &case.launch,
        u64::MAX,
        INSTRUCTIONS,
        content,
    );
    match expected {
        Ok(expected) => {
            ensure!(
                found.stopped_for.is_some() || found.site == expected.site,
                "expected site {}, found {}",
                expected.site,
                found.site
            );
            ensure!(
                found.stopped_for.is_some() || found.results == expected.results,
                "other results than on the stand-in"
            );
        }
        Err(Failure::Budget) => ensure!(
            found.stopped_for.is_some() || found.site == 0,
            "it ended after a fault, and does not on the stand-in"
        ),
        Err(failure) => anyhow::bail!("on the stand-in: {failure:?}"),
    }
    Ok(())
}

/// Makes the kernel of a seed. `None` if the verifier refuses it.
fn case(kind: &Kind, seed: u64) -> Option<Case<'_>> {
    let mut random = Random::new(seed);
    let (text, entry, launch): (String, &str, Launch) = match kind {
        Kind::Generated => {
            let launch = random::launch(&mut random);
            (random::kernel(&mut random), ENTRY, launch)
        }
        Kind::Counting => {
            let launch = random::counting_launch(&mut random);
            (random::counting(&mut random), ENTRY, launch)
        }
        Kind::Changed(sources) => {
            let (text, data) = &sources[random.below(sources.len())];
            let text = random::mutated(text, &mut random);
            let launch = random::changed_launch(data.launch.launch(), &mut random);
            (text, &data.entry, launch)
        }
    };
    let mut limits = Limits::default();
    if seed.is_multiple_of(8) {
        // As if the grid were giant.
        limits.grid_instructions = 0;
    }
    let fenced = fenced(&text, entry, &launch, &limits).ok()?;
    Some(Case {
        fenced,
        entry,
        launch,
    })
}

impl Counts {
    fn add(&mut self, other: Self) {
        let Self {
            kernels: _,
            first_seed,
            last_seed,
            tried,
            refused,
            not_run_by_the_driver,
            crashed_the_assembler,
            ran,
            noted,
            stopped,
            compared,
            longest_stop_ms,
            finds,
        } = other;
        self.first_seed = self.first_seed.min(first_seed);
        self.last_seed = self.last_seed.max(last_seed);
        self.tried += tried;
        self.refused += refused;
        self.not_run_by_the_driver += not_run_by_the_driver;
        self.crashed_the_assembler += crashed_the_assembler;
        self.ran += ran;
        self.noted += noted;
        self.stopped += stopped;
        self.compared += compared;
        self.longest_stop_ms = self.longest_stop_ms.max(longest_stop_ms);
        self.finds.extend(finds);
    }
}
