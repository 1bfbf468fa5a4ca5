"""Regenerates minifloats.txt and functions.txt: what ml_dtypes and mpmath say, for the tests beside this folder.

    pip install ml_dtypes==0.6.0 mpmath==1.4.1
    python generate.py

minifloats.txt: `decode TYPE BITS...`, the f32 bits of each of a type's values, in order. `inputs BITS...`, numbers in
f32, for from f64 ml_dtypes rounds to some types twice. `encode TYPE BYTES`, what each of them becomes.

functions.txt: `OPERATION ARGUMENT... = RESULT`, all bits of f64. Complex numbers are two parts each. Results are computed with 60
digits and rounded once.
"""

import struct
from pathlib import Path

import ml_dtypes
import mpmath
import numpy as np
from mpmath import mp, mpc, mpf

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

REAL = [-30.0, -3.5, -1.0, -0.7, -1e-5, 1e-300, 0.3, 1.0, 1.1, 2.5, 10.0, 700.5]
POSITIVE = [1e-300, 1e-5, 0.3, 0.999, 1.0, 1.1, 2.5, 1e6, 1e300]
COMPLEX = [1 + 2j, -1.5 + 0.25j, 0.5 - 3j, -4 + 1e-20j, 1e-8 + 1e-9j, 3 - 1e-12j, -0.2 - 0.3j, 0.6 + 0.8j, 5j, -2 - 2j]
PAIRS = [(0.5, 2.5), (2.5, 0.5), (1e3, -1.25), (0.75, 100.0), (3.0, 7.0), (1e-3, 2.0)]
SIDES = [(1.0, 2.0), (-1.0, 2.0), (1.0, -2.0), (-3.0, -0.1), (1e-10, 1e10)]


def main():
    folder = Path(__file__).resolve().parent
    (folder / "minifloats.txt").write_text("\n".join(minifloats()) + "\n")
    (folder / "functions.txt").write_text("\n".join(functions()) + "\n")


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


def functions():
    mp.dps = 60
    real = {
        "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
        "cosine": mpmath.cos,
        "erf": mpmath.erf,
        "exponential": mpmath.exp,
        "exponential-minus-one": mpmath.expm1,
        "logistic": lambda x: 1 / (1 + mpmath.exp(-x)),
        "sine": mpmath.sin,
        "tan": mpmath.tan,
        "tanh": mpmath.tanh,
    }
    positive = {"log": mpmath.log, "log-plus-one": mpmath.log1p, "rsqrt": lambda x: 1 / mpmath.sqrt(x), "sqrt": mpmath.sqrt}
    for table, arguments in ((real, REAL), (positive, POSITIVE)):
        for name, function in table.items():
            yield from (line(name, [x], [function(mpf(x))]) for x in arguments)
    yield from (line("power", p, [mpmath.power(mpf(p[0]), mpf(p[1]))]) for p in PAIRS)
    yield from (line("atan2", p, [mpmath.atan2(mpf(p[0]), mpf(p[1]))]) for p in SIDES)
    yield from complex_functions()


def complex_functions():
    one = mpc(1)
    table = {
        "abs": lambda z: abs(z),
        "cosine": mpmath.cos,
        "exponential": mpmath.exp,
        "exponential-minus-one": lambda z: mpmath.exp(z) - one,
        "log": mpmath.log,
        "log-plus-one": lambda z: mpmath.log(one + z),
        "logistic": lambda z: one / (one + mpmath.exp(-z)),
        "rsqrt": lambda z: one / mpmath.sqrt(z),
        "sign": lambda z: z / abs(z),
        "sine": mpmath.sin,
        "sqrt": mpmath.sqrt,
        "tan": mpmath.tan,
        "tanh": mpmath.tanh,
    }
    for name, function in table.items():
        for z in COMPLEX:
            result = function(mpc(z))
            yield line(name, [z.real, z.imag], [result] if name == "abs" else [result.real, result.imag])
    for x, y in zip(COMPLEX, COMPLEX[1:]):
        for name, function in {"power": mpmath.power, "divide": lambda x, y: x / y, "atan2": atan2}.items():
            result = function(mpc(x), mpc(y))
            yield line(name, [x.real, x.imag, y.real, y.imag], [result.real, result.imag])


def atan2(y, x):
    return mpc(0, -1) * mpmath.log((x + mpc(0, 1) * y) / mpmath.sqrt(x * x + y * y))


def line(name, arguments, results):
    def bits(x):
        return struct.pack(">d", float(x)).hex()

    return f"{name} {' '.join(map(bits, arguments))} = {' '.join(map(bits, results))}"


main()
