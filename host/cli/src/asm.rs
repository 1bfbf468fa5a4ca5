//! `callbox bench --asm`: the machine code of a module's hot loops.
//!
//! Nothing is measured for this. The loops that a kernel spends its time in are those that contain
//! no other loop and no call, and that compute most with one instruction: with vectors of
//! floating-point numbers, or else of integers, or else with single floating-point numbers.

mod loops;

use std::cell::LazyCell;
use std::fmt::Write as _;

use callbox::wasm::FunctionCode;
use iced_x86::FastFormatter;

use self::loops::{Arithmetic, HotLoop, loops};
use super::text::name;

pub(super) const IS_SUPPORTED: bool = true;

/// The most loops that are shown, and the most instructions of each.
const MOST_LOOPS: usize = 4;
const MOST_INSTRUCTIONS: usize = 200;

/// The loops that compute most with one instruction, of those so far.
struct Hottest<'a> {
    arithmetic: Arithmetic,
    /// The first ones in functions with the names of targets, and in others.
    of_targets: Vec<(&'a str, HotLoop)>,
    of_others: Vec<(&'a str, HotLoop)>,
    count: usize,
}

impl<'a> Hottest<'a> {
    fn new(arithmetic: Arithmetic) -> Self {
        Self {
            arithmetic,
            of_targets: Vec::new(),
            of_others: Vec::new(),
            count: 0,
        }
    }

    fn add(&mut self, function: &'a str, is_target: bool, one: HotLoop) {
        if one.arithmetic > self.arithmetic {
            *self = Self::new(one.arithmetic);
        } else if one.arithmetic < self.arithmetic {
            return;
        }
        self.count += 1;
        let kept = if is_target {
            &mut self.of_targets
        } else {
            &mut self.of_others
        };
        if kept.len() < MOST_LOOPS {
            kept.push((function, one));
        }
    }
}

/// The lines about the hottest loops of a module, those in functions with these names first.
pub(super) fn describe(functions: &[FunctionCode], targets: &[&str]) -> String {
    let mut hottest = Hottest::new(Arithmetic::Other);
    for function in functions {
        // Most functions of a module may have no loop, and a package many cases.
        let has_name = |target: &&str| function.name.contains(target);
        let is_target = LazyCell::new(|| targets.iter().any(has_name));
        loops(&function.code, |one| {
            hottest.add(&function.name, *is_target, one);
        });
    }
    if hottest.count == 0 {
        return "asm: no loop without calls\n".to_owned();
    }
    let mut text = String::new();
    let found = hottest.of_targets.iter().chain(&hottest.of_others);
    for (function, one) in found.take(MOST_LOOPS) {
        describe_loop(function, one, &mut text);
    }
    if let Some(more @ 1..) = hottest.count.checked_sub(MOST_LOOPS) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "asm: {more} more loops {}", kind(hottest.arithmetic));
    }
    text
}

fn describe_loop(function: &str, one: &HotLoop, text: &mut String) {
    let instructions = &one.instructions;
    let _ = writeln!(
        text,
        "asm: a loop of `{}` {}: {} instructions, {} accesses to the stack",
        name(function),
        kind(one.arithmetic),
        instructions.len(),
        one.stack_accesses
    );
    let mut formatter = FastFormatter::new();
    let options = formatter.options_mut();
    options.set_space_after_operand_separator(true);
    options.set_use_hex_prefix(true);
    let mut next = instructions.first().map(|first| first.ip());
    for instruction in instructions.iter().take(MOST_INSTRUCTIONS) {
        // The loop leaves out what it jumps over for good.
        if next != Some(instruction.ip()) {
            text.push_str("          ...\n");
        }
        next = Some(instruction.next_ip());
        let mut line = String::new();
        formatter.format(instruction, &mut line);
        let _ = writeln!(text, "  {:>6x}  {line}", instruction.ip());
    }
    if let Some(more @ 1..) = instructions.len().checked_sub(MOST_INSTRUCTIONS) {
        let _ = writeln!(text, "          {more} more instructions");
    }
}

fn kind(arithmetic: Arithmetic) -> &'static str {
    match arithmetic {
        Arithmetic::FloatVectors => "with vectors of floating-point numbers",
        Arithmetic::IntegerVectors => "with vectors of integers",
        Arithmetic::Floats => "with floating-point numbers and no vectors",
        Arithmetic::Other => "without vectors",
    }
}

#[cfg(test)]
mod tests;
