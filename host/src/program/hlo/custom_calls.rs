//! Custom calls: what their attributes say, and which of them are not calls.

use super::attributes::{Config, Placed, list, skip_value};
use super::cursor::Cursor;
use super::lower::{Context, named, required};
use super::mlir_attributes::attributes;
use super::source::{Diagnostic, Parsed};
use super::syntax::Instruction;
use crate::call::{ApiVersion, StaticInfo};
use crate::program::instruction::{ComputationId, CustomCall, Opcode, Schedule};
use crate::values::Shape;

/// Custom calls by which JAX tells XLA how to split a value over devices (xla/service/sharding_remover.cc and XLA's import of Shardy).
/// On one device they are their operand.
const ANNOTATIONS: &[&str] = &[
    "Sharding",
    "SPMDFullToShardShape",
    "SPMDShardToFullShape",
    "xla.sdy.FuncResultSharding",
    "xla.sdy.GlobalToLocalShape",
    "xla.sdy.LocalToGlobalShape",
    "xla.sdy.PropagationBarrier",
];

/// Keys in a custom call's `frontend_attributes`, for the JAX FFI proposal's convention.
pub(super) const CONSTRUCTOR: &str = "callbox.static_info.constructor";
pub(super) const DESTRUCTOR: &str = "callbox.static_info.destructor";

/// What a custom call does.
pub(super) fn custom_call(
    instruction: &mut Instruction<'_>,
    operands: &[&Shape],
    context: &mut Context<'_>,
) -> Parsed<Opcode> {
    let target = target(instruction)?;
    if ANNOTATIONS.contains(&target.as_str())
        && operands.len() == 1
        && operands[0].is_compatible(&instruction.shape)
    {
        return Ok(Opcode::Copy);
    }
    let mut call = CustomCall::new(target);
    call.api_version = api_version(instruction)?;
    if let Some(config) = instruction.attributes.config("backend_config") {
        read_config(&mut call, &config, context)?;
    }
    if let Some(notes) = instruction.attributes.config("frontend_attributes")
        && call.api_version == ApiVersion::JaxFfi
    {
        read_static_info(&mut call, &notes)?;
    }
    let attributes = &mut instruction.attributes;
    call.has_side_effect = attributes
        .flag("custom_call_has_side_effect")
        .is_some_and(|flag| flag.value);
    call.aliasing = attributes
        .aliasing("output_to_operand_aliasing")
        .map_or_else(Vec::new, |aliasing| aliasing.value);
    call.literal = attributes.literal("literal").map(|literal| literal.value);
    if let Some(word) = attributes.word("schedule") {
        call.schedule = named(
            &word,
            Schedule::from_name,
            "a schedule such as SCHEDULE_LATEST",
        )?;
    }
    call.called_computations = called_computations(instruction, context)?;
    call.operand_layouts = operand_layouts(instruction, operands)?;
    Ok(Opcode::CustomCall(Box::new(call)))
}

fn target(instruction: &mut Instruction<'_>) -> Parsed<String> {
    let target = instruction.attributes.text("custom_call_target");
    let target = required(target, "custom_call_target", instruction.opcode)?;
    String::from_utf8(target.value).map_err(|_| {
        Diagnostic::invalid(
            target.at,
            "expected the name of a target, found what is not UTF-8",
        )
    })
}

/// XLA's default is the oldest.
fn api_version(instruction: &mut Instruction<'_>) -> Parsed<ApiVersion> {
    match instruction.attributes.word("api_version") {
        Some(word) => word
            .value
            .parse()
            .map_err(|status| Diagnostic::of_status(word.at, &status)),
        None => Ok(ApiVersion::Original),
    }
}

fn called_computations(
    instruction: &mut Instruction<'_>,
    context: &Context<'_>,
) -> Parsed<Vec<ComputationId>> {
    let one = instruction.attributes.computation("to_apply");
    let many = instruction.attributes.computations("called_computations");
    match (one, many) {
        (None, None) => Ok(Vec::new()),
        (Some(one), None) => context.computations(&[one.value]),
        (None, Some(many)) => context.computations(&many.value),
        (Some(one), Some(_)) => Err(Diagnostic::invalid(
            one.at,
            "expected to_apply or called_computations of a custom-call, found both",
        )),
    }
}

fn operand_layouts(
    instruction: &mut Instruction<'_>,
    operands: &[&Shape],
) -> Parsed<Option<Vec<Shape>>> {
    let Some(constraints) = instruction.attributes.shapes("operand_layout_constraints") else {
        return Ok(None);
    };
    let Placed { value: shapes, at } = constraints;
    if shapes.len() != operands.len() {
        let message = format!(
            "expected layouts of {} operands, found {}",
            operands.len(),
            shapes.len()
        );
        return Err(Diagnostic::invalid(at, message));
    }
    for (index, (shape, operand)) in std::iter::zip(&shapes, operands).enumerate() {
        if !shape.is_compatible(operand) {
            let message =
                format!("expected a layout of {operand}, which is operand {index}, found {shape}");
            return Err(Diagnostic::invalid(at, message));
        }
    }
    Ok(Some(shapes))
}

/// Reads a `backend_config`: attributes for typed FFI, bytes for the older conventions.
///
/// XLA:CPU and XLA:GPU may have wrapped either in a JSON object; where it has the key `custom_call_config`, what counts is in there
/// (`BackendConfig` and `CustomCallConfig` in xla/service/cpu/backend_config.proto).
fn read_config(
    call: &mut CustomCall,
    config: &Placed<Config<'_>>,
    context: &mut Context<'_>,
) -> Parsed<()> {
    let text = match &config.value {
        Config::Braces(text) => text.as_bytes(),
        Config::Text(text) => text,
    };
    let key = match call.api_version {
        ApiVersion::TypedFfi => "attributes",
        _ => "opaque",
    };
    let inner = wrapped(text, key);
    if call.api_version != ApiVersion::TypedFfi {
        let bytes = inner.map_or_else(|| text.to_vec(), String::into_bytes);
        match call.api_version {
            ApiVersion::JaxFfi => call.static_info = Some(StaticInfo::Value(bytes)),
            _ => call.opaque = bytes,
        }
        return Ok(());
    }
    call.attributes = match (inner, &config.value) {
        (None, Config::Braces(text)) => {
            attributes(text, &mut context.splat_bytes).map_err(|wrong| wrong.moved_by(config.at))?
        }
        (inner, _) => {
            let quoted = |wrong: Diagnostic| wrong.quoted_at(config.at, "backend_config");
            let text = inner
                .as_deref()
                .map_or_else(|| std::str::from_utf8(text), Ok);
            let text = text.map_err(|_| {
                Diagnostic::invalid(config.at, "expected attributes, found what is not UTF-8")
            })?;
            attributes(text, &mut context.splat_bytes).map_err(quoted)?
        }
    };
    Ok(())
}

/// Reads what `frontend_attributes` says of the JAX FFI proposal's static information, which they make one by reference: the exports that make
/// the object, of what `backend_config` says, and take it back.
fn read_static_info(call: &mut CustomCall, notes: &Placed<Config<'_>>) -> Parsed<()> {
    let Config::Braces(text) = &notes.value else {
        return Ok(());
    };
    let [mut constructor, mut destructor] = [None, None];
    let mut cursor = Cursor::inside(text, "the end of frontend_attributes");
    let read = list(&mut cursor, |cursor| {
        let name = cursor.attribute_name()?;
        let export = match name.text {
            CONSTRUCTOR => &mut constructor,
            DESTRUCTOR => &mut destructor,
            _ => return skip_value(cursor),
        };
        let at = cursor.at();
        let value = String::from_utf8(cursor.string()?);
        let what = "expected the name of an export, found what is not UTF-8";
        *export = Some(value.map_err(|_| Diagnostic::invalid(at, what))?);
        Ok(())
    });
    read.map_err(|wrong| wrong.moved_by(notes.at))?;
    let (constructor, destructor) = match (constructor, destructor) {
        (Some(constructor), Some(destructor)) => (constructor, destructor),
        (None, None) => return Ok(()),
        _ => {
            let message =
                format!("expected both {CONSTRUCTOR} and {DESTRUCTOR}, found one of them");
            return Err(Diagnostic::invalid(notes.at, message));
        }
    };
    let argument = match call.static_info.take() {
        Some(StaticInfo::Value(bytes)) => bytes,
        _ => Vec::new(),
    };
    call.static_info = Some(StaticInfo::Reference {
        constructor,
        destructor,
        argument,
    });
    Ok(())
}

/// What XLA's own `backend_config` has under this key for a custom call, if it is one.
pub(super) fn wrapped(text: &[u8], key: &str) -> Option<String> {
    const CONFIG: &[u8] = b"\"custom_call_config\"";
    // Anything else need not be JSON, and may be large.
    text.windows(CONFIG.len())
        .find(|window| *window == CONFIG)?;
    let json: serde_json::Value = serde_json::from_slice(text).ok()?;
    let config = json.get("custom_call_config")?.as_object()?;
    match config.get(key) {
        Some(value) => value.as_str().map(str::to_owned),
        None => Some(String::new()),
    }
}
