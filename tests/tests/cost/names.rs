//! Sections of names.

use wasm_encoder::{ExportKind, IndirectNameMap, NameMap, NameSection};

use crate::sections::{Sections, TARGET};

/// Functions that call one another and then trap, all of this name. The outermost is the target.
pub(crate) fn functions(sections: &mut Sections, depth: u32, name: &str) -> NameSection {
    let mut functions = NameMap::new();
    let mut called = sections.target();
    for _ in 0..depth {
        let callee = called;
        called = sections.add(TARGET, 0, |code| {
            code.local_get(0).call(callee).i32_const(1).i32_add();
        });
        functions.append(callee, name);
    }
    sections.exports.export("f", ExportKind::Func, called);
    let mut names = NameSection::new();
    names.functions(&functions);
    names
}

/// A name that Rust mangled, of a function with ever larger types as its arguments.
pub(crate) fn expanding(bytes: usize) -> String {
    // Positions count from behind `_R`.
    let mut name = "INvC1a1f".to_owned();
    let mut before = name.len();
    name.push_str("TuuE");
    while name.len() < bytes {
        let here = name.len();
        let reference = format!("B{}", base_62(before));
        name.push_str(&format!("T{reference}{reference}E"));
        before = here;
    }
    format!("_R{name}E")
}

/// A number as Rust mangles it.
fn base_62(number: usize) -> String {
    const DIGITS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let Some(mut rest) = number.checked_sub(1) else {
        return "_".to_owned();
    };
    let mut digits = Vec::new();
    loop {
        digits.push(DIGITS[rest % 62]);
        rest /= 62;
        if rest == 0 {
            break;
        }
    }
    digits.reverse();
    String::from_utf8(digits).unwrap() + "_"
}

/// Names for `count` locals in each of `functions` functions, all of them this one.
pub(crate) fn locals(
    sections: &mut Sections,
    functions: u32,
    count: u32,
    name: &str,
) -> NameSection {
    let mut of_functions = IndirectNameMap::new();
    let ty = sections.add_type(0, 0);
    for _ in 0..functions {
        let function = sections.add(ty, count, |_| {});
        let mut of_locals = NameMap::new();
        for local in 0..count {
            of_locals.append(local, name);
        }
        of_functions.append(function, &of_locals);
    }
    let mut names = NameSection::new();
    names.locals(&of_functions);
    names
}
