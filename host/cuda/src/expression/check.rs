//! Checks without a call site: references must be declared, and values must have the right kind.

use callbox_core::call::{AttributeSignature, BufferSignature, Signature};
use callbox_core::values::ElementType;

use super::ast::{AttributePart, AttributeReference, Comparison, Fact, Link, Node, Part, Side};
use super::parser::unknown;
use super::{Kind, Problem, nearest};

/// The kind of a node's value. `None` if it depends on the call site.
pub(super) fn kind(node: &Node, signature: &Signature) -> Result<Option<Kind>, Problem> {
    let kind = match &node.part {
        Part::Integer(_) | Part::Count(_) | Part::OpaqueBytes => Kind::Integer,
        Part::Float(_) => Kind::Float,
        Part::Boolean(_) => Kind::Boolean,
        Part::Text(_) => Kind::Text,
        Part::Shape { side, leaf, fact } => shape(node, *side, *leaf, fact, signature)?,
        Part::Attribute(reference) => return attribute(node, reference, signature),
        Part::Has(name) => {
            declared(node, name, signature)?;
            Kind::Boolean
        }
        Part::OpaqueU32(offset) => {
            expect(offset, Kind::Integer, signature)?;
            Kind::Integer
        }
        Part::Negate(inner) => return negated(inner, signature),
        Part::Not(inner) => {
            expect(inner, Kind::Boolean, signature)?;
            Kind::Boolean
        }
        Part::Chain(first, links) => chain(first, links, signature)?,
        Part::Compare(left, comparison, right) => {
            compared(left, *comparison, right, signature)?;
            Kind::Boolean
        }
        Part::If(arguments) => return chosen(arguments, signature),
        Part::Call(_, arguments) => {
            for argument in arguments {
                expect(argument, Kind::Integer, signature)?;
            }
            Kind::Integer
        }
    };
    Ok(Some(kind))
}

/// Checks that a node's value can have this kind.
fn expect(node: &Node, expected: Kind, signature: &Signature) -> Result<(), Problem> {
    match kind(node, signature)? {
        Some(found) if found != expected => Err(Problem::new(
            node.column,
            format!("expected {expected}, found {found}"),
        )),
        _ => Ok(()),
    }
}

fn chain(first: &Node, links: &[Link], signature: &Signature) -> Result<Kind, Problem> {
    let is_logical = links.first().is_some_and(|link| link.operator.is_logical());
    let kind = if is_logical {
        Kind::Boolean
    } else {
        Kind::Integer
    };
    let operands = links.iter().map(|link| &link.right);
    for operand in std::iter::once(first).chain(operands) {
        expect(operand, kind, signature)?;
    }
    Ok(kind)
}

fn negated(inner: &Node, signature: &Signature) -> Result<Option<Kind>, Problem> {
    match kind(inner, signature)? {
        Some(found @ (Kind::Boolean | Kind::Text)) => Err(Problem::new(
            inner.column,
            format!("expected a number, found {found}"),
        )),
        kind => Ok(kind),
    }
}

fn chosen(arguments: &[Node; 3], signature: &Signature) -> Result<Option<Kind>, Problem> {
    let [condition, a, b] = arguments;
    expect(condition, Kind::Boolean, signature)?;
    match (kind(a, signature)?, kind(b, signature)?) {
        (Some(a), Some(found)) if a != found => Err(Problem::new(
            b.column,
            format!("expected {a} as in the other case, found {found}"),
        )),
        (Some(kind), Some(_)) => Ok(Some(kind)),
        _ => Ok(None),
    }
}

fn compared(
    left: &Node,
    comparison: Comparison,
    right: &Node,
    signature: &Signature,
) -> Result<(), Problem> {
    let kinds = (kind(left, signature)?, kind(right, signature)?);
    if let (Some(a), Some(b)) = kinds
        && a != b
    {
        return Err(Problem::new(right.column, differ(a, b)));
    }
    if let Some(found @ (Kind::Boolean | Kind::Text)) = kinds.0.or(kinds.1)
        && comparison.is_order()
    {
        return Err(Problem::new(left.column, unordered(found)));
    }
    check_element_type(left, right)?;
    check_element_type(right, left)
}

/// The message for a comparison of values of different kinds.
pub(super) fn differ(a: Kind, b: Kind) -> String {
    format!("expected values of one kind to compare, found {a} and {b}")
}

/// The message for `<` and its like between values that have no order.
pub(super) fn unordered(found: Kind) -> String {
    format!("expected numbers to order, found {found}")
}

/// Checks that a text which is compared with an element type is the name of one. With any other
/// text, the comparison would always fail.
fn check_element_type(node: &Node, other: &Node) -> Result<(), Problem> {
    let is_type = matches!(
        node.part,
        Part::Shape {
            fact: Fact::ElementType,
            ..
        }
    );
    let Part::Text(text) = &other.part else {
        return Ok(());
    };
    let mut names = ElementType::ALL.iter().map(|ty| ty.lower_name());
    if !is_type || names.any(|name| name == text) {
        return Ok(());
    }
    let names = ElementType::ALL.iter().map(|ty| ty.lower_name());
    let expected = "an element type such as 'f32'";
    Err(unknown(other.column, expected, text, names))
}

fn shape(
    node: &Node,
    side: Side,
    leaf: usize,
    fact: &Fact,
    signature: &Signature,
) -> Result<Kind, Problem> {
    let (declared, takes_more) = match side {
        Side::Operands => (&signature.operands, signature.remaining_operands),
        Side::Results => (&signature.results, signature.remaining_results),
    };
    let buffer = declared.as_ref().and_then(|declared| declared.get(leaf));
    if let (Some(declared), None, false) = (declared, buffer, takes_more) {
        let message = format!(
            "expected one of the {} {side} that are declared, found {side}[{leaf}]",
            declared.len()
        );
        return Err(Problem::new(node.column, message));
    }
    match fact {
        Fact::Dimension(index) => {
            expect(index, Kind::Integer, signature)?;
            check_dimension(index, buffer)?;
            Ok(Kind::Integer)
        }
        Fact::ElementType => Ok(Kind::Text),
        Fact::Elements | Fact::Bytes | Fact::Rank | Fact::ElementSize => Ok(Kind::Integer),
    }
}

/// Checks a dimension's number if the rank is declared.
fn check_dimension(index: &Node, buffer: Option<&BufferSignature>) -> Result<(), Problem> {
    let index = match &index.part {
        Part::Integer(value) => Some((index.column, *value)),
        Part::Negate(inner) => match inner.part {
            Part::Integer(value) => value.checked_neg().map(|value| (index.column, value)),
            _ => None,
        },
        _ => None,
    };
    let rank = buffer.and_then(|buffer| buffer.rank);
    let (Some((column, index)), Some(rank)) = (index, rank) else {
        return Ok(());
    };
    match dimension(index, rank) {
        Some(_) => Ok(()),
        None => Err(Problem::new(column, no_dimension(index, rank))),
    }
}

/// The place of a dimension among `rank`. A negative number counts from the end.
pub(super) fn dimension(index: i128, rank: usize) -> Option<usize> {
    let size = i128::try_from(rank).ok()?;
    let place = if index < 0 { index + size } else { index };
    usize::try_from(place).ok().filter(|&place| place < rank)
}

/// The message for a dimension that does not exist.
pub(super) fn no_dimension(index: i128, rank: usize) -> String {
    format!("expected a dimension of {rank}, found {index}")
}

/// The declaration of an attribute. `None` if the target declares no attributes: then any may come.
fn declared<'a>(
    node: &Node,
    name: &str,
    signature: &'a Signature,
) -> Result<Option<&'a AttributeSignature>, Problem> {
    let attributes = signature.attributes.as_deref().unwrap_or_default();
    let found = attributes.iter().find(|a| a.name == name);
    if found.is_some() || attributes.is_empty() {
        return Ok(found);
    }
    let suggestion = nearest(name, attributes.iter().map(|a| a.name.as_str()));
    let message =
        format!("expected an attribute that is declared, found attributes.{name}{suggestion}");
    Err(Problem::new(node.column, message))
}

fn attribute(
    node: &Node,
    reference: &AttributeReference,
    signature: &Signature,
) -> Result<Option<Kind>, Problem> {
    if let AttributePart::Element(index) = &reference.of {
        expect(index, Kind::Integer, signature)?;
    }
    let Some(attribute) = declared(node, &reference.name, signature)? else {
        return Ok(None);
    };
    let expected = match (attribute.kind.as_str(), &reference.of) {
        ("scalar", AttributePart::Value) | ("array", AttributePart::Element(_)) => {
            return match attribute.element_type {
                None => Ok(None),
                Some(ty) => element_kind(ty)
                    .map(Some)
                    .ok_or_else(|| Problem::new(node.column, no_value(ty))),
            };
        }
        ("string", AttributePart::Value) => return Ok(Some(Kind::Text)),
        ("array", AttributePart::Count) => return Ok(Some(Kind::Integer)),
        ("array", _) => "an element or .count of it",
        ("dictionary" | "function", _) => "a scalar, a string or an array",
        _ => "nothing behind its name",
    };
    let message = format!(
        "expected {expected}, found {reference} of the kind {}",
        attribute.kind
    );
    Err(Problem::new(node.column, message))
}

/// The kind of an element's value. `None` for types that expressions do not compute with.
pub(super) fn element_kind(ty: ElementType) -> Option<Kind> {
    match ty {
        ElementType::Pred => Some(Kind::Boolean),
        _ if !super::PARAMETER_TYPES.contains(&ty) => None,
        _ if ty.is_floating() => Some(Kind::Float),
        _ => Some(Kind::Integer),
    }
}

/// The message for an element type that expressions do not compute with.
pub(super) fn no_value(ty: ElementType) -> String {
    let known = super::PARAMETER_TYPES.map(ElementType::lower_name);
    format!("expected a value of {}, found {ty}", known.join(", "))
}
