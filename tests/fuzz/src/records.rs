//! Compares call frames with their call sites.

use callbox::call::Alias;
use callbox::frame::{ArenaLayout, BufferPlace, Frame};
use callbox::{ArrayShape, Attribute, CallSite, Dictionary, ElementType, Shape};
use callbox_abi::ARENA_ALIGNMENT;

use crate::decode::{AttributeRecord, BufferRecord, FrameRecord, Memory};

/// The arena's address in linear memory.
const ARENA: u32 = 0x1_0000;

/// Checks a call site's frames, read as a guest reads them. Aliased results must be leaves of the
/// result's single tuple, and aliased operands must be arrays.
pub(crate) fn check_frames(site: &CallSite, layout: &ArenaLayout) {
    let image = layout.image(Frame::Whole, ARENA);
    let at = ARENA as usize + layout.frame();
    assert!(layout.frame() + image.bytes().len() <= layout.size());
    let frame = Memory::new(at, image.bytes()).frame(at);
    assert_eq!((frame.size, frame.stage, frame.state), (68, 3, [0; 3]));
    check_buffers(site, layout, &frame);
    assert_eq!(frame.attributes, attribute_records(&site.attributes));
    assert_eq!(frame.opaque, site.opaque);

    let image = layout.image(Frame::Attributes, ARENA);
    let frame = Memory::new(at, image.bytes()).frame(at);
    assert!(frame.operands.is_empty() && frame.results.is_empty());
    assert_eq!(frame.attributes, attribute_records(&site.attributes));
}

/// Checks that buffers are aligned, in bounds, and disjoint unless aliased.
pub(crate) fn check_places(site: &CallSite, layout: &ArenaLayout) {
    let shapes = site.operands.iter().flat_map(Shape::leaves);
    let shapes: Vec<&ArrayShape> = shapes.chain(site.result.leaves()).collect();
    let places: Vec<&BufferPlace> = layout.operands().iter().chain(layout.results()).collect();
    assert_eq!(shapes.len(), places.len());
    for (shape, place) in std::iter::zip(shapes, &places) {
        assert_eq!(place.size, shape.byte_size());
        assert_eq!(place.offset % ARENA_ALIGNMENT, 0);
        assert!(place.offset + place.size <= layout.frame(), "{place:?}");
    }
    assert_eq!(layout.frame() % ARENA_ALIGNMENT, 0);
    let operands = layout.operands().len();
    let aliases = aliases(site);
    for (i, a) in places.iter().enumerate() {
        for (j, b) in places.iter().enumerate().skip(i + 1) {
            let is_alias = j >= operands && aliases[j - operands] == Some(i);
            let apart = a.offset + a.size <= b.offset || b.offset + b.size <= a.offset;
            assert!(
                if is_alias {
                    a == b
                } else {
                    apart || a.size == 0 || b.size == 0
                },
                "leaf {i} at {a:?} and leaf {j} at {b:?}"
            );
        }
    }
}

/// Returns, for each result leaf, the operand leaf whose memory it shares.
pub(crate) fn aliases(site: &CallSite) -> Vec<Option<usize>> {
    let count = |shapes: &[Shape]| {
        shapes
            .iter()
            .map(|shape| shape.leaves().len())
            .sum::<usize>()
    };
    let elements = site.result.as_tuple().unwrap();
    let mut aliases = vec![None; count(elements)];
    for Alias {
        result_index,
        operand,
        ..
    } in &site.aliasing
    {
        aliases[count(&elements[..result_index[0]])] = Some(count(&site.operands[..*operand]));
    }
    aliases
}

fn check_buffers(site: &CallSite, layout: &ArenaLayout, frame: &FrameRecord) {
    let aliases = aliases(site);
    let operands = site.operands.iter().flat_map(Shape::leaves);
    let operands = std::iter::zip(operands, layout.operands()).enumerate();
    let operands = operands.map(|(leaf, (shape, place))| BufferRecord {
        read_only: !aliases.contains(&Some(leaf)),
        ..record(shape, place)
    });
    assert_eq!(frame.operands, operands.collect::<Vec<_>>());
    let results = std::iter::zip(site.result.leaves(), layout.results()).enumerate();
    let results = results.map(|(leaf, (shape, place))| BufferRecord {
        aliased_operand: aliases[leaf].map(|operand| operand as u32),
        ..record(shape, place)
    });
    assert_eq!(frame.results, results.collect::<Vec<_>>());
}

fn record(shape: &ArrayShape, place: &BufferPlace) -> BufferRecord {
    let numbers = |numbers: &[usize]| numbers.iter().map(|&n| n as i64).collect();
    BufferRecord {
        data: match shape.element_type() {
            ElementType::Token => (0, 0),
            _ => (ARENA + place.offset as u32, place.size as u32),
        },
        dimensions: numbers(shape.dimensions()),
        minor_to_major: numbers(shape.layout_or_default().minor_to_major()),
        element_type: shape.element_type().number(),
        read_only: false,
        aliased_operand: None,
    }
}

/// Returns the expected records of a dictionary, sorted by name.
fn attribute_records(dictionary: &Dictionary) -> Vec<AttributeRecord> {
    dictionary.iter().map(attribute_record).collect()
}

fn attribute_record((name, attribute): (&String, &Attribute)) -> AttributeRecord {
    let (kind, value, shape) = match attribute {
        Attribute::Array(literal) => (1, literal.bytes().unwrap(), literal.shape().as_array()),
        Attribute::Dictionary(_) => (2, &[][..], None),
        Attribute::Scalar(literal) => (3, literal.bytes().unwrap(), literal.shape().as_array()),
        Attribute::String(bytes) => (4, &bytes[..], None),
        _ => panic!("an attribute of an unknown kind"),
    };
    let dimensions = shape.into_iter().flat_map(|shape| shape.dimensions());
    AttributeRecord {
        name: name.clone(),
        value: value.to_vec(),
        entries: match attribute {
            Attribute::Dictionary(entries) => attribute_records(entries),
            _ => Vec::new(),
        },
        dimensions: dimensions.map(|&d| d as i64).collect(),
        kind,
        element_type: shape.map_or(0, |shape| shape.element_type().number()),
    }
}
