//! Types of many values, and functions of such types that the host can call.

use serde::Deserialize;
use wasm_encoder::{
    ConstExpr, ElementSection, Elements, ExportKind, GlobalType, RefType, TableType, ValType,
};

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

/// Where functions are that the host can get hold of.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Place {
    Exports,
    Globals,
    Table,
}

/// Adds functions with `values` parameters, all of them in this place.
pub(crate) fn escaping(sections: &mut Sections, count: u32, values: u32, place: Place) {
    let ty = sections.add_type(values, 0);
    let functions: Vec<u32> = (0..count).map(|_| sections.add(ty, 0, |_| {})).collect();
    match place {
        Place::Exports => {
            for (number, function) in functions.into_iter().enumerate() {
                let name = format!("e{number}");
                (sections.exports).export(&name, ExportKind::Func, function);
            }
        }
        Place::Globals => {
            let ty = GlobalType {
                val_type: ValType::Ref(RefType::FUNCREF),
                mutable: false,
                shared: false,
            };
            for function in functions {
                (sections.globals).global(ty, &ConstExpr::ref_func(function));
            }
        }
        Place::Table => {
            sections.tables.table(TableType {
                element_type: RefType::FUNCREF,
                table64: false,
                minimum: count.into(),
                maximum: None,
                shared: false,
            });
            let mut elements = ElementSection::new();
            let functions = Elements::Functions(functions.into());
            elements.active(None, &ConstExpr::i32_const(0), functions);
            sections.elements = elements;
        }
    }
}
