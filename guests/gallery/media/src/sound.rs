//! The mel spectrogram.

use callbox_guest::{Failure, Operand, ResultBuffer, target};
use gallery::{invalid, last, row_major};
use rustfft::FftPlanner;
use rustfft::num_complex::Complex;

/// Computes the power of each row of samples in bands of the mel scale.
///
/// Frame `i` begins at sample `i hop` and has `window` samples, weighted by a periodic Hann window;
/// samples past the end are 0. The bands are triangles that are equally wide in mel
/// (`2595 log10(1 + f / 700)`, HTK's) from 0 to half the rate, with a height of 1.
#[target(rows)]
fn mel_spectrogram(
    #[dimensions(.., n)] samples: &Operand<f32>,
    #[dimensions(.., frames, bands)] power: &mut ResultBuffer<f32>,
    #[attr] rate: f32,
    #[attr] window: i32,
    #[attr] hop: i32,
) -> Result<(), Failure> {
    row_major(&[("samples", samples.shape()), ("power", power.shape())])?;
    let [count] = last("samples", samples.dimensions())?;
    let [frames, bands] = last("power", power.dimensions())?;
    if !(rate.is_finite() && rate > 0.0) {
        return Err(invalid(format!(
            "expected rate to be finite and positive, found {rate}"
        )));
    }
    let (window, hop) = (length("window", window)?, length("hop", hop)?);
    let weights = hann(window);
    let triangles = triangles(rate, window, bands);
    let transform = FftPlanner::<f32>::new().plan_fft_forward(window);
    let mut scratch = vec![Complex::default(); transform.get_inplace_scratch_len()];
    let mut frame = vec![Complex::default(); window];
    let mut powers = vec![0.0_f64; window / 2 + 1];
    for (i, power) in power.chunks_exact_mut(bands.max(1)).enumerate() {
        let samples = &samples[i / frames * count..][..count];
        let first = i % frames * hop;
        for (j, (value, weight)) in frame.iter_mut().zip(&weights).enumerate() {
            let sample = samples.get(first + j).copied().unwrap_or(0.0);
            *value = Complex::new(sample * weight, 0.0);
        }
        transform.process_with_scratch(&mut frame, &mut scratch);
        for (power, value) in powers.iter_mut().zip(&frame) {
            *power = f64::from(value.norm_sqr());
        }
        for (power, triangle) in power.iter_mut().zip(triangles.chunks_exact(powers.len())) {
            let products = powers.iter().zip(triangle);
            *power = products.map(|(power, weight)| power * weight).sum::<f64>() as f32;
        }
    }
    Ok(())
}

/// Returns the periodic Hann window.
fn hann(length: usize) -> Vec<f32> {
    let turn = std::f64::consts::TAU / length as f64;
    (0..length)
        .map(|i| (0.5 - 0.5 * (turn * i as f64).cos()) as f32)
        .collect()
}

/// Returns the weight of each frequency in each band.
fn triangles(rate: f32, window: usize, bands: usize) -> Vec<f64> {
    let rate = f64::from(rate);
    let top = 2595.0 * (1.0 + rate / 2.0 / 700.0).log10();
    let corner = |i: usize| {
        let mel = top * i as f64 / (bands + 1) as f64;
        700.0 * (10.0_f64.powf(mel / 2595.0) - 1.0)
    };
    let frequencies = window / 2 + 1;
    let mut weights = Vec::with_capacity(bands * frequencies);
    for band in 0..bands {
        let [low, middle, high] = [corner(band), corner(band + 1), corner(band + 2)];
        weights.extend((0..frequencies).map(|i| {
            let frequency = i as f64 * rate / window as f64;
            let (up, down) = (
                (frequency - low) / (middle - low),
                (high - frequency) / (high - middle),
            );
            up.min(down).max(0.0)
        }));
    }
    weights
}

fn length(name: &str, found: i32) -> Result<usize, Failure> {
    match found {
        1..=65_536 => Ok(found as usize),
        _ => Err(invalid(format!(
            "expected {name} from 1 to 65536, found {found}"
        ))),
    }
}
