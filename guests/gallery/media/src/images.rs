//! Decoders of images. The size of an image is in its file: the caller allows a number of bytes,
//! and `size` says how many of them the image has.

use std::io::Cursor;

use callbox_guest::{Failure, Operand, ResultBuffer, target};
use png::{ColorType, Transformations};
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

/// The most pixels in a row or a column.
const LONGEST: usize = 1 << 14;

/// Decodes the first image of a PNG file to pixels of 8 bits, row by row. `size` is
/// `[height, width, channels]`. Pixels behind the image are 0.
#[target(pure)]
fn decode_png(
    #[dimensions(n)] file: &Operand<u8, 1>,
    #[dimensions(k)] pixels: &mut ResultBuffer<u8, 1>,
    #[dimensions(3)] size: &mut ResultBuffer<i32, 1>,
) -> Result<(), Failure> {
    let mut decoder = png::Decoder::new(Cursor::new(&**file));
    decoder.set_transformations(Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(|error| wrong("PNG", &error))?;
    let (colour, _) = reader.output_color_type();
    let channels = match colour {
        ColorType::Grayscale => 1,
        ColorType::GrayscaleAlpha => 2,
        ColorType::Rgba => 4,
        ColorType::Rgb | ColorType::Indexed => 3,
    };
    check_palette(reader.info())?;
    let (width, height) = reader.info().size();
    let length = check_size(height as usize, width as usize, channels, pixels.len())?;
    pixels[length..].fill(0);
    reader
        .next_frame(&mut pixels[..length])
        .map_err(|error| wrong("PNG", &error))?;
    size.copy_from_slice(&[height as i32, width as i32, channels as i32]);
    Ok(())
}

/// Decodes a JPEG file to pixels of 8 bits, row by row: red, green and blue, or one channel for a
/// grey image. `size` is `[height, width, channels]`. Pixels behind the image are 0.
#[target(pure)]
fn decode_jpeg(
    #[dimensions(n)] file: &Operand<u8, 1>,
    #[dimensions(k)] pixels: &mut ResultBuffer<u8, 1>,
    #[dimensions(3)] size: &mut ResultBuffer<i32, 1>,
) -> Result<(), Failure> {
    let mut decoder = JpegDecoder::new(ZCursor::new(&**file));
    decoder
        .decode_headers()
        .map_err(|error| wrong("JPEG", &error))?;
    let (width, height) = decoder
        .dimensions()
        .ok_or_else(|| Failure::internal("the decoder found no size"))?;
    let is_grey = decoder.input_colorspace() == Some(ColorSpace::Luma);
    let (space, channels) = if is_grey {
        (ColorSpace::Luma, 1)
    } else {
        (ColorSpace::RGB, 3)
    };
    decoder.set_options(DecoderOptions::default().jpeg_set_out_colorspace(space));
    let length = check_size(height, width, channels, pixels.len())?;
    pixels[length..].fill(0);
    decoder
        .decode_into(&mut pixels[..length])
        .map_err(|error| wrong("JPEG", &error))?;
    size.copy_from_slice(&[height as i32, width as i32, channels as i32]);
    Ok(())
}

/// Refuses a palette that the decoder panics on.
fn check_palette(info: &png::Info<'_>) -> Result<(), Failure> {
    let bytes = info.palette.as_ref().map_or(0, |palette| palette.len());
    if bytes.is_multiple_of(3) {
        return Ok(());
    }
    Err(gallery::invalid(format!(
        "expected a palette of 3 bytes for each colour, found {bytes} bytes"
    )))
}

/// Returns the number of bytes of an image, if the caller allows as many.
fn check_size(height: usize, width: usize, channels: usize, most: usize) -> Result<usize, Failure> {
    if height > LONGEST || width > LONGEST {
        return Err(Failure::resource_exhausted(format!(
            "expected at most {LONGEST} pixels in a row and in a column, found {width} and {height}"
        ))
        .recoverable());
    }
    let length = height * width * channels;
    if length > most {
        return Err(Failure::out_of_range(format!(
            "expected an image of at most {most} bytes, found {height} x {width} x {channels}"
        ))
        .recoverable());
    }
    Ok(length)
}

fn wrong(format: &str, error: &dyn std::fmt::Display) -> Failure {
    let text = error.to_string();
    let reason = text.lines().next().unwrap_or_default();
    gallery::invalid(format!("expected a {format} file: {reason}"))
}
