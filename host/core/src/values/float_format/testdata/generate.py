"""Regenerates minifloats.txt, the results of ml_dtypes for the tests beside this folder.

    pip install ml_dtypes==0.6.0
    python generate.py

The lines of the file:

- `decode TYPE BITS...`: the f32 bits of each of a type's values, in order.
- `inputs BITS...`: the f32 bits of numbers to encode. ml_dtypes rounds an f64 to some types twice.
- `encode TYPE BYTES`: the encodings of these numbers.
"""

from pathlib import Path

import ml_dtypes
import numpy as np

TYPES = {
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e4m3": ml_dtypes.float8_e4m3,
    "f8e3m4": ml_dtypes.float8_e3m4,
    "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e4m3b11fnuz": ml_dtypes.float8_e4m3b11fnuz,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8e8m0fnu": ml_dtypes.float8_e8m0fnu,
    "f4e2m1fn": ml_dtypes.float4_e2m1fn,
}


def main():
    file = Path(__file__).resolve().parent / "minifloats.txt"
    file.write_text("\n".join(minifloats()) + "\n")


def minifloats():
    def bits(x):
        return np.asarray(x, np.float32).view(np.uint32)

    inputs = set()
    for name, dtype in TYPES.items():
        every = np.arange(16 if name.startswith("f4") else 256, dtype=np.uint8).view(dtype)
        values = every.astype(np.float32)
        yield f"decode {name} " + " ".join(f"{b:x}" for b in bits(values))
        inputs |= set(interesting(values[np.isfinite(values)]))
    # Every eleventh, and the ends.
    inputs = sorted(x for x in inputs if x == 0 or 2.0**-127 < abs(x) < 3e38)
    inputs = inputs[:20] + inputs[20:-20:11] + inputs[-20:] + [0.0, -0.0, np.inf, -np.inf, np.nan]
    inputs = np.array(inputs, np.float32)
    yield "inputs " + " ".join(f"{b:x}" for b in bits(inputs))
    for name, dtype in TYPES.items():
        with np.errstate(all="ignore"):
            yield f"encode {name} " + inputs.astype(dtype).view(np.uint8).tobytes().hex()


def interesting(values):
    """Numbers, what lies halfway to the next, and what is hardly off it."""
    values = np.unique(values)
    middles = values[:-1] / 2 + values[1:] / 2
    beyond = np.array([values[0], values[-1]]) * np.array([[1.01], [1.03], [1.06], [1.12], [1.5], [4.0]], np.float32)
    infinity = np.float32(np.inf)
    for group in (values, middles, np.nextafter(middles, -infinity), np.nextafter(middles, infinity), beyond.ravel()):
        yield from (float(x) for x in group)


main()
