"""Regenerates functions.txt, the results of mpmath for the tests beside this folder.

    pip install mpmath==1.4.1
    python generate.py

A line is `OPERATION ARGUMENT... = RESULT`, with numbers as the bits of f64. A complex number has
two parts. Results are computed with 60 digits and rounded once.
"""

import struct
from pathlib import Path

import mpmath
from mpmath import mp, mpc, mpf

REAL = [-30.0, -3.5, -1.0, -0.7, -1e-5, 1e-300, 0.3, 1.0, 1.1, 2.5, 10.0, 700.5]
POSITIVE = [1e-300, 1e-5, 0.3, 0.999, 1.0, 1.1, 2.5, 1e6, 1e300]
COMPLEX = [1 + 2j, -1.5 + 0.25j, 0.5 - 3j, -4 + 1e-20j, 1e-8 + 1e-9j, 3 - 1e-12j, -0.2 - 0.3j, 0.6 + 0.8j, 5j, -2 - 2j]
PAIRS = [(0.5, 2.5), (2.5, 0.5), (1e3, -1.25), (0.75, 100.0), (3.0, 7.0), (1e-3, 2.0)]
SIDES = [(1.0, 2.0), (-1.0, 2.0), (1.0, -2.0), (-3.0, -0.1), (1e-10, 1e10)]


def main():
    file = Path(__file__).resolve().parent / "functions.txt"
    file.write_text("\n".join(functions()) + "\n")


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
