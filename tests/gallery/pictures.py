"""Draws the pictures of docs/gallery.md from results of the gallery's kernels.

`python tests/gallery/pictures.py` writes docs/images, with the modules in target/guests. It needs
callbox and NumPy. python/tests/core/test_pictures.py compares the pictures with new ones.
"""

import base64
import itertools
import math
import struct
import zlib
from pathlib import Path

import callbox
import numpy as np

ROOT = Path(__file__).parents[2]

STYLE = (
    "text{font:12px sans-serif;fill:#1f2328}.small{font-size:11px;fill:#59636e}"
    ".page{fill:#fff;stroke:#d0d7de}.axis{stroke:#999;stroke-width:1;fill:none}"
    "polyline{fill:none;stroke-width:2}.a{stroke:#2a78d6}.b{stroke:#d9730d}"
)

#: Colours of the quantities from 0 to 1, dark to light.
SCALE = [(13, 8, 50), (84, 15, 109), (158, 40, 100), (222, 82, 56), (249, 158, 36), (252, 250, 180)]


def page(title, width, height, *parts):
    """A picture on a white page."""
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title">',
        f'<title id="title">{title}</title>',
        f"<style>{STYLE}</style>",
        f'<rect class="page" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}"/>',
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def text(x, y, said, rest=""):
    return f'<text x="{x:.1f}" y="{y:.1f}"{rest}>{said}</text>'


def image(pixels, x, y, width, height, palette=None):
    """An image of 8 bits: RGB, or numbers of colours in a palette."""
    rows, columns = pixels.shape[:2]
    kind = 2 if palette is None else 3
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, kind, 0, 0, 0))]
    if palette is not None:
        chunks.append((b"PLTE", bytes(itertools.chain(*palette))))
    lines = b"".join(b"\0" + row.tobytes() for row in pixels)
    chunks += [(b"IDAT", zlib.compress(lines, 9)), (b"IEND", b"")]
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )
    place = f'x="{x}" y="{y}" width="{width}" height="{height}" preserveAspectRatio="none"'
    return f'<image {place} href="data:image/png;base64,{base64.b64encode(png).decode()}"/>'


def palette():
    """256 colours along the scale."""
    parts = len(SCALE) - 1
    for i in range(256):
        part, rest = divmod(i * parts, 255)
        low, high = SCALE[part], SCALE[min(part + 1, parts)]
        yield tuple(a + (b - a) * rest // 255 for a, b in zip(low, high, strict=True))


def panel(left, title, curves, axes=(True, True)):
    """Curves of one panel of 200 by 140, in one scale for each axis."""
    xs = np.concatenate([x for x, _ in curves])
    ys = np.concatenate([y for _, y in curves])
    low, high = np.array([min(xs), min(ys)]), np.array([max(xs), max(ys)])

    def place(x, y):
        across = left + 200 * (x - low[0]) / (high[0] - low[0])
        return across, 164 - 140 * (y - low[1]) / (high[1] - low[1])

    x, y = place(0, 0)
    lines = [f"M{left} {y:.1f}H{left + 200}"] * axes[0] + [f"M{x:.1f} 24V164"] * axes[1]
    yield text(left, 14, title)
    if lines:
        yield f'<path class="axis" d="{"".join(lines)}"/>'
    for kind, (x, y) in zip("ab", curves, strict=True):
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(*place(x, y), strict=True))
        yield f'<polyline class="{kind}" points="{points}"/>'


def curves(load):
    """Activations, prices and populations."""
    layers, tables = load("layers"), load("tables")
    x = np.linspace(-4, 4, 81, dtype=np.float32)
    one = np.ones_like(x)
    spot = np.linspace(60, 140, 81)
    alike = lambda value: np.full_like(spot, value)
    price = lambda years: tables.black_scholes(
        spot, alike(100), alike(years), alike(0.3), rate=0.02, put=False
    )

    def populations(state):
        states = [np.array(state)]
        for _ in range(120):
            rates = {"alpha": 1.0, "beta": 0.5, "gamma": 1.0, "delta": 0.25}
            states.append(tables.lotka_volterra(states[-1], step=0.01, steps=6, **rates))
        return np.array(states).T

    return page(
        "Results of four kernels of the gallery",
        928,
        174,
        *panel(10, "gelu and its derivative", [(x, layers.gelu(x)), (x, layers.gelu_grad(x, one))]),
        *panel(
            242, "silu and its derivative", [(x, layers.silu(x)), (x, layers.silu_grad(x, one))]
        ),
        *panel(
            474,
            "black_scholes: one year, and 18 days",
            [(spot, price(1.0)), (spot, price(0.05))],
            axes=(True, False),
        ),
        *panel(
            706,
            "lotka_volterra: prey and predators",
            [populations([3.0, 0.8]), populations([4.0, 1.0])],
            axes=(False, False),
        ),
    )


def spectrogram(load):
    """The mel spectrogram of a rising tone with overtones, a warble and two clicks."""
    rate, window, hop, frames, bands = 16000, 512, 100, 240, 72
    time = np.arange(frames * hop) / rate
    rising = np.cumsum(150 * 8 ** (time / time[-1])) / rate
    warble = np.cumsum(3800 + 900 * np.sin(2 * np.pi * 3 * time)) / rate
    samples = sum(np.sin(2 * np.pi * k * rising) / k for k in (1, 2, 3, 4)) * 0.4
    samples += 0.3 * np.sin(2 * np.pi * warble) * (time > 0.4)
    samples[[4000, 12800]] += 12
    power = load("media").mel_spectrogram(
        samples.astype(np.float32),
        rate=float(rate),
        window=window,
        hop=hop,
        result_shape_dtypes=[("float32", (frames, bands))],
    )
    # 60 decibels below the loudest are black.
    level = 1 + np.log10(np.maximum(power / power.max(), 1e-6)) / 6
    pixels = np.rint(level.T[::-1] * 255).astype(np.uint8)
    left, top, width, height = 52, 26, 720, 216
    mel = lambda hertz: math.log10(1 + hertz / 700) / math.log10(1 + rate / 2 / 700)
    parts = [
        text(left, 16, "mel_spectrogram: a rising tone with overtones, a warble and two clicks"),
        image(pixels, left, top, width, height, palette()),
    ]
    for hertz in (250, 500, 1000, 2000, 4000):
        y = top + height * (1 - (mel(hertz) * (bands + 1) - 0.5) / bands)
        parts.append(text(left - 6, y + 4, f"{hertz}", ' class="small" text-anchor="end"'))
        parts.append(f'<path class="axis" d="M{left - 4} {y:.1f}h4"/>')
    for tenths in range(0, 15, 2):
        x = left + width * tenths * rate / 10 / (frames * hop)
        parts.append(text(x, top + height + 16, f"{tenths / 10} s", ' class="small"'))
    parts.append(text(left - 6, top + 8, "Hz", ' class="small" text-anchor="end"'))
    return page("A mel spectrogram", 784, 266, *parts)


def landscape():
    """A small picture: a sun above hills and water, from 0 to 255."""
    rows, columns = np.mgrid[0:16, 0:24]
    mix = lambda low, high, share: (
        np.multiply.outer(1 - share, low) + np.multiply.outer(share, high)
    )
    picture = mix([70, 110, 190], [250, 190, 120], rows / 11)
    sun = (rows - 5) ** 2 + (columns - 16) ** 2
    picture[sun <= 7] = [255, 240, 170]
    hill = rows * 10 >= 60 + (columns - 6) ** 2
    picture[hill] = mix([40, 100, 60], [20, 60, 50], columns / 23)[hill]
    water = rows >= 12
    picture[water] = mix([50, 90, 150], [20, 40, 90], (rows - 12).clip(0) / 3)[water]
    picture[water & (abs(columns - 16) < rows - 10) & (rows % 2 == 0)] = [230, 200, 150]
    return np.rint(picture)


def resized(load):
    """A picture, larger and smaller."""
    small = landscape()
    planes = np.ascontiguousarray(small.transpose(2, 0, 1), dtype=np.float32)

    def size(rows, columns):
        shape = [("float32", (3, rows, columns))]
        found = load("vision").resize(planes, result_shape_dtypes=shape)
        return np.rint(found.transpose(1, 2, 0)).astype(np.uint8)

    parts = []
    for i, (said, pixels) in enumerate(
        [
            ("24 x 16 pixels", small.astype(np.uint8)),
            ("resize to 120 x 80", size(80, 120)),
            ("resize to 12 x 8", size(8, 12)),
        ]
    ):
        pixels = pixels.repeat(160 // len(pixels), 0).repeat(160 // len(pixels), 1)
        parts += [text(10 + 256 * i, 16, said), image(pixels, 10 + 256 * i, 26, 240, 160)]
    return page("A picture in three sizes", 772, 198, *parts)


def detections():
    """Boxes around three things, as a detector proposes them, with their scores."""
    state = 1
    boxes, scores = [], []
    for left, top, right, bottom in THINGS:
        for _ in range(8):
            jitter = []
            for _ in range(4):
                state = state * 1103515245 % (1 << 31) + 12345
                jitter.append((state >> 16) % 41 - 20)
            sides = zip((left, top, right, bottom), jitter, strict=True)
            boxes.append([side + move for side, move in sides])
            scores.append((99 - sum(map(abs, jitter))) / 100)
    return np.array(boxes, np.float32), np.array(scores, np.float32)


#: The bounds of a house, a tree and a ball.
THINGS = [(40, 70, 180, 200), (160, 40, 250, 205), (280, 145, 345, 210)]


def suppressed(load):
    """The boxes of a detector, and those that non-maximum suppression chooses."""
    boxes, scores = detections()
    chosen, count = load("vision").suppress_non_maxima(
        boxes,
        scores,
        overlap=0.4,
        least=0.25,
        result_shape_dtypes=[("int32", (10,)), ("int32", ())],
    )
    chosen = chosen[: int(count)]
    scene = (
        '<rect x="0" y="206" width="370" height="14" fill="#d8e8c8"/>'
        '<path d="M50 206V120H170V206ZM40 122L110 74L180 122Z" fill="#c9b8a8"/>'
        '<path d="M198 206V150H212V206Z" fill="#a08060"/>'
        '<ellipse cx="205" cy="98" rx="42" ry="56" fill="#a8c898"/>'
        '<circle cx="312" cy="177" r="30" fill="#e8b0a8"/>'
    )

    def drawn(which, left, said):
        yield f'<g transform="translate({left} 26)">{scene}'
        for i in which:
            x, y, right, bottom = (int(side) for side in boxes[i])
            size = f'x="{x}" y="{y}" width="{right - x}" height="{bottom - y}"'
            yield f'<rect {size} fill="none" class="a" stroke-width="2" opacity="{scores[i]:.2f}"/>'
            if said:
                yield text(x + 3, y + 13, f"{scores[i]:.2f}")
        yield "</g>"

    return page(
        "Boxes before and after non-maximum suppression",
        772,
        256,
        text(10, 16, f"{len(boxes)} boxes of a detector, the fainter the lower the score"),
        *drawn(range(len(boxes)), 10, False),
        text(392, 16, f"suppress_non_maxima: {len(chosen)} boxes"),
        *drawn(chosen, 392, True),
    )


def pictures(guests):
    """The text of each picture by its name in docs/images."""
    host = callbox.Host()
    loaded = {}

    def load(name):
        if name not in loaded:
            loaded[name] = host.load(guests / f"{name}.wasm")
        return loaded[name]

    return {
        "gallery.svg": curves(load),
        "mel-spectrogram.svg": spectrogram(load),
        "resize.svg": resized(load),
        "non-maxima.svg": suppressed(load),
    }


if __name__ == "__main__":
    for name, drawn in pictures(ROOT / "target/guests").items():
        (ROOT / "docs/images" / name).write_text(drawn, encoding="utf-8", newline="\n")
