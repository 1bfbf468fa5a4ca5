//! Reads modules: the header, the tables of source locations, and the computations.

use super::attributes::{flag, refuse_repetition, skip_value, utf8};
use super::instructions::read_instruction;
use super::syntax::{Computation, Instruction, Module, Operands, Signature};
use callbox_core::text::{
    Cursor, Diagnostic, Name, Parsed, Placed, line_number, shortened, suggestion,
};
use callbox_core::values::Shape;

/// The key of the exported computations in a module's `frontend_attributes`.
const EXPORTS: &str = "callbox.exports";

/// The attributes of a module that have a meaning.
const MEANINGFUL: &[&str] = &[
    "entry_computation_layout",
    "frontend_attributes",
    "num_partitions",
    "replica_count",
];

/// The attributes of a module that are ignored:
/// - the ones on aliasing and donation: the buffers that XLA may share. Inputs are never
///   overwritten here.
/// - the ones on sharding: the program is for one device.
/// - `is_scheduled`: callbox keeps the order of the text.
/// - `origin_recovery_table`: the sources of instructions.
pub(super) const IGNORED: &[&str] = &[
    "alias_passthrough_params",
    "allow_spmd_sharding_propagation_to_output",
    "allow_spmd_sharding_propagation_to_parameters",
    "buffer_donor",
    "input_output_alias",
    "is_scheduled",
    "origin_recovery_table",
];

/// The most instructions of a module, and the most operands and shapes, of which tuples have one
/// for each element. They take many times the bytes of their text in memory.
const MAX_INSTRUCTIONS: usize = 1 << 20;
const MAX_OPERANDS: usize = 1 << 23;

/// The number of instructions, and of operands and shapes, that a module may still have.
struct Room {
    instructions: usize,
    operands: usize,
}

impl Room {
    fn take(&mut self, instruction: &Instruction<'_>) -> Parsed<()> {
        let operands: usize = match &instruction.operands {
            Operands::Instructions(operands) => {
                let sizes = operands.iter().map(|operand| operand.shape.as_ref());
                sizes.map(|shape| shape.map_or(1, Shape::size)).sum()
            }
            Operands::Parameter(_) | Operands::Constant(_) => 0,
        };
        let operands = operands + instruction.shape.size();
        let instructions = self.instructions.checked_sub(1);
        let left = instructions.zip(self.operands.checked_sub(operands));
        (self.instructions, self.operands) = left.ok_or_else(|| {
            let message = format!(
                "expected a module of at most {MAX_INSTRUCTIONS} instructions, and {MAX_OPERANDS} \
                 operands and shapes, found more"
            );
            Diagnostic::exhausted(instruction.name.at, message)
        })?;
        Ok(())
    }
}

/// The tables between header and computations, to which `metadata` refers.
const TABLES: &[&str] = &["FileNames", "FunctionNames", "FileLocations", "StackFrames"];

/// Reads a whole text.
pub(super) fn read_module(text: &str) -> Parsed<Module<'_>> {
    let mut cursor = Cursor::new(text);
    if !cursor.keyword("HloModule") {
        return Err(no_hlo(&mut cursor));
    }
    let mut module = Module {
        name: cursor.name("the module's name")?,
        entry_signature: None,
        exports: None,
        computations: Vec::new(),
        end: text.len(),
    };
    header(&mut cursor, &mut module)?;
    while TABLES.iter().any(|table| cursor.keyword(table)) {
        skip_rows(&mut cursor)?;
    }
    let mut room = Room {
        instructions: MAX_INSTRUCTIONS,
        operands: MAX_OPERANDS,
    };
    while !cursor.is_at_end() {
        let computation = computation(&mut cursor, text, &mut room)?;
        module.computations.push(computation);
    }
    Ok(module)
}

/// Why a text is not read. What JAX prints first, `lowered.as_text()`, is StableHLO.
fn no_hlo(cursor: &mut Cursor<'_>) -> Diagnostic {
    let is_stable_hlo = ["module @", "module {", "module attributes", "#loc", "#sdy"]
        .iter()
        .any(|start| cursor.sees(start));
    if is_stable_hlo {
        let message = "expected HLO text, found StableHLO: print it with \
                       lowered.compiler_ir(\"hlo\").as_hlo_text(print_large_constants=True)";
        return Diagnostic::invalid(cursor.at(), message);
    }
    cursor.expected("HloModule and the module's name")
}

/// Reads the module's attributes.
fn header<'a>(cursor: &mut Cursor<'a>, module: &mut Module<'a>) -> Parsed<()> {
    let mut seen = Vec::new();
    while cursor.take(",") {
        let name = cursor.attribute_name()?;
        refuse_repetition(&mut seen, name)?;
        match name.text {
            "entry_computation_layout" => {
                cursor.expect("{", "'{'")?;
                module.entry_signature = Some(signature(cursor, Cursor::shape)?);
                cursor.expect("}", "'}'")?;
            }
            "frontend_attributes" => module.exports = exports(cursor)?,
            "replica_count" | "num_partitions" => one_device(cursor, name)?,
            "is_scheduled" | "alias_passthrough_params" => drop(flag(cursor)?),
            other if IGNORED.contains(&other) => skip_value(cursor)?,
            _ => return Err(unknown_attribute(name)),
        }
    }
    Ok(())
}

fn unknown_attribute(name: Name<'_>) -> Diagnostic {
    let known = MEANINGFUL.iter().chain(IGNORED).copied();
    let near = suggestion(name.text, known, str::to_owned);
    let found = shortened(name.text);
    let message = format!("expected an attribute of a module, found {found:?}{near}");
    Diagnostic::invalid(name.at, message)
}

/// Reads the module's `frontend_attributes`: strings or braces by name. Only [`EXPORTS`] has a
/// meaning.
fn exports(cursor: &mut Cursor<'_>) -> Parsed<Option<Placed<String>>> {
    let mut exports = None;
    cursor.list(|cursor| {
        let name = cursor.attribute_name()?;
        if name.text != EXPORTS {
            return skip_value(cursor);
        }
        let at = cursor.at();
        let value = utf8(cursor, "names of computations")?;
        exports = Some(Placed { value, at });
        Ok(())
    })?;
    Ok(exports)
}

/// Refuses a program for several devices: each would compute only a part of the result.
fn one_device(cursor: &mut Cursor<'_>, name: Name<'_>) -> Parsed<()> {
    match cursor.number()? {
        1 => Ok(()),
        count => {
            let name_text = name.text;
            let message = format!(
                "a module with {name_text}={count} is not supported: expected a program for one device"
            );
            Err(Diagnostic::unimplemented(name.at, message))
        }
    }
}

/// Skips the rows of a table: a number, and a string or braces.
fn skip_rows(cursor: &mut Cursor<'_>) -> Parsed<()> {
    while cursor.sees_digit() {
        cursor.number()?;
        if cursor.sees("{") {
            cursor.braces()?;
        } else {
            cursor.raw_string()?;
        }
    }
    Ok(())
}

/// Reads a computation, with the attributes that may follow it.
fn computation<'a>(
    cursor: &mut Cursor<'a>,
    text: &str,
    room: &mut Room,
) -> Parsed<Computation<'a>> {
    let is_entry = cursor.keyword("ENTRY");
    let name = cursor.name("a computation")?;
    let has_signature = cursor.sees("(");
    let mut computation = Computation {
        name,
        is_entry,
        signature: has_signature
            .then(|| signature(cursor, named_shape))
            .transpose()?,
        instructions: Vec::new(),
        root: None,
    };
    cursor.expect("{", "'{' and the instructions of the computation")?;
    loop {
        let at = cursor.at();
        if cursor.keyword("ROOT") {
            set_root(&mut computation, at, text)?;
        }
        let instruction = read_instruction(cursor)?;
        room.take(&instruction)?;
        computation.instructions.push(instruction);
        if cursor.take("}") {
            break;
        }
    }
    while cursor.take(",") {
        skip_execution_thread(cursor)?;
    }
    Ok(computation)
}

fn set_root(computation: &mut Computation<'_>, at: usize, text: &str) -> Parsed<()> {
    let next = computation.instructions.len();
    let Some(first) = computation.root.replace(next) else {
        return Ok(());
    };
    let first = computation.instructions[first].name;
    let message = format!(
        "expected one ROOT in computation %{}, found another, after %{} in line {}",
        shortened(computation.name.text),
        shortened(first.text),
        line_number(text, first.at)
    );
    Err(Diagnostic::invalid(at, message))
}

/// Reads a signature: `(x: f32[], y: f32[]) -> f32[]` in the header of a computation, and
/// `(f32[2]{0}, s32[])->f32[2]{0}` in that of the module. `parameter` reads one parameter.
fn signature<'a>(
    cursor: &mut Cursor<'a>,
    parameter: impl FnMut(&mut Cursor<'a>) -> Parsed<Shape>,
) -> Parsed<Placed<Signature>> {
    let at = cursor.at();
    cursor.expect("(", "'(' before the parameters")?;
    let parameters = cursor.items(")", parameter)?;
    cursor.expect("->", "'->' and the result's shape")?;
    let result = cursor.shape()?;
    let value = Signature { parameters, result };
    Ok(Placed { value, at })
}

fn named_shape(cursor: &mut Cursor<'_>) -> Parsed<Shape> {
    cursor.name("the name of a parameter")?;
    cursor.expect(":", "':' and the parameter's shape")?;
    cursor.shape()
}

/// Reads the name of the thread on which XLA runs a computation. callbox has only one.
fn skip_execution_thread(cursor: &mut Cursor<'_>) -> Parsed<()> {
    let name = cursor.attribute_name()?;
    if name.text == "execution_thread" {
        return cursor.raw_string().map(drop);
    }
    let found = shortened(name.text);
    let message =
        format!("expected the attribute execution_thread of a computation, found {found:?}");
    Err(Diagnostic::invalid(name.at, message))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use callbox_core::StatusCode;

    fn read(text: &str) -> Module<'_> {
        read_module(text)
            .map_err(|diagnostic| diagnostic.into_status(text))
            .unwrap()
    }

    fn refuse(text: &str) -> (StatusCode, String) {
        let status = read_module(text).unwrap_err().into_status(text);
        (
            status.code(),
            status.message().lines().next().unwrap().to_owned(),
        )
    }

    #[test]
    fn headers_and_tables_are_read() {
        let module = read(concat!(
            "HloModule jit_f.1, is_scheduled=true, input_output_alias={ {}: (0, {}, may-alias) }, ",
            "entry_computation_layout={(f32[2]{0}, /*index=1*/(s32[], pred[]))->f32[2]{0}}, ",
            "allow_spmd_sharding_propagation_to_output={true}, replica_count=1, num_partitions=1, ",
            "frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<[\"i\"=1]>},callbox.exports=\"a, b\"}\n\n",
            "FileNames\n1 \"a.py\"\n2 \"\\\"}\"\n\nFunctionNames\n1 \"<module>\"\n\n",
            "FileLocations\n1 {file_name_id=1 line=2}\n\nStackFrames\n1 {file_location_id=1 parent_frame_id=1}\n\n",
            "%f (x: f32[2]) -> f32[2] {\n  ROOT %x = f32[2]{0} parameter(0)\n}, execution_thread=\"main\"\n\n",
            "ENTRY main.2 {\n  x = f32[2]{0} parameter(0)\n}\n",
        ));
        assert_eq!(module.name.text, "jit_f.1");
        let signature = module.entry_signature.unwrap();
        assert_eq!(signature.value.parameters[1].to_string(), "(s32[], pred[])");
        assert_eq!(module.exports.unwrap().value, "a, b");
        let [f, main] = module.computations.as_slice() else {
            unreachable!("{:?}", module.computations);
        };
        assert_eq!((f.name.text, f.is_entry, f.root), ("f", false, Some(0)));
        assert_eq!(
            f.signature.as_ref().unwrap().value.result.to_string(),
            "f32[2]"
        );
        assert_eq!(
            (main.name.text, main.is_entry, main.root),
            ("main.2", true, None)
        );
    }

    #[test]
    fn what_is_no_module_is_refused() {
        let main = "ENTRY main {\n  x = f32[] parameter(0)\n";
        for (text, message) in [
            ("", "line 1, column 1: expected HloModule and the module's name, found the end of the text".to_owned()),
            ("model @jit_f {}", "line 1, column 1: expected HloModule and the module's name, found \"model\"".into()),
            (
                "module @jit_f {}",
                "line 1, column 1: expected HLO text, found StableHLO: print it with lowered.compiler_ir(\"hlo\").as_hlo_text(print_large_constants=True)".into(),
            ),
            ("HloModule", "line 1, column 10: expected the module's name, found the end of the text".into()),
            ("HloModule m, is_scheduled=1", "line 1, column 27: expected true or false, found \"1\"".into()),
            (
                "HloModule m, is_scheduld=true",
                "line 1, column 14: expected an attribute of a module, found \"is_scheduld\"; did you mean is_scheduled?".into(),
            ),
            (
                "HloModule m, is_scheduled=true, is_scheduled=true",
                "line 1, column 33: expected each attribute once, found another \"is_scheduled\"".into(),
            ),
            (
                "HloModule m, entry_computation_layout={f32[]->f32[]}",
                "line 1, column 40: expected '(' before the parameters, found \"f32\"".into(),
            ),
            (
                "HloModule m, entry_computation_layout={()}",
                "line 1, column 42: expected '->' and the result's shape, found '}'".into(),
            ),
            (
                "HloModule m, frontend_attributes={callbox.exports={}}",
                "line 1, column 51: expected a string, found '{'".into(),
            ),
            ("HloModule m\n{}", "line 2, column 1: expected a computation, found '{'".into()),
            ("HloModule m FileNames 1 a", "line 1, column 25: expected a string, found \"a\"".into()),
            ("HloModule m f {}", "line 1, column 16: expected an instruction, found '}'".into()),
            ("HloModule m f (x) -> f32[] {}", "line 1, column 17: expected ':' and the parameter's shape, found ')'".into()),
            ("HloModule m f () {}", "line 1, column 18: expected '->' and the result's shape, found '{'".into()),
            (
                &format!("HloModule m\n{main}"),
                "line 3, column 25: expected an instruction, found the end of the text".into(),
            ),
            (
                &format!("HloModule m\n{main}}}, thread=\"a\""),
                "line 4, column 4: expected the attribute execution_thread of a computation, found \"thread\"".into(),
            ),
            (
                "HloModule m\nf {\n  ROOT x = f32[] parameter(0)\n  ROOT y = f32[] negate(x)\n}",
                "line 4, column 3: expected one ROOT in computation %f, found another, after %x in line 3".into(),
            ),
        ] {
            assert_eq!(refuse(text), (StatusCode::InvalidArgument, message));
        }
    }

    #[test]
    fn programs_for_several_devices_are_unimplemented() {
        for name in ["num_partitions", "replica_count"] {
            let message = format!(
                "line 1, column 14: a module with {name}=2 is not supported: expected a program for one device"
            );
            assert_eq!(
                refuse(&format!("HloModule m, {name}=2")),
                (StatusCode::Unimplemented, message)
            );
        }
    }
}
