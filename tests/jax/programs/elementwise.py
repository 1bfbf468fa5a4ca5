"""Elementwise operations on floating-point, complex and predicate arrays."""

import ml_dtypes
import numpy as np
from jax import lax
from jax import numpy as jnp

from .registry import Subject, array, bf16, c64, f32, pred

SUBJECT = Subject("elementwise")

INF, NAN = float("inf"), float("nan")

FLOATS = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}

# Ties, signed zeros, and integral values. No subnormals: XLA:CPU flushes them to zero.
SPECIAL = [0.0, -0.0, 0.25, -0.25, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 3.625, -3.75, 4096.0, INF, -INF, NAN]


def unary_exact(x):
    """Operations of which IEEE 754 fixes every bit."""
    return (
        lax.abs(x),
        lax.neg(x),
        lax.floor(x),
        lax.ceil(x),
        lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
        lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
        lax.sign(x),
        lax.is_finite(x),
        lax.sqrt(lax.abs(x)),
    )


def binary_exact(x, y):
    return x + y, x - y, x * y, x / y, lax.rem(x, y), lax.max(x, y), lax.min(x, y)


def comparisons(x, y):
    return x == y, x != y, x < y, x <= y, x > y, x >= y


LEFT = [1.0, -1.0, 5.5, -5.5, 7.0, INF, -INF, NAN, 1.0, 0.75, 3.0, INF]
RIGHT = [3.0, 3.0, 2.0, 2.0, -0.5, 1.0, 2.0, 1.0, NAN, 0.75, INF, -INF]

for short, dtype in FLOATS.items():
    make = array(dtype)
    options = {"x64": short == "f64", "optimized": short in ("f32", "bf16")}
    SUBJECT.add(f"unary_exact_{short}", unary_exact, make(SPECIAL), **options)
    SUBJECT.add(f"binary_exact_{short}", binary_exact, make(LEFT), make(RIGHT), **options)
    SUBJECT.add(f"comparisons_{short}", comparisons, make(LEFT), make(RIGHT), **options)


def transcendental(x, positive):
    """One operand takes any value, the other keeps to the domain of logarithms and roots."""
    return (
        lax.exp(x),
        lax.expm1(x),
        lax.log(positive),
        lax.log1p(positive),
        lax.rsqrt(positive),
        lax.cbrt(x),
        lax.tanh(x),
        lax.sin(x),
        lax.cos(x),
        lax.tan(x),
        lax.logistic(x),
        lax.erf(x),
        lax.atan2(x, positive),
        lax.pow(positive, x),
    )


def transcendental_reference(x, positive):
    """The same with the platform's long double, which has 11 more bits than f64; erf only has f64
    in libm."""
    import math

    x, positive = x.astype(np.longdouble), positive.astype(np.longdouble)
    erf = np.array([math.erf(float(v)) for v in x], np.longdouble)
    return (
        np.exp(x),
        np.expm1(x),
        np.log(positive),
        np.log1p(positive),
        1 / np.sqrt(positive),
        np.cbrt(x),
        np.tanh(x),
        np.sin(x),
        np.cos(x),
        np.tan(x),
        1 / (1 + np.exp(-x)),
        erf,
        np.arctan2(x, positive),
        np.power(positive, x),
    )


ANY = [-7.3, -2.0, -0.99, -0.37, -0.01, 0.002, 0.2, 0.63, 1.0, 1.9, 3.14, 5.25]
POSITIVE = [0.001, 0.03, 0.2, 0.5, 0.9, 1.1, 1.7, 2.0, 2.9, 7.5, 30.0, 77.7]
TRANSCENDENTAL_ULPS = {
    "f32": [2, 3, 2, 3, 2, 2, 4, 2, 2, 3, 3, 4, 4, 3],
    "f64": [2, 3, 2, 3, 2, 3, 4, 2, 2, 3, 3, 4, 4, 3],
    "f16": [1, 3, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1],
    "bf16": [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1],
}

for short, dtype in FLOATS.items():
    make = array(dtype)
    SUBJECT.add(
        f"transcendental_{short}",
        transcendental,
        make(ANY),
        make(POSITIVE),
        ulps=TRANSCENDENTAL_ULPS[short],
        x64=short == "f64",
        optimized=short in ("f32", "bf16"),
        reference=transcendental_reference,
    )


@SUBJECT.program(f32(0.0, -0.0, INF, -INF, NAN, 1.0, -1.0, 100.0, -110.0))
def transcendental_limits(x):
    """Values at which the result is exact: limits, zeros, overflow and underflow."""
    return (
        lax.exp(jnp.where(jnp.abs(x) == 1, 0, x)),
        lax.expm1(jnp.where(jnp.abs(x) == 1, 0, x)),
        lax.log(jnp.where(jnp.abs(x) > 1, jnp.copysign(INF, x), x)),
        lax.tanh(jnp.where(jnp.abs(x) == 1, 0, x)),
        lax.logistic(jnp.where(jnp.abs(x) == 1, 0, x)),
        lax.rsqrt(jnp.where(jnp.abs(x) > 99, 4.0, jnp.abs(x))),
        lax.sin(jnp.where(jnp.abs(x) > 0.5, INF, x)),
        lax.cos(jnp.where(jnp.abs(x) > 0.5, INF, x)),
    )


@SUBJECT.program(
    f32(0.0, 0.0, -0.0, 1.0, -1.0, INF, -INF, 2.0, 2.0, -8.0, NAN, 0.0),
    f32(0.0, 2.0, -1.0, NAN, 3.0, 0.0, 3.0, 10.0, -1.0, 3.0, 0.0, -2.0),
)
def power_corners(x, y):
    """IEEE 754's pow: pow(x, 0) is 1 even for NaN, odd integer powers keep the sign."""
    return lax.pow(x, y)


@SUBJECT.program(pred(False, False, True, True), pred(False, True, False, True), f32(1, 2, 3, 4), f32(-1, -2, -3, -4))
def logic(a, b, x, y):
    return a & b, a | b, a ^ b, ~a, a == b, a < b, lax.max(a, b), lax.min(a, b), lax.select(a, x, y), a.astype(jnp.int8)


@SUBJECT.program(pred(True), f32([1, 2, 3]), f32([4, 5, 6]), f32([-1.5, 0.5, NAN]), f32(0.0), f32(1.0))
def select_and_clamp(scalar, x, y, z, low, high):
    """`select` with a scalar predicate, `clamp` with scalar and with array bounds."""
    return lax.select(scalar, x, y), lax.clamp(low, z, high), lax.clamp(lax.min(x, y), z * 4, lax.max(x, y))


@SUBJECT.program(c64(1 + 2j, -3 + 0.5j, 4j, -2), c64(2 - 1j, 1 + 1j, 0.5, -4j))
def complex_exact(x, y):
    """Small integers and powers of two, so that any order of operations gives the same bits."""
    return x + y, x - y, x * y, -x, lax.real(x), lax.imag(x), lax.conj(x), lax.complex(x.real, y.imag), x == y, x != y


@SUBJECT.program(
    c64(3 + 4j, -3 + 0.5j, 0.25j, -2.5),
    c64(2 - 1j, 1 + 1.5j, 0.75, -4j),
    ulps=8,
)
def complex_functions(x, y):
    return lax.abs(x), x / y, lax.exp(x), lax.sqrt(x), lax.log(x), lax.tanh(y), lax.sin(y), lax.cos(x)


@SUBJECT.program(f32(INF, 1.0, 0.0, -0.0, -1.0, -INF, NAN), f32(NAN, 0.0, -0.0, 0.0, -1.0, -1.0, NAN))
def total_order(x, y):
    """Comparison in IEEE 754's total order, which JAX itself uses only to sort."""
    from jax._src.lax import lax as internal

    return tuple(compare.bind(x, y) for compare in (internal.eq_to_p, internal.lt_to_p, internal.le_to_p))


@SUBJECT.program(bf16(1.0, 2.0, -3.0), f32(0.5, 0.25, 4.0))
def mixed_precision(x, y):
    """The conversions that type promotion inserts."""
    return x + y, x * x.astype(jnp.float16), (x.astype(jnp.float32) * y).astype(jnp.bfloat16)
