//! What an input may cost: CPU time and memory of this process, as Linux reports them.

use std::fs;

/// A measurement that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    ticks: u64,
    kibibytes: u64,
}

/// What was used since a measurement began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) milliseconds: u64,
    pub(crate) kibibytes: u64,
}

impl Meter {
    /// Begins to measure. The process must do nothing else meanwhile.
    pub(crate) fn new() -> Self {
        // 5 resets the peak of resident memory.
        fs::write("/proc/self/clear_refs", "5").expect("the peak of memory can be reset");
        Self {
            ticks: ticks(),
            kibibytes: field("VmRSS:"),
        }
    }

    pub(crate) fn cost(self) -> Cost {
        Cost {
            milliseconds: (ticks() - self.ticks) * 10,
            kibibytes: field("VmHWM:").saturating_sub(self.kibibytes),
        }
    }
}

/// The CPU time of all threads, in Linux's ticks of 10 ms.
fn ticks() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux has this file");
    // The name of the program, in parentheses, may have spaces.
    let (_, fields) = stat.rsplit_once(')').expect("a name in parentheses");
    let times = fields.split_whitespace().skip(11).take(2);
    times
        .map(|time| time.parse::<u64>().expect("a number"))
        .sum()
}

fn field(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has this file");
    let line = status.lines().find(|line| line.starts_with(name));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number
        .and_then(|number| number.parse().ok())
        .expect("a number of KiB")
}
