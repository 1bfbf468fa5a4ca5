//! Converts arrays between row-major order, which literals use, and a call site's layout.

use callbox::ArrayShape;

/// Reorders a row-major array into the shape's layout.
pub(in crate::platform) fn to_layout(shape: &ArrayShape, row_major: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; row_major.len()];
    for_each_element(shape, |logical, physical| {
        bytes[physical.clone()].copy_from_slice(&row_major[logical]);
    });
    bytes
}

/// Reorders an array in the shape's layout into row-major order.
pub(in crate::platform) fn from_layout(shape: &ArrayShape, in_layout: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; in_layout.len()];
    for_each_element(shape, |logical, physical| {
        bytes[logical].copy_from_slice(&in_layout[physical]);
    });
    bytes
}

/// Calls `visit` with each element's byte ranges in row-major order and in the layout.
fn for_each_element(
    shape: &ArrayShape,
    mut visit: impl FnMut(std::ops::Range<usize>, std::ops::Range<usize>),
) {
    let width = shape.element_type().byte_width();
    let layout = shape.layout_or_default();
    for physical in 0..shape.element_count() {
        let mut rest = physical;
        let mut index = vec![0; shape.rank()];
        for &dimension in layout.minor_to_major() {
            index[dimension] = rest % shape.dimensions()[dimension];
            rest /= shape.dimensions()[dimension];
        }
        let logical =
            std::iter::zip(&index, shape.dimensions()).fold(0, |at, (i, size)| at * size + i);
        visit(
            logical * width..(logical + 1) * width,
            physical * width..(physical + 1) * width,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_move_there_and_back() {
        let shape: ArrayShape = "u8[2,3]{0,1}".parse().unwrap();
        let row_major = [1, 2, 3, 4, 5, 6];
        let in_layout = to_layout(&shape, &row_major);
        assert_eq!(in_layout, [1, 4, 2, 5, 3, 6]);
        assert_eq!(from_layout(&shape, &in_layout), row_major);
        let cube: ArrayShape = "u16[2,2,2]{1,2,0}".parse().unwrap();
        let bytes: Vec<u8> = (0..16).collect();
        assert_eq!(from_layout(&cube, &to_layout(&cube, &bytes)), bytes);
    }
}
