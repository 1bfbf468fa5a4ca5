//! Means of regions of interest (He and others, 2017).

use callbox_guest::{Failure, Operand, ResultBuffer, target};
use gallery::{invalid, row_major};

use crate::taps::Taps;

/// Divides each region into a grid of bins, and computes the mean of `samples` x `samples` points
/// of each bin in each channel.
///
/// A region is `(image, left, top, right, bottom)`, in pixels divided by `scale`. This is
/// torchvision's `roi_align` with `aligned=True` and a fixed `sampling_ratio`.
#[target(pure)]
fn roi_align(
    #[dimensions(n, c, h, w)] x: &Operand<f32, 4>,
    #[dimensions(r, 5)] regions: &Operand<f32, 2>,
    #[dimensions(r, c, rows, columns)] y: &mut ResultBuffer<f32, 4>,
    #[attr] scale: f32,
    #[attr] samples: i32,
) -> Result<(), Failure> {
    row_major(&[
        ("x", x.shape()),
        ("regions", regions.shape()),
        ("y", y.shape()),
    ])?;
    let sizes = Sizes::new(x.dimensions(), y.dimensions(), scale, samples)?;
    for (r, region) in regions.chunks_exact(5).enumerate() {
        let first = sizes.image(region)? * sizes.channels * sizes.plane();
        for bin in 0..sizes.bins() {
            let taps = sizes.taps(region, bin);
            for c in 0..sizes.channels {
                let plane = &x[first + c * sizes.plane()..][..sizes.plane()];
                let sum: f32 = taps
                    .iter()
                    .map(|taps| taps.gather(plane, &taps.weights))
                    .sum();
                y[(r * sizes.channels + c) * sizes.bins() + bin] = sum / taps.len() as f32;
            }
        }
    }
    Ok(())
}

/// Computes the cotangent of `x` of `roi_align`. The regions have no gradient.
#[target(pure)]
fn roi_align_grad(
    #[dimensions(r, 5)] regions: &Operand<f32, 2>,
    #[dimensions(r, c, rows, columns)] dy: &Operand<f32, 4>,
    #[dimensions(n, c, h, w)] dx: &mut ResultBuffer<f32, 4>,
    #[attr] scale: f32,
    #[attr] samples: i32,
) -> Result<(), Failure> {
    row_major(&[
        ("regions", regions.shape()),
        ("dy", dy.shape()),
        ("dx", dx.shape()),
    ])?;
    let sizes = Sizes::new(dx.dimensions(), dy.dimensions(), scale, samples)?;
    dx.fill(0.0);
    for (r, region) in regions.chunks_exact(5).enumerate() {
        let first = sizes.image(region)? * sizes.channels * sizes.plane();
        for bin in 0..sizes.bins() {
            let taps = sizes.taps(region, bin);
            for c in 0..sizes.channels {
                let plane = &mut dx[first + c * sizes.plane()..][..sizes.plane()];
                let dy = dy[(r * sizes.channels + c) * sizes.bins() + bin] / taps.len() as f32;
                taps.iter().for_each(|taps| taps.scatter(dy, plane));
            }
        }
    }
    Ok(())
}

/// The sizes of a call.
struct Sizes {
    images: usize,
    channels: usize,
    plane: [usize; 2],
    grid: [usize; 2],
    scale: f32,
    samples: usize,
}

impl Sizes {
    fn new(x: &[i64], y: &[i64], scale: f32, samples: i32) -> Result<Self, Failure> {
        if !(1..=64).contains(&samples) {
            return Err(invalid(format!(
                "expected samples from 1 to 64, found {samples}"
            )));
        }
        Ok(Self {
            images: x[0] as usize,
            channels: x[1] as usize,
            plane: [x[2] as usize, x[3] as usize],
            grid: [y[2] as usize, y[3] as usize],
            scale,
            samples: samples as usize,
        })
    }

    fn plane(&self) -> usize {
        self.plane[0] * self.plane[1]
    }

    fn bins(&self) -> usize {
        self.grid[0] * self.grid[1]
    }

    /// Returns the number of a region's image.
    fn image(&self, region: &[f32]) -> Result<usize, Failure> {
        let image = region[0];
        if image >= 0.0 && image < self.images as f32 {
            return Ok(image as usize);
        }
        Err(invalid(format!(
            "expected an image below {}, found {image}",
            self.images
        )))
    }

    /// Returns the taps of the points of one bin. Points more than a pixel outside count as 0.
    fn taps(&self, region: &[f32], bin: usize) -> Vec<Taps> {
        let [left, top, right, bottom] = [1, 2, 3, 4].map(|i: usize| region[i] * self.scale - 0.5);
        let points = |low: f32, high: f32, size: usize, bin: usize| {
            let step = (high - low) / size as f32;
            (0..self.samples)
                .map(move |i| low + (bin as f32 + (i as f32 + 0.5) / self.samples as f32) * step)
        };
        let [height, width] = self.plane;
        let is_near = |place: f32, size: usize| place >= -1.0 && place <= size as f32;
        let mut taps = Vec::with_capacity(self.samples * self.samples);
        for row in points(top, bottom, self.grid[0], bin / self.grid[1]) {
            for column in points(left, right, self.grid[1], bin % self.grid[1]) {
                taps.push(if is_near(row, height) && is_near(column, width) {
                    Taps::clamped(row, column, self.plane)
                } else {
                    Taps::padded(f32::NAN, f32::NAN, self.plane)
                });
            }
        }
        taps
    }
}
