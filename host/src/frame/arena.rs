//! Places a call site's frame and buffers in the arena.

use super::abi::{attribute, buffer, call_frame};
use crate::call::{Alias, CallSite, Stage};
use crate::values::{
    ArrayShape, Attribute, Blame, Dictionary, ElementType, Layout, Literal, Result, Shape, Status,
    StatusCode,
};

/// The alignment of the arena and of each buffer in it, in bytes: a cache line, and as much as any SIMD load wants.
pub const ARENA_ALIGNMENT: usize = 64;

/// Which of a call site's two frames: the one of the stage `instantiate` has attributes only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// For the stage `instantiate`.
    Attributes,
    /// For the stages after it.
    Whole,
}

/// Where a leaf's bytes lie, relative to the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferPlace {
    /// The first byte.
    pub offset: usize,
    /// How many bytes.
    pub size: usize,
}

/// How a call site lies in the arena: the buffers first, whose places follow from the shapes alone, then the frame's records.
/// Offsets are relative to the arena's start.
#[derive(Debug)]
pub struct ArenaLayout {
    operands: Box<[BufferPlace]>,
    results: Box<[BufferPlace]>,
    whole: Records,
    attributes: Records,
    size: usize,
}

/// A frame's bytes, ready to be copied to [`ArenaLayout::frame`] of an arena at a known place.
#[derive(Clone, Debug)]
pub struct FrameImage(Box<[u8]>);

impl ArenaLayout {
    /// Lays out a call site.
    ///
    /// # Errors
    /// - INVALID_ARGUMENT if the aliasing names what is not there, twice, or of another shape.
    /// - RESOURCE_EXHAUSTED if the arena would have more than `limit` bytes.
    pub fn new(site: &CallSite, limit: usize) -> Result<Self> {
        let operand_shapes: Vec<_> = site.operands.iter().flat_map(Shape::leaves).collect();
        let result_shapes = site.result.leaves();
        let aliases = resolve_aliases(site, result_shapes.len())?;

        let mut end = Cursor {
            at: 0,
            limit: limit.min(u32::MAX as usize),
        };
        let operands = end.place_all(&operand_shapes)?;
        let mut results = Vec::with_capacity(result_shapes.len());
        for (shape, alias) in std::iter::zip(&result_shapes, &aliases) {
            results.push(match alias {
                Some(operand) => operands[*operand],
                None => end.place(shape)?,
            });
        }
        let base = end.align()?;

        let operand_records = leaf_records(&operand_shapes, &operands, |leaf| {
            (!aliases.contains(&Some(leaf)), None)
        });
        let result_records = leaf_records(&result_shapes, &results, |leaf| (false, aliases[leaf]));
        let whole = Records::write(base, &operand_records, &result_records, site)?;
        let attributes = Records::write(base, &[], &[], site)?;
        end.at = base.saturating_add(whole.bytes.len());
        Ok(Self {
            operands: operands.into(),
            results: results.into(),
            whole,
            attributes,
            size: end.align()?,
        })
    }

    /// The arena's size in bytes: a multiple of [`ARENA_ALIGNMENT`].
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Where the frame lies: a multiple of [`ARENA_ALIGNMENT`].
    #[must_use]
    pub fn frame(&self) -> usize {
        self.whole.base
    }

    /// Where the operands' leaves lie.
    #[must_use]
    pub fn operands(&self) -> &[BufferPlace] {
        &self.operands
    }

    /// Where the results' leaves lie.
    #[must_use]
    pub fn results(&self) -> &[BufferPlace] {
        &self.results
    }

    /// The frame for an arena at offset `base` of linear memory, with the stage `execute`.
    #[must_use]
    pub fn image(&self, frame: Frame, base: u32) -> FrameImage {
        match frame {
            Frame::Attributes => self.attributes.at(base),
            Frame::Whole => self.whole.at(base),
        }
    }
}

impl FrameImage {
    /// The bytes, to be copied to [`ArenaLayout::frame`].
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

/// For each result leaf the operand leaf that it shares memory with.
fn resolve_aliases(site: &CallSite, result_leaves: usize) -> Result<Vec<Option<usize>>> {
    let mut aliases = vec![None; result_leaves];
    for alias in &site.aliasing {
        let (result, result_shape) =
            leaf_at(std::slice::from_ref(&site.result), 0, &alias.result_index)
                .ok_or_else(|| wrong_alias(alias, "an index of an array in the result"))?;
        let (operand, operand_shape) = leaf_at(&site.operands, alias.operand, &alias.operand_index)
            .ok_or_else(|| wrong_alias(alias, "an index of an array in an operand"))?;
        if !result_shape.is_compatible(operand_shape)
            || result_shape.layout_or_default() != operand_shape.layout_or_default()
        {
            let what = format!(
                "a result and an operand of one shape, not {result_shape} and {operand_shape}"
            );
            return Err(wrong_alias(alias, &what));
        }
        if aliases[result].is_some() || aliases.contains(&Some(operand)) {
            return Err(wrong_alias(alias, "each result and each operand once"));
        }
        aliases[result] = Some(operand);
    }
    Ok(aliases)
}

fn wrong_alias(alias: &Alias, expected: &str) -> Status {
    let path = |index: &[usize]| {
        let numbers: Vec<_> = index.iter().map(usize::to_string).collect();
        format!("{{{}}}", numbers.join(","))
    };
    Status::invalid_argument(format!(
        "expected output_to_operand_aliasing to name {expected}, found {}: ({}, {})",
        path(&alias.result_index),
        alias.operand,
        path(&alias.operand_index)
    ))
}

/// The number, among all leaves in preorder, of the array at `index` of `shapes[position]`.
fn leaf_at<'a>(
    shapes: &'a [Shape],
    position: usize,
    index: &[usize],
) -> Option<(usize, &'a ArrayShape)> {
    let mut shape = shapes.get(position)?;
    let mut leaf: usize = shapes[..position].iter().map(|s| s.leaves().len()).sum();
    for &i in index {
        let elements = shape.as_tuple()?;
        leaf += elements
            .get(..i)?
            .iter()
            .map(|s| s.leaves().len())
            .sum::<usize>();
        shape = elements.get(i)?;
    }
    Some((leaf, shape.as_array()?))
}

/// A buffer record to be written.
struct Leaf<'a> {
    shape: &'a ArrayShape,
    place: BufferPlace,
    read_only: bool,
    aliased_operand: Option<usize>,
}

fn leaf_records<'a>(
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

/// The next free byte of an arena.
struct Cursor {
    at: usize,
    limit: usize,
}

impl Cursor {
    fn place_all(&mut self, shapes: &[&ArrayShape]) -> Result<Vec<BufferPlace>> {
        shapes.iter().map(|shape| self.place(shape)).collect()
    }

    fn place(&mut self, shape: &ArrayShape) -> Result<BufferPlace> {
        if shape.element_type() == ElementType::Token {
            return Ok(BufferPlace { offset: 0, size: 0 });
        }
        let (offset, size) = (self.align()?, shape.byte_size());
        self.at = offset.saturating_add(size);
        self.check()?;
        Ok(BufferPlace { offset, size })
    }

    fn align(&mut self) -> Result<usize> {
        self.at = self
            .at
            .checked_next_multiple_of(ARENA_ALIGNMENT)
            .unwrap_or(usize::MAX);
        self.check()?;
        Ok(self.at)
    }

    fn check(&self) -> Result<()> {
        match self.at <= self.limit {
            true => Ok(()),
            false => Err(Status::new(
                StatusCode::ResourceExhausted,
                Blame::Caller,
                format!(
                    "expected operands, results and attributes of at most {} bytes in all, found {} or more",
                    self.limit, self.at
                ),
            )),
        }
    }
}

/// A frame's records, with offsets relative to the arena, and where in them those offsets stand.
#[derive(Debug)]
struct Records {
    /// Where in the arena the records begin.
    base: usize,
    bytes: Vec<u8>,
    relocations: Vec<usize>,
}

impl Records {
    fn write(
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
    fn at(&self, arena: u32) -> FrameImage {
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

fn get(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn site(operands: &[&str], result: &str) -> CallSite {
        let shapes = operands.iter().map(|s| s.parse().unwrap()).collect();
        CallSite::new("f", shapes, result.parse().unwrap())
    }

    fn alias(result_index: &[usize], operand: usize, operand_index: &[usize]) -> Alias {
        Alias {
            result_index: result_index.to_vec(),
            operand,
            operand_index: operand_index.to_vec(),
        }
    }

    #[test]
    fn buffers_are_aligned_and_apart() {
        let layout = ArenaLayout::new(
            &site(&["f32[3]", "(s8[65], ())"], "(f64[], u8[0])"),
            1 << 20,
        )
        .unwrap();
        let place = |offset, size| BufferPlace { offset, size };
        assert_eq!(layout.operands(), [place(0, 12), place(64, 65)]);
        assert_eq!(layout.results(), [place(192, 8), place(256, 0)]);
        assert_eq!(layout.frame(), 256);
    }

    #[test]
    fn a_frame_reads_back() {
        let mut site = site(&["f32[2,3]{0,1}", "token[]"], "f32[2,3]{0,1}");
        site.aliasing = vec![alias(&[], 0, &[])];
        site.attributes
            .insert("n".into(), Attribute::scalar(4.0f32));
        let inner = Dictionary::from([("b".to_owned(), Attribute::from("x\0y"))]);
        site.attributes
            .insert("d".into(), Attribute::Dictionary(inner));
        let layout = ArenaLayout::new(&site, 1 << 20).unwrap();
        assert_eq!(layout.results(), &layout.operands()[..1]);

        let arena = 0x1_0000;
        let image = layout.image(Frame::Whole, arena);
        let frame = image.bytes();
        // Follows an offset into the records.
        let follow = |at: usize| (get(frame, at) - arena) as usize - layout.frame();
        assert_eq!(get(frame, call_frame::OPERANDS + 4), 2);
        let operand = follow(call_frame::OPERANDS);
        assert_eq!(get(frame, operand + buffer::DATA), arena);
        assert_eq!(get(frame, operand + buffer::DATA + 4), 24);
        assert_eq!(
            frame[operand + buffer::ELEMENT_TYPE],
            ElementType::F32.number()
        );
        assert_eq!(frame[operand + buffer::READ_ONLY], 0, "a result shares it");
        let order = follow(operand + buffer::MINOR_TO_MAJOR);
        assert_eq!((frame[order], frame[order + 8]), (0, 1));
        let token = operand + buffer::SIZE;
        assert_eq!((get(frame, token), get(frame, token + 4)), (0, 0));
        let result = follow(call_frame::RESULTS);
        assert_eq!(frame[result + buffer::ALIASED_OPERAND], 1);

        // Sorted by name: "d", then "n".
        let attributes = follow(call_frame::ATTRIBUTES);
        assert_eq!(
            frame[attributes + attribute::KIND],
            attribute::KIND_DICTIONARY
        );
        assert_eq!(
            get(frame, attributes + attribute::VALUE + 4),
            attribute::SIZE as u32
        );
        let b = follow(attributes + attribute::VALUE);
        let text = follow(b + attribute::VALUE);
        assert_eq!(&frame[text..text + 3], b"x\0y");
        let n = follow(attributes + attribute::SIZE + attribute::VALUE);
        assert_eq!(frame[n..n + 4], 4.0f32.to_le_bytes());
        assert_eq!(n % 16, 0);
    }

    #[test]
    fn the_frame_of_instantiate_has_attributes_only() {
        let layout = ArenaLayout::new(&site(&["f32[2]"], "f32[2]"), 1 << 20).unwrap();
        let image = layout.image(Frame::Attributes, 0);
        assert_eq!(get(image.bytes(), call_frame::OPERANDS + 4), 0);
        assert_eq!(get(image.bytes(), call_frame::RESULTS + 4), 0);
    }

    #[test]
    fn wrong_aliases_are_refused() {
        for (aliasing, message) in [
            (
                vec![alias(&[2], 0, &[])],
                "expected output_to_operand_aliasing to name an index of an array in the result, found {2}: (0, {})",
            ),
            (
                vec![alias(&[0], 0, &[0])],
                "expected output_to_operand_aliasing to name an index of an array in an operand, found {0}: (0, {0})",
            ),
            (
                vec![alias(&[1], 0, &[])],
                "expected output_to_operand_aliasing to name a result and an operand of one shape, not f32[3] and f32[2], found {1}: (0, {})",
            ),
            (
                vec![alias(&[0], 0, &[]), alias(&[0], 1, &[])],
                "expected output_to_operand_aliasing to name each result and each operand once, found {0}: (1, {})",
            ),
        ] {
            let mut site = site(&["f32[2]", "f32[2]"], "(f32[2], f32[3])");
            site.aliasing = aliasing;
            let err = ArenaLayout::new(&site, 1 << 20).unwrap_err();
            assert_eq!(err.message(), message);
        }
    }

    #[test]
    fn arenas_past_the_limit_are_refused() {
        let err = ArenaLayout::new(&site(&["u8[1000]"], "u8[1000]"), 2000).unwrap_err();
        assert_eq!(err.code(), StatusCode::ResourceExhausted);
        let huge = site(
            &[
                "u8[9223372036854775807]",
                "u8[9223372036854775807]",
                "u8[9223372036854775807]",
            ],
            "()",
        );
        let err = ArenaLayout::new(&huge, usize::MAX).unwrap_err();
        assert_eq!(err.code(), StatusCode::ResourceExhausted);
    }
}
