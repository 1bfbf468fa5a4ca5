//! Tests of the places of buffers and of the frame's records.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::super::abi::{attribute, buffer, call_frame};
use super::super::block::get;
use super::*;
use callbox_core::call::Alias;
use callbox_core::values::StatusCode;
use callbox_core::values::{Attribute, Dictionary};

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
fn other_attributes_make_the_frame_of_a_new_call_site() {
    let inner = Dictionary::from([("b".to_owned(), Attribute::from("x\0y"))]);
    let long = Attribute::String(vec![7; 1000]);
    let sets = [
        vec![],
        vec![("n", Attribute::scalar(4.0f32))],
        vec![("d", Attribute::Dictionary(inner)), ("s", long)],
    ];
    let mut site = site(&["f32[2,3]{0,1}", "token[]"], "(f32[2,3]{0,1}, s8[5])");
    site.aliasing = vec![alias(&[0], 0, &[])];
    site.opaque = b"opaque".to_vec();
    let with = |set: &[(&str, Attribute)]| {
        let owned = |(name, value): &(&str, Attribute)| ((*name).to_owned(), value.clone());
        set.iter().map(owned).collect::<Dictionary>()
    };
    for first in &sets {
        let first = site.clone().with_attributes(with(first));
        let layout = ArenaLayout::new(&first, 1 << 20).unwrap();
        for other in &sets {
            let made = ArenaLayout::new(&site.clone().with_attributes(with(other)), 1 << 20);
            let made = made.unwrap();
            let varied = layout
                .with_attributes(&site, &with(other), 1 << 20)
                .unwrap();
            let bytes =
                |layout: &ArenaLayout| layout.image(Frame::Whole, 0x5_0000).bytes().to_vec();
            assert_eq!(bytes(&varied), bytes(&made));
            assert_eq!(varied.size(), made.size());
            assert_eq!(varied.frame(), made.frame());
        }
        let refused = layout.with_attributes(&site, &with(&sets[2]), 1024);
        assert_eq!(refused.unwrap_err().code(), StatusCode::ResourceExhausted);
    }
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

/// Follows the pointers of an older convention from an arena at 4096.
struct Pointed {
    layout: ArenaLayout,
    image: FrameImage,
}

const ARENA: u32 = 4096;

impl Pointed {
    fn new(site: &CallSite) -> Self {
        let layout = ArenaLayout::new(site, 1 << 20).unwrap();
        let image = layout.image(Frame::Whole, ARENA);
        Self { layout, image }
    }

    /// The pointers of the array at this pointer.
    fn array(&self, pointer: u32, count: usize) -> Vec<u32> {
        let at = (pointer - ARENA) as usize - self.layout.frame();
        (0..count)
            .map(|i| get(self.image.bytes(), at + 4 * i))
            .collect()
    }
}

#[test]
fn tuples_are_arrays_of_pointers_as_the_seeds_draw_them() {
    let operands = ["(f32[32], (f32[64], f32[128]), f32[256])", "()", "token[]"];
    let mut site = site(&operands, "(f32[512], f32[1024])");
    site.api_version = ApiVersion::StatusReturningUnified;
    site.opaque = b"ab\0c".to_vec();
    let pointed = Pointed::new(&site);
    let leaf = |places: &[BufferPlace], i: usize| ARENA + places[i].offset as u32;
    let (inputs, outputs) = (pointed.layout.operands(), pointed.layout.results());
    let pointers = pointed.layout.pointers();
    let ins = pointed.array(ARENA + pointers.ins.unwrap(), 3);
    let p0 = pointed.array(ins[0], 3);
    assert_eq!([p0[0], p0[2]], [leaf(inputs, 0), leaf(inputs, 3)]);
    assert_eq!(pointed.array(p0[1], 2), [leaf(inputs, 1), leaf(inputs, 2)]);
    assert_ne!(ins[1], 0, "an empty tuple is an array of no pointers");
    assert_eq!(ins[2], 0, "a token has no memory");
    let out = pointed.array(ARENA + pointers.out.unwrap(), 2);
    assert_eq!(out, [leaf(outputs, 0), leaf(outputs, 1)]);

    let opaque = pointers.opaque.unwrap();
    assert_eq!((opaque % 16, pointers.opaque_len), (0, 4));
    let at = opaque as usize - pointed.layout.frame();
    assert_eq!(&pointed.image.bytes()[at..at + 5], b"ab\0c\0");
}

#[test]
fn an_array_is_the_output_itself_but_for_the_jax_proposal() {
    let mut site = site(&["s32[2]"], "s32[2]");
    for (api_version, is_array) in [
        (ApiVersion::Original, false),
        (ApiVersion::StatusReturning, false),
        (ApiVersion::JaxFfi, true),
    ] {
        site.api_version = api_version;
        let pointed = Pointed::new(&site);
        let leaf = pointed.layout.results()[0].offset as u32;
        let out = pointed.layout.pointers().out.unwrap();
        match is_array {
            true => assert_eq!(pointed.array(ARENA + out, 1), [ARENA + leaf]),
            false => assert_eq!(out, leaf),
        }
    }
    assert_eq!(Pointed::new(&site).layout.pointers().opaque, None);
}
