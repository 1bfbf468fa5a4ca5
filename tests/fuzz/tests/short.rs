//! Runs each target on its seeds, its regressions, and a fixed set of generated inputs.
#![allow(clippy::panic, reason = "a test fails by panicking")]

use std::process::Command;

use callbox_fuzz::drive::{MALLOC, Run, committed};
use callbox_fuzz::{TARGETS, Target, target};

fn short(name: &str) {
    let target = target(name).unwrap_or_else(|| panic!("no target {name:?}"));
    if name == "cost" {
        return alone(target);
    }
    let mut run = Run::new(target, 0);
    run.replay().unwrap_or_else(|error| panic!("{error:#}"));
    let outcomes = run.outcomes();
    while run.executions() < target.executions {
        if let Err(find) = run.step() {
            let input = find.input.escape_ascii();
            panic!("{}\nwith b\"{input}\"", find.message);
        }
    }
    assert!(
        run.outcomes() > outcomes,
        "{name}: expected more than the {outcomes} outcomes of the committed inputs"
    );
}

/// Runs a target that measures what its process takes, in a process that does nothing else.
fn alone(target: &Target) {
    let mut round = Command::new(env!("CARGO_BIN_EXE_callbox-fuzz"));
    round
        .args(["round", target.name, "0", &target.executions.to_string()])
        .arg(env!("CARGO_TARGET_TMPDIR"))
        .envs(MALLOC);
    let output = round
        .output()
        .unwrap_or_else(|error| panic!("cannot start {round:?}: {error}"));
    let counts = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && counts.trim().ends_with(" 0"),
        "{counts}{complaints}"
    );
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                short(stringify!($name));
            }
        )*

        #[test]
        fn every_target_is_here_and_has_seeds() {
            let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
            for target in TARGETS {
                let inputs = committed(target).unwrap_or_else(|error| panic!("{error:#}"));
                assert!(inputs.len() >= 4, "{}: {} seeds", target.name, inputs.len());
            }
        }
    };
}

targets! { hlo_text metadata attributes arrays policy manifest frame program module cost bundle }
