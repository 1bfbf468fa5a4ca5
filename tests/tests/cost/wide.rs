//! Types of many values, and functions of such types that the host can call.

use wasm_encoder::{ElementSection, Elements, ExportKind, RefType, TableType, ValType};

use crate::sections::Sections;

/// Adds types with `values` parameters and results each.
pub(crate) fn types(sections: &mut Sections, count: u32, values: u32, distinct: bool) {
    for number in 0..count {
        if distinct {
            // The first values are the digits of the number.
            let value = |place| match number.checked_shr(place).unwrap_or(0) & 1 {
                0 => ValType::I32,
                _ => ValType::I64,
            };
            let parameters: Vec<_> = (0..values).map(value).collect();
            let results: Vec<_> = (values..2 * values).map(value).collect();
            sections.types.ty().function(parameters, results);
        } else {
            sections.add_type(values, values);
        }
    }
}

/// Adds functions with `values` parameters, which are all exported or in a table.
pub(crate) fn escaping(sections: &mut Sections, count: u32, values: u32, in_table: bool) {
    let ty = sections.add_type(values, 0);
    let functions: Vec<u32> = (0..count).map(|_| sections.add(ty, 0, |_| {})).collect();
    if in_table {
        sections.tables.table(TableType {
            element_type: RefType::FUNCREF,
            table64: false,
            minimum: count.into(),
            maximum: None,
            shared: false,
        });
        let offset = wasm_encoder::ConstExpr::i32_const(0);
        let mut elements = ElementSection::new();
        elements.active(None, &offset, Elements::Functions(functions.into()));
        sections.elements = elements;
        return;
    }
    for (number, function) in functions.into_iter().enumerate() {
        let name = format!("e{number}");
        (sections.exports).export(&name, ExportKind::Func, function);
    }
}
