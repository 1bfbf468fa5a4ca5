//! Prints criterion's last measurements as ratios to the baselines of the same run, with the goals.

#![allow(
    clippy::print_stdout,
    reason = "a command-line program prints its results"
)]

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A goal for one measurement.
struct Goal {
    what: &'static str,
    measured: &'static str,
    baseline: &'static str,
    goal: Bound,
}

enum Bound {
    /// At most this many times the baseline.
    Times(f64),
    /// No goal.
    None,
    /// At most this many nanoseconds above the baseline per repetition; the second number is the
    /// count of repetitions.
    NanosecondsMore(f64, f64),
}

const GOALS: &[Goal] = &[
    Goal {
        what: "prepared call, 2 x 512 B in, 512 B out, deadline, empty kernel",
        measured: "prepared_call/callbox",
        baseline: "prepared_call/raw_wasmtime",
        goal: Bound::Times(5.0),
    },
    Goal {
        what: "prepared call in (out, ins), 512 B in and out, to typed FFI",
        measured: "conventions/original",
        baseline: "conventions/empty",
        goal: Bound::None,
    },
    Goal {
        what: "prepared call in (out, ins, opaque, opaque_len, status), to typed FFI",
        measured: "conventions/unified",
        baseline: "conventions/empty",
        goal: Bound::None,
    },
    Goal {
        what: "program of one call with a callback, to one without",
        measured: "conventions/program_with_call_back",
        baseline: "conventions/program",
        goal: Bound::None,
    },
    Goal {
        what: "broadcast_add 1 MiB, whole call, to kernel + copies",
        measured: "data_plane/callbox/1MiB",
        baseline: "data_plane/kernel_and_copies/1MiB",
        goal: Bound::Times(1.15),
    },
    Goal {
        what: "broadcast_add 64 MiB, whole call, to kernel + copies",
        measured: "data_plane/callbox/64MiB",
        baseline: "data_plane/kernel_and_copies/64MiB",
        goal: Bound::Times(1.15),
    },
    Goal {
        what: "a call across the second wall, 1 KiB in and out, to one in this process",
        measured: "second_wall/process/1KiB",
        baseline: "second_wall/wasm/1KiB",
        goal: Bound::None,
    },
    Goal {
        what: "a call across the second wall, 1 MiB in and out, to one in this process",
        measured: "second_wall/process/1024KiB",
        baseline: "second_wall/wasm/1024KiB",
        goal: Bound::None,
    },
    Goal {
        what: "add_n 1 MiB, whole call, one thread, to a native loop on one thread",
        measured: "cores/one_thread/add_n_1MiB",
        baseline: "cores/native/add_n_1MiB",
        goal: Bound::None,
    },
    Goal {
        what: "add_n 1 MiB, whole call, two threads, to a native loop on one thread",
        measured: "cores/two_threads/add_n_1MiB",
        baseline: "cores/native/add_n_1MiB",
        goal: Bound::None,
    },
    Goal {
        what: "add_n 64 MiB, whole call, one thread, to a native loop on one thread",
        measured: "cores/one_thread/add_n_64MiB",
        baseline: "cores/native/add_n_64MiB",
        goal: Bound::None,
    },
    Goal {
        what: "add_n 64 MiB, whole call, two threads, to a native loop on one thread",
        measured: "cores/two_threads/add_n_64MiB",
        baseline: "cores/native/add_n_64MiB",
        goal: Bound::None,
    },
    Goal {
        what: "softmax 4096 x 1024, whole call, one thread, to a native loop on one thread",
        measured: "cores/one_thread/softmax",
        baseline: "cores/native/softmax",
        goal: Bound::None,
    },
    Goal {
        what: "softmax 4096 x 1024, whole call, two threads, to a native loop on one thread",
        measured: "cores/two_threads/softmax",
        baseline: "cores/native/softmax",
        goal: Bound::None,
    },
    Goal {
        what: "rms_norm 4096 x 1024, whole call, one thread, to a native loop on one thread",
        measured: "cores/one_thread/rms_norm",
        baseline: "cores/native/rms_norm",
        goal: Bound::None,
    },
    Goal {
        what: "rms_norm 4096 x 1024, whole call, two threads, to a native loop on one thread",
        measured: "cores/two_threads/rms_norm",
        baseline: "cores/native/rms_norm",
        goal: Bound::None,
    },
    Goal {
        what: "broadcast_add 1 MiB, whole call, explicit checks to signals",
        measured: "traps/explicit/broadcast_add",
        baseline: "traps/signals/broadcast_add",
        goal: Bound::None,
    },
    Goal {
        what: "prepared call, 2 x 512 B in, 512 B out, empty kernel, explicit checks to signals",
        measured: "traps/explicit/empty",
        baseline: "traps/signals/empty",
        goal: Bound::None,
    },
    Goal {
        what: "broadcast_add 1 MiB, whole call, deterministic mode (fuel) to signals",
        measured: "traps/fuel/broadcast_add",
        baseline: "traps/signals/broadcast_add",
        goal: Bound::Times(1.5),
    },
    Goal {
        what: "fresh instance per call, to raw pooled instantiation",
        measured: "fresh_instance/callbox",
        baseline: "fresh_instance/raw_wasmtime",
        goal: Bound::Times(2.0),
    },
    Goal {
        what: "fresh instance per call, to raw instantiation, growth and call",
        measured: "fresh_instance/callbox",
        baseline: "fresh_instance/raw_wasmtime_with_call",
        goal: Bound::None,
    },
    Goal {
        what: "1,000 chained calls in a program, each, to a prepared call",
        measured: "program/callbox",
        baseline: "program/prepared_calls",
        goal: Bound::NanosecondsMore(1000.0, 1000.0),
    },
    Goal {
        what: "verifying, fencing and printing 30 KB of PTX, to reading it",
        measured: "fence/verified",
        baseline: "fence/read",
        goal: Bound::Times(10.0),
    },
    Goal {
        what: "broadcast_add kernel alone, 1 MiB, to native",
        measured: "kernel/wasm/broadcast_add",
        baseline: "kernel/native/broadcast_add",
        goal: Bound::Times(1.5),
    },
    Goal {
        what: "softmax 1 MiB, whole call, to native + copies",
        measured: "kernel/callbox/softmax",
        baseline: "kernel/native_and_copies/softmax",
        goal: Bound::Times(1.5),
    },
];

const COLD_STARTS: [&str; 4] = ["broadcast_add", "add_n", "softmax", "faults"];

fn main() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/criterion");
    println!("| what | callbox | baseline | ratio | goal | reached |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for goal in GOALS {
        println!("{}", row(&folder, goal)?);
    }
    println!("\n| cold start: load, compile, first call | time | from the cache | ratio |");
    println!("| --- | --- | --- | --- |");
    for guest in COLD_STARTS {
        let time = median(&folder, &format!("cold_start/callbox/{guest}"))?;
        let cached = median(&folder, &format!("cold_start/cached/{guest}"))?;
        let (shown, ratio) = ([time, cached].map(shown), cached / time);
        println!("| {guest} | {} | {} | {ratio:.2}x |", shown[0], shown[1]);
    }
    Ok(())
}

fn row(folder: &Path, goal: &Goal) -> Result<String> {
    let measured = median(folder, goal.measured)?;
    let baseline = median(folder, goal.baseline)?;
    let (ratio, bound, reached) = match goal.goal {
        Bound::None => (format!("{:.2}x", measured / baseline), String::new(), ""),
        Bound::Times(most) => {
            let ratio = measured / baseline;
            (
                format!("{ratio:.2}x"),
                format!("at most {most}x"),
                yes_or_no(ratio <= most),
            )
        }
        Bound::NanosecondsMore(most, count) => {
            let more = (measured - baseline) / count;
            (
                format!("{more:+.0} ns each"),
                format!("at most +{most} ns each"),
                yes_or_no(more <= most),
            )
        }
    };
    Ok(format!(
        "| {} | {} | {} | {ratio} | {bound} | {reached} |",
        goal.what,
        shown(measured),
        shown(baseline)
    ))
}

/// Reads the median time of a benchmark, in nanoseconds.
fn median(folder: &Path, benchmark: &str) -> Result<f64> {
    let path: PathBuf = folder.join(benchmark).join("new/estimates.json");
    let text = std::fs::read_to_string(&path).with_context(|| {
        format!(
            "expected {}, which the benchmark {benchmark} writes",
            path.display()
        )
    })?;
    let estimates: serde_json::Value = serde_json::from_str(&text)?;
    estimates["median"]["point_estimate"]
        .as_f64()
        .with_context(|| format!("expected a median in {}", path.display()))
}

fn yes_or_no(reached: bool) -> &'static str {
    if reached { "yes" } else { "no" }
}

fn shown(nanoseconds: f64) -> String {
    match nanoseconds {
        ns if ns < 1e3 => format!("{ns:.1} ns"),
        ns if ns < 1e6 => format!("{:.2} µs", ns / 1e3),
        ns => format!("{:.2} ms", ns / 1e6),
    }
}
