//! The attributes that callbox knows: those with a meaning, and those that it ignores.

use callbox_core::text::{Diagnostic, Name, Parsed, shortened, suggestion};

/// Whether the value of an attribute is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Meaningful,
    Ignored,
}

/// The use of this attribute of this opcode.
///
/// # Errors
/// UNIMPLEMENTED for an attribute that changes the meaning of a custom call in a way that callbox
/// does not support, INVALID_ARGUMENT for an unknown one.
pub(super) fn usage(name: Name<'_>, opcode: &str) -> Parsed<Use> {
    let meaningful = meaningful(opcode);
    if meaningful.contains(&name.text) || name.text == CONTROL_PREDECESSORS {
        return Ok(Use::Meaningful);
    }
    if IGNORED.contains(&name.text) || ignored(opcode).contains(&name.text) {
        return Ok(Use::Ignored);
    }
    if opcode == "custom-call" && REFUSED.contains(&name.text) {
        let message = format!(
            "the attribute {:?} of a custom-call is not supported",
            name.text
        );
        return Err(Diagnostic::unimplemented(name.at, message));
    }
    let known = meaningful.iter().copied().chain([CONTROL_PREDECESSORS]);
    let near = suggestion(name.text, known, str::to_owned);
    let found = shortened(name.text);
    let message = format!("expected an attribute of {opcode:?}, found {found:?}{near}");
    Err(Diagnostic::invalid(name.at, message))
}

/// The one attribute that has a meaning for every opcode.
pub(in crate::hlo) const CONTROL_PREDECESSORS: &str = "control-predecessors";

/// The other attributes that have a meaning, by opcode.
fn meaningful(opcode: &str) -> &'static [&'static str] {
    match opcode {
        "broadcast" | "concatenate" | "reverse" | "transpose" => &["dimensions"],
        "all-gather" | "all-to-all" | "collective-broadcast" => &["replica_groups"],
        "all-reduce" | "reduce-scatter" => &["replica_groups"],
        "call" => &["to_apply"],
        "cholesky" => &["lower"],
        "collective-permute" => &["source_target_pairs"],
        "compare" => &["direction", "type"],
        "conditional" => &[
            "branch_computations",
            "false_computation",
            "true_computation",
        ],
        "custom-call" => &[
            "api_version",
            "backend_config",
            "called_computations",
            "custom_call_has_side_effect",
            "custom_call_target",
            "frontend_attributes",
            "literal",
            "operand_layout_constraints",
            "output_to_operand_aliasing",
            "schedule",
            "to_apply",
        ],
        "convolution" => &[
            "batch_group_count",
            "dim_labels",
            "feature_group_count",
            "window",
        ],
        "dot" => &[
            "lhs_batch_dims",
            "lhs_contracting_dims",
            "rhs_batch_dims",
            "rhs_contracting_dims",
        ],
        "dynamic-slice" => &["dynamic_slice_sizes"],
        "fft" => &["fft_length", "fft_type"],
        "fusion" => &["calls", "kind"],
        "gather" => &[
            "collapsed_slice_dims",
            "index_vector_dim",
            "offset_dims",
            "operand_batching_dims",
            "slice_sizes",
            "start_index_map",
            "start_indices_batching_dims",
        ],
        "get-tuple-element" => &["index"],
        "iota" => &["iota_dimension"],
        "map" | "reduce" => &["dimensions", "to_apply"],
        "pad" => &["padding"],
        "reduce-precision" => &["exponent_bits", "mantissa_bits"],
        "reduce-window" => &["to_apply", "window"],
        "rng-bit-generator" => &["algorithm"],
        "scatter" => &[
            "index_vector_dim",
            "input_batching_dims",
            "inserted_window_dims",
            "scatter_dims_to_operand_dims",
            "scatter_indices_batching_dims",
            "to_apply",
            "update_window_dims",
        ],
        "select-and-scatter" => &["scatter", "select", "window"],
        "slice" => &["slice"],
        "sort" => &["dimensions", "is_stable", "to_apply"],
        "topk" => &["k", "largest"],
        "triangular-solve" => &["left_side", "lower", "transpose_a", "unit_diagonal"],
        "while" => &["body", "condition"],
        _ => &[],
    }
}

/// Attributes that are ignored for every opcode for which they have no meaning. The result is the
/// same without them:
/// - `backend_config`: hints for XLA's code generation.
/// - `frontend_attributes`: notes for other compilers.
/// - `metadata`, `origin`: the source of the instruction.
/// - `result_accuracy`: the accuracy that suffices. callbox documents one accuracy for each
///   operation.
/// - `sharding`: the parts of devices. The program is for one device.
/// - `statistics`: numbers for a viewer.
const IGNORED: &[&str] = &[
    "backend_config",
    "frontend_attributes",
    "metadata",
    "origin",
    "result_accuracy",
    "sharding",
    "statistics",
];

/// Attributes that are ignored for one opcode.
fn ignored(opcode: &str) -> &'static [&'static str] {
    match opcode {
        // Collectives of one device are copies: see `collectives`.
        "all-gather"
        | "all-reduce"
        | "all-to-all"
        | "collective-broadcast"
        | "collective-permute"
        | "reduce-scatter" => &[
            "channel_id",
            "constrain_layout",
            "dimensions",
            "to_apply",
            "use_global_device_ids",
        ],
        // The callee's instructions are run, whatever operation it stands for.
        "call" => &["is_composite"],
        "custom-call" => &["operand_precision"],
        // callbox computes with all bits that the type has.
        "convolution" => &["operand_precision"],
        "dot" => &["algorithm", "operand_precision"],
        // callbox shares no buffers inside a fusion.
        "fusion" => &["output_to_operand_aliasing"],
        // Promises about the indices, which callbox does not need.
        "gather" => &["indices_are_sorted"],
        "scatter" => &["indices_are_sorted", "unique_indices"],
        // The devices with equal inputs. The program is for one device.
        "parameter" => &["parameter_replication"],
        _ => &[],
    }
}

/// Attributes that would change the meaning of a custom call.
const REFUSED: &[&str] = &[
    "batch_group_count",
    "dim_labels",
    "feature_group_count",
    "padding_type",
    "window",
];
