//! The stand-in is the oracle: a fenced kernel never faults in it, whatever it is.

use callbox_ptx::fence::fence;
use callbox_ptx::verify::{Launch, Limits};
use callbox_ptx_cases::random::{self, Random};

use crate::rig::{self, Failure};

/// What a run of many kernels found.
#[derive(Default, Debug)]
struct Counts {
    /// By the verifier, or as text by the stand-in.
    refused: usize,
    ran: usize,
    /// Those of `ran` that noted something.
    noted: usize,
    /// Those that took longer than a test has time for. They ended when run by one thread.
    long: usize,
}

/// The first seed, and how many kernels a test runs. The variables are for longer runs.
fn kernels(usual: u64) -> (u64, u64) {
    let read = |name| {
        std::env::var(name)
            .ok()
            .and_then(|value| value.parse().ok())
    };
    let count = read("CALLBOX_FENCE_KERNELS").unwrap_or(usual);
    (read("CALLBOX_FENCE_SEED").unwrap_or(1), count)
}

/// The instructions that a kernel may take at first.
const SHORT: u64 = 1 << 16;

fn judge(counts: &mut Counts, text: &str, entry: &str, launch: &Launch, seed: u64) {
    let mut limits = Limits::default();
    if seed.is_multiple_of(8) {
        // As if the grid were giant.
        limits.grid_instructions = 0;
    }
    let outcome = match attempt(text, entry, launch, &limits, SHORT) {
        Some(Err(Failure::Budget)) => {
            counts.long += 1;
            let one = Launch {
                grid: [1; 3],
                block: [1; 3],
                ..launch.clone()
            };
            attempt(text, entry, &one, &limits, rig::BUDGET)
        }
        outcome => outcome,
    };
    match outcome {
        None | Some(Err(Failure::Text)) => counts.refused += 1,
        Some(Ok(outcome)) => {
            assert!(
                !outcome.results.iter().any(|result| has_stale(result)),
                "seed {seed}: a result has what another kernel left\n{launch:?}\n{text}"
            );
            counts.ran += 1;
            counts.noted += usize::from(outcome.fault.is_some());
        }
        Some(Err(failure)) => {
            let failure = match failure {
                Failure::Fault(fault) => fault,
                other => format!("{other:?}"),
            };
            panic!("seed {seed}: {failure}\n{launch:?}\n{text}")
        }
    }
}

/// Whether there is a word of what the stand-in leaves in registers and in shared and local memory.
fn has_stale(result: &[u8]) -> bool {
    let (words, _) = result.as_chunks();
    words.contains(&[0xcd; 4])
}

/// Verifies, fences and runs a kernel. `None` if it is refused.
fn attempt(
    text: &str,
    entry: &str,
    launch: &Launch,
    limits: &Limits,
    budget: u64,
) -> Option<Result<rig::Outcome, Failure>> {
    let (module, proof) = rig::verified_within(text, entry, launch, limits).ok()?;
    Some(rig::run(&fence(&module, &proof), entry, launch, 2, budget))
}

#[test]
fn generated_kernels_never_fault() {
    let (first, count) = kernels(10_000);
    let mut counts = Counts::default();
    for seed in first..first + count {
        let mut random = Random::new(seed);
        let launch = random::launch(&mut random);
        let text = random::kernel(&mut random);
        judge(&mut counts, &text, "k", &launch, seed);
    }
    println!("generated kernels: {counts:?}");
    assert!(counts.ran as u64 > count / 3, "{counts:?}");
    assert!(counts.noted as u64 > count / 20, "{counts:?}");
}

#[test]
fn counting_kernels_never_fault() {
    let (first, count) = kernels(4_000);
    let mut counts = Counts::default();
    for seed in first..first + count {
        let mut random = Random::new(seed);
        let launch = random::counting_launch(&mut random);
        let text = random::counting(&mut random);
        judge(&mut counts, &text, "k", &launch, seed);
    }
    println!("counting kernels: {counts:?}");
    assert!(counts.ran as u64 > count / 2, "{counts:?}");
}

#[test]
fn changed_kernels_never_fault() {
    let (first, count) = kernels(10_000);
    let mut counts = Counts::default();
    let sources: Vec<_> = rig::kernels()
        .into_iter()
        .map(|data| {
            let text = std::fs::read_to_string(rig::root().join(&data.file)).unwrap();
            (random::alone(&text, &data.entry), data)
        })
        .filter(|(text, data)| rig::run_unfenced(text, &data.entry, &data.launch.launch()).is_ok())
        .collect();
    for seed in first..first + count {
        let mut random = Random::new(seed);
        let (text, data) = &sources[random.below(sources.len())];
        let text = random::mutated(text, &mut random);
        let launch = random::changed_launch(data.launch.launch(), &mut random);
        judge(&mut counts, &text, &data.entry, &launch, seed);
    }
    println!("changed kernels: {counts:?} of {} sources", sources.len());
    assert!(counts.ran as u64 > count / 3, "{counts:?}");
}
