//! Reads modules: the header, the tables of source locations, and the computations.

use super::attributes::{flag, list, skip_value};
use super::cursor::{Cursor, Name};
use super::instructions::instruction;
use super::source::{Diagnostic, Parsed, line_number, shortened};
use super::suggestion::suggestion;
use super::syntax::{Computation, Exports, Module, Signature};

/// The key in a module's `frontend_attributes` that names the exported computations.
const EXPORTS: &str = "callbox.exports";

/// Attributes of a module that are read and dropped, on purpose: the name, and why nothing is lost.
pub(super) const IGNORED: &[(&str, &str)] = &[
    ("alias_passthrough_params", "which buffers XLA may share"),
    (
        "allow_spmd_sharding_propagation_to_output",
        "how XLA splits a program over devices; there is one device",
    ),
    (
        "allow_spmd_sharding_propagation_to_parameters",
        "how XLA splits a program over devices; there is one device",
    ),
    ("buffer_donor", "which buffers XLA may share"),
    (
        "input_output_alias",
        "which buffers XLA may share; inputs are never overwritten",
    ),
    (
        "is_scheduled",
        "that instructions stand in the order in which XLA runs them; callbox keeps the order of the text",
    ),
    (
        "origin_recovery_table",
        "which instructions the module was made from",
    ),
];

/// The tables that newer XLA prints between header and computations: where `metadata` points to.
const TABLES: &[&str] = &["FileNames", "FunctionNames", "FileLocations", "StackFrames"];

/// Reads a whole text.
pub(super) fn module(text: &str) -> Parsed<Module<'_>> {
    let mut cursor = Cursor::new(text);
    if !cursor.keyword("HloModule") {
        return Err(cursor.expected("HloModule and the module's name"));
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
    while !cursor.is_at_end() {
        module.computations.push(computation(&mut cursor, text)?);
    }
    Ok(module)
}

/// The module's attributes.
fn header<'a>(cursor: &mut Cursor<'a>, module: &mut Module<'a>) -> Parsed<()> {
    let mut seen: Vec<&str> = Vec::new();
    while cursor.take(",") {
        let name = cursor.attribute_name()?;
        if seen.contains(&name.text) {
            let message = format!(
                "expected each attribute once, found another {:?}",
                name.text
            );
            return Err(Diagnostic::invalid(name.at, message));
        }
        seen.push(name.text);
        match name.text {
            "entry_computation_layout" => {
                cursor.expect("{", "'{'")?;
                module.entry_signature = Some(layout(cursor)?);
                cursor.expect("}", "'}'")?;
            }
            "frontend_attributes" => module.exports = exports(cursor)?,
            "replica_count" | "num_partitions" => one_device(cursor, name)?,
            "is_scheduled" | "alias_passthrough_params" => drop(flag(cursor)?),
            other if IGNORED.iter().any(|(ignored, _)| *ignored == other) => skip_value(cursor)?,
            _ => return Err(unknown_attribute(name)),
        }
    }
    Ok(())
}

fn unknown_attribute(name: Name<'_>) -> Diagnostic {
    let known = [
        "entry_computation_layout",
        "frontend_attributes",
        "replica_count",
        "num_partitions",
    ];
    let known = known
        .into_iter()
        .chain(IGNORED.iter().map(|(name, _)| *name));
    let near = suggestion(name.text, known, "");
    let found = shortened(name.text);
    Diagnostic::invalid(
        name.at,
        format!("expected an attribute of a module, found {found:?}{near}"),
    )
}

/// The shapes of `{(f32[2]{0}, s32[])->f32[2]{0}}`, without the braces.
fn layout(cursor: &mut Cursor<'_>) -> Parsed<Signature> {
    let at = cursor.at();
    let mut parameters = Vec::new();
    cursor.expect("(", "'(' before the parameters' shapes")?;
    while !cursor.take(")") {
        if !parameters.is_empty() {
            cursor.expect(",", "',' or ')'")?;
        }
        parameters.push(cursor.shape()?);
    }
    cursor.expect("->", "'->' and the result's shape")?;
    let result = cursor.shape()?;
    Ok(Signature {
        parameters,
        result,
        at,
    })
}

/// The module's `frontend_attributes`: strings or braces by name. Only [`EXPORTS`] means something here.
fn exports(cursor: &mut Cursor<'_>) -> Parsed<Option<Exports>> {
    let mut exports = None;
    list(cursor, |cursor| {
        let name = cursor.attribute_name()?;
        if name.text != EXPORTS {
            return skip_value(cursor);
        }
        let at = cursor.at();
        let names = String::from_utf8(cursor.string()?);
        let names = names.map_err(|_| {
            Diagnostic::invalid(
                at,
                "expected names of computations, found what is not UTF-8",
            )
        })?;
        exports = Some(Exports { names, at });
        Ok(())
    })?;
    Ok(exports)
}

/// A program that is one of several parts of a whole would give a part of the result.
fn one_device(cursor: &mut Cursor<'_>, name: Name<'_>) -> Parsed<()> {
    match cursor.number()? {
        1 => Ok(()),
        count => {
            let message = format!(
                "a module with {}={count} is not supported: expected a program for one device",
                name.text
            );
            Err(Diagnostic::unimplemented(name.at, message))
        }
    }
}

/// The rows of a table: a number, and a string or braces.
fn skip_rows(cursor: &mut Cursor<'_>) -> Parsed<()> {
    while cursor.sees_digit() {
        cursor.number()?;
        match cursor.sees("{") {
            true => cursor.braces().map(drop)?,
            false => cursor.raw_string().map(drop)?,
        }
    }
    Ok(())
}

/// A computation, with the attributes that may stand behind it.
fn computation<'a>(cursor: &mut Cursor<'a>, text: &str) -> Parsed<Computation<'a>> {
    let is_entry = cursor.keyword("ENTRY");
    let name = cursor.name("a computation")?;
    let signature = match cursor.sees("(") {
        true => Some(signature(cursor)?),
        false => None,
    };
    cursor.expect("{", "'{' and the instructions of the computation")?;
    let mut computation = Computation {
        name,
        is_entry,
        signature,
        instructions: Vec::new(),
        root: None,
    };
    loop {
        let at = cursor.at();
        if cursor.keyword("ROOT") {
            set_root(&mut computation, at, text)?;
        }
        computation.instructions.push(instruction(cursor)?);
        if cursor.take("}") {
            break;
        }
    }
    while cursor.take(",") {
        execution_thread(cursor)?;
    }
    Ok(computation)
}

fn set_root(computation: &mut Computation<'_>, at: usize, text: &str) -> Parsed<()> {
    if let Some(first) = computation
        .root
        .and_then(|root| computation.instructions.get(root))
    {
        let message = format!(
            "expected one ROOT in computation %{}, found another, after %{} in line {}",
            shortened(computation.name.text),
            shortened(first.name.text),
            line_number(text, first.name.at)
        );
        return Err(Diagnostic::invalid(at, message));
    }
    computation.root = Some(computation.instructions.len());
    Ok(())
}

/// Parameters and result of `%add (x: f32[], y: f32[]) -> f32[] {`.
fn signature(cursor: &mut Cursor<'_>) -> Parsed<Signature> {
    let at = cursor.at();
    let mut parameters = Vec::new();
    cursor.expect("(", "'(' before the parameters")?;
    while !cursor.take(")") {
        if !parameters.is_empty() {
            cursor.expect(",", "',' or ')'")?;
        }
        cursor.name("the name of a parameter")?;
        cursor.expect(":", "':' and the parameter's shape")?;
        parameters.push(cursor.shape()?);
    }
    cursor.expect("->", "'->' and the result's shape")?;
    let result = cursor.shape()?;
    Ok(Signature {
        parameters,
        result,
        at,
    })
}

/// Which of XLA's threads runs the computation: there is one here.
fn execution_thread(cursor: &mut Cursor<'_>) -> Parsed<()> {
    let name = cursor.attribute_name()?;
    match name.text {
        "execution_thread" => cursor.raw_string().map(drop),
        other => Err(Diagnostic::invalid(
            name.at,
            format!(
                "expected the attribute execution_thread of a computation, found {:?}",
                shortened(other)
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::StatusCode;

    fn read(text: &str) -> Module<'_> {
        module(text)
            .map_err(|diagnostic| diagnostic.into_status(text))
            .unwrap()
    }

    fn refuse(text: &str) -> (StatusCode, String) {
        let status = module(text).unwrap_err().into_status(text);
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
        assert_eq!(signature.parameters[1].to_string(), "(s32[], pred[])");
        assert_eq!(module.exports.unwrap().names, "a, b");
        let [f, main] = module.computations.as_slice() else {
            unreachable!("{:?}", module.computations);
        };
        assert_eq!((f.name.text, f.is_entry, f.root), ("f", false, Some(0)));
        assert_eq!(f.signature.as_ref().unwrap().result.to_string(), "f32[2]");
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
            ("module @jit_f {}", "line 1, column 1: expected HloModule and the module's name, found \"module\"".into()),
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
                "line 1, column 40: expected '(' before the parameters' shapes, found \"f32\"".into(),
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
