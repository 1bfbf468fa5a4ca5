//! The WebAssembly proposals that engines allow, and those that a module needs.

use wasmparser::{
    BinaryReaderError, BlockType, CompositeInnerType, ConstExpr, DataKind, ElementItems,
    ElementKind, ExternalKind, Operator, Payload, TypeRef, ValType, WasmFeatures,
};

/// The most tables of a module. Compilers make one, for indirect calls.
pub(crate) const MAX_TABLES: usize = 1;

/// The allowed proposals past WebAssembly 1.0, by name: those that compilers use for ordinary code.
///
/// Relaxed SIMD is among them. Its results may differ between processors within the bounds of the
/// proposal, but not under a deterministic policy.
const ALLOWED: [(&str, WasmFeatures); 10] = [
    ("mutable-global", WasmFeatures::MUTABLE_GLOBAL),
    ("nontrapping-fptoint", WasmFeatures::SATURATING_FLOAT_TO_INT),
    ("sign-extension", WasmFeatures::SIGN_EXTENSION),
    ("reference-types", WasmFeatures::REFERENCE_TYPES),
    ("multi-value", WasmFeatures::MULTI_VALUE),
    ("bulk-memory", WasmFeatures::BULK_MEMORY),
    ("simd", WasmFeatures::SIMD),
    ("relaxed-simd", WasmFeatures::RELAXED_SIMD),
    ("tail-call", WasmFeatures::TAIL_CALL),
    ("extended-const", WasmFeatures::EXTENDED_CONST),
];

/// The features that engines allow.
pub(crate) fn allowed() -> WasmFeatures {
    ALLOWED
        .iter()
        .fold(WasmFeatures::FLOATS, |all, (_, feature)| all | *feature)
}

/// The features of rewritten modules, which the engine compiles. No guest's own file may use more
/// than is [`allowed`].
pub(crate) fn compiled() -> WasmFeatures {
    allowed() | WasmFeatures::MULTI_MEMORY | WasmFeatures::THREADS
}

/// Collects the proposals without which a module would not be valid, while it is read.
#[derive(Debug)]
pub(crate) struct NeededFeatures {
    needed: WasmFeatures,
    /// Whether each global is mutable, imported ones first.
    globals: Vec<bool>,
    /// The number of tables, imported ones included.
    tables: u32,
}

impl NeededFeatures {
    pub(crate) fn new() -> Self {
        Self {
            needed: WasmFeatures::empty(),
            globals: Vec::new(),
            tables: 0,
        }
    }

    /// The names of the proposals.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        let needed = ALLOWED
            .iter()
            .filter(|(_, feature)| self.needed.contains(*feature));
        needed.map(|(name, _)| *name).collect()
    }

    /// Reads a valid section. The operators of function bodies are read one by one:
    /// [`NeededFeatures::operator`].
    pub(crate) fn section(&mut self, payload: &Payload<'_>) -> Result<(), BinaryReaderError> {
        match payload {
            Payload::TypeSection(types) => {
                for group in types.clone() {
                    for ty in group?.types() {
                        if let CompositeInnerType::Func(ty) = &ty.composite_type.inner {
                            self.note(ty.results().len() > 1, WasmFeatures::MULTI_VALUE);
                            let types = ty.params().iter().chain(ty.results());
                            types.for_each(|ty| self.value_type(*ty));
                        }
                    }
                }
            }
            Payload::ImportSection(imports) => {
                for import in imports.clone().into_imports() {
                    match import?.ty {
                        TypeRef::Global(ty) => {
                            self.globals.push(ty.mutable);
                            self.note(ty.mutable, WasmFeatures::MUTABLE_GLOBAL);
                            self.value_type(ty.content_type);
                        }
                        TypeRef::Table(_) => self.add_tables(1),
                        _ => {}
                    }
                }
            }
            Payload::TableSection(tables) => {
                self.add_tables(tables.count());
            }
            Payload::ExportSection(exports) => {
                for export in exports.clone() {
                    let export = export?;
                    let is_mutable = export.kind == ExternalKind::Global
                        && self.globals.get(export.index as usize) == Some(&true);
                    self.note(is_mutable, WasmFeatures::MUTABLE_GLOBAL);
                }
            }
            _ => self.section_of_constants(payload)?,
        }
        Ok(())
    }

    /// Reads a section with constant expressions.
    fn section_of_constants(&mut self, payload: &Payload<'_>) -> Result<(), BinaryReaderError> {
        match payload {
            Payload::GlobalSection(globals) => {
                for global in globals.clone() {
                    let global = global?;
                    self.globals.push(global.ty.mutable);
                    self.value_type(global.ty.content_type);
                    self.constant(&global.init_expr)?;
                }
            }
            Payload::ElementSection(elements) => {
                for element in elements.clone() {
                    let element = element?;
                    match &element.kind {
                        ElementKind::Active { offset_expr, .. } => self.constant(offset_expr)?,
                        _ => self.note(true, WasmFeatures::BULK_MEMORY),
                    }
                    let is_expressions = matches!(element.items, ElementItems::Expressions(..));
                    self.note(is_expressions, WasmFeatures::REFERENCE_TYPES);
                }
            }
            Payload::DataSection(segments) => {
                for segment in segments.clone() {
                    match &segment?.kind {
                        DataKind::Active { offset_expr, .. } => self.constant(offset_expr)?,
                        DataKind::Passive => self.note(true, WasmFeatures::BULK_MEMORY),
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads the type of a value or a local.
    pub(crate) fn value_type(&mut self, ty: ValType) {
        self.note(ty == ValType::V128, WasmFeatures::SIMD);
        self.note(ty.is_reference_type(), WasmFeatures::REFERENCE_TYPES);
    }

    /// Reads an operator, given its bytes.
    #[inline]
    pub(crate) fn operator(&mut self, operator: &Operator<'_>, bytes: &[u8]) {
        self.needed |= proposal(operator);
        match operator {
            Operator::Block { blockty } | Operator::Loop { blockty } | Operator::If { blockty } => {
                match blockty {
                    BlockType::Empty => {}
                    BlockType::Type(ty) => self.value_type(*ty),
                    BlockType::FuncType(_) => self.needed |= WasmFeatures::MULTI_VALUE,
                }
            }
            Operator::TypedSelect { ty } => self.value_type(*ty),
            // WebAssembly 1.0 has a single zero byte in place of the table's index. Before it ends
            // the type's index, whose last byte has no continuation bit.
            Operator::CallIndirect { .. } => {
                let is_zero_byte = matches!(bytes, [.., before, 0] if before & 0x80 == 0);
                self.note(!is_zero_byte, WasmFeatures::REFERENCE_TYPES);
            }
            _ => {}
        }
    }

    fn constant(&mut self, expression: &ConstExpr<'_>) -> Result<(), BinaryReaderError> {
        let mut operators = expression.get_operators_reader();
        while !operators.eof() {
            let operator = operators.read()?;
            self.operator(&operator, &[]);
            let is_extended = matches!(
                operator,
                Operator::I32Add
                    | Operator::I32Sub
                    | Operator::I32Mul
                    | Operator::I64Add
                    | Operator::I64Sub
                    | Operator::I64Mul
            );
            self.note(is_extended, WasmFeatures::EXTENDED_CONST);
        }
        Ok(())
    }

    /// WebAssembly 1.0 has one table at most.
    fn add_tables(&mut self, count: u32) {
        self.tables = self.tables.saturating_add(count);
        self.note(self.tables > 1, WasmFeatures::REFERENCE_TYPES);
    }

    fn note(&mut self, needs: bool, feature: WasmFeatures) {
        if needs {
            self.needed |= feature;
        }
    }
}

/// The proposal that introduced an operator, if engines allow it.
fn proposal(operator: &Operator<'_>) -> WasmFeatures {
    macro_rules! feature {
        (saturating_float_to_int) => {
            WasmFeatures::SATURATING_FLOAT_TO_INT
        };
        (sign_extension) => {
            WasmFeatures::SIGN_EXTENSION
        };
        (reference_types) => {
            WasmFeatures::REFERENCE_TYPES
        };
        (bulk_memory) => {
            WasmFeatures::BULK_MEMORY
        };
        (simd) => {
            WasmFeatures::SIMD
        };
        (relaxed_simd) => {
            WasmFeatures::RELAXED_SIMD
        };
        (tail_call) => {
            WasmFeatures::TAIL_CALL
        };
        ($other:ident) => {
            WasmFeatures::empty()
        };
    }
    macro_rules! proposals {
        ($( @$proposal:ident $op:ident $({ $($field:ident: $ty:ty),* })? => $visit:ident ($($arity:tt)*) )*) => {
            match operator {
                $(Operator::$op { .. } => feature!($proposal),)*
                _ => WasmFeatures::empty(),
            }
        };
    }
    wasmparser::for_each_operator!(proposals)
}

#[cfg(test)]
mod tests;
