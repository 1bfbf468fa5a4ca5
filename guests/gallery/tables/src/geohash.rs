//! Geohashes (Niemeyer, 2008).

use callbox_guest::{Failure, Operand, ResultBuffer, target};
use gallery::{invalid, last, row_major};

/// The digits of five bits.
const DIGITS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";

/// The ends of longitude and latitude, in degrees.
const WORLD: [[f64; 2]; 2] = [[-180.0, 180.0], [-90.0, 90.0]];

/// Writes the geohash of each place in degrees, as bytes of ASCII.
#[target(rows)]
fn geohash_encode(
    #[dimensions(..)] latitude: &Operand<f64>,
    #[dimensions(..)] longitude: &Operand<f64>,
    #[dimensions(.., length)] text: &mut ResultBuffer<u8>,
) -> Result<(), Failure> {
    row_major(&[
        ("latitude", latitude.shape()),
        ("longitude", longitude.shape()),
        ("text", text.shape()),
    ])?;
    let [length] = last("text", text.dimensions())?;
    for (i, (&latitude, &longitude)) in latitude.iter().zip(longitude.iter()).enumerate() {
        if !(latitude.abs() <= 90.0 && longitude.abs() <= 180.0) {
            return Err(invalid(format!(
                "expected a place on Earth, found the latitude {latitude} and the longitude \
                 {longitude}"
            )));
        }
        let mut ranges = WORLD;
        let mut axis = 0;
        for digit in &mut text[i * length..][..length] {
            let mut number = 0;
            for _ in 0..5 {
                let [low, high] = &mut ranges[axis];
                let middle = (*low + *high) / 2.0;
                let is_above = [longitude, latitude][axis] >= middle;
                *(if is_above { low } else { high }) = middle;
                number = number << 1 | usize::from(is_above);
                axis ^= 1;
            }
            *digit = DIGITS[number];
        }
    }
    Ok(())
}

/// Computes the centre of each geohash, and the distance from there to the cell's edges.
#[target(rows)]
fn geohash_decode(
    #[dimensions(.., length)] text: &Operand<u8>,
    #[dimensions(..)] latitude: &mut ResultBuffer<f64>,
    #[dimensions(..)] longitude: &mut ResultBuffer<f64>,
    #[dimensions(..)] latitude_error: &mut ResultBuffer<f64>,
    #[dimensions(..)] longitude_error: &mut ResultBuffer<f64>,
) -> Result<(), Failure> {
    row_major(&[("text", text.shape())])?;
    let [length] = last("text", text.dimensions())?;
    for i in 0..latitude.len() {
        let mut ranges = WORLD;
        let mut axis = 0;
        for &byte in &text[i * length..][..length] {
            let Some(number) = DIGITS.iter().position(|&digit| digit == byte) else {
                return Err(invalid(format!(
                    "expected digits and letters but a, i, l and o, found the byte {byte}"
                )));
            };
            for shift in (0..5).rev() {
                let [low, high] = &mut ranges[axis];
                let middle = (*low + *high) / 2.0;
                *(if number >> shift & 1 == 1 { low } else { high }) = middle;
                axis ^= 1;
            }
        }
        let [[west, east], [south, north]] = ranges;
        latitude[i] = (south + north) / 2.0;
        longitude[i] = (west + east) / 2.0;
        latitude_error[i] = (north - south) / 2.0;
        longitude_error[i] = (east - west) / 2.0;
    }
    Ok(())
}
