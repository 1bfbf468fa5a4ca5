//! Writes a frame's records.

use super::abi::{attribute, buffer, call_frame};
use crate::call::{CallSite, Stage};
use crate::values::{
    ArrayShape, Attribute, Dictionary, ElementType, Layout, Literal, Result, Status,
};

/// Where a leaf's bytes lie, relative to the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferPlace {
    /// The first byte.
    pub offset: usize,
    /// How many bytes.
    pub size: usize,
}

/// A frame's bytes, ready to be copied to [`ArenaLayout::frame`](super::ArenaLayout::frame) of an arena at a known place.
#[derive(Clone, Debug)]
pub struct FrameImage(Box<[u8]>);

impl FrameImage {
    /// The bytes, to be copied to [`ArenaLayout::frame`](super::ArenaLayout::frame).
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Sets the stage.
    pub fn set_stage(&mut self, stage: Stage) {
        self.0[call_frame::STAGE] = stage as u8;
    }

    /// Sets the state words: what the guest left in a frame for the stages after it.
    pub fn set_state(&mut self, state: [u32; 3]) {
        for (i, word) in state.into_iter().enumerate() {
            put(&mut self.0, call_frame::INSTANTIATE_STATE + 4 * i, word);
        }
    }
}

/// A buffer record to be written.
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

/// A frame's records, with offsets relative to the arena, and where in them those offsets stand.
#[derive(Debug)]
pub(super) struct Records {
    /// Where in the arena the records begin.
    pub(super) base: usize,
    pub(super) bytes: Vec<u8>,
    relocations: Vec<usize>,
}

impl Records {
    pub(super) fn write(
        base: usize,
        operands: &[Leaf<'_>],
        results: &[Leaf<'_>],
        site: &CallSite,
    ) -> Result<Self> {
        let mut records = Self {
            base,
            bytes: vec![0; call_frame::SIZE],
            relocations: Vec::new(),
        };
        put(
            &mut records.bytes,
            call_frame::SIZE_FIELD,
            call_frame::SIZE as u32,
        );
        records.bytes[call_frame::STAGE] = Stage::Execute as u8;
        records.buffers(call_frame::OPERANDS, operands);
        records.buffers(call_frame::RESULTS, results);
        records.dictionary(call_frame::ATTRIBUTES, &site.attributes)?;
        records.list(call_frame::OPAQUE, &site.opaque, site.opaque.len(), 1);
        Ok(records)
    }

    /// The records with offsets into linear memory, for an arena at `arena`.
    pub(super) fn at(&self, arena: u32) -> FrameImage {
        let mut bytes: Box<[u8]> = self.bytes.as_slice().into();
        for &place in &self.relocations {
            let relative = get(&bytes, place);
            put(&mut bytes, place, relative.wrapping_add(arena));
        }
        FrameImage(bytes)
    }

    fn buffers(&mut self, field: usize, leaves: &[Leaf<'_>]) {
        let first = self.reserve(buffer::SIZE * leaves.len(), 4);
        self.point(field, self.base + first, leaves.len());
        for (i, leaf) in leaves.iter().enumerate() {
            let record = first + i * buffer::SIZE;
            if leaf.shape.element_type() != ElementType::Token {
                self.point(record + buffer::DATA, leaf.place.offset, leaf.place.size);
            }
            self.numbers(record + buffer::DIMENSIONS, leaf.shape.dimensions());
            let layout: Layout = leaf.shape.layout_or_default();
            self.numbers(record + buffer::MINOR_TO_MAJOR, layout.minor_to_major());
            self.bytes[record + buffer::ELEMENT_TYPE] = leaf.shape.element_type().number();
            self.bytes[record + buffer::READ_ONLY] = u8::from(leaf.read_only);
            if let Some(operand) = leaf.aliased_operand {
                self.bytes[record + buffer::ALIASED_OPERAND] = 1;
                put(
                    &mut self.bytes,
                    record + buffer::ALIASED_OPERAND + 4,
                    operand as u32,
                );
            }
        }
    }

    /// Writes dictionaries breadth-first, so that their depth does not matter to the stack.
    fn dictionary(&mut self, field: usize, dictionary: &Dictionary) -> Result<()> {
        let mut pending = vec![(field, dictionary)];
        while let Some((field, dictionary)) = pending.pop() {
            let first = self.reserve(attribute::SIZE * dictionary.len(), 4);
            // The frame's own list counts attributes; an attribute's value counts bytes.
            let size = match field {
                call_frame::ATTRIBUTES => dictionary.len(),
                _ => attribute::SIZE * dictionary.len(),
            };
            self.point(field, self.base + first, size);
            for (i, (name, value)) in dictionary.iter().enumerate() {
                let record = first + i * attribute::SIZE;
                self.list(record + attribute::NAME, name.as_bytes(), name.len(), 1);
                if let Attribute::Dictionary(inner) = value {
                    self.bytes[record + attribute::KIND] = attribute::KIND_DICTIONARY;
                    pending.push((record + attribute::VALUE, inner));
                } else {
                    self.attribute(record, value)?;
                }
            }
        }
        Ok(())
    }

    fn attribute(&mut self, record: usize, value: &Attribute) -> Result<()> {
        let (kind, literal) = match value {
            Attribute::Scalar(literal) => (attribute::KIND_SCALAR, literal),
            Attribute::Array(literal) => (attribute::KIND_ARRAY, literal),
            Attribute::String(bytes) => {
                self.bytes[record + attribute::KIND] = attribute::KIND_STRING;
                self.list(record + attribute::VALUE, bytes, bytes.len(), 1);
                return Ok(());
            }
            Attribute::Dictionary(_) => {
                return Err(Status::internal("a dictionary is not written here"));
            }
        };
        let (shape, bytes) = array_of(literal)?;
        self.bytes[record + attribute::KIND] = kind;
        self.bytes[record + attribute::ELEMENT_TYPE] = shape.element_type().number();
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

    /// Appends bytes and writes the list that has them to `field`.
    fn list(&mut self, field: usize, bytes: &[u8], count: usize, alignment: usize) {
        let at = self.reserve(bytes.len(), alignment);
        self.bytes[at..].copy_from_slice(bytes);
        self.point(field, self.base + at, count);
    }

    /// Writes a list to `field`: an offset relative to the arena, and a count.
    fn point(&mut self, field: usize, offset: usize, count: usize) {
        put(&mut self.bytes, field, offset as u32);
        put(&mut self.bytes, field + 4, count as u32);
        self.relocations.push(field);
    }

    /// Appends zeroed bytes and returns where they are.
    fn reserve(&mut self, size: usize, alignment: usize) -> usize {
        let at = self.bytes.len().next_multiple_of(alignment);
        self.bytes.resize(at + size, 0);
        at
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

fn put(bytes: &mut [u8], at: usize, word: u32) {
    bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

pub(super) fn get(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}
