#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;

fn shape(text: &str) -> Shape {
    text.parse().unwrap()
}

#[test]
fn sizes_are_checked() {
    let err = Shape::array(ElementType::F32, &[1 << 40, 1 << 40]).unwrap_err();
    assert_eq!(
        err.message(),
        "expected a shape whose size in bytes is at most 9223372036854775807, \
         found f32[1099511627776,1099511627776]"
    );
    // An empty array has strides as well.
    assert!(Shape::array(ElementType::F32, &[0, 1 << 40, 1 << 40]).is_err());
    let empty = ArrayShape::new(ElementType::F32, &[3, 0, 5]).unwrap();
    assert_eq!((empty.element_count(), empty.byte_size()), (0, 0));
    let scalar = ArrayShape::scalar(ElementType::C128);
    assert_eq!((scalar.element_count(), scalar.byte_size()), (1, 16));
    assert_eq!(ArrayShape::scalar(ElementType::Token).byte_size(), 0);
}

#[test]
fn leaves_are_in_preorder_and_empty_tuples_vanish() {
    let nested = shape("(f32[32], (f32[64], (), f32[128]), f32[256])");
    let sizes: Vec<_> = nested.leaves().iter().map(|l| l.dimensions()[0]).collect();
    assert_eq!(sizes, [32, 64, 128, 256]);
    assert_eq!(nested.at(&[1, 2]), Some(&shape("f32[128]")));
    assert_eq!(nested.at(&[1, 3]), None);
    assert_eq!(nested.at(&[0, 0]), None);
}

#[test]
fn layouts_do_not_matter_to_compatibility() {
    assert!(shape("(f32[2,3]{0,1})").is_compatible(&shape("(f32[2,3]{1,0})")));
    assert!(!shape("(f32[2,3])").is_compatible(&shape("f32[2,3]")));
    assert!(!shape("()").is_compatible(&shape("(f32[])")));
}

#[test]
fn tuples_nest_to_a_bounded_depth() {
    let mut deep = Shape::scalar(ElementType::F32);
    for _ in 0..MAX_TUPLE_DEPTH {
        deep = Shape::tuple(vec![deep]).unwrap();
    }
    let err = Shape::tuple(vec![deep]).unwrap_err();
    assert_eq!(err.code(), StatusCode::ResourceExhausted);
}

#[test]
fn tuples_that_double_are_refused_and_share_memory_until_then() {
    let mut doubled = Shape::scalar(ElementType::F32);
    let err = loop {
        match Shape::tuple(vec![doubled.clone(), doubled.clone()]) {
            Ok(tuple) => doubled = tuple,
            Err(err) => break err,
        }
    };
    assert_eq!(doubled.leaf_count(), 1 << 19);
    assert_eq!(doubled.leaves().len(), 1 << 19);
    assert_eq!(err.code(), StatusCode::ResourceExhausted);
    assert_eq!(
        err.message(),
        "expected a tuple of at most 1048576 shapes, found 2097151"
    );
    let Shape::Tuple(tuple) = &doubled else {
        unreachable!("a tuple");
    };
    let [Shape::Tuple(left), Shape::Tuple(right)] = tuple.elements() else {
        unreachable!("two tuples");
    };
    assert!(Arc::ptr_eq(&left.elements, &right.elements));
}

#[test]
fn the_number_of_dimensions_is_bounded() {
    assert!(Shape::array(ElementType::F32, &[1; MAX_RANK]).is_ok());
    let err = Shape::array(ElementType::F32, &[1; MAX_RANK + 1]).unwrap_err();
    assert_eq!(err.code(), StatusCode::ResourceExhausted);
    assert_eq!(
        err.message(),
        "expected an array of at most 255 dimensions, found 256"
    );
}
