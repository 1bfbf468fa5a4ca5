//! What custom calls say.

use super::literals::literal_with_shape;
use super::mlir::dictionary;
use super::{Printer, list, numbers, shape};
use crate::call::{Alias, ApiVersion, StaticInfo};
use crate::program::hlo::cursor::Cursor;
use crate::program::hlo::custom_calls::{CONSTRUCTOR, DESTRUCTOR, wrapped};
use crate::program::hlo::escapes::escape_c;
use crate::program::instruction::{CustomCall, Schedule};

/// Appends a custom call's attributes, in XLA's order.
pub(super) fn custom_call(printer: &Printer<'_>, call: &CustomCall, text: &mut String) {
    let target = escape_c(call.target.as_bytes());
    *text += &format!(", custom_call_target=\"{target}\"");
    if let Some(layouts) = &call.operand_layouts {
        let layouts = list(layouts.iter().map(shape));
        *text += &format!(", operand_layout_constraints={{{layouts}}}");
    }
    if call.has_side_effect {
        *text += ", custom_call_has_side_effect=true";
    }
    if !call.called_computations.is_empty() {
        let called = call.called_computations.iter();
        let called = list(called.map(|id| printer.computation(*id)));
        *text += &format!(", called_computations={{{called}}}");
    }
    if !call.aliasing.is_empty() {
        let aliasing = list(call.aliasing.iter().map(alias));
        *text += &format!(", output_to_operand_aliasing={{{aliasing}}}");
    }
    if let Some(literal) = &call.literal {
        *text += ", literal=";
        literal_with_shape(literal, text);
    }
    if call.schedule != Schedule::None {
        *text += &format!(", schedule={}", call.schedule);
    }
    if call.api_version != ApiVersion::Original {
        *text += &format!(", api_version={}", call.api_version);
    }
    handed_over(printer, call, text);
}

/// Appends what a target gets besides buffers, as its API version has it.
fn handed_over(printer: &Printer<'_>, call: &CustomCall, text: &mut String) {
    match (call.api_version, &call.static_info) {
        (ApiVersion::TypedFfi, _) => {
            if !call.attributes.is_empty() {
                *text += ", backend_config=";
                dictionary(Some(&printer.names), &call.attributes, text);
            }
        }
        (ApiVersion::JaxFfi, None) => {}
        (ApiVersion::JaxFfi, Some(StaticInfo::Value(bytes))) => config(bytes, text),
        (
            ApiVersion::JaxFfi,
            Some(StaticInfo::Reference {
                constructor,
                destructor,
                argument,
            }),
        ) => {
            let [constructor, destructor] =
                [constructor, destructor].map(|name| escape_c(name.as_bytes()));
            *text += &format!(
                ", frontend_attributes={{{CONSTRUCTOR}=\"{constructor}\",{DESTRUCTOR}=\"{destructor}\"}}"
            );
            config(argument, text);
        }
        _ if call.opaque.is_empty() => {}
        _ => config(&call.opaque, text),
    }
}

/// Appends bytes: as they are if they are a JSON object or look like one, as XLA does, and otherwise as a string.
fn config(bytes: &[u8], text: &mut String) {
    *text += ", backend_config=";
    // What would be taken for a wrapping of XLA's is wrapped once more.
    let wrapping = wrapped(bytes, "opaque").map(|_| {
        let config = serde_json::json!({"opaque": String::from_utf8_lossy(bytes)});
        serde_json::json!({"custom_call_config": config}).to_string()
    });
    let config = wrapping.as_deref().map_or(bytes, str::as_bytes);
    match std::str::from_utf8(config)
        .ok()
        .filter(|config| is_in_braces(config))
    {
        Some(config) => *text += config,
        None => *text += &format!("\"{}\"", escape_c(config)),
    }
}

fn is_in_braces(text: &str) -> bool {
    let braces = Cursor::new(text).braces();
    braces.is_ok_and(|braces| braces == text)
}

/// `{0}: (1, {2})`.
fn alias(alias: &Alias) -> String {
    let (result, operand) = (numbers(&alias.result_index), numbers(&alias.operand_index));
    format!("{result}: ({}, {operand})", alias.operand)
}
