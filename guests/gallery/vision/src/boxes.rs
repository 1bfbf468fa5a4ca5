//! Non-maximum suppression.

use callbox_guest::{Failure, Operand, ResultBuffer, target};
use gallery::row_major;

/// Chooses boxes `(left, top, right, bottom)` in the order of their scores, each unless it overlaps
/// a chosen one by more than `overlap`, the area of the intersection divided by that of the union.
/// Boxes of a score of `least` or less are left out. Of equal scores the lower number comes first.
///
/// `chosen` has room for as many boxes as the caller allows, and is -1 behind the first `count`.
#[target(pure)]
fn suppress_non_maxima(
    #[dimensions(n, 4)] boxes: &Operand<f32, 2>,
    #[dimensions(n)] scores: &Operand<f32, 1>,
    #[dimensions(k)] chosen: &mut ResultBuffer<i32, 1>,
    count: &mut ResultBuffer<i32, 0>,
    #[attr] overlap: f32,
    #[attr] least: f32,
) -> Result<(), Failure> {
    row_major(&[("boxes", boxes.shape())])?;
    let mut order: Vec<usize> = (0..scores.len()).filter(|&i| scores[i] > least).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    let boxes: Vec<Rectangle> = boxes.chunks_exact(4).map(Rectangle::new).collect();
    chosen.fill(-1);
    let mut kept = Vec::new();
    for i in order {
        if kept.len() == chosen.len() {
            break;
        }
        if kept
            .iter()
            .all(|&other: &usize| boxes[i].overlap(&boxes[other]) <= overlap)
        {
            chosen[kept.len()] = i as i32;
            kept.push(i);
        }
    }
    count.set(kept.len() as i32);
    Ok(())
}

/// A rectangle with its area.
struct Rectangle {
    sides: [f32; 4],
    area: f32,
}

impl Rectangle {
    fn new(sides: &[f32]) -> Self {
        let sides = [sides[0], sides[1], sides[2], sides[3]];
        let [left, top, right, bottom] = sides;
        Self {
            sides,
            area: (right - left) * (bottom - top),
        }
    }

    /// Returns the area of the intersection, divided by that of the union.
    fn overlap(&self, other: &Self) -> f32 {
        let [left, top] = [0, 1].map(|i: usize| self.sides[i].max(other.sides[i]));
        let [right, bottom] = [2, 3].map(|i: usize| self.sides[i].min(other.sides[i]));
        let common = (right - left).max(0.0) * (bottom - top).max(0.0);
        if common == 0.0 {
            return 0.0;
        }
        common / (self.area + other.area - common)
    }
}
