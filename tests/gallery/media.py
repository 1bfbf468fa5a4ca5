"""Cases of decoders and the mel spectrogram."""

import io

import numpy as np
from PIL import Image

from case import Writer

f32 = np.float32


def file(image, kind, **options):
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, kind, **options)
    return np.frombuffer(stream.getvalue(), np.uint8)


def padded(image, length):
    pixels = np.zeros(length, np.uint8)
    pixels[: image.size] = image.ravel()
    channels = image.shape[2] if image.ndim == 3 else 1
    return [pixels, np.array([*image.shape[:2], channels], np.int32)]


def mel(samples, frames, bands, rate, window, hop):
    length = (frames - 1) * hop + window
    samples = np.pad(samples, (0, max(0, length - len(samples))))
    weights = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    cut = np.stack([samples[i * hop : i * hop + window] * weights for i in range(frames)])
    power = np.abs(np.fft.rfft(cut)) ** 2
    to_mel = lambda f: 2595 * np.log10(1 + f / 700)
    corners = 700 * (10 ** (np.linspace(0, to_mel(rate / 2), bands + 2) / 2595) - 1)
    frequencies = np.fft.rfftfreq(window, 1 / rate)
    peaks = [np.interp(frequencies, corners[i : i + 3], [0, 1, 0]) for i in range(bands)]
    return power @ np.array(peaks).T


def write():
    rng = np.random.default_rng(7)
    out = Writer("media", "Pillow")
    rgb = rng.integers(0, 256, (5, 7, 3), np.uint8)
    for name, image in [
        ("rgb", rgb),
        ("rgba", np.dstack([rgb, rgb[..., :1]])),
        ("grey", rgb[..., 0]),
    ]:
        encoded = file(image, "PNG")
        out.case(f"decode_png_{name}", [encoded], padded(image, 160), target="decode_png")
    palette = io.BytesIO()
    colours = Image.fromarray(rgb).quantize(8)
    colours.save(palette, "PNG")
    expected = padded(np.asarray(colours.convert("RGB")), 160)
    encoded = np.frombuffer(palette.getvalue(), np.uint8)
    out.case("decode_png_palette", [encoded], expected, target="decode_png")
    encoded = file(rgb, "PNG")
    results = ["u8[100]", "s32[3]"]
    out.refused(
        "decode_png_too_large",
        "decode_png",
        [encoded],
        results,
        None,
        "OUT_OF_RANGE",
        "expected an image of at most 100 bytes, found 5 x 7 x 3",
    )
    # A flat grey has one coefficient in each block, which all decoders round alike.
    grey = np.full((8, 16), 77, np.uint8)
    grey[:, 8:] = 200
    colour = np.tile(np.array([200, 40, 90], np.uint8), (16, 16, 1))
    slope = np.add.outer(np.arange(24) * 5, np.arange(20) * 6).astype(np.uint8)
    stb = Writer("stb_jpeg", "Pillow")
    for name, image, room in [("grey", grey, 130), ("colour", colour, 768), ("slope", slope, 500)]:
        encoded = file(image, "JPEG", quality=95, subsampling=0)
        expected = padded(np.asarray(Image.open(io.BytesIO(encoded.tobytes()))), room)
        stb.case(f"stb_jpeg_{name}", [encoded], expected, target="stb_decode_jpeg")
        if name != "slope":
            out.case(f"decode_jpeg_{name}", [encoded], expected, target="decode_jpeg")
    encoded = file(colour, "JPEG", quality=95, subsampling=0)
    for name, content, code, says in [
        ("too_large", encoded, "OUT_OF_RANGE", "the image is larger than the result"),
        ("cut", encoded[:40], "INVALID_ARGUMENT", "unknown image type"),
        ("no_jpeg", np.zeros(9, np.uint8), "INVALID_ARGUMENT", "unknown image type"),
    ]:
        stb.refused(f"stb_jpeg_{name}", "stb_decode_jpeg", [content], results, None, code, says)
    cut = encoded[:40]
    out.refused(
        "decode_jpeg_cut",
        "decode_jpeg",
        [cut],
        results,
        None,
        "INVALID_ARGUMENT",
        "expected a JPEG file: I/O errors Not enough bytes, expected 64 but found 15",
    )

    out.origin = "the definition in NumPy, in F64"
    samples = rng.normal(size=(2, 300)).astype(f32)
    expected = [mel(row.astype(np.float64), 5, 6, 8000, 96, 64) for row in samples]
    attributes = {"rate": f32(8000), "window": np.int32(96), "hop": np.int32(64)}
    # Powers of an F32 transform.
    expected = [np.array(expected).astype(f32)]
    out.case("mel_spectrogram", [samples], expected, attributes, ulps=256)
