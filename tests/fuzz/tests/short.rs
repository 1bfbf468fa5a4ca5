//! Each target on its seeds, on what was found before, and on some inputs, the same each time.
#![allow(clippy::panic, reason = "a test fails by panicking")]

use callbox_fuzz::drive::{Run, committed};
use callbox_fuzz::{TARGETS, target};

fn short(name: &str) {
    let target = target(name).unwrap_or_else(|| panic!("no target {name:?}"));
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

targets! { hlo_text metadata attributes arrays policy manifest frame program module }
