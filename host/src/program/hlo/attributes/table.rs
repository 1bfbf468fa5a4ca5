//! Which attributes there are, and which of them are read only to be dropped.

use crate::program::hlo::cursor::Name;
use crate::program::hlo::source::{Diagnostic, Parsed, shortened};
use crate::program::hlo::suggestion::suggestion;

/// How an attribute's value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    Aliasing,
    Computation,
    Computations,
    Config,
    Flag,
    Instructions,
    Literal,
    Number,
    Numbers,
    Padding,
    Shapes,
    Slices,
    Text,
    Word,
}

/// How the value of this attribute is written, or `None` if it is to be dropped.
pub(super) fn syntax(name: Name<'_>, opcode: &str) -> Parsed<Option<Syntax>> {
    let applies = |other: &str, opcodes: &[&str]| {
        other == name.text && (opcodes.is_empty() || opcodes.contains(&opcode))
    };
    if let Some((.., syntax)) = MEANINGFUL
        .iter()
        .find(|(other, opcodes, _)| applies(other, opcodes))
    {
        return Ok(Some(*syntax));
    }
    if IGNORED
        .iter()
        .any(|(other, opcodes, _)| applies(other, opcodes))
    {
        return Ok(None);
    }
    if opcode == "custom-call" && REFUSED.contains(&name.text) {
        let message = format!(
            "the attribute {:?} of a custom-call is not supported",
            name.text
        );
        return Err(Diagnostic::unimplemented(name.at, message));
    }
    let takes = |opcodes: &[&str]| opcodes.is_empty() || opcodes.contains(&opcode);
    let known = MEANINGFUL.iter().filter(|(_, opcodes, _)| takes(opcodes));
    let near = suggestion(name.text, known.map(|(other, ..)| *other), "");
    let found = shortened(name.text);
    let message = format!("expected an attribute of {opcode:?}, found {found:?}{near}");
    Err(Diagnostic::invalid(name.at, message))
}

/// Any opcode.
const ANY: &[&str] = &[];

/// Attributes that mean something here: name, opcodes, and how the value is written.
pub(super) const MEANINGFUL: &[(&str, &[&str], Syntax)] = &[
    ("api_version", &["custom-call"], Syntax::Word),
    ("backend_config", &["custom-call"], Syntax::Config),
    ("body", &["while"], Syntax::Computation),
    (
        "branch_computations",
        &["conditional"],
        Syntax::Computations,
    ),
    (
        "called_computations",
        &["custom-call"],
        Syntax::Computations,
    ),
    ("calls", &["fusion"], Syntax::Computation),
    ("condition", &["while"], Syntax::Computation),
    ("control-predecessors", ANY, Syntax::Instructions),
    (
        "custom_call_has_side_effect",
        &["custom-call"],
        Syntax::Flag,
    ),
    ("custom_call_target", &["custom-call"], Syntax::Text),
    (
        "dimensions",
        &[
            "broadcast",
            "concatenate",
            "map",
            "reduce",
            "reverse",
            "transpose",
        ],
        Syntax::Numbers,
    ),
    ("direction", &["compare"], Syntax::Word),
    ("dynamic_slice_sizes", &["dynamic-slice"], Syntax::Numbers),
    ("exponent_bits", &["reduce-precision"], Syntax::Number),
    ("false_computation", &["conditional"], Syntax::Computation),
    ("frontend_attributes", &["custom-call"], Syntax::Config),
    ("index", &["get-tuple-element"], Syntax::Number),
    ("iota_dimension", &["iota"], Syntax::Number),
    ("kind", &["fusion"], Syntax::Word),
    ("lhs_batch_dims", &["dot"], Syntax::Numbers),
    ("lhs_contracting_dims", &["dot"], Syntax::Numbers),
    ("literal", &["custom-call"], Syntax::Literal),
    ("mantissa_bits", &["reduce-precision"], Syntax::Number),
    (
        "operand_layout_constraints",
        &["custom-call"],
        Syntax::Shapes,
    ),
    (
        "output_to_operand_aliasing",
        &["custom-call"],
        Syntax::Aliasing,
    ),
    ("padding", &["pad"], Syntax::Padding),
    ("rhs_batch_dims", &["dot"], Syntax::Numbers),
    ("rhs_contracting_dims", &["dot"], Syntax::Numbers),
    ("schedule", &["custom-call"], Syntax::Word),
    ("slice", &["slice"], Syntax::Slices),
    (
        "to_apply",
        &["call", "custom-call", "map", "reduce"],
        Syntax::Computation,
    ),
    ("true_computation", &["conditional"], Syntax::Computation),
    ("type", &["compare"], Syntax::Word),
];

/// Attributes that are read and dropped, on purpose: name, opcodes, and why nothing is lost.
pub(super) const IGNORED: &[(&str, &[&str], &str)] = &[
    (
        "algorithm",
        &["dot"],
        "how few bits may be computed with; callbox computes with all that the type has",
    ),
    (
        "backend_config",
        ANY,
        "hints to XLA's code generation; a custom-call's is read",
    ),
    (
        "frontend_attributes",
        ANY,
        "notes for other compilers; the module's may name exports, a custom-call's what makes its static information",
    ),
    (
        "is_composite",
        &["call"],
        "that the callee stands for an operation with a name; its instructions are run",
    ),
    (
        "metadata",
        ANY,
        "which line of which program the instruction came from",
    ),
    (
        "operand_precision",
        &["custom-call", "dot"],
        "how few bits may be computed with; callbox computes with all that the type has",
    ),
    ("origin", ANY, "which instruction this one was made from"),
    (
        "output_to_operand_aliasing",
        &["fusion"],
        "which buffers XLA shares; callbox shares none inside a fusion",
    ),
    (
        "parameter_replication",
        &["parameter"],
        "which devices have equal inputs; there is one device",
    ),
    (
        "result_accuracy",
        ANY,
        "how inaccurate a result may be; callbox has one accuracy, stated with each operation",
    ),
    (
        "sharding",
        ANY,
        "which device has which part; one device has all",
    ),
    ("statistics", ANY, "numbers for a viewer"),
];

/// Attributes that would change what a custom-call means, and that callbox has no place for.
const REFUSED: &[&str] = &[
    "batch_group_count",
    "dim_labels",
    "feature_group_count",
    "padding_type",
    "window",
];
