//! Fenced kernels on the stand-in, which is the oracle: whatever a kernel does, it never faults.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![allow(clippy::print_stdout, reason = "a test prints what it measured")]

mod hostile;
mod oracle;
mod rig;

use callbox_ptx::fence::{Fault, fence};
use callbox_ptx::types::Space;
use callbox_ptx::verify::{Budget, Limits, LoopEnd, Open, Proof, Verdict, survey_within};
use callbox_ptx_cases::content;

fn count(proof: &Proof, verdict: Verdict, space: Space) -> usize {
    let accesses = proof.accesses.iter();
    accesses
        .filter(|one| one.verdict == verdict && one.space == space)
        .count()
}

/// The repository's kernels pass, compute the same bits with their fence, and most of their
/// accesses are proved.
#[test]
fn kernels_compute_the_same() {
    let (mut proved, mut checked, mut growth) = (0, 0, Vec::new());
    for data in rig::kernels() {
        let text = std::fs::read_to_string(rig::root().join(&data.file)).unwrap();
        let name = format!("{} {}", data.file, data.entry);
        let launch = data.launch.launch();
        let start = std::time::Instant::now();
        let (module, proof) = match rig::verified(&text, &data.entry, &launch) {
            Ok(verified) => verified,
            Err(refusals) => panic!("{name}: {}", refusals[0]),
        };
        let fenced = fence(&module, &proof);
        let took = start.elapsed();
        let global =
            [Verdict::Proved, Verdict::Checked].map(|one| count(&proof, one, Space::Global));
        let shared =
            [Verdict::Proved, Verdict::Checked].map(|one| count(&proof, one, Space::Shared));
        let stops = proof
            .loops
            .iter()
            .filter(|one| matches!(one.end, LoopEnd::StopWord { .. }))
            .count();
        let (before, after) = fenced.instructions;
        println!(
            "{name}: global {global:?}, shared {shared:?}, {stops} of {} loops look, {before} to {after} instructions, {took:?}",
            proof.loops.len()
        );
        proved += global[0];
        checked += global[1];
        growth.push((after as f64 / before as f64).ln());
        let plain = rig::run_unfenced(&text, &data.entry, &launch).unwrap();
        let outcome = rig::run(&fenced, &data.entry, &launch, 1000, rig::BUDGET).unwrap();
        assert_eq!(outcome.fault, None, "{name}");
        assert!(plain == outcome.results, "{name}: other results");
    }
    let mean = (growth.iter().sum::<f64>() / growth.len() as f64).exp();
    println!("global accesses: {proved} proved, {checked} checked; instructions grow by {mean:.3}");
    assert!(
        proved * 100 >= (proved + checked) * 80,
        "{proved} proved, {checked} checked"
    );
}

/// Blocks of a grid that may run for long look at the stop word as they begin, so that a stop ends
/// the blocks that have not begun.
#[test]
fn blocks_of_giant_grids_look_first() {
    for data in rig::kernels() {
        let text = std::fs::read_to_string(rig::root().join(&data.file)).unwrap();
        let name = format!("{} {}", data.file, data.entry);
        let launch = data.launch.launch();
        let (_, usual) = rig::verified(&text, &data.entry, &launch).unwrap();
        assert!(!usual.blocks_look, "{name}");
        let limits = Limits {
            grid_instructions: 0,
            ..Limits::default()
        };
        let (module, proof) = rig::verified_within(&text, &data.entry, &launch, &limits).unwrap();
        assert!(proof.blocks_look, "{name}");
        let fenced = fence(&module, &proof);
        let plain = rig::run_unfenced(&text, &data.entry, &launch).unwrap();
        let run = |looks| rig::run(&fenced, &data.entry, &launch, looks, rig::BUDGET).unwrap();
        let outcome = run(u64::MAX);
        assert_eq!(outcome.fault, None, "{name}");
        assert!(plain == outcome.results, "{name}: other results");
        let stopped = run(0);
        let fault = stopped.fault.map(|(_, fault)| fault);
        assert_eq!(fault, Some(Fault::Stopped), "{name}");
        for result in &stopped.results {
            let untouched = content(result.len() as u64);
            assert!(*result == untouched, "{name}: a block ran after the stop");
        }
    }
}

/// What a survey proves of every launch is proved of each.
#[test]
fn surveys_hold_for_every_launch() {
    let (mut passed, mut depends) = (0, 0);
    for data in rig::kernels() {
        let text = std::fs::read_to_string(rig::root().join(&data.file)).unwrap();
        let name = format!("{} {}", data.file, data.entry);
        let launch = data.launch.launch();
        let (module, proof) = rig::verified(&text, &data.entry, &launch).unwrap();
        match survey_within(
            &module,
            &data.entry,
            &launch,
            Open::ALL,
            &Limits::default(),
            &Budget::default(),
        ) {
            Ok(found) => {
                passed += 1;
                let pairs = std::iter::zip(&found.accesses, &proof.accesses);
                for (general, known) in pairs {
                    assert_eq!(general.line, known.line, "{name}");
                    let holds =
                        general.verdict != Verdict::Proved || known.verdict == Verdict::Proved;
                    assert!(holds, "{name}: {general:?}, but {known:?}");
                    let is_buffer = general.param.is_some();
                    assert!(!is_buffer || general.verdict != Verdict::Proved, "{name}");
                }
            }
            Err(unproved) => {
                depends += 1;
                assert!(
                    unproved.depends_on_launch,
                    "{name}: {:?}",
                    unproved.refusals
                );
            }
        }
    }
    println!("{passed} kernels pass for every launch, {depends} depend on it");
    assert!(passed > depends);
}
