//! Reads instructions: `ROOT %add.1 = f32[2]{0} add(f32[2]{0} %x, %y), metadata={...}`.

use super::attributes::Attributes;
use super::opcodes::read_opcode;
use super::syntax::{Instruction, Operand, Operands};
use callbox_core::text::{Cursor, Diagnostic, Parsed, read_literal};

/// The most operands of an instruction: those of the largest tuple.
const MAX_OPERANDS: usize = 1 << 20;

/// Reads an instruction, behind the `ROOT` that it may begin with.
pub(super) fn read_instruction<'a>(cursor: &mut Cursor<'a>) -> Parsed<Instruction<'a>> {
    let name = cursor.name("an instruction")?;
    cursor.expect("=", "'=' behind the instruction's name")?;
    let shape = cursor.shape()?;
    let opcode = read_opcode(cursor)?;
    cursor.expect("(", "'(' behind the opcode")?;
    let operands = match opcode.text {
        "parameter" => Operands::Parameter(cursor.number()?),
        "constant" if cursor.sees("{...}") => {
            let message = "expected the elements of a constant, found {...}: print the program \
                           with as_hlo_text(print_large_constants=True)";
            return Err(Diagnostic::invalid(cursor.at(), message));
        }
        "constant" => Operands::Constant(read_literal(cursor, &shape)?),
        _ => Operands::Instructions(operands(cursor)?),
    };
    if !matches!(operands, Operands::Instructions(_)) {
        cursor.expect(")", "')'")?;
    }
    Ok(Instruction {
        name,
        shape,
        opcode,
        operands,
        attributes: Attributes::read(cursor, opcode)?,
    })
}

fn operands<'a>(cursor: &mut Cursor<'a>) -> Parsed<Vec<Operand<'a>>> {
    let mut left = MAX_OPERANDS;
    cursor.items(")", |cursor| {
        let Some(fewer) = left.checked_sub(1) else {
            let message = format!("expected at most {MAX_OPERANDS} operands, found more");
            return Err(Diagnostic::exhausted(cursor.at(), message));
        };
        left = fewer;
        operand(cursor)
    })
}

fn operand<'a>(cursor: &mut Cursor<'a>) -> Parsed<Operand<'a>> {
    let has_shape = cursor.sees_shape();
    let shape = has_shape.then(|| cursor.shape()).transpose()?;
    let name = cursor.name("an operand")?;
    Ok(Operand { name, shape })
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::panic,
        reason = "a test fails by panicking"
    )]

    use super::*;

    fn read(text: &str) -> Instruction<'_> {
        let mut cursor = Cursor::new(text);
        let instruction = read_instruction(&mut cursor);
        let instruction = instruction
            .map_err(|diagnostic| diagnostic.into_status(text))
            .unwrap();
        assert!(cursor.is_at_end());
        instruction
    }

    #[test]
    fn operands_may_have_shapes_and_percent_signs() {
        for text in [
            "add.1=f32[2]{0} add(x,y.2)",
            "%add.1 = f32[2]{0} add(f32[2]{0} %x, f32[2]{0} %y.2)",
            "%add.1 = f32[2]{0} add(%x, /*index=1*/%y.2), metadata={op_name=\"a\"}",
        ] {
            let instruction = read(text);
            assert_eq!(
                (instruction.name.text, instruction.opcode.text),
                ("add.1", "add")
            );
            let Operands::Instructions(operands) = instruction.operands else {
                panic!("{text}");
            };
            let names: Vec<_> = operands.iter().map(|operand| operand.name.text).collect();
            assert_eq!(names, ["x", "y.2"]);
        }
        let tuple = read("%g = f32[] get-tuple-element((f32[], token[]) %t.1), index=0");
        let Operands::Instructions(operands) = tuple.operands else {
            panic!("{tuple:?}");
        };
        assert_eq!(
            operands[0].shape.as_ref().unwrap().to_string(),
            "(f32[], token[])"
        );
    }

    #[test]
    fn parameters_and_constants_have_no_operands() {
        assert!(matches!(
            read("p = f32[] parameter(3)").operands,
            Operands::Parameter(3)
        ));
        let Operands::Constant(literal) =
            read("%c = (s8[2], pred[]) constant(({1, -2}, true))").operands
        else {
            panic!("not a constant");
        };
        assert_eq!(literal.shape().to_string(), "(s8[2], pred[])");
    }

    #[test]
    fn what_is_no_instruction_is_refused() {
        for (text, message) in [
            ("= f32[] add(x)", "1: expected an instruction, found '='"),
            (
                "1x = f32[] add(x)",
                "1: expected an instruction, found \"1x\"",
            ),
            (
                "x f32[] add(x)",
                "3: expected '=' behind the instruction's name, found \"f32\"",
            ),
            (
                "x = add(x)",
                "5: expected a shape such as f32[2,3], found \"add\"",
            ),
            (
                "x = f32[2,a] add(x)",
                "11: expected a number that is not negative, found \"a\"",
            ),
            (
                "x = f32[] (x)",
                "11: expected an instruction such as add, found '('",
            ),
            (
                "x = f32[] add x",
                "15: expected '(' behind the opcode, found \"x\"",
            ),
            ("x = f32[] add(x,, y)", "17: expected an operand, found ','"),
            ("x = f32[] add(x y)", "17: expected ',' or ')', found \"y\""),
            (
                "x = f32[] add(negate(x))",
                "21: expected ',' or ')', found '('",
            ),
            (
                "x = f32[] add(f32[] )",
                "21: expected an operand, found ')'",
            ),
            ("x = f32[] add(1)", "15: expected an operand, found \"1\""),
            (
                "x = f32[] add(y",
                "16: expected ',' or ')', found the end of the text",
            ),
            (
                "x = f32[] parameter(x)",
                "21: expected a number that is not negative, found \"x\"",
            ),
            ("x = f32[] constant(1, 2)", "21: expected ')', found ','"),
            (
                "x = f32[9] constant({...})",
                "21: expected the elements of a constant, found {...}: print the program with \
                 as_hlo_text(print_large_constants=True)",
            ),
        ] {
            let status = read_instruction(&mut Cursor::new(text))
                .unwrap_err()
                .into_status(text);
            assert_eq!(
                status.message().lines().next().unwrap(),
                format!("line 1, column {message}")
            );
        }
    }
}
