//! Custom calls: the checks that need no target.

use std::collections::HashSet;
use std::fmt;

use super::declaration;
use crate::CustomCall;
use callbox_core::call::Alias;
use callbox_core::text::shortened;
use callbox_core::values::{ArrayShape, Result, Shape};

/// Checks a custom call as XLA's `XlaBuilder::CustomCall` and HLO verifier do. Its shape is the
/// declared one.
pub(super) fn custom_call(
    call: &CustomCall,
    operands: &[&Shape],
    declared: Option<&Shape>,
) -> Result<Shape> {
    let result = declaration(declared)?;
    check_target(&call.target)?;
    if let Some(layouts) = &call.operand_layouts {
        check_operand_layouts(layouts, operands)?;
    }
    check_aliasing(&call.aliasing, operands, result)?;
    Ok(result.clone())
}

fn check_target(name: &str) -> Result<()> {
    ensure!(
        !name.is_empty(),
        "expected the name of a target, found an empty custom_call_target"
    );
    ensure!(
        !name.starts_with('$'),
        "Invalid custom_call_target \"{}\": Call targets that start with '$' are reserved for \
         internal use.",
        shortened(name)
    );
    Ok(())
}

/// Checks `operand_layout_constraints`.
///
/// XLA refuses an array without a layout. callbox has no layout assignment and uses the default.
fn check_operand_layouts(layouts: &[Shape], operands: &[&Shape]) -> Result<()> {
    ensure!(
        layouts.len() == operands.len(),
        "Must specify a shape with layout for each operand for custom call with constrained \
         layout; given {} shapes, expected {}",
        layouts.len(),
        operands.len()
    );
    for (i, (layout, operand)) in std::iter::zip(layouts, operands).enumerate() {
        ensure!(
            layout.is_compatible(operand),
            "expected a layout of operand {i}, {operand}, found {layout}"
        );
    }
    Ok(())
}

/// Checks that aliases pair arrays of equal shapes, and that no array is in two pairs.
fn check_aliasing(aliases: &[Alias], operands: &[&Shape], result: &Shape) -> Result<()> {
    let mut results = HashSet::new();
    let mut sources = HashSet::new();
    for alias in aliases {
        let Some(&operand) = operands.get(alias.operand) else {
            return Err(invalid!(
                "expected an operand below {} in output_to_operand_aliasing, found {}",
                operands.len(),
                alias.operand
            ));
        };
        let to = aliased_array("the result", result, &alias.result_index)?;
        let from = aliased_array("the operand", operand, &alias.operand_index)?;
        ensure!(
            to.is_compatible(from),
            "expected a result and an operand of one shape in output_to_operand_aliasing, \
             found {to} and {from}"
        );
        ensure!(
            results.insert(&alias.result_index)
                && sources.insert((alias.operand, &alias.operand_index)),
            "expected each result and each operand once in output_to_operand_aliasing, \
             found result {} or operand {} {} twice",
            braces(&alias.result_index),
            alias.operand,
            braces(&alias.operand_index)
        );
    }
    Ok(())
}

fn aliased_array<'a>(what: &str, shape: &'a Shape, index: &[usize]) -> Result<&'a ArrayShape> {
    let found: &dyn fmt::Display = match shape.at(index) {
        Some(Shape::Array(array)) => return Ok(array),
        Some(tuple) => tuple,
        None => &"none",
    };
    Err(invalid!(
        "expected an array at {} of {what} {shape} in output_to_operand_aliasing, found {found}",
        braces(index)
    ))
}

/// An index as in HLO text: `{1,0}`.
fn braces(index: &[usize]) -> String {
    let numbers = Vec::from_iter(index.iter().map(usize::to_string));
    format!("{{{}}}", numbers.join(","))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_declared, refused_declared};
    use crate::{CustomCall, Opcode};
    use callbox_core::StatusCode::InvalidArgument;
    use callbox_core::call::Alias;

    const OPERANDS: [&str; 2] = ["f32[2]", "(f32[3], s32[])"];
    const RESULT: &str = "(f32[3], f32[2])";

    fn aliased(aliases: &[(&[usize], usize, &[usize])]) -> Opcode {
        let mut call = CustomCall::new("target");
        call.aliasing = aliases
            .iter()
            .map(|&(result_index, operand, operand_index)| Alias {
                result_index: result_index.to_vec(),
                operand,
                operand_index: operand_index.to_vec(),
            })
            .collect();
        Opcode::CustomCall(Box::new(call))
    }

    fn constrained(layouts: &[&str]) -> Opcode {
        let mut call = CustomCall::new("target");
        call.operand_layouts = layouts.iter().map(|text| text.parse().ok()).collect();
        Opcode::CustomCall(Box::new(call))
    }

    fn check(opcode: &Opcode) {
        check_declared(opcode, &OPERANDS, Some(RESULT), RESULT);
    }

    fn refused(opcode: &Opcode, message: &str) {
        refused_declared(InvalidArgument, opcode, &OPERANDS, Some(RESULT), message);
    }

    #[test]
    fn targets_have_names_of_their_own() {
        let named = |name: &str| Opcode::CustomCall(Box::new(CustomCall::new(name)));
        check(&named("xla$target"));
        refused(
            &named("$target"),
            "Invalid custom_call_target \"$target\": Call targets that start with '$' are \
             reserved for internal use.",
        );
        refused(
            &named(""),
            "expected the name of a target, found an empty custom_call_target",
        );
    }

    #[test]
    fn layouts_are_of_the_operands() {
        check(&constrained(&["f32[2]{0}", "(f32[3]{0}, s32[])"]));
        refused(
            &constrained(&["f32[2]{0}"]),
            "Must specify a shape with layout for each operand for custom call with constrained \
             layout; given 1 shapes, expected 2",
        );
        refused(
            &constrained(&["f32[2]{0}", "(f32[4]{0}, s32[])"]),
            "expected a layout of operand 1, (f32[3], s32[]), found (f32[4]{0}, s32[])",
        );
    }

    #[test]
    fn aliases_pair_arrays() {
        check(&aliased(&[(&[0], 1, &[0]), (&[1], 0, &[])]));
        for (aliases, message) in [
            (
                &[(&[0][..], 2, &[][..])][..],
                "expected an operand below 2 in output_to_operand_aliasing, found 2",
            ),
            (
                &[(&[2], 0, &[])],
                "expected an array at {2} of the result (f32[3], f32[2]) \
                 in output_to_operand_aliasing, found none",
            ),
            (
                &[(&[0], 1, &[])],
                "expected an array at {} of the operand (f32[3], s32[]) \
                 in output_to_operand_aliasing, found (f32[3], s32[])",
            ),
            (
                &[(&[0], 0, &[0])],
                "expected an array at {0} of the operand f32[2] \
                 in output_to_operand_aliasing, found none",
            ),
            (
                &[(&[0], 0, &[])],
                "expected a result and an operand of one shape in output_to_operand_aliasing, \
                 found f32[3] and f32[2]",
            ),
            (
                &[(&[1], 0, &[]), (&[1], 0, &[])],
                "expected each result and each operand once in output_to_operand_aliasing, \
                 found result {1} or operand 0 {} twice",
            ),
        ] {
            refused(&aliased(aliases), message);
        }
    }

    #[test]
    fn no_memory_is_shared_by_three() {
        let mut call = CustomCall::new("target");
        let alias = |result: usize, operand: usize| Alias {
            result_index: vec![result],
            operand,
            operand_index: vec![],
        };
        call.aliasing = vec![alias(0, 0), alias(1, 0)];
        let check_pair = |call: &CustomCall| {
            refused_declared(
                InvalidArgument,
                &Opcode::CustomCall(Box::new(call.clone())),
                &["f32[2]", "f32[2]"],
                Some("(f32[2], f32[2])"),
                &format!(
                    "expected each result and each operand once in output_to_operand_aliasing, \
                     found result {{{}}} or operand {} {{}} twice",
                    call.aliasing[1].result_index[0], call.aliasing[1].operand
                ),
            );
        };
        check_pair(&call);
        call.aliasing = vec![alias(0, 0), alias(0, 1)];
        check_pair(&call);
        refused_declared(
            InvalidArgument,
            &Opcode::CustomCall(Box::new(call)),
            &["f32[2]", "f32[2]"],
            None,
            "expected a declared shape, found none",
        );
    }
}
