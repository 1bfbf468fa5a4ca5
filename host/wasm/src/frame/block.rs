//! Blocks of bytes with relocatable offsets, written before their final place is known.

pub use callbox_abi::ARENA_ALIGNMENT;

/// A block of an arena. Its offsets are relative to the arena until [`Block::at`].
#[derive(Debug)]
pub(super) struct Block {
    /// The block's offset in the arena.
    base: usize,
    bytes: Vec<u8>,
    /// The places of the offsets.
    relocations: Vec<usize>,
}

/// A place between two parts of a block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mark {
    bytes: usize,
    relocations: usize,
}

/// A block's bytes for an arena at a known offset.
#[derive(Clone, Debug)]
pub struct FrameImage(pub(super) Box<[u8]>);

impl FrameImage {
    /// The bytes, to be copied to [`ArenaLayout::frame`](super::ArenaLayout::frame).
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Block {
    /// A block of `size` zeros at offset `base` of the arena.
    pub(super) fn new(base: usize, size: usize) -> Self {
        Self {
            base,
            bytes: vec![0; size],
            relocations: Vec::new(),
        }
    }

    /// The block's offset in the arena.
    pub(super) fn base(&self) -> usize {
        self.base
    }

    pub(super) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The end of what has been written.
    pub(super) fn mark(&self) -> Mark {
        Mark {
            bytes: self.bytes.len(),
            relocations: self.relocations.len(),
        }
    }

    /// A block with the parts of this one before a mark.
    pub(super) fn up_to(&self, mark: Mark) -> Self {
        Self {
            base: self.base,
            bytes: self.bytes[..mark.bytes].to_vec(),
            relocations: self.relocations[..mark.relocations].to_vec(),
        }
    }

    /// The bytes with offsets into linear memory, for an arena at `arena`.
    pub(super) fn at(&self, arena: u32) -> FrameImage {
        let mut bytes: Box<[u8]> = self.bytes.as_slice().into();
        for &place in &self.relocations {
            let relative = get(&bytes, place);
            put(&mut bytes, place, relative.wrapping_add(arena));
        }
        FrameImage(bytes)
    }

    /// Appends zeros and returns their offset in the block. The block itself is aligned.
    pub(super) fn reserve(&mut self, size: usize, alignment: usize) -> usize {
        let at = self.bytes.len().next_multiple_of(alignment);
        self.bytes.resize(at + size, 0);
        at
    }

    /// Appends bytes and returns their offset in the block.
    pub(super) fn append(&mut self, bytes: &[u8], alignment: usize) -> usize {
        let at = self.reserve(bytes.len(), alignment);
        self.bytes[at..].copy_from_slice(bytes);
        at
    }

    /// Appends bytes and writes a list of them to `field`.
    pub(super) fn list(&mut self, field: usize, bytes: &[u8], count: usize, alignment: usize) {
        let at = self.append(bytes, alignment);
        self.point(field, self.base + at, count);
    }

    /// Writes a list to `field`: an offset relative to the arena, and a count.
    pub(super) fn point(&mut self, field: usize, offset: usize, count: usize) {
        self.pointer(field, offset);
        self.word(field + 4, count as u32);
    }

    /// Writes an offset relative to the arena to `field`.
    pub(super) fn pointer(&mut self, field: usize, offset: usize) {
        self.word(field, offset as u32);
        self.relocations.push(field);
    }

    pub(super) fn word(&mut self, field: usize, word: u32) {
        put(&mut self.bytes, field, word);
    }

    pub(super) fn byte(&mut self, field: usize, byte: u8) {
        self.bytes[field] = byte;
    }
}

pub(super) fn put(bytes: &mut [u8], at: usize, word: u32) {
    bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

pub(super) fn get(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}
