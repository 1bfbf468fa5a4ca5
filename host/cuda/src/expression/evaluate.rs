//! The value of an expression for a call site.

use callbox_core::call::CallSite;
use callbox_core::values::{ArrayShape, Attribute, Dictionary, Literal, NativeType, Shape};

use super::ast::{
    AttributePart, AttributeReference, Comparison, Fact, Link, Node, Operator, Part, Side,
};
use super::check::{differ, dimension, element_kind, no_dimension, no_value, unordered};
use super::value::{Float, Value};
use super::{Kind, Problem, integer, nearest};

/// The facts of a call site that expressions refer to.
#[derive(Clone, Debug)]
pub(crate) struct Facts<'a> {
    /// The leaves of the operands, in preorder.
    pub(crate) operands: Vec<&'a ArrayShape>,
    /// The leaves of the result, in preorder.
    pub(crate) results: Vec<&'a ArrayShape>,
    attributes: &'a Dictionary,
    opaque: &'a [u8],
}

impl<'a> Facts<'a> {
    /// The facts of this call site.
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
        Part::Attribute(reference) => attribute(node, reference, facts),
        Part::Has(name) => Ok(Value::Boolean(facts.attributes.contains_key(name))),
        Part::OpaqueBytes => Ok(size(facts.opaque.len())),
        Part::OpaqueU32(offset) => opaque_u32(offset, facts),
        Part::Negate(inner) => negate(node, inner, facts),
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

fn negate<'a>(node: &Node, inner: &'a Node, facts: &Facts<'a>) -> Result<Value<'a>, Problem> {
    match evaluate(inner, facts)? {
        Value::Integer(value) => value.checked_neg().map(Value::Integer).ok_or_else(|| {
            let overflow = integer::overflow(&format!("-({value})"));
            Problem::new(node.column, overflow)
        }),
        Value::Float(value) => Ok(Value::Float(value.negated())),
        other => Err(Problem::new(
            inner.column,
            format!("expected a number, found {other}"),
        )),
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
            // The rest is not evaluated: it may refer to an attribute that the call site lacks.
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
        // A NaN is unequal to everything.
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

fn attribute<'a>(
    node: &Node,
    reference: &'a AttributeReference,
    facts: &Facts<'a>,
) -> Result<Value<'a>, Problem> {
    let wrong = |message: String| Problem::new(node.column, message);
    let name = &reference.name;
    let found = facts.attributes.get(name).ok_or_else(|| {
        let suggestion = nearest(name, facts.attributes.keys().map(String::as_str));
        wrong(format!(
            "expected {reference}, found no attribute {name:?}{suggestion}"
        ))
    })?;
    match (&reference.of, found) {
        (AttributePart::Value, Attribute::String(bytes)) => Ok(Value::Text(bytes)),
        (AttributePart::Value, Attribute::Scalar(literal)) => element(literal, 0).map_err(wrong),
        (AttributePart::Count, Attribute::Array(literal)) => Ok(size(
            literal
                .shape()
                .leaves()
                .iter()
                .map(|s| s.element_count())
                .sum(),
        )),
        (AttributePart::Element(index), Attribute::Array(literal)) => {
            element(literal, number(index, facts)?)
                .map_err(|message| Problem::new(index.column, message))
        }
        (of, found) => {
            let expected = match of {
                AttributePart::Value => "a scalar or a string",
                _ => "an array",
            };
            Err(wrong(format!(
                "expected {expected} as {reference}, found an attribute of the kind {}",
                found.kind()
            )))
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

/// The little-endian number of four opaque bytes from an offset.
fn opaque_u32<'a>(offset: &'a Node, facts: &Facts<'a>) -> Result<Value<'a>, Problem> {
    let start = number(offset, facts)?;
    let bytes = usize::try_from(start)
        .ok()
        .and_then(|start| facts.opaque.get(start..)?.first_chunk());
    match bytes {
        Some(bytes) => Ok(Value::Integer(u32::from_le_bytes(*bytes).into())),
        None => {
            let found = facts.opaque.len();
            let message = format!("expected 4 of {found} opaque bytes, found the offset {start}");
            Err(Problem::new(offset.column, message))
        }
    }
}
