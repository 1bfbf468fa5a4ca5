//! Warnings about modules that are slower than they need to be.

use std::collections::{BTreeMap, BTreeSet};

use wasmparser::{
    CustomSectionReader, FunctionBody, Name, NameSectionReader, Operator, Parser, Payload,
};

/// How LLVM notes in the section `target_features` that a module may have vectors.
const HAS_SIMD128: &[u8] = b"+\x07simd128";

/// The most functions of C's library that the warnings name.
const MOST_NAMED: usize = 8;

/// What to write instead of functions of C's library, which compute one element at a time.
const CURES: [(&[&str], &str); 5] = [
    (
        &["fmaxf", "fmax", "fminf", "fmin"],
        "a comparison, `a > b ? a : b`, becomes vectors, and so does callbox_guest::maths::max",
    ),
    (
        &["fmaf", "fma"],
        "`a * b + c` becomes vectors, and rounds twice",
    ),
    (
        &["roundf", "round"],
        "callbox_guest::maths::round becomes vectors; `rint` is one instruction, and rounds halves to \
         even numbers",
    ),
    (
        &["expf", "logf", "tanhf", "erff", "sinf", "cosf"],
        "`callbox_guest::maths` and callbox_maths.h compute whole slices",
    ),
    (
        &["exp", "log", "tanh", "erf", "sin", "cos"],
        "a polynomial becomes vectors, and callbox_guest::maths has it in F32",
    ),
];

/// The warning about a module with [`scalar_loops`].
pub(crate) const SCALAR_LOOPS: &str = "the module was compiled without vector instructions, which make loops up to four times as \
     fast: `callbox build`, -Ctarget-feature=+simd128 (Rust) or -msimd128 (C) turns them on";

/// Returns whether loops of the module compute floating-point numbers in memory one at a time,
/// because its compiler could not use vectors.
pub(crate) fn scalar_loops(wasm: &[u8]) -> bool {
    Module::of(wasm).has_needless_scalar_loops()
}

/// Returns warnings for the module's author. The module is valid.
///
/// LLVM takes names and features along in custom sections; a module without them gets fewer
/// warnings.
pub(crate) fn warnings(wasm: &[u8]) -> Vec<String> {
    Module::of(wasm).warnings()
}

/// What matters of a module.
#[derive(Default)]
struct Module {
    /// Whether its compiler could use vectors.
    may_have_vectors: bool,
    has_vectors: bool,
    /// Whether a loop reads and writes floating-point numbers in memory, one at a time.
    has_scalar_loop: bool,
    /// The numbers of the functions that loops call.
    called_in_loops: BTreeSet<u32>,
    names: BTreeMap<u32, String>,
}

impl Module {
    fn of(wasm: &[u8]) -> Self {
        let mut module = Self::default();
        for payload in Parser::new(0).parse_all(wasm) {
            if payload.is_ok_and(|payload| module.read(payload).is_some()) {
                continue;
            }
            break;
        }
        module
    }

    fn read(&mut self, payload: Payload<'_>) -> Option<()> {
        match payload {
            Payload::CodeSectionEntry(body) => self.function(&body)?,
            Payload::CustomSection(section) => self.custom(&section),
            _ => {}
        }
        Some(())
    }

    fn custom(&mut self, section: &CustomSectionReader<'_>) {
        if section.name() == "target_features" {
            let mut features = section.data().windows(HAS_SIMD128.len());
            self.may_have_vectors |= features.any(|found| found == HAS_SIMD128);
        }
        if section.name() != "name" {
            return;
        }
        for names in NameSectionReader::new(section.data_reader()).flatten() {
            if let Name::Function(functions) = names {
                let cured = functions
                    .into_iter()
                    .flatten()
                    .filter(|f| cure(f.name).is_some());
                self.names
                    .extend(cured.map(|f| (f.index, f.name.to_owned())));
            }
        }
    }

    fn function(&mut self, body: &FunctionBody<'_>) -> Option<()> {
        // Whether each open block is a loop, and how many are: there may be very many blocks.
        let mut blocks = Vec::new();
        let mut loops = 0_usize;
        let (mut reads, mut writes) = (false, false);
        for operator in body.get_operators_reader().ok()? {
            let in_loop = loops > 0;
            match operator.ok()? {
                Operator::Loop { .. } => {
                    blocks.push(true);
                    loops += 1;
                }
                Operator::Block { .. } | Operator::If { .. } => blocks.push(false),
                Operator::End => loops -= usize::from(blocks.pop() == Some(true)),
                Operator::V128Load { .. } | Operator::V128Store { .. } => self.has_vectors = true,
                Operator::F32Load { .. } | Operator::F64Load { .. } => reads |= in_loop,
                Operator::F32Store { .. } | Operator::F64Store { .. } => writes |= in_loop,
                Operator::Call { function_index } if in_loop => {
                    self.called_in_loops.insert(function_index);
                }
                _ => {}
            }
        }
        self.has_scalar_loop |= reads && writes;
        Some(())
    }

    fn has_needless_scalar_loops(&self) -> bool {
        self.has_scalar_loop && !self.has_vectors && !self.may_have_vectors
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.has_needless_scalar_loops() {
            warnings.push(SCALAR_LOOPS.to_owned());
        }
        let called = self
            .called_in_loops
            .iter()
            .filter_map(|index| self.names.get(index));
        for name in called.take(MOST_NAMED) {
            if let Some(cure) = cure(name) {
                warnings.push(format!(
                    "a loop calls `{name}`, which computes one element at a time: {cure}"
                ));
            }
        }
        warnings
    }
}

/// What to write instead of a function.
fn cure(name: &str) -> Option<&'static str> {
    let mut cures = CURES.iter();
    cures
        .find(|(names, _)| names.contains(&name))
        .map(|(_, cure)| *cure)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::warnings;

    /// Warnings of a module with a function `f` of this body.
    fn of(body: &str) -> String {
        let text = format!(
            "(module (memory 1) (func $fmaxf (param f32 f32) (result f32) local.get 0)
              (func $f (local i32) {body}))"
        );
        warnings(&wat::parse_str(text).unwrap()).join("\n")
    }

    const COPY: &str = "local.get 0 local.get 0 f32.load f32.store";

    #[test]
    fn scalar_loops_without_vectors_are_told() {
        assert!(of(&format!("loop {COPY} end")).contains("without vector instructions"));
        assert!(of(&format!("loop block {COPY} end end")).contains("+simd128"));
        // Not in a loop, after a loop, and beside vectors.
        assert_eq!(of(COPY), "");
        assert_eq!(of(&format!("loop end {COPY}")), "");
        let vectors = "local.get 0 local.get 0 v128.load v128.store";
        assert_eq!(of(&format!("loop {COPY} end {vectors}")), "");
    }

    #[test]
    fn compilers_that_could_use_vectors_had_a_reason_not_to() {
        let text = format!(
            "(module (memory 1) (func (local i32) loop {COPY} end)
              (@custom \"target_features\" \"\\01+\\07simd128\"))"
        );
        assert_eq!(warnings(&wat::parse_str(text).unwrap()), [""; 0]);
    }

    #[test]
    fn slow_functions_in_loops_are_named() {
        let call = "f32.const 0 f32.const 0 call $fmaxf drop";
        let found = of(&format!("loop {call} end"));
        assert!(
            found.starts_with("a loop calls `fmaxf`, which computes one element at a time: a comp"),
            "{found}"
        );
        assert_eq!(of(call), "");
    }

    #[test]
    fn no_bytes_are_no_warnings() {
        assert_eq!(warnings(b""), [""; 0]);
        assert_eq!(warnings(b"\0asm\x01\0\0\0\x0a\x05\x01\x03"), [""; 0]);
    }
}
