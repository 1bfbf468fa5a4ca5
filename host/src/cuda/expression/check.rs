//! What can be known of an expression before there is a call site: that what it refers to is declared, and what kinds its values have.

use super::ast::{Comparison, Fact, Node, Operator, Part, Path, Side, Step};
use super::parser::unknown;
use super::{Kind, Problem, nearest};
use crate::call::{AttributeSignature, BufferSignature, Signature};
use crate::values::ElementType;

/// The kind of a part's value, where it does not depend on the call site.
pub(super) fn kind(node: &Node, signature: &Signature) -> Result<Option<Kind>, Problem> {
    let kind = match &node.part {
        Part::Integer(_) | Part::Count(_) | Part::OpaqueBytes => Kind::Integer,
        Part::Float(_) => Kind::Float,
        Part::Boolean(_) => Kind::Boolean,
        Part::Text(_) => Kind::Text,
        Part::Shape { side, leaf, fact } => shape(node, *side, *leaf, fact, signature)?,
        Part::Attribute(path) => return attribute(node, path, signature),
        Part::Has(path) => {
            declared(node, path, signature)?;
            Kind::Boolean
        }
        Part::OpaqueByte(index) => {
            expect(index, Kind::Integer, signature)?;
            Kind::Integer
        }
        Part::Opaque(ty, offset) => {
            expect(offset, Kind::Integer, signature)?;
            ty.kind()
        }
        Part::Negate(inner) => return negated(inner, signature),
        Part::Not(inner) => {
            expect(inner, Kind::Boolean, signature)?;
            Kind::Boolean
        }
        Part::Chain(first, links) => {
            let of = |operator: Operator| match operator.is_logical() {
                true => Kind::Boolean,
                false => Kind::Integer,
            };
            let kind = links
                .first()
                .map_or(Kind::Integer, |link| of(link.operator));
            expect(first, kind, signature)?;
            for link in links {
                expect(&link.right, kind, signature)?;
            }
            kind
        }
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

/// Checks that a part's value can be of this kind.
fn expect(node: &Node, expected: Kind, signature: &Signature) -> Result<(), Problem> {
    match kind(node, signature)? {
        Some(found) if found != expected => Err(Problem::new(
            node.column,
            format!("expected {expected}, found {found}"),
        )),
        _ => Ok(()),
    }
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

/// What is wrong with a comparison of two kinds.
pub(super) fn differ(a: Kind, b: Kind) -> String {
    format!("expected values of one kind to compare, found {a} and {b}")
}

/// What is wrong with an order of values that have none.
pub(super) fn unordered(found: Kind) -> String {
    format!("expected numbers to order, found {found}")
}

/// A text that an element type is compared with is an element type's name: any other would be a mistake that is never seen.
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

/// Checks a dimension's number where the rank is declared.
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

/// Which of `rank` dimensions is meant: a negative number counts from the end.
pub(super) fn dimension(index: i128, rank: usize) -> Option<usize> {
    let size = i128::try_from(rank).ok()?;
    let place = if index < 0 { index + size } else { index };
    usize::try_from(place).ok().filter(|&place| place < rank)
}

/// What is wrong with a dimension that is not there.
pub(super) fn no_dimension(index: i128, rank: usize) -> String {
    format!("expected a dimension of {rank}, found {index}")
}

/// The declared attribute at the beginning of a path. `None` where none is declared: then any may come.
fn declared<'a>(
    node: &Node,
    path: &Path,
    signature: &'a Signature,
) -> Result<Option<&'a AttributeSignature>, Problem> {
    let attributes = signature.attributes.as_deref().unwrap_or_default();
    let found = attributes.iter().find(|a| a.name == path.name);
    if found.is_some() || attributes.is_empty() {
        return Ok(found);
    }
    let suggestion = nearest(&path.name, attributes.iter().map(|a| a.name.as_str()));
    let message = format!("expected an attribute that is declared, found {path}{suggestion}");
    Err(Problem::new(node.column, message))
}

fn attribute(node: &Node, path: &Path, signature: &Signature) -> Result<Option<Kind>, Problem> {
    for step in &path.steps {
        if let Step::Index(index) = step {
            expect(index, Kind::Integer, signature)?;
        }
    }
    let Some(attribute) = declared(node, path, signature)? else {
        return Ok(None);
    };
    let wrong = |expected: &str| {
        let found = format!(
            "expected {expected}, found {path} of the kind {}",
            attribute.kind
        );
        Err(Problem::new(node.column, found))
    };
    let element = || match attribute.element_type {
        Some(ty) => element_kind(ty)
            .map(Some)
            .ok_or_else(|| Problem::new(node.column, no_value(ty))),
        None => Ok(None),
    };
    match (attribute.kind.as_str(), path.steps.as_slice()) {
        ("scalar", []) => element(),
        ("string", []) => Ok(Some(Kind::Text)),
        ("array", [Step::Index(_)]) => element(),
        ("array", [Step::Name(name)]) if name == "count" => Ok(Some(Kind::Integer)),
        ("dictionary", [Step::Name(_), ..]) => Ok(None),
        ("array", _) => wrong("an element or .count of it"),
        ("dictionary", _) => wrong("a name in it"),
        ("function", _) => wrong("a value"),
        (_, _) => wrong("nothing behind its name"),
    }
}

/// What kind of value an element has. `None` for those that expressions do not compute with.
pub(super) fn element_kind(ty: ElementType) -> Option<Kind> {
    match ty {
        ElementType::Pred => Some(Kind::Boolean),
        _ if !super::PARAMETER_TYPES.contains(&ty) => None,
        _ if ty.is_floating() => Some(Kind::Float),
        _ => Some(Kind::Integer),
    }
}

/// What is wrong with an element that expressions do not compute with.
pub(super) fn no_value(ty: ElementType) -> String {
    let known = super::PARAMETER_TYPES.map(ElementType::lower_name);
    format!("expected a value of {}, found {ty}", known.join(", "))
}
