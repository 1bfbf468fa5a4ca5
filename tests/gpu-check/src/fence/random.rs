//! Random kernels with their fence. None may fault, write other memory than its results, or go on
//! after its stop word was set.
//!
//! The generators and seeds are those of `tests/cuda-stand-in/tests/fenced`. A find is a seed, with
//! which that test runs the kernel on the stand-in.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use callbox::cuda::CudaDevice;
use callbox_ptx::verify::{Launch, Limits};
use callbox_ptx_cases::launch::{KernelData, kernels};
use callbox_ptx_cases::random::{self, Random};
use serde_json::{Value, json};

use super::rig::{Ran, Rig, fenced};
use crate::guests;
use crate::options::Amount;
use crate::report::Section;

/// The first seed.
const FIRST: u64 = 1;

/// The time that a kernel has before its stop word is set.
const PATIENCE: Duration = Duration::from_millis(2);

/// The most finds in a report.
const MAX_FINDS: usize = 16;

/// How many kernels to run.
#[derive(Clone, Copy)]
struct Extent {
    /// The threads that prepare and launch.
    threads: usize,
    time: Duration,
    kernels: u64,
    patience: Duration,
}

/// A kind of random kernels.
enum Kind {
    Generated,
    /// Changes of this repository's kernels: the texts, with their launches.
    Changed(Vec<(String, KernelData)>),
}

/// What happened to the kernels.
#[derive(Default)]
struct Counts {
    tried: u64,
    refused: u64,
    /// By the driver, which does not take the text or the launch.
    not_run: u64,
    ran: u64,
    /// Those of `ran` that noted something.
    noted: u64,
    /// Those of `ran` whose stop word was set.
    stopped: u64,
    /// The longest time from a stop to the end.
    longest_stop: Duration,
    finds: Vec<Value>,
}

/// What the threads share.
struct Run {
    kind: Kind,
    extent: Extent,
    end: Instant,
    next: AtomicU64,
    /// Set by a find: the context may be lost.
    is_over: AtomicBool,
    counts: Mutex<Counts>,
}

/// Runs generated and changed kernels.
///
/// # Errors
/// Files that cannot be read.
pub(crate) fn run(
    name: &str,
    device: &Arc<CudaDevice>,
    root: &Path,
    amount: Amount,
) -> Result<Section> {
    let extent = |seconds, kernels, threads, patience| Extent {
        threads,
        time: Duration::from_secs(seconds),
        kernels,
        patience,
    };
    let extent = match amount {
        // The stand-in runs a launch while it is enqueued.
        Amount::Tiny => extent(10, 40, 1, Duration::ZERO),
        Amount::Quick => extent(8, u64::MAX, 8, PATIENCE),
        Amount::Full => extent(40, u64::MAX, 8, PATIENCE),
    };
    let mut rows = Vec::new();
    let mut problems = Vec::new();
    for (what, kind) in [
        ("generated", Kind::Generated),
        ("changed", Kind::Changed(sources(root)?)),
    ] {
        let counts = all(device, kind, extent);
        if !counts.finds.is_empty() {
            problems.push(format!(
                "{} {what} kernels: {}",
                counts.finds.len(),
                counts.finds[0]
            ));
        }
        rows.push(json!({
            "kernels": what,
            "first_seed": FIRST,
            "tried": counts.tried,
            "refused": counts.refused,
            "not_run_by_the_driver": counts.not_run,
            "ran": counts.ran,
            "noted": counts.noted,
            "stopped": counts.stopped,
            "longest_stop_ms": counts.longest_stop.as_secs_f64() * 1e3,
            "finds": counts.finds,
        }));
        if !problems.is_empty() {
            break;
        }
    }
    Ok(if problems.is_empty() {
        Section::ok(name, rows.into())
    } else {
        Section::failed(name, problems.join("; "), rows.into())
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

/// Runs kernels on all threads, until one finds something or the time is over.
fn all(device: &Arc<CudaDevice>, kind: Kind, extent: Extent) -> Counts {
    let run = Arc::new(Run {
        kind,
        extent,
        end: Instant::now() + extent.time,
        next: AtomicU64::new(FIRST),
        is_over: AtomicBool::new(false),
        counts: Mutex::default(),
    });
    let (ended, end) = mpsc::channel();
    for _ in 0..extent.threads {
        let (run, device, ended) = (Arc::clone(&run), Arc::clone(device), ended.clone());
        thread::spawn(move || {
            run.work(&device);
            // The receiver may have given up.
            let _ = ended.send(());
        });
    }
    // A thread that waits for a device that hangs does not end: it is left behind.
    for _ in 0..extent.threads {
        let patience = extent.time + Duration::from_secs(10);
        if end.recv_timeout(patience).is_err() {
            run.find(json!({"problem": "a thread did not end"}));
            break;
        }
    }
    std::mem::take(&mut *run.counts())
}

impl Run {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, device: &Arc<CudaDevice>) {
        let rig = match Rig::new(device) {
            Ok(rig) => rig,
            Err(error) => return self.find(json!({"problem": format!("{error:#}")})),
        };
        while !self.is_over.load(Ordering::Relaxed) && Instant::now() < self.end {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if seed - FIRST >= self.extent.kernels {
                break;
            }
            if let Err(error) = self.one(&rig, seed) {
                self.find(json!({"seed": seed, "problem": format!("{error:#}")}));
            }
        }
        if self.is_over.load(Ordering::Relaxed) {
            // A kernel may still use the memory, or the context may be lost.
            std::mem::forget(rig);
        }
    }

    fn one(&self, rig: &Rig, seed: u64) -> Result<()> {
        let mut random = Random::new(seed);
        let (text, entry, launch) = match &self.kind {
            Kind::Generated => {
                let launch = random::launch(&mut random);
                (random::kernel(&mut random), "k", launch)
            }
            Kind::Changed(sources) => {
                let (text, data) = &sources[random.below(sources.len())];
                let text = random::mutated(text, &mut random);
                let launch = random::changed_launch(data.launch.launch(), &mut random);
                (text, &*data.entry, launch)
            }
        };
        let ran = self.verify_and_run(rig, seed, &text, entry, &launch)?;
        let mut counts = self.counts();
        counts.tried += 1;
        match ran {
            None => counts.refused += 1,
            Some(Ran::NotRun) => counts.not_run += 1,
            Some(Ran::Ended(ended)) => {
                counts.ran += 1;
                counts.noted += u64::from(ended.site != 0);
                counts.stopped += u64::from(ended.stopped_for.is_some());
                let longest = counts
                    .longest_stop
                    .max(ended.stopped_for.unwrap_or_default());
                counts.longest_stop = longest;
            }
            Some(Ran::Hung) => {
                drop(counts);
                self.find(json!({"seed": seed, "problem": "it went on after its stop"}));
            }
        }
        Ok(())
    }

    /// Verifies, fences and runs a kernel. `None` if the verifier refuses it.
    fn verify_and_run(
        &self,
        rig: &Rig,
        seed: u64,
        text: &str,
        entry: &str,
        launch: &Launch,
    ) -> Result<Option<Ran>> {
        let mut limits = Limits::default();
        if seed.is_multiple_of(8) {
            // As if the grid were giant.
            limits.grid_instructions = 0;
        }
        let Ok(fenced) = fenced(text, entry, launch, &limits) else {
            return Ok(None);
        };
        let ran = rig.run(&fenced, entry, launch, self.extent.patience);
        ran.map(Some).context("running it")
    }

    fn find(&self, find: Value) {
        self.is_over.store(true, Ordering::Relaxed);
        let mut counts = self.counts();
        if counts.finds.len() < MAX_FINDS {
            counts.finds.push(find);
        }
    }
}
