//! Distances and areas.

use callbox_guest::{Failure, Operand, Pred, ResultBuffer, target};
use gallery::row_major;

/// Computes the great-circle distance of places in degrees, on a sphere of the given radius.
#[target(elementwise)]
fn haversine(
    #[dimensions(..)] latitude: &Operand<f64>,
    #[dimensions(..)] longitude: &Operand<f64>,
    #[dimensions(..)] to_latitude: &Operand<f64>,
    #[dimensions(..)] to_longitude: &Operand<f64>,
    #[dimensions(..)] distance: &mut ResultBuffer<f64>,
    #[attr] radius: f64,
) -> Result<(), Failure> {
    row_major(&[
        ("latitude", latitude.shape()),
        ("longitude", longitude.shape()),
        ("to_latitude", to_latitude.shape()),
        ("to_longitude", to_longitude.shape()),
        ("distance", distance.shape()),
    ])?;
    let from = latitude.iter().zip(longitude.iter());
    let to = to_latitude.iter().zip(to_longitude.iter());
    for (distance, ((lat0, lon0), (lat1, lon1))) in distance.iter_mut().zip(from.zip(to)) {
        let half_sine = |a: f64, b: f64| ((b - a).to_radians() / 2.0).sin();
        let cosines = lat0.to_radians().cos() * lat1.to_radians().cos();
        let square = half_sine(*lat0, *lat1).powi(2) + cosines * half_sine(*lon0, *lon1).powi(2);
        *distance = 2.0 * radius * square.min(1.0).sqrt().asin();
    }
    Ok(())
}

/// Tells which points are inside a polygon: those from which a ray to the right crosses an odd
/// number of edges. The last corner is joined to the first.
#[target(rows)]
fn point_in_polygon(
    #[dimensions(.., 2)] points: &Operand<f64>,
    #[dimensions(m, 2)] corners: &Operand<f64, 2>,
    #[dimensions(..)] inside: &mut ResultBuffer<Pred>,
) -> Result<(), Failure> {
    row_major(&[
        ("points", points.shape()),
        ("corners", corners.shape()),
        ("inside", inside.shape()),
    ])?;
    let corners: Vec<[f64; 2]> = corners.chunks_exact(2).map(|c| [c[0], c[1]]).collect();
    for (inside, point) in inside.iter_mut().zip(points.chunks_exact(2)) {
        *inside = Pred::from(is_inside([point[0], point[1]], &corners));
    }
    Ok(())
}

fn is_inside([x, y]: [f64; 2], corners: &[[f64; 2]]) -> bool {
    let ends = corners.iter().skip(1).chain(corners.first());
    let crosses = |(a, b): &(&[f64; 2], &[f64; 2])| {
        (a[1] > y) != (b[1] > y) && x < a[0] + (y - a[1]) / (b[1] - a[1]) * (b[0] - a[0])
    };
    corners.iter().zip(ends).filter(crosses).count() % 2 == 1
}
