//! Detection of stacks that overflow into a module's data.

use wasmparser::{
    ConstExpr, Data, DataKind, Global, Name, Operator, Parser, Payload, TypeRef, ValType,
};

use crate::names;

/// Returns whether the module's stack lies above its data. Such a stack overwrites data when it
/// overflows, and the call returns wrong results; a stack below the data traps.
///
/// LLVM's linker keeps the stack pointer in the global `__stack_pointer`, which starts at the upper
/// end of the stack. With `--stack-first` all data follows it. In a module without names, the first
/// global counts as the stack pointer if it is a mutable `i32` that starts at a multiple of 16
/// above all data, as the linker places it. Data without initial values leaves no trace in a
/// module, and does not count.
#[must_use]
pub fn stack_above_data(wasm: &[u8]) -> bool {
    let mut layout = Layout::default();
    for payload in Parser::new(0).parse_all(wasm) {
        if payload.is_ok_and(|payload| layout.read(payload).is_some()) {
            continue;
        }
        return false;
    }
    match (&layout.data, layout.stack_pointer()) {
        (Some(data), Some(pointer)) => data.start < pointer,
        _ => false,
    }
}

/// The globals and the data of a module.
#[derive(Default)]
struct Layout {
    imported_globals: u32,
    /// The initial values of the defined globals that are mutable `i32` constants.
    globals: Vec<Option<u32>>,
    /// The range of addresses that data segments initialise.
    data: Option<std::ops::Range<u32>>,
    has_names: bool,
    /// The index of the global `__stack_pointer`.
    named: Option<u32>,
}

impl Layout {
    fn read(&mut self, payload: Payload<'_>) -> Option<()> {
        match payload {
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    let is_global = matches!(import.ok()?.ty, TypeRef::Global(_));
                    self.imported_globals += u32::from(is_global);
                }
            }
            Payload::GlobalSection(globals) => {
                for global in globals {
                    self.globals.push(mutable_constant(&global.ok()?));
                }
            }
            Payload::DataSection(segments) => {
                for segment in segments {
                    self.segment(&segment.ok()?);
                }
            }
            Payload::CustomSection(section) => {
                if let Some(names) = names::names_in(&section) {
                    self.has_names = true;
                    for names in names {
                        self.names(names.ok()?);
                    }
                }
            }
            _ => {}
        }
        Some(())
    }

    fn segment(&mut self, segment: &Data<'_>) {
        let DataKind::Active {
            memory_index: 0,
            offset_expr,
        } = &segment.kind
        else {
            return;
        };
        let Some(start) = constant(offset_expr) else {
            return;
        };
        let end = start.saturating_add(segment.data.len() as u32);
        let range = self.data.take().unwrap_or(start..end);
        self.data = Some(range.start.min(start)..range.end.max(end));
    }

    fn names(&mut self, names: Name<'_>) {
        if let Name::Global(globals) = names {
            let mut globals = globals.into_iter().flatten();
            self.named = globals
                .find(|global| global.name == "__stack_pointer")
                .map(|global| global.index);
        }
    }

    /// The initial value of the stack pointer.
    fn stack_pointer(&self) -> Option<u32> {
        if self.has_names {
            let index = self.named?.checked_sub(self.imported_globals)?;
            return *self.globals.get(index as usize)?;
        }
        let first = (*self.globals.first()?)?;
        let end = self.data.as_ref()?.end;
        (first.is_multiple_of(16) && first >= end).then_some(first)
    }
}

/// The initial value of a global that is a mutable `i32`, if it is a constant.
fn mutable_constant(global: &Global<'_>) -> Option<u32> {
    (global.ty.mutable && global.ty.content_type == ValType::I32)
        .then(|| constant(&global.init_expr))?
}

/// The value of an expression that is one `i32.const`.
fn constant(expression: &ConstExpr<'_>) -> Option<u32> {
    let mut operators = expression.get_operators_reader();
    match (operators.read().ok()?, operators.read().ok()?) {
        (Operator::I32Const { value }, Operator::End) => Some(value.cast_unsigned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn found(globals: &str, data: &str) -> bool {
        let text = format!("(module {globals} (memory 2) {data})");
        stack_above_data(&wat::parse_str(text).unwrap())
    }

    const DATA: &str = "(data (i32.const 1024) \"tables\") (data (i32.const 2048) \"more\")";

    #[test]
    fn a_stack_above_the_data_is_found() {
        assert!(found(
            "(global $__stack_pointer (mut i32) (i32.const 67600))",
            DATA
        ));
        let second = "(global $g (mut i32) (i32.const 0)) (global $__stack_pointer (mut i32) (i32.const 67600))";
        assert!(found(second, DATA));
        // Without names.
        assert!(found("(global (mut i32) (i32.const 67600))", DATA));
    }

    #[test]
    fn a_stack_below_the_data_is_not() {
        let first = "(global $__stack_pointer (mut i32) (i32.const 1024))";
        assert!(!found(first, DATA));
        assert!(!found("(global (mut i32) (i32.const 1024))", DATA));
    }

    #[test]
    fn other_globals_are_no_stack_pointers() {
        for global in [
            "(global $counter (mut i32) (i32.const 67600))",
            "(global (mut i32) (i32.const 67601))",
            "(global (mut i32) (i32.const 1040))",
            "(global i32 (i32.const 67600))",
            "(global (mut i64) (i64.const 67600))",
            "(global $__stack_pointer (import \"env\" \"p\") (mut i32))",
            "",
        ] {
            assert!(!found(global, DATA), "{global}");
        }
        assert!(!found("(global (mut i32) (i32.const 67600))", ""));
        assert!(!stack_above_data(b"\0asm"));
    }
}
