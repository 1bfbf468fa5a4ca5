"""The pictures of docs/gallery.md are results of the kernels."""

from __future__ import annotations

import base64
import importlib.util
import re
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[3]

NUMBER = re.compile(r"-?\d+\.\d+")
IMAGE = re.compile(r"(?<=base64,)[A-Za-z0-9+/=]+")


@pytest.fixture(scope="module")
def drawn(guests):
    specification = importlib.util.spec_from_file_location("pictures", ROOT / "tests/gallery/pictures.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module.pictures(guests)


def pixels(png):
    """The header and the palette, and the lines, whose compression belongs to the library."""
    chunks, at = {}, 8
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        chunks[png[at + 4 : at + 8]] = png[at + 8 : at + 8 + length]
        at += 12 + length
    lines = zlib.decompress(chunks.pop(b"IDAT"))
    return chunks, np.frombuffer(lines, np.uint8).astype(int)


@pytest.mark.parametrize("name", ["gallery.svg", "mel-spectrogram.svg", "resize.svg", "non-maxima.svg"])
def test_a_picture_has_the_results_of_the_kernels(drawn, name):
    kept = (ROOT / "docs/images" / name).read_text(encoding="utf-8")
    assert f"](images/{name})" in (ROOT / "docs/gallery.md").read_text(encoding="utf-8")
    assert len(kept) < 60_000
    images = [[pixels(base64.b64decode(found)) for found in IMAGE.findall(svg)] for svg in (kept, drawn[name])]
    for (header, one), (expected, other) in zip(*images, strict=True):
        assert header == expected
        # The last bit of a logarithm can be another one elsewhere.
        np.testing.assert_allclose(one, other, rtol=0, atol=1)
    texts = [IMAGE.sub("", svg) for svg in (kept, drawn[name])]
    assert NUMBER.sub("", texts[0]) == NUMBER.sub("", texts[1])
    numbers = [[float(number) for number in NUMBER.findall(svg)] for svg in texts]
    # Decimal places are rounded.
    np.testing.assert_allclose(*numbers, rtol=0, atol=0.11)


def test_every_picture_is_compared(drawn):
    assert sorted(drawn) == ["gallery.svg", "mel-spectrogram.svg", "non-maxima.svg", "resize.svg"]
