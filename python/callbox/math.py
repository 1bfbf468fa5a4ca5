"""Mathematics for jitted kernels, written in plain arithmetic.

The functions take and return f32. They have the same bits in a kernel and in plain Python, on every
machine: they are compiled from this source, and call no library. `callbox.jit` finds them by name:
``from callbox import math``, then ``math.exp(x)``.

The errors in units in the last place (ULP) are those that ``python/tests/jit/test_math.py``
measures over the whole range.
"""

# The functions choose with conditional expressions, without branches, so that loops over them
# become vectors. Constants have the type of the argument: numbers in Python are weak.

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = [
    "ceil",
    "copysign",
    "cos",
    "erf",
    "exp",
    "expm1",
    "floor",
    "log",
    "log1p",
    "rint",
    "rsqrt",
    "sigmoid",
    "sin",
    "sqrt",
    "tanh",
    "trunc",
]

#: Functions that are one instruction of WebAssembly, and of NumPy in plain Python.
INSTRUCTIONS = ("ceil", "copysign", "floor", "rint", "sqrt", "trunc")

_f32 = np.float32
_i32 = np.int32
_f64 = np.float64

# Adding this number to one of magnitude below 2**22 leaves the nearest integer in its low bits.
_MAGIC = np.float32(12582912.0)
_MAGIC_BITS = np.int32(0x4B400000)


def _bits(x: Any) -> Any:
    """The bits of an f32 as an i32."""
    return x.view(_i32)


def _float(n: Any) -> Any:
    """The f32 with these bits."""
    return n.view(_f32)


def _bits_of_f64(x: Any) -> Any:
    """The bits of an f64 as an i64."""
    return x.view(np.int64)


def exp(x: Any) -> Any:
    """The exponential function."""
    x = _f32(x)
    low = x if x > _f32(-104.0) else _f32(-104.0)
    c = low if low < _f32(89.0) else _f32(89.0)
    shifted = c * _f32(1.44269504) + _MAGIC
    k = shifted - _MAGIC
    n = _i32(_bits(shifted) - _MAGIC_BITS)
    r = c - k * _f32(0.693359375) + k * _f32(2.12194440e-4)
    p = _f32(0.0013813135446980596)
    p = p * r + _f32(0.00836941972374916)
    p = p * r + _f32(0.04166845604777336)
    p = p * r + _f32(0.16666515171527863)
    p = p * r + _f32(0.4999999403953552)
    e = _f32(1.0) + (r + r * r * p)
    # Two factors, because 2**n may be beyond the range.
    half = _i32(n >> _i32(1))
    rest = _i32(n - half)
    y = e * _power_of_two(half) * _power_of_two(rest)
    return y if x == x else x


def _power_of_two(n: Any) -> Any:
    """2**n for n in -126..=127."""
    return _float(_i32(_i32(n + _i32(127)) << _i32(23)))


def expm1(x: Any) -> Any:
    """exp(x) - 1, exact near 0."""
    x = _f32(x)
    low = x if x > _f32(-20.0) else _f32(-20.0)
    c = low if low < _f32(88.0) else _f32(88.0)
    shifted = c * _f32(1.44269504) + _MAGIC
    k = shifted - _MAGIC
    n = _i32(_bits(shifted) - _MAGIC_BITS)
    r = c - k * _f32(0.693359375) + k * _f32(2.12194440e-4)
    p = _f32(0.0013813135446980596)
    p = p * r + _f32(0.00836941972374916)
    p = p * r + _f32(0.04166845604777336)
    p = p * r + _f32(0.16666515171527863)
    p = p * r + _f32(0.4999999403953552)
    # Half of the factor, which is itself in range for n = 127.
    s = _power_of_two(_i32(n - _i32(1)))
    y = s * (r + r * r * p) + (s - _f32(0.5))
    y = y + y
    y = y if x < _f32(88.0) else exp(x)
    y = y if x != _f32(0.0) else x
    return y if x == x else x


def log(x: Any) -> Any:
    """The natural logarithm. NaN of a negative number, and minus infinity of 0."""
    x = _f32(x)
    is_tiny = x < _f32(1.17549435e-38)
    scaled = x * _f32(8388608.0) if is_tiny else x
    bits = _bits(scaled)
    e = _i32(_i32(bits - _i32(0x3F3504F3)) >> _i32(23))
    m = _float(_i32(bits - _i32(e << _i32(23))))
    k = _f32(e) - (_f32(23.0) if is_tiny else _f32(0.0))
    z = m - _f32(1.0)
    p = _f32(0.0674649029970169)
    p = p * z + _f32(-0.11675615608692169)
    p = p * z + _f32(0.11888211965560913)
    p = p * z + _f32(-0.12405598163604736)
    p = p * z + _f32(0.142195463180542)
    p = p * z + _f32(-0.16667994856834412)
    p = p * z + _f32(0.2000211924314499)
    p = p * z + _f32(-0.25000008940696716)
    p = p * z + _f32(0.3333331346511841)
    tail = z * z * (z * p) - k * _f32(2.12194440e-4) - _f32(0.5) * (z * z)
    y = (z + tail) + k * _f32(0.693359375)
    y = y if x < _f32(np.inf) else x
    y = y if x != _f32(0.0) else _f32(-np.inf)
    return y if x >= _f32(0.0) else _f32(np.nan)


def log1p(x: Any) -> Any:
    """log(1 + x), exact near 0."""
    x = _f32(x)
    u = _f32(1.0) + x
    y = log(u) + (x - (u - _f32(1.0))) / u
    y = y if u != _f32(0.0) else _f32(-np.inf)
    y = y if x < _f32(np.inf) else x
    y = y if x != _f32(0.0) else x
    return y if x >= _f32(-1.0) else _f32(np.nan)


def tanh(x: Any) -> Any:
    """The hyperbolic tangent."""
    x = _f32(x)
    a = -x if x < _f32(0.0) else x
    s = x * x
    p = _f32(-0.005717011168599129)
    p = p * s + _f32(0.020650554448366165)
    p = p * s + _f32(-0.05374348536133766)
    p = p * s + _f32(0.13331490755081177)
    p = p * s + _f32(-0.3333328366279602)
    near = x + x * (s * p)
    far = _f32(1.0) - _f32(2.0) / (exp(a + a) + _f32(1.0))
    far = -far if x < _f32(0.0) else far
    near = near if x != _f32(0.0) else x
    return near if a < _f32(0.625) else far


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return _f32(1.0) / (_f32(1.0) + exp(-_f32(x)))


def erf(x: Any) -> Any:
    """The error function."""
    x = _f32(x)
    a = -x if x < _f32(0.0) else x
    s = x * x
    p = _f32(7.889109110692516e-05)
    p = p * s + _f32(-0.0008020838140510023)
    p = p * s + _f32(0.005189535208046436)
    p = p * s + _f32(-0.026854444295167923)
    p = p * s + _f32(0.11283600330352783)
    p = p * s + _f32(-0.3761262595653534)
    near = x + x * (s * p + _f32(0.1283791065216064))
    # log(1 - erf(a)), of 1 to 4. Above 4 the result is 1.
    b = a if a < _f32(4.0) else _f32(4.0)
    q = _f32(0.00018882636504713446)
    q = q * b + _f32(-0.002972467802464962)
    q = q * b + _f32(0.021940529346466064)
    q = q * b + _f32(-0.10332754999399185)
    q = q * b + _f32(-0.6378828883171082)
    q = q * b + _f32(-1.1272516250610352)
    q = q * b + _f32(-0.0003003983001690358)
    far = _f32(1.0) - exp(q)
    far = -far if x < _f32(0.0) else far
    far = far if x == x else x
    return near if a < _f32(1.0) else far


def sin(x: Any) -> Any:
    """The sine, of an angle in radians. NaN above 2**20, where f32 has less than four digits."""
    x = _f32(x)
    quadrant, r = _reduced(x)
    y = _wave(quadrant, r)
    return y if x != _f32(0.0) else x


def cos(x: Any) -> Any:
    """The cosine, of an angle in radians. NaN above 2**20, as for the sine."""
    quadrant, r = _reduced(_f32(x))
    return _wave(quadrant + np.int64(1), r)


def _reduced(x: Any) -> Any:
    """The number of quarter turns nearest to an angle, and the angle without them."""
    d = _f64(x)
    d = d if (d if d > _f64(0.0) else -d) <= _f64(1048576.0) else _f64(np.nan)
    shifted = d * _f64(0.6366197723675814) + _f64(6755399441055744.0)
    k = shifted - _f64(6755399441055744.0)
    r = (d - k * _f64(1.57079632673412561417)) - k * _f64(6.07710050650619224932e-11)
    return _bits_of_f64(shifted), r


def _wave(quadrant: Any, r: Any) -> Any:
    """The sine of a number of quarter turns and a rest between -pi/4 and pi/4."""
    s = r * r
    a = _f64(2.717567859337848e-06)
    a = a * s + _f64(-0.00019839256986669933)
    a = a * s + _f64(0.008333329144983238)
    a = a * s + _f64(-0.16666666639566555)
    sine = r + r * (s * a)
    b = _f64(-2.7198658132849846e-07)
    b = b * s + _f64(2.4799373091147973e-05)
    b = b * s + _f64(-0.0013888883164804957)
    b = b * s + _f64(0.041666666615524324)
    cosine = _f64(1.0) - _f64(0.5) * s + s * s * b
    y = cosine if quadrant & np.int64(1) else sine
    return _f32(-y if quadrant & np.int64(2) else y)


def sqrt(x: Any) -> Any:
    """The square root, rounded exactly. Also of f64."""
    return np.sqrt(x)


def rsqrt(x: Any) -> Any:
    """1 / sqrt(x)."""
    return _f32(1.0) / sqrt(_f32(x))


def floor(x: Any) -> Any:
    """The greatest integer that is not above x, as a float. Also of f64."""
    return np.floor(x)


def ceil(x: Any) -> Any:
    """The least integer that is not below x, as a float. Also of f64."""
    return np.ceil(x)


def trunc(x: Any) -> Any:
    """The integer part, as a float. Also of f64."""
    return np.trunc(x)


def rint(x: Any) -> Any:
    """The nearest integer, as a float; the even one of two. Also of f64."""
    return np.rint(x)


def copysign(x: Any, y: Any) -> Any:
    """The magnitude of x with the sign of y. Also of f64."""
    return np.copysign(x, y)
