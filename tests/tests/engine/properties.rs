//! Property tests of shapes, of the arena's layout, and of loading arbitrary bytes.

use callbox::call::Alias;
use callbox::frame::{ArenaLayout, BufferPlace, Frame};
use callbox::{
    ArrayShape, Attribute, CallSite, Dictionary, ElementType, Layout, Literal, Shape, StatusCode,
};
use callbox_abi::ARENA_ALIGNMENT;
use callbox_tests::run;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use crate::decode::{AttributeRecord, BufferRecord, FrameRecord, Memory};

/// The arena's address in these tests' linear memory.
const ARENA: u32 = 0x1_0000;

fn element_type() -> impl Strategy<Value = ElementType> {
    proptest::sample::select(ElementType::ALL.to_vec())
}

/// Generates a shape of few elements, with a layout half of the time.
fn small_array() -> impl Strategy<Value = ArrayShape> {
    (element_type(), vec(0_usize..6, 0..4), any::<bool>())
        .prop_map(|(element_type, dimensions, has_layout)| {
            let dimensions = if element_type == ElementType::Token {
                vec![]
            } else {
                dimensions
            };
            (
                ArrayShape::new(element_type, &dimensions).unwrap(),
                has_layout,
            )
        })
        .prop_flat_map(|(shape, has_layout)| {
            let order: Vec<usize> = (0..shape.rank()).collect();
            (Just(shape), Just(has_layout), Just(order).prop_shuffle())
        })
        .prop_map(|(shape, has_layout, order)| {
            if has_layout && shape.rank() > 0 {
                shape.with_layout(Layout::new(&order).unwrap()).unwrap()
            } else {
                shape
            }
        })
}

fn small_shape() -> impl Strategy<Value = Shape> {
    small_array()
        .prop_map(Shape::Array)
        .prop_recursive(3, 12, 4, |element| {
            vec(element, 0..4).prop_map(|elements| Shape::tuple(elements).unwrap())
        })
}

fn literal() -> impl Strategy<Value = Literal> {
    small_array().prop_flat_map(|shape| {
        let shape = shape.without_layout();
        let bytes = vec(any::<u8>(), shape.byte_size());
        (Just(shape), bytes).prop_map(|(shape, bytes)| Literal::from_bytes(shape, bytes).unwrap())
    })
}

fn attribute() -> impl Strategy<Value = Attribute> {
    let leaf = prop_oneof![
        any::<f32>().prop_map(Attribute::scalar),
        any::<i64>().prop_map(Attribute::scalar),
        any::<bool>().prop_map(Attribute::scalar),
        literal().prop_map(|literal| Attribute::array(literal).unwrap()),
        vec(any::<u8>(), 0..40).prop_map(Attribute::String),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        btree_map("[a-z\u{e4}]{1,6}", inner, 0..4).prop_map(Attribute::Dictionary)
    })
}

fn dictionary() -> impl Strategy<Value = Dictionary> {
    btree_map("[a-z.]{1,8}", attribute(), 0..5)
}

/// Generates a call site. Each result may be aliased to the operand with the same index if their
/// shapes agree.
fn call_site() -> impl Strategy<Value = CallSite> {
    (
        vec(small_shape(), 0..4),
        vec(small_array(), 0..4),
        dictionary(),
        vec(any::<u8>(), 0..20),
        any::<u8>(),
    )
        .prop_map(|(operands, extra, attributes, opaque, aliased)| {
            let mut results: Vec<Shape> = operands.clone();
            results.extend(extra.into_iter().map(Shape::Array));
            let mut site = CallSite::new("f", operands.clone(), Shape::tuple(results).unwrap());
            site.attributes = attributes;
            site.opaque = opaque;
            for (number, operand) in operands.iter().enumerate() {
                if operand.as_array().is_some() && aliased >> number & 1 == 1 {
                    site.aliasing.push(Alias {
                        result_index: vec![number],
                        operand: number,
                        operand_index: vec![],
                    });
                }
            }
            site
        })
}

proptest! {
    #[test]
    fn shapes_read_back_from_what_they_print(shape in small_shape()) {
        let text = shape.to_string();
        prop_assert_eq!(text.parse::<Shape>().unwrap(), shape);
    }

    #[test]
    fn no_text_makes_the_shape_reader_panic(text in "[fs(){}\\[\\],0-9 :TSE?<=/*-]{0,40}|\\PC{0,40}") {
        if let Ok(shape) = text.parse::<Shape>() {
            prop_assert_eq!(shape.to_string().parse::<Shape>(), Ok(shape));
        }
    }

    #[test]
    fn sizes_are_products_or_errors(
        element_type in element_type(),
        dimensions in vec(prop_oneof![Just(0_usize), 1..8_usize, any::<usize>(), Just(1 << 31), Just(1 << 32)], 0..5),
    ) {
        // Computed in wide integers, with products saturated far above every limit.
        let nonzero = dimensions.iter().filter(|&&d| d != 0);
        let largest = nonzero.fold(element_type.byte_width() as u128, |size, &d| size.saturating_mul(d as u128));
        let is_token = element_type == ElementType::Token;
        let fits = largest <= isize::MAX as u128 && (!is_token || dimensions.is_empty());
        match ArrayShape::new(element_type, &dimensions) {
            Ok(shape) => {
                prop_assert!(fits);
                let count: usize = if dimensions.contains(&0) { 0 } else { dimensions.iter().product() };
                prop_assert_eq!(shape.element_count(), count);
                prop_assert_eq!(shape.byte_size() as u128, if count == 0 { 0 } else { largest });
            }
            Err(status) => {
                prop_assert!(!fits, "{}", status);
                prop_assert_eq!(status.code(), StatusCode::InvalidArgument);
            }
        }
    }

    #[test]
    fn leaves_of_literals_survive_tuples(literals in vec(literal(), 0..5)) {
        let tuple = Literal::tuple(literals.clone()).unwrap();
        prop_assert_eq!(tuple.shape().leaves().len(), literals.len());
        prop_assert_eq!(tuple.into_elements(), literals);
    }

    #[test]
    fn arenas_hold_their_buffers_apart(site in call_site()) {
        let layout = ArenaLayout::new(&site, 1 << 30).unwrap();
        let shapes: Vec<&ArrayShape> = site.operands.iter().flat_map(Shape::leaves).collect();
        check_places(&layout, layout.operands(), &shapes)?;
        check_places(&layout, layout.results(), &site.result.leaves())?;
        let aliases = aliases(&site);
        let fresh = layout.results().iter().enumerate().filter(|(i, _)| aliases[*i].is_none());
        let places: Vec<&BufferPlace> = layout.operands().iter().chain(fresh.map(|(_, place)| place)).collect();
        for (i, a) in places.iter().enumerate() {
            for b in &places[i + 1..] {
                let apart = a.offset + a.size <= b.offset || b.offset + b.size <= a.offset;
                prop_assert!(apart || a.size == 0 || b.size == 0, "{:?} and {:?}", a, b);
            }
            prop_assert!(a.offset + a.size <= layout.frame(), "{:?} and the frame", a);
        }
        for (result, operand) in aliases.iter().enumerate() {
            if let Some(operand) = operand {
                prop_assert_eq!(layout.results()[result], layout.operands()[*operand]);
            }
        }
    }

    #[test]
    fn frames_say_what_the_call_site_says(site in call_site()) {
        let layout = ArenaLayout::new(&site, 1 << 30).unwrap();
        let image = layout.image(Frame::Whole, ARENA);
        let at = ARENA as usize + layout.frame();
        prop_assert!(layout.frame() + image.bytes().len() <= layout.size());
        let memory = Memory::new(at, image.bytes());
        let frame = memory.frame(at);
        check_frame(&site, &layout, &frame)?;
        prop_assert_eq!(frame.attributes, attribute_records(&site.attributes));
        prop_assert_eq!(frame.opaque, site.opaque.clone());

        let image = layout.image(Frame::Attributes, ARENA);
        let frame = Memory::new(at, image.bytes()).frame(at);
        prop_assert_eq!((frame.operands.len(), frame.results.len()), (0, 0));
        prop_assert_eq!(frame.attributes, attribute_records(&site.attributes));
    }

    #[test]
    fn arenas_past_the_limit_are_refused(site in call_site(), limit in 0_usize..4096) {
        let size = ArenaLayout::new(&site, 1 << 30).unwrap().size();
        match ArenaLayout::new(&site, limit) {
            Ok(layout) => prop_assert!(layout.size() == size && size <= limit),
            Err(status) => {
                prop_assert!(size > limit, "{} bytes, and {}", size, status);
                prop_assert_eq!(status.code(), StatusCode::ResourceExhausted);
            }
        }
    }
}

fn check_places(
    layout: &ArenaLayout,
    places: &[BufferPlace],
    shapes: &[&ArrayShape],
) -> Result<(), TestCaseError> {
    prop_assert_eq!(places.len(), shapes.len());
    for (place, shape) in std::iter::zip(places, shapes) {
        prop_assert_eq!(place.size, shape.byte_size());
        prop_assert_eq!(place.offset % ARENA_ALIGNMENT, 0);
        prop_assert!(place.offset + place.size <= layout.size());
    }
    prop_assert_eq!(layout.frame() % ARENA_ALIGNMENT, 0);
    prop_assert_eq!(layout.size() % ARENA_ALIGNMENT, 0);
    Ok(())
}

/// Returns, for each result leaf, the operand leaf whose memory it shares. The site's aliasing
/// names whole operands, and elements of the result's single tuple.
fn aliases(site: &CallSite) -> Vec<Option<usize>> {
    let count = |shapes: &[Shape]| {
        shapes
            .iter()
            .map(|shape| shape.leaves().len())
            .sum::<usize>()
    };
    let elements = site.result.as_tuple().unwrap();
    let mut aliases = vec![None; count(elements)];
    for alias in &site.aliasing {
        aliases[count(&elements[..alias.result_index[0]])] =
            Some(count(&site.operands[..alias.operand]));
    }
    aliases
}

fn check_frame(
    site: &CallSite,
    layout: &ArenaLayout,
    frame: &FrameRecord,
) -> Result<(), TestCaseError> {
    prop_assert_eq!((frame.size, frame.stage, frame.state), (68, 3, [0; 3]));
    let aliases = aliases(site);
    let record = |shape: &ArrayShape, place: &BufferPlace| BufferRecord {
        data: match shape.element_type() {
            ElementType::Token => (0, 0),
            _ => (ARENA + place.offset as u32, place.size as u32),
        },
        dimensions: shape.dimensions().iter().map(|&d| d as i64).collect(),
        minor_to_major: shape
            .layout_or_default()
            .minor_to_major()
            .iter()
            .map(|&d| d as i64)
            .collect(),
        element_type: shape.element_type().number(),
        read_only: false,
        aliased_operand: None,
    };
    let operands: Vec<BufferRecord> = std::iter::zip(
        site.operands.iter().flat_map(Shape::leaves),
        layout.operands(),
    )
    .enumerate()
    .map(|(leaf, (shape, place))| BufferRecord {
        read_only: !aliases.contains(&Some(leaf)),
        ..record(shape, place)
    })
    .collect();
    prop_assert_eq!(&frame.operands, &operands);
    let results: Vec<BufferRecord> = std::iter::zip(site.result.leaves(), layout.results())
        .enumerate()
        .map(|(leaf, (shape, place))| BufferRecord {
            aliased_operand: aliases[leaf].map(|operand| operand as u32),
            ..record(shape, place)
        })
        .collect();
    prop_assert_eq!(&frame.results, &results);
    Ok(())
}

/// Returns the expected records of a dictionary, sorted by name like a `BTreeMap`.
fn attribute_records(dictionary: &Dictionary) -> Vec<AttributeRecord> {
    let record = |(name, value): (&String, &Attribute)| {
        let (kind, literal) = match value {
            Attribute::Array(literal) => (1, Some(literal)),
            Attribute::Dictionary(_) => (2, None),
            Attribute::Scalar(literal) => (3, Some(literal)),
            Attribute::String(_) => (4, None),
            _ => panic!("an attribute of a kind that this test does not know"),
        };
        let shape = literal.map(|literal| literal.shape().as_array().unwrap().clone());
        AttributeRecord {
            name: name.clone(),
            value: match value {
                Attribute::String(bytes) => bytes.clone(),
                Attribute::Dictionary(_) => Vec::new(),
                _ => literal.unwrap().bytes().unwrap().to_vec(),
            },
            entries: match value {
                Attribute::Dictionary(entries) => attribute_records(entries),
                _ => Vec::new(),
            },
            dimensions: shape
                .iter()
                .flat_map(|s| s.dimensions().iter().map(|&d| d as i64))
                .collect(),
            kind,
            element_type: shape.map_or(0, |shape| shape.element_type().number()),
        }
    };
    dictionary.iter().map(record).collect()
}

/// Returns a module with every kind of section that callbox reads.
fn sample() -> Vec<u8> {
    let text = r#"(module
      (import "callbox:ffi/api@1.0.0" "version" (func $version (result i32)))
      (memory (export "memory") 1 2)
      (table 2 funcref)
      (global (mut i32) (i32.const 0))
      (func $f (export "f") (param i32) (result i32) (drop (call $version)) (i32.const 0))
      (elem (i32.const 0) $f)
      (data (i32.const 0) "data")
      (@custom "callbox.targets" "{\"name\": \"f\", \"operands\": [{\"name\": \"x\", \"rank\": 1}]}"))"#;
    wat::parse_str(text).unwrap()
}

/// Generates contents of the section `callbox.targets`: JSON-like text, arbitrary characters, and
/// objects whose strings contain control characters.
fn metadata() -> impl Strategy<Value = String> {
    let escape = prop_oneof![
        Just("\\u001b[31m".to_owned()),
        Just("\\u009b".to_owned()),
        Just("\\u202e".to_owned()),
        Just("\\r\\u0000".to_owned()),
        "[a-z]{0,4}",
    ];
    let text = || vec(escape.clone(), 0..4).prop_map(|parts| parts.concat());
    let object = (
        prop_oneof![Just("f".to_owned()), text()],
        prop_oneof!["name", "stages", "operands", "attributes", "api_version", "doc"],
        text(),
    )
        .prop_map(|(name, key, value)| match key.as_str() {
            "stages" => format!(r#"{{"name": "{name}", "stages": ["{value}"]}}"#),
            "operands" => format!(
                r#"{{"name": "{name}", "operands": [{{"name": "x", "element_types": ["{value}"]}}]}}"#
            ),
            "attributes" => format!(
                r#"{{"name": "{name}", "attributes": [{{"name": "n", "kind": "{value}"}}]}}"#
            ),
            "name" => format!(r#"{{"name": "{value}"}}"#),
            key => format!(r#"{{"name": "{name}", "{key}": "{value}"}}"#),
        });
    prop_oneof![
        "[\\[\\]{}\",:0-9a-z ]{0,60}",
        "\\PC{0,60}",
        "[\\x00-\\x1f\\x7f-\\x9f{}\"a-z\u{202e}]{0,30}",
        object,
    ]
}

/// Loads bytes, and checks that a rejection blames the guest and has a message.
fn load(bytes: &[u8]) -> Result<(), TestCaseError> {
    if let Err(status) = run::shared_engine().load(bytes) {
        prop_assert_eq!(status.blame(), callbox::Blame::Guest, "{}", &status);
        prop_assert_ne!(status.code(), StatusCode::Internal, "{}", &status);
        prop_assert!(!status.message().is_empty());
        let steers = |c: char| {
            c.is_control() && c != '\n' && c != '\t' || ('\u{202a}'..='\u{202e}').contains(&c)
        };
        prop_assert!(
            !status.message().chars().any(steers),
            "{:?}",
            status.message()
        );
    }
    Ok(())
}

#[test]
fn every_beginning_of_a_module_is_refused_or_a_module() {
    let sample = sample();
    run::shared_engine().load(&sample).unwrap();
    for length in 0..sample.len() {
        load(&sample[..length]).unwrap();
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_loader_panic(bytes in vec(any::<u8>(), 0..200)) {
        load(&bytes)?;
        load(&[b"\0asm\x01\0\0\0".as_slice(), &bytes].concat())?;
    }

    #[test]
    fn no_damage_makes_the_loader_panic(damage in vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = sample();
        for (index, byte) in damage {
            *index.get_mut(&mut bytes) = byte;
        }
        load(&bytes)?;
    }

    #[test]
    fn no_metadata_makes_the_loader_panic(text in metadata()) {
        let escaped: String = text.bytes().map(|byte| format!("\\{byte:02x}")).collect();
        let text = format!(
            "(module (memory (export \"memory\") 1) (func (export \"f\") (param i32) (result i32) (i32.const 0)) \
             (@custom \"callbox.targets\" \"{escaped}\"))"
        );
        load(&wat::parse_str(text).unwrap())?;
    }
}
