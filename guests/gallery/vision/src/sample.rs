//! Samples of an image at given points.

use callbox_guest::{Failure, Operand, ResultBuffer, target};
use gallery::row_major;

use crate::taps::Taps;

/// Interpolates each image of `x` at the points of `grid`, `(column, row)` from -1 to 1 between the
/// image's edges, with zeros around the image. This is PyTorch's `grid_sample` with
/// `align_corners=False`.
#[target(pure)]
fn grid_sample(
    #[dimensions(n, c, h, w)] x: &Operand<f32, 4>,
    #[dimensions(n, rows, columns, 2)] grid: &Operand<f32, 4>,
    #[dimensions(n, c, rows, columns)] y: &mut ResultBuffer<f32, 4>,
) -> Result<(), Failure> {
    row_major(&[("x", x.shape()), ("grid", grid.shape()), ("y", y.shape())])?;
    let sizes = Sizes::new(x.dimensions(), grid.dimensions());
    for i in 0..sizes.images {
        let image = &x[i * sizes.channels * sizes.plane()..];
        let y = &mut y[i * sizes.channels * sizes.points..];
        for (j, taps) in sizes.taps(grid, i).enumerate() {
            for c in 0..sizes.channels {
                let plane = &image[c * sizes.plane()..][..sizes.plane()];
                y[c * sizes.points + j] = taps.gather(plane, &taps.weights);
            }
        }
    }
    Ok(())
}

/// Computes the cotangents of the operands of `grid_sample`.
#[target(pure)]
#[derivative_of(grid_sample)]
fn grid_sample_grad(
    #[dimensions(n, c, h, w)] x: &Operand<f32, 4>,
    #[dimensions(n, rows, columns, 2)] grid: &Operand<f32, 4>,
    #[dimensions(n, c, rows, columns)] dy: &Operand<f32, 4>,
    #[dimensions(n, c, h, w)] dx: &mut ResultBuffer<f32, 4>,
    #[dimensions(n, rows, columns, 2)] dgrid: &mut ResultBuffer<f32, 4>,
) -> Result<(), Failure> {
    row_major(&[
        ("x", x.shape()),
        ("grid", grid.shape()),
        ("dy", dy.shape()),
        ("dx", dx.shape()),
        ("dgrid", dgrid.shape()),
    ])?;
    let sizes = Sizes::new(x.dimensions(), grid.dimensions());
    dx.fill(0.0);
    dgrid.fill(0.0);
    for i in 0..sizes.images {
        let first = i * sizes.channels * sizes.plane();
        let dy = &dy[i * sizes.channels * sizes.points..];
        let dgrid = &mut dgrid[2 * i * sizes.points..];
        for (j, taps) in sizes.taps(grid, i).enumerate() {
            for c in 0..sizes.channels {
                let plane = first + c * sizes.plane()..first + (c + 1) * sizes.plane();
                let dy = dy[c * sizes.points + j];
                taps.scatter(dy, &mut dx[plane.clone()]);
                let plane = &x[plane];
                let scale = [sizes.width as f32 / 2.0, sizes.height as f32 / 2.0];
                dgrid[2 * j] += dy * scale[0] * taps.gather(plane, &taps.slopes[1]);
                dgrid[2 * j + 1] += dy * scale[1] * taps.gather(plane, &taps.slopes[0]);
            }
        }
    }
    Ok(())
}

/// The sizes of a call.
struct Sizes {
    images: usize,
    channels: usize,
    height: usize,
    width: usize,
    points: usize,
}

impl Sizes {
    fn new(x: &[i64], grid: &[i64]) -> Self {
        Self {
            images: x[0] as usize,
            channels: x[1] as usize,
            height: x[2] as usize,
            width: x[3] as usize,
            points: (grid[1] * grid[2]) as usize,
        }
    }

    fn plane(&self) -> usize {
        self.height * self.width
    }

    /// Returns the taps of the points of an image.
    fn taps(&self, grid: &[f32], image: usize) -> impl Iterator<Item = Taps> {
        let pixel = |place: f32, size: usize| ((place + 1.0) * size as f32 - 1.0) / 2.0;
        let grid = &grid[2 * image * self.points..][..2 * self.points];
        grid.chunks_exact(2).map(move |point| {
            let (row, column) = (pixel(point[1], self.height), pixel(point[0], self.width));
            Taps::padded(row, column, [self.height, self.width])
        })
    }
}
