//! Shapes, literals, attributes and call sites out of an input's bytes. What the bytes do not say is the simplest.

use arbitrary::{Result, Unstructured};
use callbox::call::{Alias, ApiVersion};
use callbox::{ArrayShape, Attribute, CallSite, Dictionary, ElementType, Layout, Literal, Shape};

/// An element type; a token only if it may be one.
pub(crate) fn element_type(u: &mut Unstructured<'_>, may_be_token: bool) -> Result<ElementType> {
    let element_type = *u.choose(ElementType::ALL)?;
    Ok(match element_type {
        ElementType::Token if !may_be_token => ElementType::F32,
        element_type => element_type,
    })
}

/// Few dimensions of few elements.
pub(crate) fn dimensions(u: &mut Unstructured<'_>) -> Result<Vec<usize>> {
    let rank = u.int_in_range(0..=3)?;
    (0..rank).map(|_| u.int_in_range(0..=4)).collect()
}

/// An array's shape, with a layout now and then.
pub(crate) fn array_shape(u: &mut Unstructured<'_>, may_be_token: bool) -> Result<ArrayShape> {
    let element_type = element_type(u, may_be_token)?;
    if element_type == ElementType::Token {
        return Ok(ArrayShape::scalar(element_type));
    }
    let shape = ArrayShape::new(element_type, &dimensions(u)?).unwrap();
    match shape.rank() > 0 && u.ratio(1, 3)? {
        true => {
            let layout = permutation(u, shape.rank())?;
            Ok(shape.with_layout(Layout::new(&layout).unwrap()).unwrap())
        }
        false => Ok(shape),
    }
}

/// The numbers below `count` in some order.
pub(crate) fn permutation(u: &mut Unstructured<'_>, count: usize) -> Result<Vec<usize>> {
    let mut left: Vec<usize> = (0..count).collect();
    (0..count)
        .map(|_| Ok(left.remove(u.choose_index(left.len())?)))
        .collect()
}

/// A shape: an array's, or a tuple's of at most `depth` levels.
pub(crate) fn shape(u: &mut Unstructured<'_>, depth: usize) -> Result<Shape> {
    if depth == 0 || !u.ratio(1, 4)? {
        return array_shape(u, true).map(Shape::Array);
    }
    let count = u.int_in_range(0..=3)?;
    let elements = (0..count).map(|_| shape(u, depth - 1));
    Ok(Shape::tuple(elements.collect::<Result<_>>()?).unwrap())
}

/// As many bytes: those that the input has left, and then zeros.
pub(crate) fn bytes(u: &mut Unstructured<'_>, count: usize) -> Result<Vec<u8>> {
    let mut bytes = u.bytes(count.min(u.len()))?.to_vec();
    bytes.resize(count, 0);
    Ok(bytes)
}

/// An array whose bytes are elements of its type.
pub(crate) fn literal(u: &mut Unstructured<'_>, shape: ArrayShape) -> Result<Literal> {
    let mut bytes = bytes(u, shape.byte_size())?;
    let element_type = shape.element_type();
    for byte in &mut bytes {
        *byte = element_byte(element_type, *byte);
    }
    Ok(Literal::from_bytes(shape, bytes).unwrap())
}

/// A byte that an element of this type can have: of PRED and types narrower than a byte not all do.
pub(crate) fn element_byte(element_type: ElementType, byte: u8) -> u8 {
    let bits = match element_type {
        ElementType::Pred => 1,
        element_type => element_type.bit_width(),
    };
    match bits {
        0 | 8.. => byte,
        bits if element_type.is_signed_integral() => {
            let unused = 8 - bits;
            (((byte << unused) as i8) >> unused) as u8
        }
        bits => byte & ((1 << bits) - 1),
    }
}

/// A text, mostly short and of few different letters.
pub(crate) fn name(u: &mut Unstructured<'_>) -> Result<String> {
    match u.ratio(3, 4)? {
        true => {
            let length = u.int_in_range(1..=3)?;
            let letters = (0..length).map(|_| u.choose(&['a', 'b', '_', '.', '9', '$', '-', 'ä']));
            Ok(letters.collect::<Result<Vec<_>>>()?.into_iter().collect())
        }
        false => {
            let length = u.int_in_range(0..=12)?;
            (0..length).map(|_| u.arbitrary::<char>()).collect()
        }
    }
}

/// Attributes by name, nested at most `depth` deep.
pub(crate) fn dictionary(u: &mut Unstructured<'_>, depth: usize) -> Result<Dictionary> {
    let count = u.int_in_range(0..=4)?;
    (0..count)
        .map(|_| Ok((name(u)?, attribute(u, depth)?)))
        .collect()
}

fn attribute(u: &mut Unstructured<'_>, depth: usize) -> Result<Attribute> {
    Ok(match u.int_in_range(0..=if depth == 0 { 2 } else { 3 })? {
        0 => {
            let element_type = element_type(u, false)?;
            Attribute::Scalar(literal(u, ArrayShape::scalar(element_type))?)
        }
        1 => {
            let shape = array_shape(u, false)?.without_layout();
            Attribute::array(literal(u, shape)?).unwrap()
        }
        2 => {
            let length = u.int_in_range(0..=20)?;
            Attribute::String(bytes(u, length)?)
        }
        _ => Attribute::Dictionary(dictionary(u, depth - 1)?),
    })
}

/// A call site of typed FFI, whose results are first the operands' shapes and then others; some results are in the operands' memory.
pub(crate) fn call_site(u: &mut Unstructured<'_>) -> Result<CallSite> {
    let count = u.int_in_range(0..=4)?;
    let operands = (0..count)
        .map(|_| shape(u, 2))
        .collect::<Result<Vec<_>>>()?;
    let mut results = operands.clone();
    let extra = u.int_in_range(0..=2)?;
    for _ in 0..extra {
        results.push(Shape::Array(array_shape(u, true)?));
    }
    let mut site = CallSite::new("echo", operands, Shape::tuple(results).unwrap());
    for operand in 0..count {
        if let (Shape::Array(_), true) = (&site.operands[operand], u.arbitrary()?) {
            site.aliasing.push(Alias {
                result_index: vec![operand],
                operand,
                operand_index: Vec::new(),
            });
        }
    }
    site.attributes = dictionary(u, 2)?;
    let opaque = u.int_in_range(0..=20)?;
    site.opaque = bytes(u, opaque)?;
    site.api_version = ApiVersion::TypedFfi;
    Ok(site)
}
