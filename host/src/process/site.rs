//! Call sites as bytes.

use std::sync::Arc;

use super::wire::{Reader, Writer, violation};
use crate::call::{Alias, ApiVersion, CallSite, FunctionReference, StaticInfo};
use crate::values::{
    ArrayShape, Attribute, Dictionary, ElementType, Layout, Literal, Result, Shape,
};

pub(super) fn write(writer: &mut Writer, site: &CallSite) {
    writer.text(&site.name);
    writer.text(&site.target);
    writer.u8(site.api_version as u8);
    writer.list(&site.operands, write_shape);
    write_shape(writer, &site.result);
    write_dictionary(writer, &site.attributes);
    writer.blob(&site.opaque);
    writer.option(site.static_info.as_ref(), write_static_info);
    writer.list(&site.aliasing, write_alias);
    writer.list(&site.scratch, |writer, &leaf| writer.usize(leaf));
    writer.option(site.literal.as_ref(), write_literal);
    writer.list(&site.functions, write_function);
    writer.list(&site.called_computations, |writer, &n| writer.usize(n));
}

pub(super) fn read(reader: &mut Reader<'_>) -> Result<CallSite> {
    Ok(CallSite {
        name: reader.text()?.to_owned(),
        target: reader.text()?.to_owned(),
        api_version: read_version(reader)?,
        operands: reader.list(read_shape)?,
        result: read_shape(reader)?,
        attributes: read_dictionary(reader)?,
        opaque: reader.blob()?.to_vec(),
        static_info: reader.option(read_static_info)?,
        aliasing: reader.list(read_alias)?,
        scratch: reader.list(Reader::usize)?,
        literal: reader.option(read_literal)?,
        functions: reader.list(read_function)?,
        called_computations: reader.list(Reader::usize)?,
    })
}

fn read_version(reader: &mut Reader<'_>) -> Result<ApiVersion> {
    let number = reader.u8()?;
    let mut versions = ApiVersion::ALL.into_iter();
    versions
        .find(|&version| version as u8 == number)
        .ok_or_else(|| violation(format!("expected an API version, found {number}")))
}

fn write_shape(writer: &mut Writer, shape: &Shape) {
    match shape {
        Shape::Array(array) => {
            writer.u8(0);
            write_array(writer, array);
        }
        Shape::Tuple(tuple) => {
            writer.u8(1);
            writer.list(tuple.elements(), write_shape);
        }
    }
}

fn read_shape(reader: &mut Reader<'_>) -> Result<Shape> {
    match reader.u8()? {
        0 => read_array(reader).map(Shape::from),
        1 => Shape::tuple(reader.list(read_shape)?),
        other => Err(violation(format!("expected a shape, found {other}"))),
    }
}

fn write_array(writer: &mut Writer, array: &ArrayShape) {
    let usize = |writer: &mut Writer, &value: &usize| writer.usize(value);
    writer.u8(array.element_type().number());
    writer.list(array.dimensions(), usize);
    writer.option(array.layout(), |writer, layout| {
        writer.list(layout.minor_to_major(), usize);
    });
}

fn read_array(reader: &mut Reader<'_>) -> Result<ArrayShape> {
    let number = reader.u8()?;
    let element_type = ElementType::from_number(number)
        .ok_or_else(|| violation(format!("expected an element type, found {number}")))?;
    let array = ArrayShape::new(element_type, &reader.list(Reader::usize)?)?;
    match reader.option(|reader| reader.list(Reader::usize))? {
        Some(minor_to_major) => array.with_layout(Layout::new(&minor_to_major)?),
        None => Ok(array),
    }
}

fn write_literal(writer: &mut Writer, literal: &Literal) {
    write_shape(writer, literal.shape());
    let leaves: Vec<&[u8]> = literal.leaves().map(|(_, bytes)| bytes).collect();
    writer.list(&leaves, |writer, bytes| writer.blob(bytes));
}

fn read_literal(reader: &mut Reader<'_>) -> Result<Literal> {
    let shape = read_shape(reader)?;
    let leaves = reader.list(|reader| Ok(reader.blob()?.to_vec()))?;
    Literal::from_leaves(shape, leaves)
}

fn write_dictionary(writer: &mut Writer, dictionary: &Dictionary) {
    let entries: Vec<_> = dictionary.iter().collect();
    writer.list(&entries, |writer, (name, value)| {
        writer.text(name);
        write_attribute(writer, value);
    });
}

fn read_dictionary(reader: &mut Reader<'_>) -> Result<Dictionary> {
    let entry = |reader: &mut Reader<'_>| Ok((reader.text()?.to_owned(), read_attribute(reader)?));
    Ok(reader.list(entry)?.into_iter().collect())
}

fn write_attribute(writer: &mut Writer, attribute: &Attribute) {
    match attribute {
        Attribute::Scalar(literal) => {
            writer.u8(0);
            write_literal(writer, literal);
        }
        Attribute::Array(literal) => {
            writer.u8(1);
            write_literal(writer, literal);
        }
        Attribute::String(bytes) => {
            writer.u8(2);
            writer.blob(bytes);
        }
        Attribute::Dictionary(dictionary) => {
            writer.u8(3);
            write_dictionary(writer, dictionary);
        }
        Attribute::Function(name) => {
            writer.u8(4);
            writer.text(name);
        }
    }
}

fn read_attribute(reader: &mut Reader<'_>) -> Result<Attribute> {
    match reader.u8()? {
        0 => read_literal(reader).map(Attribute::Scalar),
        1 => read_literal(reader).map(Attribute::Array),
        2 => Ok(Attribute::String(reader.blob()?.to_vec())),
        3 => read_dictionary(reader).map(Attribute::Dictionary),
        4 => Ok(Attribute::Function(reader.text()?.to_owned())),
        other => Err(violation(format!("expected an attribute, found {other}"))),
    }
}

fn write_static_info(writer: &mut Writer, info: &StaticInfo) {
    match info {
        StaticInfo::Value(value) => {
            writer.u8(0);
            writer.blob(value);
        }
        StaticInfo::Reference {
            constructor,
            destructor,
            argument,
        } => {
            writer.u8(1);
            writer.text(constructor);
            writer.text(destructor);
            writer.blob(argument);
        }
    }
}

fn read_static_info(reader: &mut Reader<'_>) -> Result<StaticInfo> {
    match reader.u8()? {
        0 => Ok(StaticInfo::Value(reader.blob()?.to_vec())),
        1 => Ok(StaticInfo::Reference {
            constructor: reader.text()?.to_owned(),
            destructor: reader.text()?.to_owned(),
            argument: reader.blob()?.to_vec(),
        }),
        other => Err(violation(format!("expected static info, found {other}"))),
    }
}

fn write_alias(writer: &mut Writer, alias: &Alias) {
    let usize = |writer: &mut Writer, &value: &usize| writer.usize(value);
    writer.list(&alias.result_index, usize);
    writer.usize(alias.operand);
    writer.list(&alias.operand_index, usize);
}

fn read_alias(reader: &mut Reader<'_>) -> Result<Alias> {
    Ok(Alias {
        result_index: reader.list(Reader::usize)?,
        operand: reader.usize()?,
        operand_index: reader.list(Reader::usize)?,
    })
}

fn write_function(writer: &mut Writer, function: &Arc<FunctionReference>) {
    writer.text(&function.name);
    writer.usize(function.id);
    writer.list(&function.parameters, write_shape);
    write_shape(writer, &function.result);
}

fn read_function(reader: &mut Reader<'_>) -> Result<Arc<FunctionReference>> {
    Ok(Arc::new(FunctionReference {
        name: reader.text()?.to_owned(),
        id: reader.usize()?,
        parameters: reader.list(read_shape)?,
        result: read_shape(reader)?,
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_call_site_comes_back_whole() {
        let shape: Shape = "(f32[2,3]{0,1}, (s32[], bf16[0]))".parse().unwrap();
        let array = Literal::array(&[2], &[1.5_f32, -0.0]).unwrap();
        let inner = Dictionary::from([("f".to_owned(), Attribute::Function("g".to_owned()))]);
        let attributes = Dictionary::from([
            ("a".to_owned(), Attribute::Array(array.clone())),
            ("d".to_owned(), Attribute::Dictionary(inner)),
            ("s".to_owned(), Attribute::String(b"\0\xff".to_vec())),
            ("x".to_owned(), Attribute::scalar(7_i64)),
        ]);
        let function = FunctionReference {
            name: "g".to_owned(),
            id: 3,
            parameters: vec![shape.clone()],
            result: shape.clone(),
        };
        let alias = Alias {
            result_index: vec![0],
            operand: 1,
            operand_index: vec![],
        };
        for static_info in [
            None,
            Some(StaticInfo::Value(vec![1, 2])),
            Some(StaticInfo::Reference {
                constructor: "c".to_owned(),
                destructor: "d".to_owned(),
                argument: vec![3],
            }),
        ] {
            let site = CallSite {
                name: "%call.1".to_owned(),
                api_version: ApiVersion::JaxFfi,
                opaque: b"opaque".to_vec(),
                static_info,
                aliasing: vec![alias.clone()],
                scratch: vec![1],
                literal: Some(Literal::tuple(vec![array.clone()]).unwrap()),
                functions: vec![Arc::new(function.clone())],
                called_computations: vec![0],
                ..CallSite::new("t", vec![shape.clone()], shape.clone())
                    .with_attributes(attributes.clone())
            };
            let mut writer = Writer::default();
            write(&mut writer, &site);
            let bytes = writer.bytes();
            let mut reader = Reader::new(&bytes);
            assert_eq!(read(&mut reader).unwrap(), site);
            reader.end().unwrap();
            // Each beginning of it is something else, and no panic.
            for length in 0..bytes.len() {
                assert!(read(&mut Reader::new(&bytes[..length])).is_err());
            }
        }
    }
}
