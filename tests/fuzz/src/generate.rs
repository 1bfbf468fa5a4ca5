//! Generates shapes, literals, attributes and call sites from an input's bytes. Missing bytes
//! produce the simplest value.

use arbitrary::{Result, Unstructured};
use callbox::call::{Alias, ApiVersion};
use callbox::{ArrayShape, Attribute, CallSite, Dictionary, ElementType, Layout, Literal, Shape};

/// Generates an element type, a token only if allowed.
pub(crate) fn element_type(u: &mut Unstructured<'_>, may_be_token: bool) -> Result<ElementType> {
    let element_type = *u.choose(&ElementType::ALL)?;
    Ok(match element_type {
        ElementType::Token if !may_be_token => ElementType::F32,
        element_type => element_type,
    })
}

/// Generates a few small dimensions.
pub(crate) fn dimensions(u: &mut Unstructured<'_>) -> Result<Vec<usize>> {
    let rank = u.int_in_range(0..=3)?;
    (0..rank).map(|_| u.int_in_range(0..=4)).collect()
}

/// Generates an array shape, sometimes with a layout.
pub(crate) fn array_shape(u: &mut Unstructured<'_>, may_be_token: bool) -> Result<ArrayShape> {
    let element_type = element_type(u, may_be_token)?;
    if element_type == ElementType::Token {
        return Ok(ArrayShape::scalar(element_type));
    }
    let shape = ArrayShape::new(element_type, &dimensions(u)?).unwrap();
    if shape.rank() > 0 && u.ratio(1, 3)? {
        let layout = permutation(u, shape.rank())?;
        Ok(shape.with_layout(Layout::new(&layout).unwrap()).unwrap())
    } else {
        Ok(shape)
    }
}

/// Generates a permutation of the numbers below `count`.
pub(crate) fn permutation(u: &mut Unstructured<'_>, count: usize) -> Result<Vec<usize>> {
    let mut left: Vec<usize> = (0..count).collect();
    (0..count)
        .map(|_| Ok(left.remove(u.choose_index(left.len())?)))
        .collect()
}

/// Generates a shape: an array, or a tuple of at most `depth` levels.
pub(crate) fn shape(u: &mut Unstructured<'_>, depth: usize) -> Result<Shape> {
    if depth == 0 || !u.ratio(1, 4)? {
        return array_shape(u, true).map(Shape::Array);
    }
    let count = u.int_in_range(0..=3)?;
    let elements = (0..count).map(|_| shape(u, depth - 1));
    Ok(Shape::tuple(elements.collect::<Result<_>>()?).unwrap())
}

/// Takes `count` bytes from the input, padded with zeros.
pub(crate) fn bytes(u: &mut Unstructured<'_>, count: usize) -> Result<Vec<u8>> {
    let mut bytes = u.bytes(count.min(u.len()))?.to_vec();
    bytes.resize(count, 0);
    Ok(bytes)
}

/// Generates an array whose bytes are valid elements of its type.
pub(crate) fn literal(u: &mut Unstructured<'_>, shape: ArrayShape) -> Result<Literal> {
    let mut bytes = bytes(u, shape.byte_size())?;
    let element_type = shape.element_type();
    for byte in &mut bytes {
        *byte = element_byte(element_type, *byte);
    }
    Ok(Literal::from_bytes(shape, bytes).unwrap())
}

/// Maps a byte to a valid one of this type. PRED and types narrower than a byte do not use all
/// values.
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

/// Generates a text, mostly short and of few distinct letters.
pub(crate) fn name(u: &mut Unstructured<'_>) -> Result<String> {
    if u.ratio(3, 4)? {
        let length = u.int_in_range(1..=3)?;
        let letters = (0..length).map(|_| u.choose(&['a', 'b', '_', '.', '9', '$', '-', 'ä']));
        Ok(letters.collect::<Result<Vec<_>>>()?.into_iter().collect())
    } else {
        let length = u.int_in_range(0..=12)?;
        (0..length).map(|_| u.arbitrary::<char>()).collect()
    }
}

/// Generates attributes, nested at most `depth` deep.
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

/// Generates a typed FFI call site. Its results begin with the operands' shapes, some of them
/// aliased to the operands.
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
