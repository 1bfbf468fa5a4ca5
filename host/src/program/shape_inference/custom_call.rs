//! Custom calls: all that can be said of one without its target.

use std::collections::HashSet;

use super::declaration;
use crate::call::Alias;
use crate::program::CustomCall;
use crate::values::{ArrayShape, Result, Shape, Status};

/// The shape is what is declared. The checks are those of XLA's `XlaBuilder::CustomCall` and of its HLO verifier.
pub(super) fn custom_call(
    call: &CustomCall,
    operands: &[&Shape],
    declared: Option<&Shape>,
) -> Result<Shape> {
    let result = declaration(declared)?;
    target(&call.target)?;
    if let Some(layouts) = &call.operand_layouts {
        operand_layouts(layouts, operands)?;
    }
    aliasing(&call.aliasing, operands, result)?;
    Ok(result.clone())
}

fn target(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Status::invalid_argument(
            "expected the name of a target, found an empty custom_call_target",
        ));
    }
    if name.starts_with('$') {
        return Err(Status::invalid_argument(format!(
            "Invalid custom_call_target \"{name}\": Call targets that start with '$' are reserved \
             for internal use."
        )));
    }
    Ok(())
}

/// Where XLA refuses an array without a layout, callbox takes the default: it assigns no layouts of its own.
fn operand_layouts(layouts: &[Shape], operands: &[&Shape]) -> Result<()> {
    if layouts.len() != operands.len() {
        return Err(Status::invalid_argument(format!(
            "Must specify a shape with layout for each operand for custom call with constrained \
             layout; given {} shapes, expected {}",
            layouts.len(),
            operands.len()
        )));
    }
    for (i, (layout, operand)) in std::iter::zip(layouts, operands).enumerate() {
        if !layout.is_compatible(operand) {
            return Err(Status::invalid_argument(format!(
                "expected a layout of operand {i}, {operand}, found {layout}"
            )));
        }
    }
    Ok(())
}

/// An array of the result and one of the operands that share memory have one shape, and share it with no other.
fn aliasing(aliases: &[Alias], operands: &[&Shape], result: &Shape) -> Result<()> {
    let mut seen = (HashSet::new(), HashSet::new());
    for alias in aliases {
        let Some(&operand) = operands.get(alias.operand) else {
            return Err(Status::invalid_argument(format!(
                "expected an operand below {} in output_to_operand_aliasing, found {}",
                operands.len(),
                alias.operand
            )));
        };
        let to = aliased_array("the result", result, &alias.result_index)?;
        let from = aliased_array("the operand", operand, &alias.operand_index)?;
        if !to.is_compatible(from) {
            return Err(Status::invalid_argument(format!(
                "expected a result and an operand of one shape in output_to_operand_aliasing, \
                 found {to} and {from}"
            )));
        }
        let fresh = seen.0.insert(&alias.result_index)
            && seen.1.insert((alias.operand, &alias.operand_index));
        if !fresh {
            return Err(Status::invalid_argument(format!(
                "expected each result and each operand once in output_to_operand_aliasing, \
                 found result {} or operand {} {} twice",
                braces(&alias.result_index),
                alias.operand,
                braces(&alias.operand_index)
            )));
        }
    }
    Ok(())
}

fn aliased_array<'a>(what: &str, shape: &'a Shape, index: &[usize]) -> Result<&'a ArrayShape> {
    let found = shape.at(index);
    found.and_then(Shape::as_array).ok_or_else(|| {
        let found = found.map_or_else(|| "none".to_owned(), Shape::to_string);
        Status::invalid_argument(format!(
            "expected an array at {} of {what} {shape} in output_to_operand_aliasing, found {found}",
            braces(index)
        ))
    })
}

/// An index as HLO text has it: `{1,0}`.
fn braces(index: &[usize]) -> String {
    let numbers: Vec<_> = index.iter().map(usize::to_string).collect();
    format!("{{{}}}", numbers.join(","))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_declared, refused_declared};
    use crate::StatusCode::InvalidArgument;
    use crate::call::Alias;
    use crate::program::{CustomCall, Opcode};

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
