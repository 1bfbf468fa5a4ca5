//! Prints attributes in MLIR's notation.

use super::escapes::escape_mlir;
use super::print_element::{mlir_element, mlir_scalar};
use super::print_literal::{print_array, print_element};
use super::read_element::component_type;
use crate::values::{ArrayShape, Attribute, Dictionary, ElementType};

/// Arrays of more elements than this are printed as bytes, as MLIR does, each of two digits.
pub const MOST_LISTED: usize = 100;

/// Appends a dictionary. `function_name` maps the functions that attributes refer to to their names
/// in the text.
///
/// The recursion is as deep as the attributes nest: the caller bounds it.
pub fn print_attributes(
    function_name: &dyn Fn(&str) -> String,
    attributes: &Dictionary,
    text: &mut String,
) {
    text.push('{');
    for (index, (name, value)) in attributes.iter().enumerate() {
        *text += if index == 0 { "" } else { ", " };
        *text += &format!("{} = ", word_or_string(name));
        attribute(function_name, value, text);
    }
    text.push('}');
}

fn attribute(function_name: &dyn Fn(&str) -> String, value: &Attribute, text: &mut String) {
    match value {
        Attribute::Scalar(literal) | Attribute::Array(literal) => {
            let is_scalar = matches!(value, Attribute::Scalar(_));
            for (shape, bytes) in literal.leaves() {
                if is_scalar && shape.rank() == 0 {
                    scalar(shape.element_type(), bytes, text);
                } else {
                    dense(shape, bytes, text);
                }
            }
        }
        Attribute::String(bytes) => *text += &format!("\"{}\"", escape_mlir(bytes)),
        Attribute::Dictionary(inner) => print_attributes(function_name, inner, text),
        Attribute::Function(function) => {
            *text += &format!("@{}", word_or_string(&function_name(function)));
        }
    }
}

/// A name: as it is if it is a word, and otherwise as a string.
fn word_or_string(name: &str) -> String {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let belongs = |c: char| c.is_ascii_alphanumeric() || "_$.".contains(c);
    if starts && name.chars().all(belongs) {
        name.to_owned()
    } else {
        format!("\"{}\"", escape_mlir(name.as_bytes()))
    }
}

fn scalar(element_type: ElementType, bytes: &[u8], text: &mut String) {
    if element_type.is_complex() {
        let part = component_type(element_type);
        let (real, imaginary) = bytes.split_at(bytes.len() / 2);
        let [real, imaginary] = [real, imaginary].map(|bytes| mlir_scalar(part, bytes));
        *text += &format!("#complex.number<:{part} {real}, {imaginary}>");
        return;
    }
    *text += &mlir_scalar(element_type, bytes);
    if !element_type.is_pred() {
        *text += &format!(" : {}", type_name(element_type));
    }
}

/// Appends an array: `dense<[1, 2]> : tensor<2xi32>`.
fn dense(shape: &ArrayShape, bytes: &[u8], text: &mut String) {
    *text += "dense<";
    let element_type = shape.element_type();
    let width = element_type.byte_width();
    let count = shape.element_count();
    let print_one = |bytes: &[u8], text: &mut String| {
        print_element(element_type, bytes, ",", mlir_element, text);
    };
    let mut each = bytes.chunks_exact(width.max(1));
    let is_splat = each
        .next()
        .is_some_and(|first| each.all(|other| other == first));
    if is_splat {
        print_one(&bytes[..width], text);
    } else if count > MOST_LISTED {
        hexadecimal(element_type, bytes, text);
    } else if count > 0 {
        print_array(shape.dimensions(), ["[", "]"], text, |index, text| {
            print_one(&bytes[index * width..][..width], text);
        });
    }
    let dimensions = shape.dimensions().iter().map(|size| format!("{size}x"));
    let dimensions: String = dimensions.collect();
    *text += &format!("> : tensor<{dimensions}{}>", type_name(element_type));
}

/// Appends the elements' bytes. As in MLIR, the unused bits of a type narrower than a byte are 0.
fn hexadecimal(element_type: ElementType, bytes: &[u8], text: &mut String) {
    let mask = match element_type.bit_width() {
        bits @ 0..8 => (1_u8 << bits) - 1,
        _ => u8::MAX,
    };
    let digits = bytes.iter().map(|byte| format!("{:02X}", byte & mask));
    *text += &format!("\"0x{}\"", digits.collect::<String>());
}

/// The name of a type in MLIR. Integers are signless or unsigned, as XLA reads them.
fn type_name(element_type: ElementType) -> String {
    let name = element_type.lower_name();
    match name.split_at(1) {
        _ if element_type.is_pred() => "i1".to_owned(),
        _ if element_type.is_complex() => format!("complex<{}>", component_type(element_type)),
        // `i1` is a truth value.
        ("s", "1") => "si1".to_owned(),
        ("s", bits) => format!("i{bits}"),
        ("u", bits) => format!("ui{bits}"),
        // `f32` and `bf16` have XLA's names, and `f8e5m2` is `f8E5M2`.
        ("f", rest) => format!("f{}", rest.to_ascii_uppercase()),
        _ => name.to_owned(),
    }
}
