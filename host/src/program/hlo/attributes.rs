//! Attributes of instructions: which there are, how each is written, and which are read only to be dropped.

use super::constants::literal_with_shape;
use super::cursor::{Cursor, Name};
use super::source::{Diagnostic, Parsed, shortened};
use super::suggestion::suggestion;
use crate::call::Alias;
use crate::program::instruction::{PaddingDimension, SliceDimension};
use crate::values::{Literal, Shape, ShapeIndex};

/// How an attribute's value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Syntax {
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

/// An attribute's value.
#[derive(Debug)]
pub(super) enum Value<'a> {
    Aliasing(Vec<Alias>),
    Computation(Name<'a>),
    Computations(Vec<Name<'a>>),
    Config(Config<'a>),
    Flag(bool),
    Instructions(Vec<Name<'a>>),
    Literal(Literal),
    Number(usize),
    Numbers(Vec<usize>),
    Padding(Vec<PaddingDimension>),
    Shapes(Vec<Shape>),
    Slices(Vec<SliceDimension>),
    Text(Vec<u8>),
    Word(&'a str),
}

/// What a `backend_config` is written as.
#[derive(Clone, Debug)]
pub(super) enum Config<'a> {
    /// What stands between braces, both included, as it stands.
    Braces(&'a str),
    /// A string.
    Text(Vec<u8>),
}

/// The attributes of one instruction: those that mean something here.
#[derive(Debug, Default)]
pub(super) struct Attributes<'a>(Vec<Attribute<'a>>);

/// An attribute's name, and where its value is.
#[derive(Debug)]
struct Attribute<'a> {
    name: &'a str,
    at: usize,
    value: Value<'a>,
}

/// A value and where it stands.
#[derive(Debug)]
pub(super) struct Placed<T> {
    pub(super) value: T,
    pub(super) at: usize,
}

/// Any opcode.
const ANY: &[&str] = &[];

/// Attributes that mean something here: name, opcodes, and how the value is written.
const MEANINGFUL: &[(&str, &[&str], Syntax)] = &[
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
        "notes for other compilers; the module's may name exports",
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

impl<'a> Attributes<'a> {
    /// Reads what follows the parentheses of an instruction.
    pub(super) fn read(cursor: &mut Cursor<'a>, opcode: &str) -> Parsed<Self> {
        let mut attributes = Self::default();
        let mut ignored = Vec::new();
        while cursor.take(",") {
            let name = cursor.attribute_name()?;
            let mut seen = attributes
                .0
                .iter()
                .map(|a| a.name)
                .chain(ignored.iter().copied());
            if seen.any(|seen| seen == name.text) {
                let message = format!(
                    "expected each attribute once, found another {:?}",
                    name.text
                );
                return Err(Diagnostic::invalid(name.at, message));
            }
            match syntax(name, opcode)? {
                Some(syntax) => {
                    let (name, at) = (name.text, cursor.at());
                    let value = value(cursor, syntax)?;
                    attributes.0.push(Attribute { name, at, value });
                }
                None => {
                    skip_value(cursor)?;
                    ignored.push(name.text);
                }
            }
        }
        Ok(attributes)
    }

    fn take(&mut self, name: &str) -> Option<Attribute<'a>> {
        let index = self.0.iter().position(|attribute| attribute.name == name)?;
        Some(self.0.swap_remove(index))
    }
}

/// Declares a method for each kind of value, which takes the attribute of a name, if it is there. That an attribute has the kind that
/// the method asks for is up to [`MEANINGFUL`].
macro_rules! take {
    ($($method:ident: $variant:ident($value:ty),)*) => {
        impl<'a> Attributes<'a> {$(
            pub(super) fn $method(&mut self, name: &str) -> Option<Placed<$value>> {
                match self.take(name)? {
                    Attribute { value: Value::$variant(value), at, .. } => Some(Placed { value, at }),
                    _ => None,
                }
            }
        )*}
    };
}

take! {
    aliasing: Aliasing(Vec<Alias>),
    computation: Computation(Name<'a>),
    computations: Computations(Vec<Name<'a>>),
    config: Config(Config<'a>),
    flag: Flag(bool),
    instructions: Instructions(Vec<Name<'a>>),
    literal: Literal(Literal),
    number: Number(usize),
    numbers: Numbers(Vec<usize>),
    padding: Padding(Vec<PaddingDimension>),
    shapes: Shapes(Vec<Shape>),
    slices: Slices(Vec<SliceDimension>),
    text: Text(Vec<u8>),
    word: Word(&'a str),
}

/// Reads and drops an attribute's value.
pub(super) fn skip_value(cursor: &mut Cursor<'_>) -> Parsed<()> {
    if cursor.sees("{") {
        return cursor.braces().map(drop);
    }
    if cursor.sees("\"") {
        return cursor.raw_string().map(drop);
    }
    match cursor.value().text {
        "" => Err(cursor.expected("the attribute's value")),
        _ => Ok(()),
    }
}

/// Reads things with commas between them in braces.
pub(super) fn list<'a, T>(
    cursor: &mut Cursor<'a>,
    mut item: impl FnMut(&mut Cursor<'a>) -> Parsed<T>,
) -> Parsed<Vec<T>> {
    cursor.expect("{", "'{'")?;
    let mut items = Vec::new();
    while !cursor.take("}") {
        if !items.is_empty() {
            cursor.expect(",", "',' or '}'")?;
        }
        items.push(item(cursor)?);
    }
    Ok(items)
}

/// Reads `true` or `false`.
pub(super) fn flag(cursor: &mut Cursor<'_>) -> Parsed<bool> {
    match (cursor.keyword("true"), cursor.keyword("false")) {
        (true, _) => Ok(true),
        (_, true) => Ok(false),
        _ => Err(cursor.expected("true or false")),
    }
}

/// How the value of this attribute is written, or `None` if it is to be dropped.
fn syntax(name: Name<'_>, opcode: &str) -> Parsed<Option<Syntax>> {
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

fn value<'a>(cursor: &mut Cursor<'a>, syntax: Syntax) -> Parsed<Value<'a>> {
    Ok(match syntax {
        Syntax::Aliasing => Value::Aliasing(list(cursor, alias)?),
        Syntax::Computation => Value::Computation(computation(cursor)?),
        Syntax::Computations => Value::Computations(list(cursor, computation)?),
        Syntax::Config => Value::Config(match cursor.sees("{") {
            true => Config::Braces(cursor.braces()?),
            false => Config::Text(cursor.string()?),
        }),
        Syntax::Flag => Value::Flag(flag(cursor)?),
        Syntax::Instructions => Value::Instructions(list(cursor, |cursor| {
            cursor.name("the name of an instruction")
        })?),
        Syntax::Literal => Value::Literal(literal_with_shape(cursor)?),
        Syntax::Number => Value::Number(cursor.number()?),
        Syntax::Numbers => Value::Numbers(list(cursor, Cursor::number)?),
        Syntax::Padding => Value::Padding(padding(cursor)?),
        Syntax::Shapes => Value::Shapes(list(cursor, Cursor::shape)?),
        Syntax::Slices => Value::Slices(list(cursor, slice)?),
        Syntax::Text => Value::Text(cursor.string()?),
        Syntax::Word => match cursor.word() {
            Some(word) => Value::Word(word),
            None => return Err(cursor.expected("a word")),
        },
    })
}

fn computation<'a>(cursor: &mut Cursor<'a>) -> Parsed<Name<'a>> {
    cursor.name("the name of a computation")
}

/// `{0}: (1, {2})`.
fn alias(cursor: &mut Cursor<'_>) -> Parsed<Alias> {
    let result_index: ShapeIndex = list(cursor, Cursor::number)?;
    cursor.expect(":", "':' between result and operand")?;
    cursor.expect("(", "'(' before the number of an operand")?;
    let operand = cursor.number()?;
    cursor.expect(",", "',' behind the number of an operand")?;
    let operand_index = list(cursor, Cursor::number)?;
    cursor.expect(")", "')' behind an operand")?;
    Ok(Alias {
        result_index,
        operand,
        operand_index,
    })
}

/// `[0:8]`, `[0:8:2]`.
fn slice(cursor: &mut Cursor<'_>) -> Parsed<SliceDimension> {
    cursor.expect("[", "'[' of a slice")?;
    let start = cursor.number()?;
    cursor.expect(":", "':' and the limit of a slice")?;
    let limit = cursor.number()?;
    let stride = match cursor.take(":") {
        true => cursor.number()?,
        false => 1,
    };
    cursor.expect("]", "']' of a slice")?;
    Ok(SliceDimension {
        start,
        limit,
        stride,
    })
}

/// `0_1x2_1_3`: low, high and, if it is not 0, interior, for each dimension.
fn padding(cursor: &mut Cursor<'_>) -> Parsed<Vec<PaddingDimension>> {
    let value = cursor.value();
    let dimension = |text: &str| {
        let mut numbers = text.split('_').map(|number| number.parse().ok());
        let dimension = PaddingDimension {
            low: numbers.next()??,
            high: numbers.next()??,
            interior: numbers.next().unwrap_or(Some(0))?,
        };
        numbers.next().is_none().then_some(dimension)
    };
    let dimensions = value.text.split('x').map(dimension).collect::<Option<_>>();
    dimensions.ok_or_else(|| {
        let found = shortened(value.text);
        Diagnostic::invalid(
            value.at,
            format!("expected a padding such as 0_1x2_3_1, found {found:?}"),
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::StatusCode;

    fn read<'a>(opcode: &str, text: &'a str) -> Attributes<'a> {
        let mut cursor = Cursor::new(text);
        let attributes = Attributes::read(&mut cursor, opcode);
        let attributes = attributes
            .map_err(|diagnostic| diagnostic.into_status(text))
            .unwrap();
        assert!(cursor.is_at_end(), "{}", cursor.found());
        attributes
    }

    fn refuse(opcode: &str, text: &str) -> (StatusCode, String) {
        let status = Attributes::read(&mut Cursor::new(text), opcode)
            .unwrap_err()
            .into_status(text);
        (
            status.code(),
            status.message().lines().next().unwrap().to_owned(),
        )
    }

    #[test]
    fn values_are_read_as_the_table_says() {
        let mut pad = read(
            "pad",
            ", padding=0_1x-2_-1_3, metadata={op_name=\"a}\" x=1}",
        );
        let dimension = |low, high, interior| PaddingDimension {
            low,
            high,
            interior,
        };
        assert_eq!(
            pad.padding("padding").unwrap().value,
            [dimension(0, 1, 0), dimension(-2, -1, 3)]
        );
        assert!(pad.padding("padding").is_none());
        let mut slices = read("slice", ", slice={[0:2], [1:5:2]}")
            .slices("slice")
            .unwrap()
            .value;
        assert_eq!(
            slices.pop().unwrap(),
            SliceDimension {
                start: 1,
                limit: 5,
                stride: 2
            }
        );
        let mut call = read(
            "custom-call",
            ", custom_call_target=\"a\\\"b\", operand_layout_constraints={f32[2]{0}, /*index=1*/()}, \
             output_to_operand_aliasing={{}: (0, {}), {1,0}: (2, {3})}, literal=f32[1] {2}, \
             called_computations={%a, b}, backend_config={a = \"}\"}, custom_call_has_side_effect=true, \
             control-predecessors={%c.1}, api_version=API_VERSION_ORIGINAL, sharding={{replicated}, {maximal device=0}}",
        );
        assert_eq!(call.text("custom_call_target").unwrap().value, b"a\"b");
        assert_eq!(
            call.shapes("operand_layout_constraints")
                .unwrap()
                .value
                .len(),
            2
        );
        let aliasing = call.aliasing("output_to_operand_aliasing").unwrap().value;
        assert_eq!(
            (aliasing[1].result_index.as_slice(), aliasing[1].operand),
            (&[1, 0][..], 2)
        );
        assert_eq!(
            call.literal("literal").unwrap().value.shape().to_string(),
            "f32[1]"
        );
        assert_eq!(
            call.computations("called_computations").unwrap().value[1].text,
            "b"
        );
        assert!(matches!(
            call.config("backend_config").unwrap().value,
            Config::Braces("{a = \"}\"}")
        ));
        assert!(call.flag("custom_call_has_side_effect").unwrap().value);
        assert_eq!(
            call.instructions("control-predecessors").unwrap().value[0].text,
            "c.1"
        );
        assert_eq!(
            call.word("api_version").unwrap().value,
            "API_VERSION_ORIGINAL"
        );
        assert!(call.0.is_empty());
    }

    #[test]
    fn what_is_ignored_is_read_over() {
        let text = ", metadata={op_name=\"jit(f)/\\\"}\\\"\" stack_frame_id=3}, origin={({\"a\"}, {\"b\" {1}})}, \
                    sharding={devices=[2,1]<=[2] metadata={op_name=\"a\"}}, statistics={visualizing_index=0,a=1.5}, \
                    frontend_attributes={a=\"b\",c={\"d\": [1, {}]}}, backend_config={\"known_trip_count\":{\"n\":\"4\"}}, \
                    result_accuracy={tolerance={atol=0.1,rtol=0.2,ulps=3}}";
        assert!(read("tanh", text).0.is_empty());
        assert!(
            read(
                "dot",
                ", operand_precision={highest,default}, algorithm=dot_bf16_bf16_f32"
            )
            .0
            .is_empty()
        );
        assert!(
            read("call", ", is_composite=true, backend_config=\"}\"")
                .0
                .is_empty()
        );
        assert!(
            read("fusion", ", output_to_operand_aliasing={{}: (0, {})}")
                .0
                .is_empty()
        );
        assert!(
            read("parameter", ", parameter_replication={true,false}")
                .0
                .is_empty()
        );
    }

    #[test]
    fn the_tables_do_not_overlap() {
        let mut pairs = Vec::new();
        for (name, opcodes) in MEANINGFUL.iter().map(|(name, opcodes, _)| (name, opcodes)) {
            pairs.extend(opcodes.iter().map(|opcode| (*name, *opcode)));
        }
        for (name, opcodes, reason) in IGNORED {
            assert!(!reason.is_empty());
            pairs.extend(opcodes.iter().map(|opcode| (*name, *opcode)));
        }
        let count = pairs.len();
        pairs.sort_unstable();
        pairs.dedup();
        assert_eq!(pairs.len(), count);
    }

    #[test]
    fn wrong_attributes_are_refused() {
        for (opcode, text, message) in [
            (
                "add",
                ", dimensions={0}",
                "3: expected an attribute of \"add\", found \"dimensions\"",
            ),
            (
                "reduce",
                ", dimension={0}",
                "3: expected an attribute of \"reduce\", found \"dimension\"; did you mean dimensions?",
            ),
            (
                "add",
                ", frobnicate=1",
                "3: expected an attribute of \"add\", found \"frobnicate\"",
            ),
            (
                "reduce",
                ", dimensions={0}, dimensions={0}",
                "19: expected each attribute once, found another \"dimensions\"",
            ),
            (
                "add",
                ", metadata={}, metadata={}",
                "16: expected each attribute once, found another \"metadata\"",
            ),
            (
                "add",
                ", ",
                "2: expected an attribute such as dimensions={0}, found the end of the text",
            ),
            (
                "add",
                ", metadata",
                "3: expected an attribute such as dimensions={0}, found \"metadata\"",
            ),
            (
                "add",
                ", metadata=",
                "12: expected the attribute's value, found the end of the text",
            ),
            ("reduce", ", dimensions=0", "14: expected '{', found \"0\""),
            (
                "reduce",
                ", dimensions={0 1}",
                "17: expected ',' or '}', found \"1\"",
            ),
            (
                "reduce",
                ", dimensions={0,}",
                "17: expected a number that is not negative, found '}'",
            ),
            (
                "reduce",
                ", dimensions={-1}",
                "15: expected a number that is not negative, found \"-1\"",
            ),
            (
                "reduce",
                ", to_apply={0}",
                "12: expected the name of a computation, found '{'",
            ),
            (
                "compare",
                ", direction=\"LT\"",
                "13: expected a word, found a string",
            ),
            (
                "custom-call",
                ", custom_call_target=a",
                "22: expected a string, found \"a\"",
            ),
            (
                "custom-call",
                ", custom_call_has_side_effect=1",
                "31: expected true or false, found \"1\"",
            ),
            (
                "custom-call",
                ", operand_layout_constraints={f33[2]}",
                "31: expected a shape such as f32[2,3], found \"f33\"",
            ),
            (
                "custom-call",
                ", output_to_operand_aliasing={{}: 0}",
                "35: expected '(' before the number of an operand, found \"0\"",
            ),
            (
                "pad",
                ", padding=1",
                "11: expected a padding such as 0_1x2_3_1, found \"1\"",
            ),
            (
                "pad",
                ", padding=1_2_3_4",
                "11: expected a padding such as 0_1x2_3_1, found \"1_2_3_4\"",
            ),
            (
                "pad",
                ", padding={}",
                "11: expected a padding such as 0_1x2_3_1, found \"\"",
            ),
            (
                "slice",
                ", slice={[0]}",
                "12: expected ':' and the limit of a slice, found ']'",
            ),
            (
                "slice",
                ", slice={[-1:2]}",
                "11: expected a number that is not negative, found \"-1\"",
            ),
        ] {
            let message = format!("line 1, column {message}");
            assert_eq!(refuse(opcode, text), (StatusCode::InvalidArgument, message));
        }
        let message =
            "line 1, column 3: the attribute \"window\" of a custom-call is not supported";
        assert_eq!(
            refuse("custom-call", ", window={size=2}"),
            (StatusCode::Unimplemented, message.into())
        );
    }
}
