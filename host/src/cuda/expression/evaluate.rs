//! Evaluates expressions for a call site.

use super::ast::{Comparison, Fact, Link, Node, OpaqueType, Operator, Part, Path, Side, Step};
use super::check::{differ, dimension, element_kind, no_dimension, no_value, unordered};
use super::value::{Float, Value};
use super::{Kind, Problem, integer};
use crate::call::CallSite;
use crate::values::{ArrayShape, Attribute, Dictionary, Literal, NativeType, Shape};

/// What expressions know of a call site.
#[derive(Clone, Debug)]
pub(crate) struct Facts<'a> {
    /// The operands' leaves, in preorder.
    pub(crate) operands: Vec<&'a ArrayShape>,
    /// The results' leaves, in preorder.
    pub(crate) results: Vec<&'a ArrayShape>,
    attributes: &'a Dictionary,
    opaque: &'a [u8],
}

impl<'a> Facts<'a> {
    /// What is known of this call site.
    pub(crate) fn new(site: &'a CallSite) -> Self {
        Self {
            operands: site.operands.iter().flat_map(Shape::leaves).collect(),
            results: site.result.leaves(),
            attributes: &site.attributes,
            opaque: &site.opaque,
        }
    }

    fn leaves(&self, side: Side) -> &[&'a ArrayShape] {
        match side {
            Side::Operands => &self.operands,
            Side::Results => &self.results,
        }
    }
}

impl OpaqueType {
    pub(super) fn kind(self) -> Kind {
        match self {
            Self::U32 | Self::U64 => Kind::Integer,
            Self::F32 | Self::F64 => Kind::Float,
        }
    }
}

pub(super) fn evaluate<'a>(node: &'a Node, facts: &Facts<'a>) -> Result<Value<'a>, Problem> {
    let here = |message: String| Problem::new(node.column, message);
    match &node.part {
        Part::Integer(value) => Ok(Value::Integer(*value)),
        Part::Float(value) => Ok(Value::Float(Float::literal(*value))),
        Part::Boolean(value) => Ok(Value::Boolean(*value)),
        Part::Text(text) => Ok(Value::Text(text.as_bytes())),
        Part::Count(side) => Ok(size(facts.leaves(*side).len())),
        Part::Shape { side, leaf, fact } => {
            let leaves = facts.leaves(*side);
            let shape = leaves.get(*leaf).ok_or_else(|| {
                let found = leaves.len();
                here(format!("expected {side}[{leaf}], found {found} {side}"))
            })?;
            of_shape(shape, fact, facts)
        }
        Part::Attribute(path) => attribute(node, path, facts),
        Part::Has(path) => Ok(Value::Boolean(has(path, facts.attributes))),
        Part::OpaqueBytes => Ok(size(facts.opaque.len())),
        Part::OpaqueByte(index) => {
            let bytes = opaque(index, 1, facts)?;
            Ok(Value::Integer(bytes[0].into()))
        }
        Part::Opaque(ty, offset) => opaque_number(*ty, offset, facts),
        Part::Negate(inner) => match evaluate(inner, facts)? {
            Value::Integer(value) => match value.checked_neg() {
                Some(value) => Ok(Value::Integer(value)),
                None => Err(here(integer::overflow(&format!("-({value})")))),
            },
            Value::Float(value) => Ok(Value::Float(value.negated())),
            other => Err(Problem::new(
                inner.column,
                format!("expected a number, found {other}"),
            )),
        },
        Part::Not(inner) => truth(inner, facts).map(|value| Value::Boolean(!value)),
        Part::Chain(first, links) => chain(first, links, facts),
        Part::Compare(left, comparison, right) => {
            let (a, b) = (evaluate(left, facts)?, evaluate(right, facts)?);
            compare(&a, *comparison, &b)
                .map_err(here)
                .map(Value::Boolean)
        }
        Part::If(arguments) => {
            let [condition, a, b] = arguments.as_ref();
            let chosen = if truth(condition, facts)? { a } else { b };
            evaluate(chosen, facts)
        }
        Part::Call(function, arguments) => {
            let arguments = arguments.iter().map(|argument| number(argument, facts));
            let arguments: Vec<_> = arguments.collect::<Result<_, _>>()?;
            integer::call(*function, &arguments)
                .map(Value::Integer)
                .map_err(here)
        }
    }
}

/// A size is below 2^64.
fn size<'a>(size: usize) -> Value<'a> {
    Value::Integer(size as i128)
}

fn number<'a>(node: &'a Node, facts: &Facts<'a>) -> Result<i128, Problem> {
    match evaluate(node, facts)? {
        Value::Integer(value) => Ok(value),
        other => Err(unexpected(node, Kind::Integer, &other)),
    }
}

fn truth<'a>(node: &'a Node, facts: &Facts<'a>) -> Result<bool, Problem> {
    match evaluate(node, facts)? {
        Value::Boolean(value) => Ok(value),
        other => Err(unexpected(node, Kind::Boolean, &other)),
    }
}

fn unexpected(node: &Node, expected: Kind, found: &Value<'_>) -> Problem {
    let kind = found.kind();
    Problem::new(
        node.column,
        format!("expected {expected}, found {kind}, {found}"),
    )
}

fn chain<'a>(first: &'a Node, links: &'a [Link], facts: &Facts<'a>) -> Result<Value<'a>, Problem> {
    if links.first().is_some_and(|link| link.operator.is_logical()) {
        let mut value = truth(first, facts)?;
        for link in links {
            // What no longer matters is not looked at: it may ask for an attribute that is not there.
            if value == (link.operator == Operator::Or) {
                break;
            }
            value = truth(&link.right, facts)?;
        }
        return Ok(Value::Boolean(value));
    }
    let mut value = number(first, facts)?;
    for link in links {
        let right = number(&link.right, facts)?;
        value = integer::combine(link.operator, value, right)
            .map_err(|message| Problem::new(link.column, message))?;
    }
    Ok(Value::Integer(value))
}

fn compare(a: &Value<'_>, comparison: Comparison, b: &Value<'_>) -> Result<bool, String> {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let order = match (a, b) {
        (Value::Integer(a), Value::Integer(b)) => Some(a.cmp(b)),
        // Nothing compares with a NaN.
        (Value::Float(a), Value::Float(b)) => a.value().partial_cmp(&b.value()),
        (Value::Boolean(_), Value::Boolean(_)) | (Value::Text(_), Value::Text(_)) => {
            if comparison.is_order() {
                return Err(unordered(a.kind()));
            }
            (a == b).then_some(Equal)
        }
        _ => return Err(differ(a.kind(), b.kind())),
    };
    Ok(match comparison {
        Comparison::Equal => order == Some(Equal),
        Comparison::NotEqual => order != Some(Equal),
        Comparison::Less => order == Some(Less),
        Comparison::LessOrEqual => matches!(order, Some(Less | Equal)),
        Comparison::Greater => order == Some(Greater),
        Comparison::GreaterOrEqual => matches!(order, Some(Greater | Equal)),
    })
}

fn of_shape<'a>(
    shape: &ArrayShape,
    fact: &'a Fact,
    facts: &Facts<'a>,
) -> Result<Value<'a>, Problem> {
    let value = match fact {
        Fact::Elements => shape.element_count(),
        Fact::Bytes => shape.byte_size(),
        Fact::Rank => shape.rank(),
        Fact::ElementSize => shape.element_type().byte_width(),
        Fact::ElementType => {
            return Ok(Value::Text(shape.element_type().lower_name().as_bytes()));
        }
        Fact::Dimension(index) => {
            let wanted = number(index, facts)?;
            let Some(place) = dimension(wanted, shape.rank()) else {
                let message = no_dimension(wanted, shape.rank());
                return Err(Problem::new(index.column, message));
            };
            shape.dimensions()[place]
        }
    };
    Ok(size(value))
}

/// What an attribute's name leads to.
enum Found<'a> {
    Attribute(&'a Attribute),
    /// How many elements an array has.
    Count(usize),
}

/// Follows names into dictionaries, and `count` into an array.
fn follow<'a>(found: &Found<'a>, name: &str) -> Option<Found<'a>> {
    match found {
        Found::Attribute(Attribute::Dictionary(inner)) => inner.get(name).map(Found::Attribute),
        Found::Attribute(Attribute::Array(literal)) if name == "count" => {
            let shape = literal.shape().as_array()?;
            Some(Found::Count(shape.element_count()))
        }
        _ => None,
    }
}

fn has(path: &Path, attributes: &Dictionary) -> bool {
    let first = attributes.get(&path.name).map(Found::Attribute);
    let found = path.steps.iter().fold(first, |found, step| match step {
        Step::Name(name) => follow(&found?, name),
        Step::Index(_) => None,
    });
    found.is_some()
}

fn attribute<'a>(node: &Node, path: &'a Path, facts: &Facts<'a>) -> Result<Value<'a>, Problem> {
    let wrong = |message: String| Problem::new(node.column, message);
    let missing = |name: &str, names: &Dictionary| {
        let known = names.keys().map(String::as_str);
        let suggestion = super::nearest(name, known);
        wrong(format!(
            "expected {path}, found no attribute {name:?}{suggestion}"
        ))
    };
    let first = facts.attributes.get(&path.name);
    let first = first.ok_or_else(|| missing(&path.name, facts.attributes))?;
    let mut found = Found::Attribute(first);
    for (i, step) in path.steps.iter().enumerate() {
        match (step, &found) {
            (Step::Name(name), _) => {
                let next = follow(&found, name);
                found = next.ok_or_else(|| match &found {
                    Found::Attribute(Attribute::Dictionary(inner)) => missing(name, inner),
                    other => wrong(format!("expected {name:?} in it, found {}", other.what())),
                })?;
            }
            (Step::Index(index), Found::Attribute(Attribute::Array(literal)))
                if i + 1 == path.steps.len() =>
            {
                return element(literal, number(index, facts)?)
                    .map_err(|message| Problem::new(index.column, message));
            }
            (Step::Index(index), other) => {
                let message = format!("expected an array to index, found {}", other.what());
                return Err(Problem::new(index.column, message));
            }
        }
    }
    match found {
        Found::Count(count) => Ok(size(count)),
        Found::Attribute(Attribute::String(bytes)) => Ok(Value::Text(bytes)),
        Found::Attribute(Attribute::Scalar(literal)) => element(literal, 0).map_err(wrong),
        other => Err(wrong(format!(
            "expected a scalar or a string as {path}, found {}",
            other.what()
        ))),
    }
}

impl Found<'_> {
    fn what(&self) -> String {
        match self {
            Self::Attribute(attribute) => format!("an attribute of the kind {}", attribute.kind()),
            Self::Count(count) => count.to_string(),
        }
    }
}

/// An element of a literal, by its place in row-major order.
fn element<'a>(literal: &Literal, index: i128) -> Result<Value<'a>, String> {
    let (Some(shape), Some(bytes)) = (literal.shape().as_array(), literal.bytes()) else {
        return Err(format!("expected an array, found {}", literal.shape()));
    };
    let count = shape.element_count();
    let place = usize::try_from(index).ok().filter(|&place| place < count);
    let place = place
        .ok_or_else(|| format!("expected one of {count} elements, found the index {index}"))?;
    let ty = shape.element_type();
    let width = ty.byte_width();
    let bytes = &bytes[place * width..][..width];
    match element_kind(ty) {
        Some(Kind::Boolean) => Ok(Value::Boolean(bool::read(bytes))),
        Some(Kind::Float) => Float::read(ty, bytes)
            .map(Value::Float)
            .ok_or_else(|| no_value(ty)),
        Some(Kind::Integer) => Ok(Value::Integer(little_endian(
            bytes,
            ty.is_signed_integral(),
        ))),
        Some(Kind::Text) | None => Err(no_value(ty)),
    }
}

/// An integer of at most eight bytes.
fn little_endian(bytes: &[u8], is_signed: bool) -> i128 {
    let is_negative = is_signed && bytes.last().is_some_and(|&byte| byte >= 0x80);
    let mut wide = [if is_negative { 0xff } else { 0 }; 16];
    wide[..bytes.len()].copy_from_slice(bytes);
    i128::from_le_bytes(wide)
}

/// So many opaque bytes from an offset.
fn opaque<'a>(offset: &'a Node, length: usize, facts: &Facts<'a>) -> Result<&'a [u8], Problem> {
    let start = number(offset, facts)?;
    let range = usize::try_from(start)
        .ok()
        .and_then(|start| facts.opaque.get(start..start.checked_add(length)?));
    range.ok_or_else(|| {
        let found = facts.opaque.len();
        let message =
            format!("expected {length} of {found} opaque bytes, found the offset {start}");
        Problem::new(offset.column, message)
    })
}

fn opaque_number<'a>(
    ty: OpaqueType,
    offset: &'a Node,
    facts: &Facts<'a>,
) -> Result<Value<'a>, Problem> {
    use crate::values::ElementType::{F32, F64};
    let float = |ty, length| {
        let float = Float::read(ty, opaque(offset, length, facts)?);
        // The bytes are as many as the type has.
        float
            .map(Value::Float)
            .ok_or_else(|| Problem::new(offset.column, no_value(ty)))
    };
    match ty {
        OpaqueType::U32 => Ok(Value::Integer(little_endian(
            opaque(offset, 4, facts)?,
            false,
        ))),
        OpaqueType::U64 => Ok(Value::Integer(little_endian(
            opaque(offset, 8, facts)?,
            false,
        ))),
        OpaqueType::F32 => float(F32, 4),
        OpaqueType::F64 => float(F64, 8),
    }
}
