//! Reads a call frame from its bytes as a guest does. Written from `wit/callbox-ffi.wit`, not from
//! the host's code.

/// The bytes around a frame, with their address in linear memory.
pub(crate) struct Memory<'a> {
    start: usize,
    bytes: &'a [u8],
}

/// The record `call-frame`.
#[derive(Debug)]
pub(crate) struct FrameRecord {
    pub(crate) size: u32,
    pub(crate) stage: u8,
    pub(crate) operands: Vec<BufferRecord>,
    pub(crate) results: Vec<BufferRecord>,
    pub(crate) attributes: Vec<AttributeRecord>,
    pub(crate) opaque: Vec<u8>,
    pub(crate) state: [u32; 3],
}

/// The record `buffer`. Its data is elsewhere in the arena.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BufferRecord {
    pub(crate) data: (u32, u32),
    pub(crate) dimensions: Vec<i64>,
    pub(crate) minor_to_major: Vec<i64>,
    pub(crate) element_type: u8,
    pub(crate) read_only: bool,
    pub(crate) aliased_operand: Option<u32>,
}

/// The record `attribute`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AttributeRecord {
    pub(crate) name: String,
    /// The value's bytes. Empty for a dictionary.
    pub(crate) value: Vec<u8>,
    /// The entries of a dictionary.
    pub(crate) entries: Vec<AttributeRecord>,
    pub(crate) dimensions: Vec<i64>,
    pub(crate) kind: u8,
    pub(crate) element_type: u8,
}

const BUFFER: usize = 36;
const ATTRIBUTE: usize = 28;
const DICTIONARY: u8 = 2;

impl<'a> Memory<'a> {
    /// Wraps bytes that begin at this address.
    pub(crate) fn new(start: usize, bytes: &'a [u8]) -> Self {
        Self { start, bytes }
    }

    /// Reads the frame at this address.
    pub(crate) fn frame(&self, at: usize) -> FrameRecord {
        FrameRecord {
            size: self.word(at),
            stage: self.byte(at + 4),
            operands: self.buffers(at + 8),
            results: self.buffers(at + 16),
            attributes: self.attributes(at + 24, 1),
            opaque: self.list(at + 32, 1).to_vec(),
            state: [self.word(at + 40), self.word(at + 44), self.word(at + 48)],
        }
    }

    fn buffers(&self, field: usize) -> Vec<BufferRecord> {
        let (first, count) = self.pair(field);
        assert_eq!(first % 4, 0, "records are aligned");
        (0..count)
            .map(|i| self.buffer(first + i * BUFFER))
            .collect()
    }

    fn buffer(&self, at: usize) -> BufferRecord {
        assert!(
            self.byte(at + 25) <= 1 && self.byte(at + 28) <= 1,
            "truth values are 0 or 1"
        );
        BufferRecord {
            data: (self.word(at), self.word(at + 4)),
            dimensions: self.numbers(at + 8),
            minor_to_major: self.numbers(at + 16),
            element_type: self.byte(at + 24),
            read_only: self.byte(at + 25) == 1,
            aliased_operand: (self.byte(at + 28) == 1).then(|| self.word(at + 32)),
        }
    }

    /// Reads attributes from a list whose count is in units of `unit`: a frame counts records, a
    /// dictionary's value counts bytes.
    fn attributes(&self, field: usize, unit: usize) -> Vec<AttributeRecord> {
        let (first, count) = self.pair(field);
        assert!(
            first % 4 == 0 && count % unit == 0,
            "records are aligned and whole"
        );
        (0..count / unit)
            .map(|i| self.attribute(first + i * ATTRIBUTE))
            .collect()
    }

    fn attribute(&self, at: usize) -> AttributeRecord {
        let kind = self.byte(at + 24);
        let is_dictionary = kind == DICTIONARY;
        if !is_dictionary {
            let width = callbox::ElementType::from_number(self.byte(at + 25))
                .map_or(1, |t| t.byte_width().max(1));
            let (value, length) = self.pair(at + 8);
            // Complex numbers have the alignment of their parts.
            assert!(
                length == 0 || value % width.min(8) == 0,
                "values are aligned"
            );
        }
        AttributeRecord {
            name: String::from_utf8(self.list(at, 1).to_vec()).expect("names are UTF-8"),
            value: if is_dictionary {
                Vec::new()
            } else {
                self.list(at + 8, 1).to_vec()
            },
            entries: if is_dictionary {
                self.attributes(at + 8, ATTRIBUTE)
            } else {
                Vec::new()
            },
            dimensions: self.numbers(at + 16),
            kind,
            element_type: self.byte(at + 25),
        }
    }

    fn numbers(&self, field: usize) -> Vec<i64> {
        assert_eq!(self.pair(field).0 % 8, 0, "numbers are aligned");
        let bytes = self.list(field, 8).chunks_exact(8);
        bytes
            .map(|bytes| i64::from_le_bytes(bytes.try_into().expect("8 bytes")))
            .collect()
    }

    /// Returns the bytes of a list of elements of this width.
    fn list(&self, field: usize, width: usize) -> &'a [u8] {
        match self.pair(field) {
            (_, 0) => &[],
            (offset, count) => &self.bytes[offset - self.start..][..count * width],
        }
    }

    /// Reads a list's offset and count.
    fn pair(&self, at: usize) -> (usize, usize) {
        (self.word(at) as usize, self.word(at + 4) as usize)
    }

    fn word(&self, at: usize) -> u32 {
        let bytes = &self.bytes[at - self.start..][..4];
        u32::from_le_bytes(bytes.try_into().expect("4 bytes"))
    }

    fn byte(&self, at: usize) -> u8 {
        self.bytes[at - self.start]
    }
}
