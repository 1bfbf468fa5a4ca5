//! Prints the attributes of custom calls.

use super::{Printer, list, numbers};
use crate::hlo::custom_calls::{CONSTRUCTOR, DESTRUCTOR, unwrapped};
use crate::instruction::{CustomCall, Schedule};
use callbox_core::call::{Alias, ApiVersion, StaticInfo};
use callbox_core::text::{
    Cursor, escape_c, print_attributes, print_literal_with_shape, print_shape,
};

/// Appends a custom call's attributes, in XLA's order.
pub(super) fn custom_call(printer: &Printer<'_>, call: &CustomCall, text: &mut String) {
    let target = escape_c(call.target.as_bytes());
    *text += &format!(", custom_call_target=\"{target}\"");
    if let Some(layouts) = &call.operand_layouts {
        let layouts = list(layouts.iter().map(print_shape));
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
        print_literal_with_shape(literal, text);
    }
    if call.schedule != Schedule::None {
        *text += &format!(", schedule={}", call.schedule);
    }
    if call.api_version != ApiVersion::Original {
        *text += &format!(", api_version={}", call.api_version);
    }
    handed_over(printer, call, text);
}

/// Appends the attributes that a target of this API version receives.
fn handed_over(printer: &Printer<'_>, call: &CustomCall, text: &mut String) {
    match (call.api_version, &call.static_info) {
        (ApiVersion::TypedFfi, _) if call.attributes.is_empty() => {}
        (ApiVersion::TypedFfi, _) => {
            let function_name = |name: &str| printer.names.function(name).to_owned();
            *text += ", backend_config=";
            print_attributes(&function_name, &call.attributes, text);
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
            let constructor = escape_c(constructor.as_bytes());
            let destructor = escape_c(destructor.as_bytes());
            *text += &format!(
                ", frontend_attributes={{{CONSTRUCTOR}=\"{constructor}\",{DESTRUCTOR}=\"{destructor}\"}}"
            );
            config(argument, text);
        }
        _ if call.opaque.is_empty() => {}
        _ => config(&call.opaque, text),
    }
}

/// Appends a `backend_config`: text in braces as it is, as XLA does, and other bytes as a string.
fn config(bytes: &[u8], text: &mut String) {
    // The reader would unwrap bytes that look like an object of XLA's: wrap them once more.
    let wrapped = unwrapped(bytes, "opaque").map(|_| {
        let config = serde_json::json!({"opaque": String::from_utf8_lossy(bytes)});
        serde_json::json!({"custom_call_config": config}).to_string()
    });
    let bytes = wrapped.as_deref().map_or(bytes, str::as_bytes);
    *text += ", backend_config=";
    match std::str::from_utf8(bytes) {
        Ok(config) if is_in_braces(config) => *text += config,
        _ => *text += &format!("\"{}\"", escape_c(bytes)),
    }
}

fn is_in_braces(text: &str) -> bool {
    let braces = Cursor::new(text).braces();
    braces.is_ok_and(|braces| braces == text)
}

/// An alias of a result and an operand: `{0}: (1, {2})`.
fn alias(alias: &Alias) -> String {
    let (result, operand) = (numbers(&alias.result_index), numbers(&alias.operand_index));
    format!("{result}: ({}, {operand})", alias.operand)
}
