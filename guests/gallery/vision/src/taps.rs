//! The weights of bilinear interpolation.

/// The pixels of one image plane that a point between them takes, with their weights.
pub(crate) struct Taps {
    /// The pixels' offsets in the plane. A pixel that does not count has the weight 0.
    pub(crate) offsets: [usize; 4],
    pub(crate) weights: [f32; 4],
    /// The derivatives of the weights by the row and by the column.
    pub(crate) slopes: [[f32; 4]; 2],
}

impl Taps {
    /// Returns the taps of a point, with zeros around the plane. Pixel `i` is at `i`.
    pub(crate) fn padded(row: f32, column: f32, [height, width]: [usize; 2]) -> Self {
        let (top, left) = (row.floor(), column.floor());
        Self::new(
            [(top, row - top), (left, column - left)],
            |place, size| (place >= 0.0 && place < size as f32).then_some(place as usize),
            [height, width],
        )
    }

    /// Returns the taps of a point that is moved into the plane.
    pub(crate) fn clamped(row: f32, column: f32, [height, width]: [usize; 2]) -> Self {
        let inside = |place: f32, size: usize| {
            let place = place.clamp(0.0, size.saturating_sub(1) as f32);
            (place.floor(), place - place.floor())
        };
        Self::new(
            [inside(row, height), inside(column, width)],
            |place, size| Some((place as usize).min(size.checked_sub(1)?)),
            [height, width],
        )
    }

    fn new(
        [(top, down), (left, right)]: [(f32, f32); 2],
        pixel: impl Fn(f32, usize) -> Option<usize>,
        [height, width]: [usize; 2],
    ) -> Self {
        let mut taps = Self {
            offsets: [0; 4],
            weights: [0.0; 4],
            slopes: [[0.0; 4]; 2],
        };
        let rows = [(top, 1.0 - down, -1.0), (top + 1.0, down, 1.0)];
        let columns = [(left, 1.0 - right, -1.0), (left + 1.0, right, 1.0)];
        for (i, (row, y_weight, y_slope)) in rows.into_iter().enumerate() {
            for (j, (column, x_weight, x_slope)) in columns.into_iter().enumerate() {
                let Some((y, x)) = pixel(row, height).zip(pixel(column, width)) else {
                    continue;
                };
                let tap = 2 * i + j;
                taps.offsets[tap] = y * width + x;
                taps.weights[tap] = y_weight * x_weight;
                taps.slopes[0][tap] = y_slope * x_weight;
                taps.slopes[1][tap] = y_weight * x_slope;
            }
        }
        taps
    }

    /// Returns the sum of the pixels of a plane, with these weights.
    pub(crate) fn gather(&self, plane: &[f32], weights: &[f32; 4]) -> f32 {
        let taps = self.offsets.iter().zip(weights);
        // A weight of 0 hides a pixel that is infinite or NaN.
        let taps = taps.filter(|(_, weight)| **weight != 0.0);
        taps.map(|(&offset, weight)| plane[offset] * weight).sum()
    }

    /// Adds `value` to the pixels of a plane, by weight.
    pub(crate) fn scatter(&self, value: f32, plane: &mut [f32]) {
        for (&offset, weight) in self.offsets.iter().zip(&self.weights) {
            if *weight != 0.0 {
                plane[offset] += value * weight;
            }
        }
    }
}
