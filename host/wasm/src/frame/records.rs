//! Writes the records of typed FFI: a call frame and everything that it points to.
//!
//! Targets of typed FFI get the call site's `literal`, which XLA does not pass. Older conventions
//! cannot pass it.

use std::collections::HashMap;

use super::abi::{attribute, buffer, call_frame};
use super::block::{ARENA_ALIGNMENT, Block, FrameImage, Mark, put};
use callbox_core::call::{CallSite, Stage};
use callbox_core::text::shortened;
use callbox_core::values::{
    ArrayShape, Attribute, Dictionary, ElementType, Layout, Literal, Result, Status,
};

/// The place of a leaf's bytes in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferPlace {
    /// The offset of the first byte.
    pub offset: usize,
    /// The number of bytes.
    pub size: usize,
}

impl FrameImage {
    /// Sets the stage.
    pub fn set_stage(&mut self, stage: Stage) {
        self.0[call_frame::STAGE] = stage as u8;
    }

    /// Sets the state words, which earlier stages returned.
    pub fn set_state(&mut self, state: [u32; 3]) {
        for (i, word) in state.into_iter().enumerate() {
            put(&mut self.0, call_frame::INSTANTIATE_STATE + 4 * i, word);
        }
    }
}

/// The contents of a buffer record.
pub(super) struct Leaf<'a> {
    shape: &'a ArrayShape,
    place: BufferPlace,
    read_only: bool,
    aliased_operand: Option<usize>,
}

pub(super) fn leaf_records<'a>(
    shapes: &[&'a ArrayShape],
    places: &[BufferPlace],
    properties: impl Fn(usize) -> (bool, Option<usize>),
) -> Vec<Leaf<'a>> {
    let leaf = |(i, (shape, place)): (usize, (&&'a ArrayShape, &BufferPlace))| {
        let (read_only, aliased_operand) = properties(i);
        Leaf {
            shape,
            place: *place,
            read_only,
            aliased_operand,
        }
    };
    std::iter::zip(shapes, places)
        .enumerate()
        .map(leaf)
        .collect()
}

/// Writes a frame with these buffers, at offset `base` of the arena. Returns the end of the part
/// that does not depend on the attributes, too.
pub(super) fn write(
    base: usize,
    operands: &[Leaf<'_>],
    results: &[Leaf<'_>],
    site: &CallSite,
) -> Result<(Block, Mark)> {
    let mut block = Block::new(base, call_frame::SIZE);
    block.word(call_frame::SIZE_FIELD, call_frame::SIZE as u32);
    block.byte(call_frame::STAGE, Stage::Execute as u8);
    block.buffers(call_frame::OPERANDS, operands);
    block.buffers(call_frame::RESULTS, results);
    let buffers = block.mark();
    block.behind_buffers(&site.attributes, site)?;
    Ok((block, buffers))
}

/// Writes a frame with the buffers of another one, which end at `buffers`, and other attributes.
pub(super) fn write_attributes(
    frame: &Block,
    buffers: Mark,
    attributes: &Dictionary,
    site: &CallSite,
) -> Result<Block> {
    let mut block = frame.up_to(buffers);
    block.behind_buffers(attributes, site)?;
    Ok(block)
}

impl Block {
    /// Writes what follows the buffers. `site` has everything but the attributes.
    fn behind_buffers(&mut self, attributes: &Dictionary, site: &CallSite) -> Result<()> {
        let functions = FunctionNumbers::of(site);
        self.dictionary(call_frame::ATTRIBUTES, attributes, &functions)?;
        self.opaque(&site.opaque);
        if let Some(literal) = &site.literal {
            self.literal(literal);
        }
        self.functions(&site.called_computations);
        Ok(())
    }

    fn buffers(&mut self, field: usize, leaves: &[Leaf<'_>]) {
        let first = self.reserve(buffer::SIZE * leaves.len(), 4);
        self.point(field, self.base() + first, leaves.len());
        for (i, leaf) in leaves.iter().enumerate() {
            let record = first + i * buffer::SIZE;
            if leaf.shape.element_type() != ElementType::Token {
                self.point(record + buffer::DATA, leaf.place.offset, leaf.place.size);
            }
            self.numbers(record + buffer::DIMENSIONS, leaf.shape.dimensions());
            let layout: Layout = leaf.shape.layout_or_default();
            self.numbers(record + buffer::MINOR_TO_MAJOR, layout.minor_to_major());
            self.byte(
                record + buffer::ELEMENT_TYPE,
                leaf.shape.element_type().number(),
            );
            self.byte(record + buffer::READ_ONLY, u8::from(leaf.read_only));
            if let Some(operand) = leaf.aliased_operand {
                self.byte(record + buffer::ALIASED_OPERAND, 1);
                self.word(record + buffer::ALIASED_OPERAND + 4, operand as u32);
            }
        }
    }

    /// Writes the opaque bytes, with a NUL for guests that read a C string.
    fn opaque(&mut self, bytes: &[u8]) {
        self.list(call_frame::OPAQUE, bytes, bytes.len(), 16);
        self.reserve(1, 1);
    }

    fn literal(&mut self, literal: &Literal) {
        // A literal's elements are row-major, whatever its layout.
        let shapes: Vec<_> = literal
            .leaves()
            .map(|(shape, _)| shape.clone().without_layout())
            .collect();
        let places: Vec<_> = literal
            .leaves()
            .map(|(_, bytes)| BufferPlace {
                offset: self.append(bytes, ARENA_ALIGNMENT) + self.base(),
                size: bytes.len(),
            })
            .collect();
        let shapes: Vec<_> = shapes.iter().collect();
        let leaves = leaf_records(&shapes, &places, |_| (true, None));
        self.buffers(call_frame::LITERAL, &leaves);
    }

    fn functions(&mut self, numbers: &[usize]) {
        let bytes: Vec<u8> = numbers
            .iter()
            .flat_map(|&n| (n as u32).to_le_bytes())
            .collect();
        self.list(call_frame::FUNCTIONS, &bytes, numbers.len(), 4);
    }

    /// Writes nested dictionaries iteratively, so that their depth does not use the stack.
    fn dictionary(
        &mut self,
        field: usize,
        attributes: &Dictionary,
        functions: &FunctionNumbers<'_>,
    ) -> Result<()> {
        let mut pending: Vec<(usize, &Dictionary)> = vec![(field, attributes)];
        while let Some((field, dictionary)) = pending.pop() {
            let first = self.reserve(attribute::SIZE * dictionary.len(), 4);
            // The frame's own list counts attributes, an attribute's value bytes.
            let size = match field {
                call_frame::ATTRIBUTES => dictionary.len(),
                _ => attribute::SIZE * dictionary.len(),
            };
            self.point(field, self.base() + first, size);
            for (i, (name, value)) in dictionary.iter().enumerate() {
                let record = first + i * attribute::SIZE;
                self.list(record + attribute::NAME, name.as_bytes(), name.len(), 1);
                if let Attribute::Dictionary(inner) = value {
                    self.byte(record + attribute::KIND, attribute::KIND_DICTIONARY);
                    pending.push((record + attribute::VALUE, inner));
                } else {
                    self.attribute(record, value, functions)?;
                }
            }
        }
        Ok(())
    }

    fn attribute(
        &mut self,
        record: usize,
        value: &Attribute,
        functions: &FunctionNumbers<'_>,
    ) -> Result<()> {
        let (kind, literal) = match value {
            Attribute::Scalar(literal) => (attribute::KIND_SCALAR, literal),
            Attribute::Array(literal) => (attribute::KIND_ARRAY, literal),
            Attribute::String(bytes) => {
                self.byte(record + attribute::KIND, attribute::KIND_STRING);
                self.list(record + attribute::VALUE, bytes, bytes.len(), 1);
                return Ok(());
            }
            Attribute::Function(name) => {
                let number = functions.number(name)?.to_le_bytes();
                self.byte(record + attribute::KIND, attribute::KIND_FUNCTION);
                self.list(record + attribute::VALUE, &number, number.len(), 4);
                return Ok(());
            }
            Attribute::Dictionary(_) => {
                return Err(Status::internal(
                    "a nested dictionary was to be written as a single value",
                ));
            }
        };
        let (shape, bytes) = array_of(literal)?;
        self.byte(record + attribute::KIND, kind);
        self.byte(
            record + attribute::ELEMENT_TYPE,
            shape.element_type().number(),
        );
        self.list(record + attribute::VALUE, bytes, bytes.len(), 16);
        self.numbers(record + attribute::DIMENSIONS, shape.dimensions());
        Ok(())
    }

    fn numbers(&mut self, field: usize, numbers: &[usize]) {
        let bytes: Vec<u8> = numbers
            .iter()
            .flat_map(|&n| (n as i64).to_le_bytes())
            .collect();
        self.list(field, &bytes, numbers.len(), 8);
    }
}

/// The numbers of a call site's functions, by name: their indices among them.
struct FunctionNumbers<'s> {
    site: &'s CallSite,
    numbers: HashMap<&'s str, u32>,
}

impl<'s> FunctionNumbers<'s> {
    fn of(site: &'s CallSite) -> Self {
        let mut numbers = HashMap::new();
        for (number, function) in (0..).zip(&site.functions) {
            numbers.entry(&*function.name).or_insert(number);
        }
        Self { site, numbers }
    }

    fn number(&self, name: &str) -> Result<u32> {
        self.numbers.get(name).copied().ok_or_else(|| {
            const MOST: usize = 8;
            let functions = self.site.functions.iter().take(MOST);
            let names: Vec<_> = functions.map(|f| shortened(&f.name)).collect();
            Status::invalid_argument(format!(
                "expected an attribute to refer to a function of the program ({}), found {:?}",
                names.join(", "),
                shortened(name)
            ))
        })
    }
}

fn array_of(literal: &Literal) -> Result<(&ArrayShape, &[u8])> {
    match (literal.shape().as_array(), literal.bytes()) {
        (Some(shape), Some(bytes)) => Ok((shape, bytes)),
        _ => Err(Status::invalid_argument(format!(
            "expected an array as an attribute, found {}",
            literal.shape()
        ))),
    }
}
