//! Prints literals and shapes: `{ { 1, 2 }, { 3, 4 } }`, `(1, {true})`.

use super::print_element::hlo_element;
use super::read_element::component_type;
use crate::values::{ArrayShape, ElementType, Literal, Shape};

/// Appends a literal without its shape.
pub fn print_literal(literal: &Literal, text: &mut String) {
    print(literal, false, text);
}

/// Appends a literal with the shape of each array: `(s32[2]{0} {1, 2}, f32[] 0.5)`.
pub fn print_literal_with_shape(literal: &Literal, text: &mut String) {
    print(literal, true, text);
}

fn print(literal: &Literal, with_shape: bool, text: &mut String) {
    let leaves: Vec<_> = literal.leaves().collect();
    let mut leaves = leaves.into_iter();
    let mut array = |text: &mut String| {
        if let Some((shape, bytes)) = leaves.next() {
            if with_shape {
                *text += &format!("{} ", print_shape(&shape.clone().into()));
            }
            elements(shape, bytes, text);
        }
    };
    tuple(literal.shape(), &mut array, text);
}

/// Prints parentheses and commas, with a call of `array` for each leaf. [`Shape::tuple`] bounds the
/// depth of the recursion.
fn tuple(shape: &Shape, array: &mut impl FnMut(&mut String), text: &mut String) {
    let Some(elements) = shape.as_tuple() else {
        return array(text);
    };
    text.push('(');
    for (index, element) in elements.iter().enumerate() {
        *text += if index == 0 { "" } else { ", " };
        tuple(element, array, text);
    }
    text.push(')');
}

fn elements(shape: &ArrayShape, bytes: &[u8], text: &mut String) {
    let element_type = shape.element_type();
    let dimensions = shape.dimensions();
    if shape.element_count() == 0 {
        *text += "{}";
    } else if element_type.is_pred() && dimensions.is_empty() {
        *text += if bytes == [0] { "false" } else { "true" };
    } else {
        let width = element_type.byte_width();
        print_array(dimensions, ["{", "}"], text, |index, text| {
            let bytes = &bytes[index * width..][..width];
            print_element(element_type, bytes, ", ", hlo_element, text);
        });
    }
}

/// Appends an element; a complex number as its parts, in parentheses.
pub(super) fn print_element(
    element_type: ElementType,
    bytes: &[u8],
    comma: &str,
    part: impl Fn(ElementType, &[u8]) -> String,
    text: &mut String,
) {
    let part_type = component_type(element_type);
    if !element_type.is_complex() {
        *text += &part(part_type, bytes);
        return;
    }
    let (real, imaginary) = bytes.split_at(bytes.len() / 2);
    let (real, imaginary) = (part(part_type, real), part(part_type, imaginary));
    *text += &format!("({real}{comma}{imaginary})");
}

/// Appends an array of these dimensions, none of which is 0. It does not recurse: the number of
/// dimensions is not bounded.
pub(super) fn print_array(
    dimensions: &[usize],
    [open, close]: [&str; 2],
    text: &mut String,
    mut element: impl FnMut(usize, &mut String),
) {
    // The number of elements in an array of each level, the innermost first.
    let sizes: Vec<usize> = dimensions
        .iter()
        .rev()
        .scan(1, |size: &mut usize, dimension| {
            *size *= dimension;
            Some(*size)
        })
        .collect();
    let levels_at = |index: usize| {
        sizes
            .iter()
            .take_while(|size| index.is_multiple_of(**size))
            .count()
    };
    for index in 0..sizes.last().copied().unwrap_or(1) {
        *text += if index == 0 { "" } else { ", " };
        *text += &open.repeat(levels_at(index));
        element(index, text);
        *text += &close.repeat(levels_at(index + 1));
    }
}

/// A shape with its layouts. A scalar's layout prints as `{}`, which `Display` leaves out.
#[must_use]
pub fn print_shape(shape: &Shape) -> String {
    match shape {
        Shape::Array(array) if array.rank() == 0 && array.layout().is_some() => {
            format!("{array}{{}}")
        }
        Shape::Array(array) => array.to_string(),
        Shape::Tuple(tuple) => {
            let elements: Vec<_> = tuple.elements().iter().map(print_shape).collect();
            format!("({})", elements.join(", "))
        }
    }
}
