//! The sections of a generated module, and pieces of code for it.

use wasm_encoder::{
    CodeSection, ConstExpr, CustomSection, DataSection, ElementSection, ExportKind, ExportSection,
    Function, FunctionSection, GlobalSection, ImportSection, InstructionSink, MemorySection,
    MemoryType, Module, NameSection, TableSection, TypeSection, ValType,
};

/// The sections of a module, with what all modules have.
pub(crate) struct Sections {
    pub(crate) types: TypeSection,
    pub(crate) imports: ImportSection,
    pub(crate) functions: FunctionSection,
    pub(crate) tables: TableSection,
    pub(crate) globals: GlobalSection,
    pub(crate) exports: ExportSection,
    pub(crate) elements: ElementSection,
    pub(crate) code: CodeSection,
    pub(crate) data: DataSection,
    /// The number of functions, imported ones included.
    pub(crate) count: u32,
}

/// The type `(i32) -> i32` of a target.
pub(crate) const TARGET: u32 = 0;

impl Sections {
    pub(crate) fn new() -> Self {
        let mut types = TypeSection::new();
        types.ty().function([ValType::I32], [ValType::I32]);
        Self {
            types,
            imports: ImportSection::new(),
            functions: FunctionSection::new(),
            tables: TableSection::new(),
            globals: GlobalSection::new(),
            exports: ExportSection::new(),
            elements: ElementSection::new(),
            code: CodeSection::new(),
            data: DataSection::new(),
            count: 0,
        }
    }

    /// Adds a type, whose index is returned.
    pub(crate) fn add_type(&mut self, parameters: u32, results: u32) -> u32 {
        let index = self.types.len();
        let list = |count| vec![ValType::I32; count as usize];
        self.types.ty().function(list(parameters), list(results));
        index
    }

    /// Adds a function, whose index is returned. The body needs no final `end`.
    pub(crate) fn add(
        &mut self,
        ty: u32,
        locals: u32,
        body: impl FnOnce(&mut InstructionSink<'_>),
    ) -> u32 {
        self.functions.function(ty);
        let mut function = Function::new((locals > 0).then_some((locals, ValType::I32)));
        body(&mut function.instructions());
        function.instructions().end();
        self.code.function(&function);
        self.count += 1;
        self.count - 1
    }

    pub(crate) fn target(&mut self) -> u32 {
        self.add(TARGET, 0, |code| {
            code.unreachable();
        })
    }

    pub(crate) fn finish(
        mut self,
        sections: &[CustomSection<'_>],
        names: Option<&NameSection>,
    ) -> Vec<u8> {
        if self.exports.is_empty() {
            let target = self.target();
            self.exports.export("f", ExportKind::Func, target);
        }
        self.exports.export("memory", ExportKind::Memory, 0);
        let mut memories = MemorySection::new();
        memories.memory(MemoryType {
            minimum: 1,
            maximum: None,
            memory64: false,
            shared: false,
            page_size_log2: None,
        });
        let mut module = Module::new();
        module.section(&self.types);
        module.section(&self.imports);
        module.section(&self.functions);
        module.section(&self.tables);
        module.section(&memories);
        module.section(&self.globals);
        module.section(&self.exports);
        module.section(&self.elements);
        module.section(&self.code);
        module.section(&self.data);
        for section in sections {
            module.section(section);
        }
        if let Some(names) = names {
            module.section(names);
        }
        module.finish()
    }
}

/// Pushes as many constants.
pub(crate) fn push(code: &mut InstructionSink<'_>, count: u32) {
    for _ in 0..count {
        code.i32_const(1);
    }
}

pub(crate) fn drop_all(code: &mut InstructionSink<'_>, count: u32) {
    for _ in 0..count {
        code.drop();
    }
}

/// An offset that is 0 in the end, or 0 itself.
pub(crate) fn offset(operators: u32) -> ConstExpr {
    let mut expression = ConstExpr::i32_const(0);
    for _ in 0..operators {
        expression = expression.with_i32_const(0).with_i32_add();
    }
    expression
}
